"""The other end of the test extension `probe`: the editor's API, for tests in Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

__all__ = ["PROBE_FOLDER", "Asked", "Probe", "Waiting", "await_probe"]

Json = dict[str, Any]

PROBE_FOLDER: Final = Path(__file__).parent / "probe"
_PATIENCE: Final = 120.0


class Asked(msgspec.Struct, frozen=True):
    """What an extension saw of an answer."""

    parts: list[Json]
    error: Json | None = None
    cancelledAt: float | None = None  # noqa: N815  as the probe names it
    """`time.monotonic()` when the answer was cancelled."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part["value"] for part in self.parts if part["type"] == "text")

    @property
    def calls(self) -> list[tuple[str, str, Json]]:
        """The calls: id, name and input."""
        of = [part for part in self.parts if part["type"] == "call"]
        return [(part["callId"], part["name"], part["input"]) for part in of]


class Probe:
    """Uses the editor's API through the test extension."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"

    async def order(self, name: str, **rest: Any) -> Any:  # Any: each order has its own answer
        """Have the extension do something; raise RuntimeError with its words if it cannot."""
        timeout = aiohttp.ClientTimeout(total=_PATIENCE)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self._url, data=msgspec.json.encode({"do": name, **rest})) as reply,
        ):
            answer = msgspec.json.decode(await reply.read())
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error']}")
        return answer["ok"]

    async def ask(
        self,
        model: str,
        messages: Sequence[Json] | str,
        options: Mapping[str, Any] | None = None,
        *,
        cancel_after: int | None = None,
    ) -> Asked:
        """Ask a model as an extension does; return all that came of it."""
        told = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        rest = {} if cancel_after is None else {"cancelAfter": cancel_after}
        answer = await self.order(
            "ask", model=model, messages=told, options=dict(options or {}), **rest
        )
        return msgspec.convert(answer, Asked)


class Waiting(msgspec.Struct, frozen=True):
    """Waits for the extension, which announces itself when it has started."""

    environ: dict[str, str]
    """What the editor must have in its environment."""
    port: asyncio.Future[int]

    async def found(self) -> Probe:
        """Return the probe as soon as it has started."""
        return Probe(await asyncio.wait_for(self.port, _PATIENCE))


@asynccontextmanager
async def await_probe() -> AsyncIterator[Waiting]:
    """Listen for an extension that starts."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port.set_result(int(await reader.read()))
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        own = server.sockets[0].getsockname()[1]
        yield Waiting({"PROBE_HOME": str(own)}, port)
