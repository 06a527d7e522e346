"""Claude Code on a model that speaks only chat completions: tools, images, thoughts, trouble."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import pytest

from antiphon.testing import Call, Cut, Script, Status
from antiphon.transport.retry import MAX_ATTEMPTS
from tests.clients.claude_code import ONLY_LINUX, ClaudeCode, bash, result, shown
from tests.clients.codex import SCREEN, pairs, served, texts
from tests.clients.house import House, Json, content, open_house

pytestmark = [pytest.mark.slow, ONLY_LINUX]

PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
TOO_LONG: Final = Status(
    400,
    "This model's maximum context length is 8192 tokens; your messages have 9000.",
    "context_length_exceeded",
)


@pytest.mark.turn("claude-code", "shows what the model thinks", transport="http")
async def test_two_calls_at_once_run_and_their_results_reach_the_model(
    house: House, home: Path, work: Path
) -> None:
    calls = [
        bash("echo $((6 * 7)) | tee answer", "functions.Bash:0"),
        bash("echo second", "functions.Bash:1"),
    ]
    first = Script(reasoning="Two at once.", text="Let me see.", calls=calls, interleave=True)
    house.play(first, Script(text="It is forty-two."))
    done = await ClaudeCode(home, work, house.base_url).ask("Six times seven?")

    assert result(done)["result"] == "It is forty-two."
    assert content(work / "answer") == "42\n"
    assert [block["thinking"] for block in shown(done, "thinking")] == ["Two at once."]
    made = [(name, output) for name, _, output in pairs(house.asked[1])]
    assert made == [("Bash", "42"), ("Bash", "second")]
    ids = [call["id"] for call in _assistant(house.asked[1])["tool_calls"]]
    assert ids == ["functions.Bash:0", "functions.Bash:1"]
    assert (await served(house))["/v1/messages 200"] == 2


def _assistant(body: Json) -> Json:
    (message,) = [m for m in body["messages"] if m["role"] == "assistant"]
    return message  # type: ignore[no-any-return]  # JSON of the chat API


@pytest.mark.turn("claude-code", "shows an image that a tool has read", transport="http")
async def test_an_image_in_a_result_reaches_the_model_as_it_is(
    tmp_path: Path, home: Path, work: Path
) -> None:
    (work / "dot.png").write_bytes(PIXEL)
    look = Call("Read", '{"file_path": "%s"}' % (work / "dot.png"), id="call_1")
    scripts = Script(calls=[look]), Script(text="A dot.")
    async with open_house(tmp_path / "house", *scripts, settings=SCREEN) as house:
        done = await ClaudeCode(home, work, house.base_url).ask("What is in dot.png?")

    assert result(done)["result"] == "A dot."
    contents = [m["content"] for m in house.asked[1]["messages"]]
    parts = [part for one in contents if isinstance(one, list) for part in one]
    assert [part["type"] for part in parts].count("image_url") == 1


@pytest.mark.turn(
    "claude-code", "gives a model its thoughts back in the next turn", transport="http"
)
async def test_the_thoughts_of_a_turn_come_back_sealed_and_open(
    tmp_path: Path, home: Path, work: Path
) -> None:
    first = Script(reasoning="The clock will know.", calls=[bash("echo noon", "call_1")])
    scripts = first, Script(reasoning="So it is.", text="Noon."), Script(text="Still noon.")
    settings = 'profile = "deepseek"'
    async with open_house(tmp_path / "house", *scripts, settings=settings) as house:
        claude = ClaudeCode(home, work, house.base_url)
        await claude.ask("What time is it?")
        done = await claude.ask("And now?", "-c")

    assert result(done)["result"] == "Still noon."
    thoughts = [m.get("reasoning_content") for m in house.asked[2]["messages"]]
    assert [one for one in thoughts if one] == ["The clock will know.", "So it is."]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(
            429,
            marks=pytest.mark.turn(
                "claude-code", "asks again when a rate limit outlasts the gateway", transport="http"
            ),
        ),
        pytest.param(
            529,
            marks=pytest.mark.turn(
                "claude-code", "asks again when the upstream has no room", transport="http"
            ),
        ),
    ],
)
async def test_a_busy_upstream_is_asked_again(
    house: House, home: Path, work: Path, status: int
) -> None:
    busy = Script(faults=[Status(status, "Too fast.", headers={"Retry-After": "0"})])
    house.play(*[busy] * MAX_ATTEMPTS, Script(text="Now."))
    done = await ClaudeCode(home, work, house.base_url).ask("Go on.")

    assert result(done)["result"] == "Now."
    counts = await served(house)
    assert (counts[f"/v1/messages {status}"], counts["/v1/messages 200"]) == (1, 1)
    assert all(body == house.asked[0] for body in house.asked)


@pytest.mark.turn(
    "claude-code", "asks again when the model is cut off in its first block", transport="http"
)
async def test_an_answer_that_was_cut_off_is_asked_for_again_whole(
    house: House, home: Path, work: Path
) -> None:
    house.play(Script(text="one two three four", faults=[Cut(after=3)]), Script(text="Whole."))
    done = await ClaudeCode(home, work, house.base_url).ask("Count.")

    assert result(done)["result"] == "Whole."
    first, second = house.asked
    assert (first["stream"], second["stream"]) == (True, False)
    assert first["messages"] == second["messages"]


@pytest.mark.turn(
    "claude-code", "reports an answer that is cut off after its first block", transport="http"
)
async def test_a_call_that_was_cut_off_is_reported_and_not_run(
    house: House, home: Path, work: Path
) -> None:
    cut = Script(text="Let me.", calls=[bash("echo ran > log", "call_1")], faults=[Cut(after=6)])
    house.play(cut)
    done = await ClaudeCode(home, work, house.base_url).try_to_ask("Write it.")

    assert done.code != 0
    assert result(done)["is_error"] and "API Error" in result(done)["result"]
    assert content(work / "log") == ""
    assert len(house.asked) == 1


@pytest.mark.turn(
    "claude-code", "compacts a conversation that has become too long", transport="http"
)
async def test_a_full_context_is_compacted(house: House, home: Path, work: Path) -> None:
    claude = ClaudeCode(home, work, house.base_url)
    calls = [Script(calls=[bash(f"echo {number}", f"call_{number}")]) for number in range(3)]
    house.play(*calls, Script(text="Noted."))
    await claude.ask("Remember the word heron.")

    house.play(
        Script(faults=[TOO_LONG]),
        Script(text="<summary>The word is heron.</summary>"),
        Script(text="It was heron."),
    )
    done = await claude.ask("Which word was it?", "-c")

    assert result(done)["result"] == "It was heron."
    *_, last = house.asked
    assert any("The word is heron." in text for text in texts(last, "user"))
