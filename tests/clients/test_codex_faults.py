"""Codex and an upstream in trouble: cut off, full, overrun."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from antiphon.testing import Cut, Reset, Script, Status
from antiphon.transport.retry import MAX_ATTEMPTS
from tests.clients.codex import Codex, Transport, items, messages, pairs, served, shell, texts
from tests.clients.house import House, content

pytestmark = pytest.mark.slow

BUSY: Final = Status(429, "Too fast.", "rate_limit_exceeded", {"Retry-After": "1"})
TOO_LONG: Final = Status(
    400,
    "This model's maximum context length is 8192 tokens; your messages have 9000.",
    "context_length_exceeded",
)


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(
            "http",
            marks=pytest.mark.turn(
                "codex", "tries again when the model is cut off in its answer", transport="http"
            ),
        ),
        pytest.param(
            "websocket",
            marks=pytest.mark.turn(
                "codex",
                "tries again when the model is cut off in its answer",
                transport="websocket",
            ),
        ),
    ],
)
async def test_an_answer_that_was_cut_off_is_asked_for_again(
    house: House, home: Path, work: Path, transport: Transport
) -> None:
    house.play(Script(text="one two three four", faults=[Cut(after=3)]), Script(text="Whole."))
    done = await Codex(home, work, house.base_url, transport).ask("Count.")

    assert messages(done) == ["one two", "Whole."]
    first, second = house.asked
    assert texts(second, "user") == texts(first, "user")
    assert texts(second, "assistant") in ([], ["one two"])


@pytest.mark.turn(
    "codex", "runs a command once when the model is cut off in a call", transport="http"
)
async def test_a_call_that_was_cut_off_runs_once(house: House, home: Path, work: Path) -> None:
    append = "echo once >> log"
    house.play(
        Script(calls=[shell(append, "call_1")], faults=[Reset(after=3)]),
        Script(calls=[shell(append, "call_2")]),
        Script(text="Ran."),
    )
    done = await Codex(home, work, house.base_url, "http").ask("Append.")

    assert content(work / "log") == "once\n"
    assert len(items(done, "command_execution")) == 1
    assert messages(done) == ["Ran."]
    name, _, output = pairs(house.asked[2])[-1]
    assert name == "exec_command" and "exited with code 0" in output


@pytest.mark.turn("codex", "reports that the context is full", transport="http")
@pytest.mark.turn("codex", "reports that the context is full", transport="websocket")
@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_a_full_context_is_told_as_such_and_not_tried_again(
    house: House, home: Path, work: Path, transport: Transport
) -> None:
    house.play(Script(faults=[TOO_LONG]))
    done = await Codex(home, work, house.base_url, transport).try_to_ask("Go on.")

    assert done.code != 0
    (failed,) = [event for event in done.events if event["type"] == "turn.failed"]
    assert "context window" in failed["error"]["message"]
    assert len(house.asked) == 1


@pytest.mark.turn("codex", "waits out a rate limit of the upstream", transport="http")
async def test_a_rate_limit_is_waited_out_without_a_word(
    house: House, home: Path, work: Path
) -> None:
    house.play(Script(faults=[BUSY]), Script(text="Now."))
    done = await Codex(home, work, house.base_url, "http").ask("Go on.")

    assert messages(done) == ["Now."]
    assert [event for event in done.events if event["type"] == "error"] == []
    first, second = house.asked
    assert first == second
    assert (await served(house))["/v1/responses 200"] == 1


@pytest.mark.turn("codex", "tries again when a rate limit outlasts the gateway", transport="http")
async def test_a_long_rate_limit_is_told_to_codex_which_tries_again(
    house: House, home: Path, work: Path
) -> None:
    busy = Script(faults=[Status(429, "Too fast.", "rate_limit_exceeded", {"Retry-After": "0"})])
    house.play(*[busy] * MAX_ATTEMPTS, Script(text="Now."))
    done = await Codex(home, work, house.base_url, "http").ask("Go on.")

    assert messages(done) == ["Now."]
    counts = await served(house)
    assert (counts["/v1/responses 429"], counts["/v1/responses 200"]) == (1, 1)
    assert all(body == house.asked[0] for body in house.asked)
