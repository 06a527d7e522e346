"""Does Claude Code run its tools on a small local model?

Claude Code speaks the Messages API alone, and llama.cpp's server is asked for chat completions:
`antiphon run claude --small` is between them. Claude Code is the real one, in a home of its own.
The model is Qwen2.5-Coder-1.5B (see bench/qwen.py). The exit code is 0 if the command ran and the
turn ended, and the prompt of the first request had at most 4,000 tokens.

    python bench/claude_qwen.py [--claude PATH] [--threads N] [--seconds N]

It needs the extra `local` and Claude Code; the weights (1.1 GB) are fetched once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from processes import Trouble
from qwen import CACHE, MODEL, ensure_weights, llama

__all__ = ["main"]

_LINES: Final = 23
_TASK: Final = "How many lines has the file notes.txt? Use the shell to find out."
_MOST_TOKENS: Final = 4_000
_HEADLESS: Final = ("-p", "--output-format=stream-json", "--verbose", "--allowedTools=Bash", _TASK)
_SETTINGS: Final = ("ANTIPHON_", "ANTHROPIC_", "CLAUDE_", "OPENAI_")


def main(arguments: Sequence[str]) -> int:
    """Run Claude Code and print what came of it; return the exit code."""
    options = _parse(arguments)
    claude = options.claude or _find_claude()
    ensure_weights()
    with llama(options.threads) as url, tempfile.TemporaryDirectory(prefix="antiphon-") as name:
        print(f"Task: {_TASK}\n(the file has {_LINES} lines)\n", flush=True)
        began = time.monotonic()
        said, errors = _run(_command(url), Path(name), claude, options.seconds)
        seconds = time.monotonic() - began
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return _report(events, errors, seconds)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--claude", help="where Claude Code is; without it, on the PATH")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seconds", type=float, default=600.0, help="how long it may take")
    return parser.parse_args(arguments)


def _find_claude() -> str:
    """Return the user's Claude Code, else that of the tests of the clients."""
    found = shutil.which("claude")
    if found is None:
        places = sorted(CACHE.glob("clients/*/node_modules/@anthropic-ai/claude-code-*/claude"))
        found = str(places[-1]) if places else None
    if found is None:
        raise Trouble(
            "there is no claude; `npm install -g @anthropic-ai/claude-code`, or pass --claude PATH"
        )
    return found


def _command(url: str) -> Sequence[str]:
    antiphon = (sys.executable, "-m", "antiphon", "run", "claude")
    return (*antiphon, "--upstream", url, "--model", MODEL, "--small", "--", *_HEADLESS)


def _run(command: Sequence[str], place: Path, claude: str, limit: float) -> tuple[str, str]:
    """Run it in a directory and a home of its own; return what it printed, and on stderr."""
    home = place / "home"
    home.mkdir()
    (place / "notes.txt").write_text("".join(f"note {n}\n" for n in range(_LINES)))
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=_environment(home, claude),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        return said, f"it was ended after {limit:g} s"
    return done.stdout, done.stderr


def _environment(home: Path, claude: str) -> Mapping[str, str]:
    """Return an environment without the user's settings and keys, with Claude Code on the PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    path = f"{Path(claude).parent}{os.pathsep}{kept.get('PATH', '')}"
    local = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return kept | local | {"HOME": str(home), "PATH": path}


def _report(events: Sequence[dict[str, Any]], errors: str, seconds: float) -> int:
    """Print what Claude Code did; return the exit code."""
    blocks = [block for event in events for block in _blocks(event)]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    has_run = any(not block.get("is_error") for block in results)
    end = next((event for event in events if event.get("type") == "result"), None)
    prompt = _first_prompt(events)
    for block in blocks:
        if block.get("type") == "tool_use":
            print(f"call:   {block['name']} {json.dumps(block['input'])}")
        elif block.get("type") == "tool_result":
            print(f"output: {json.dumps(block.get('content'))[:200]}")
    answer = str(end.get("result", "")) if end else ""
    is_finished = end is not None and not end.get("is_error")
    print(f"answer: {answer or 'none'}")
    print(f"the tool ran: {_word(has_run)}, the turn ended: {_word(is_finished)}", end="")
    print(f", right answer: {_word(str(_LINES) in answer)}, took {seconds:.0f} s")
    print(f"first prompt: {prompt} tokens (at most {_MOST_TOKENS})")
    if errors.strip():
        print(f"stderr: {errors.strip()[-500:]}")
    return 0 if has_run and is_finished and 0 < prompt <= _MOST_TOKENS else 1


def _blocks(event: dict[str, Any]) -> list[dict[str, Any]]:
    message = event.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if content else []


def _first_prompt(events: Sequence[dict[str, Any]]) -> int:
    """Return the tokens of the first prompt, as the gateway reported them."""
    for event in events:
        if event.get("type") == "assistant":
            usage = event["message"].get("usage") or {}
            return int(usage.get("input_tokens", 0)) + int(usage.get("cache_read_input_tokens", 0))
    return 0


def _word(value: bool) -> str:
    return "yes" if value else "NO"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Trouble as trouble:
        sys.exit(f"claude_qwen: {trouble}")
