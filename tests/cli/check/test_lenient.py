"""`antiphon check --lenient`: known habits are forgiven, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.cli.check.responses.lenient import LENIENCIES
from antiphon.cli.check.responses.rules import judge_frames
from antiphon.protocol.sse import Frame, SseDecoder
from tests.cli.canned import Json, hello_events
from tests.wires.responses.upstream import recordings

TODAY: Final = LENIENCIES["openai-today"]
LIST: Final[Json] = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}
THOUGHT: Final[Json] = {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"}

Change = Callable[[list[Json]], list[Json]]


def frames(events: Sequence[Json]) -> list[Frame]:
    return [Frame(event["type"], msgspec.json.encode(event)) for event in events]


def strict(events: Sequence[Json]) -> set[str]:
    return {finding.rule for finding in judge_frames(frames(events))[1]}


def lenient(events: Sequence[Json]) -> set[str]:
    return {finding.rule for finding in judge_frames(TODAY(frames(events)))[1]}


def put(events: list[Json], item: Json, *inner: Json, at: int = 2, is_done: bool = True) -> None:
    """Put an item in front of the others."""
    for event in events:
        if "output_index" in event:
            event["output_index"] += 1
    begun = item | {"status": "in_progress"} if "status" in item else item
    place = {"output_index": 0}
    added = {"type": "response.output_item.added", **place, "item": begun}
    done = {"type": "response.output_item.done", **place, "item": item}
    events[at:at] = [added, *({**event, **place} for event in inner), *([done] if is_done else [])]
    events[-1]["response"]["output"].insert(0, item)
    for number, event in enumerate(events):
        event["sequence_number"] = number


def encrypts_again(events: list[Json]) -> list[Json]:
    put(events, {**THOUGHT, "encrypted_content": "one"})
    events[-1]["response"]["output"][0] = {**THOUGHT, "encrypted_content": "two"}
    return events


def leaves_out_when(events: list[Json]) -> list[Json]:
    del events[-1]["response"]["completed_at"]
    return events


def never_ends_a_list(events: list[Json]) -> list[Json]:
    steps = ("in_progress", "completed")
    inner = [{"type": f"response.mcp_list_tools.{step}", "item_id": "mcpl_1"} for step in steps]
    put(events, LIST, *inner, is_done=False)
    return events


def counts_nothing(events: list[Json]) -> list[Json]:
    return [{name: event[name] for name in event if name != "sequence_number"} for event in events]


HABITS: Final[list[Change]] = [
    encrypts_again,
    leaves_out_when,
    never_ends_a_list,
    counts_nothing,
]


@pytest.mark.parametrize("habit", HABITS)
def test_a_known_habit_is_found_and_forgiven(habit: Change) -> None:
    events = habit(hello_events())
    assert strict(events)
    assert lenient(events) == set()


def lies_about_its_text(events: list[Json]) -> list[Json]:
    for event in events:
        if event["type"] == "response.output_text.done":
            event["text"] += "!"
    return events


def miscounts(events: list[Json]) -> list[Json]:
    events[2]["sequence_number"] += 1
    return events


def loses_an_end(events: list[Json]) -> list[Json]:
    return [event for event in events if event["type"] != "response.output_item.done"]


def ends_as_another(events: list[Json]) -> list[Json]:
    events[-1]["response"]["status"] = "incomplete"
    return events


@pytest.mark.parametrize("habit", [*HABITS, list], ids=lambda habit: habit.__name__)
@pytest.mark.parametrize("bug", [lies_about_its_text, miscounts, loses_an_end, ends_as_another])
def test_a_planted_bug_beside_a_habit_is_still_found(habit: Change, bug: Change) -> None:
    if habit is counts_nothing and bug is miscounts:
        pytest.skip("numbers that are not there cannot be wrong")
    assert lenient(bug(habit(hello_events())))


def test_a_frame_with_a_wrong_name_keeps_it() -> None:
    first, *rest = frames(hello_events())
    forgiven = TODAY([Frame("response.other", first.data), *rest])
    assert forgiven[0].event == "response.other"


def test_a_missing_end_mark_is_forgiven_and_what_follows_one_is_not() -> None:
    sent = frames(hello_events())
    assert TODAY(sent)[-1].data == b"[DONE]"
    marked = [Frame("message", b"[DONE]"), *sent]
    assert [frame.data for frame in TODAY(marked)].count(b"[DONE]") == 1


def test_it_is_for_responses_servers(runner: CliRunner) -> None:
    arguments = ["check", "http://127.0.0.1:9", "--wire-api", "chat", "--lenient", "openai-today"]
    result = runner.invoke(main, arguments)
    assert result.exit_code != 0
    assert "--lenient is used only with --wire-api responses" in result.output


@pytest.mark.parametrize("path", recordings())
def test_recordings_of_openai_are_forgiven(path: Path) -> None:
    if "openrouter" in path.stem:
        pytest.skip("another service, with habits of its own")
    decoder = SseDecoder()
    sent = decoder.feed(path.read_bytes()) + decoder.end()
    assert judge_frames(TODAY(sent))[1] == []
