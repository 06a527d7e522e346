"""`python -m antiphon.testing --port 9000`: an echo upstream for demonstrations and benchmarks."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

import msgspec

from antiphon.testing.script import Json, Script, echo
from antiphon.testing.upstream import ScriptedUpstream

__all__ = ["main"]


async def _serve(port: int, delay: float) -> None:
    def script(body: Json) -> Script:
        return msgspec.structs.replace(echo(body), delay=delay)

    async with ScriptedUpstream(script, port=port, remember=False) as upstream:
        sys.stdout.write(f"echo upstream at {upstream.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m antiphon.testing", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each chunk")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(arguments.port, arguments.delay))


if __name__ == "__main__":
    main()
