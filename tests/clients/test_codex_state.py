"""Codex goes on: with a thread after a restart of the gateway, and after compaction."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from antiphon.testing import Script
from tests.clients.codex import Codex, Transport, messages, offered, pairs, shell, texts
from tests.clients.house import House, open_house

pytestmark = pytest.mark.slow

SMALL: Final = "model_auto_compact_token_limit = 5000"
FULL: Final = {"prompt_tokens": 9000, "completion_tokens": 10, "total_tokens": 9010}
LITTLE: Final = {"prompt_tokens": 900, "completion_tokens": 10, "total_tokens": 910}


@pytest.mark.parametrize("store", ["memory:", "sqlite:"])
@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(
            "http",
            marks=pytest.mark.turn(
                "codex", "resumes a thread after the gateway was restarted", transport="http"
            ),
        ),
        pytest.param(
            "websocket",
            marks=pytest.mark.turn(
                "codex", "resumes a thread after the gateway was restarted", transport="websocket"
            ),
        ),
    ],
)
async def test_a_thread_goes_on_after_a_restart_with_all_of_its_history(
    tmp_path: Path, home: Path, work: Path, transport: Transport, store: str
) -> None:
    async with open_house(tmp_path / "house", store=store) as house:
        codex = Codex(home, work, house.base_url, transport)
        house.play(
            Script(text="Looking.", reasoning="Where?", calls=[shell("echo here")]),
            Script(text="It is here."),
        )
        begun = await codex.ask("Where is it?")
        await house.restart()
        house.play(Script(text="Still here."))
        done = await codex.ask("resume", begun.events[0]["thread_id"], "And now?")

    assert messages(done) == ["Still here."]
    last = house.asked[-1]
    assert texts(last, "user")[-2:] == ["Where is it?", "And now?"]
    assert texts(last, "assistant") == ["Looking.", "It is here."]
    ((_, _, output),) = pairs(last)
    assert output.endswith("here\n")


@pytest.mark.turn("codex", "compacts a long thread with a request of its own", transport="http")
async def test_codex_has_the_thread_summed_up_and_goes_on_from_that(
    tmp_path: Path, home: Path, work: Path
) -> None:
    async with open_house(tmp_path / "house") as house:
        codex = Codex(home, work, house.base_url, "http", keys=SMALL)
        house.play(Script(text="The first answer.", usage=FULL))
        await codex.ask("The first question.")
        house.play(Script(text="NOTES ON IT", usage=LITTLE), Script(text="Second.", usage=LITTLE))
        done = await codex.ask("resume", "--last", "The second question.")

    assert messages(done) == ["Second."]
    _, summing, after = house.asked
    assert texts(summing, "assistant") == ["The first answer."]
    assert texts(after, "assistant") == []
    assert any("NOTES ON IT" in text for text in texts(after, "user"))
    assert texts(after, "user")[-1] == "The second question."


@pytest.mark.turn(
    "codex",
    "has a long thread compacted by the gateway (compaction_trigger)",
    transport="websocket",
)
async def test_the_gateway_compacts_the_thread_when_codex_asks_for_it(
    tmp_path: Path, home: Path, work: Path
) -> None:
    async with open_house(tmp_path / "house", store="sqlite:") as house:
        codex = Codex(home, work, house.base_url, "websocket", keys=SMALL)
        house.play(Script(text="The first answer.", usage=FULL))
        await codex.ask("The first question.")
        house.play(Script(text="NOTES ON IT", usage=LITTLE), Script(text="Second.", usage=LITTLE))
        done = await codex.ask("resume", "--last", "The second question.")
        await house.restart()
        house.play(Script(text="Third.", usage=LITTLE))
        again = await codex.ask("resume", "--last", "The third question.")

    assert (messages(done), messages(again)) == (["Second."], ["Third."])
    _, summing, after, later = house.asked
    assert texts(summing, "assistant") == ["The first answer."]
    assert offered(after) != []
    assert texts(after, "assistant") == []
    assert any("NOTES ON IT" in text for text in texts(after, "user"))
    assert texts(after, "user")[-1] == "The second question."
    assert texts(later, "assistant") == ["Second."]
    assert any("NOTES ON IT" in text for text in texts(later, "user"))


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(
            "http",
            marks=pytest.mark.turn(
                "codex", "finishes a turn while the gateway is restarted", transport="http"
            ),
        ),
        pytest.param(
            "websocket",
            marks=pytest.mark.turn(
                "codex", "finishes a turn while the gateway is restarted", transport="websocket"
            ),
        ),
    ],
)
async def test_a_restart_in_the_middle_of_a_turn_goes_unnoticed(
    house: House, home: Path, work: Path, transport: Transport
) -> None:
    pipe = work / "pipe"
    os.mkfifo(pipe)
    house.play(Script(text="Reading.", calls=[shell("cat pipe")]), Script(text="Read."))
    asking = asyncio.create_task(Codex(home, work, house.base_url, transport).ask("Read it."))
    # Opening it waits for the command to read from it.
    with await asyncio.to_thread(pipe.open, "w") as end:
        await house.restart()
        end.write("through the pipe")
    done = await asking

    assert messages(done) == ["Reading.", "Read."]
    first, second = house.asked
    assert second["messages"][: len(first["messages"])] == first["messages"]
    ((_, _, output),) = pairs(second)
    assert output.endswith("through the pipe")
