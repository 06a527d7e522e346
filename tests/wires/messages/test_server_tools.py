"""Tools that Anthropic runs: hosted items with steps, whose blocks go back as they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.plan import NO_TOOLS
from antiphon.protocol.deltas import Delta, ItemClosed, ItemOpened, ItemPassed, ItemProgressed
from antiphon.protocol.events import ResponseCompleted, ResponseIncomplete, event_type
from antiphon.protocol.items import Item
from antiphon.protocol.machines.referee import judge_stream
from antiphon.wires.messages.answer import native_blocks
from antiphon.wires.messages.content import cited_blocks
from antiphon.wires.messages.conversation import write_conversation
from antiphon.wires.messages.stream import MessagesStream
from tests.building import build
from tests.wires.messages.answers import TWINS, message, stream

Json = dict[str, Any]


def use(name: str, number: int = 1, **given: Any) -> Json:
    return {"type": "server_tool_use", "id": f"s{number}", "name": name, "input": given}


def result(kind: str, content: object, number: int = 1) -> Json:
    return {"type": f"{kind}_tool_result", "tool_use_id": f"s{number}", "content": content}


def read(*content: Json, stop: str = "end_turn") -> Sequence[Delta]:
    reader = MessagesStream(keeps_blocks=True)
    deltas = [*reader.feed(stream(message(*content, stop=stop))), *reader.end()]
    assert reader.fault is None
    return deltas


def items_of(deltas: Sequence[Delta]) -> list[Item]:
    """Return the items of a stream that breaks no rule."""
    events = build(deltas)
    assert judge_stream(events) == []
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseIncomplete)
    return last.response.output


SEARCHED = [{"type": "web_search_result", "url": "https://a.example/", "title": "A"}]
PRINTED = {"type": "bash_code_execution_result", "stdout": "4\n", "stderr": "", "return_code": 0}


@pytest.mark.parametrize(
    ("called", "answered", "item"),
    [
        (
            use("web_search", query="rain"),
            result("web_search", SEARCHED),
            {
                "type": "web_search_call",
                "status": "completed",
                "action": {
                    "type": "search",
                    "query": "rain",
                    "sources": [{"type": "url", "url": "https://a.example/", "title": "A"}],
                },
            },
        ),
        (
            use("web_search", query="rain"),
            result("web_search", {"type": "web_search_tool_result_error", "error_code": "busy"}),
            {
                "type": "web_search_call",
                "status": "failed",
                "action": {"type": "search", "query": "rain"},
            },
        ),
        (
            use("web_fetch", url="https://a.example/"),
            result("web_fetch", {"type": "web_fetch_result", "url": "https://a.example/"}),
            {
                "type": "web_search_call",
                "status": "completed",
                "action": {"type": "open_page", "url": "https://a.example/"},
            },
        ),
        (
            use("bash_code_execution", command="echo 4"),
            result("bash_code_execution", PRINTED),
            {
                "type": "code_interpreter_call",
                "status": "completed",
                "code": "echo 4",
                "container_id": "",
                "outputs": [{"type": "logs", "logs": "4\n"}],
            },
        ),
        (
            use("text_editor_code_execution", command="view", path="a"),
            result("text_editor_code_execution", {"type": "x_error", "error_code": "gone"}),
            {
                "type": "code_interpreter_call",
                "status": "failed",
                "code": '{"command":"view","path":"a"}',
                "container_id": "",
                "outputs": [{"type": "logs", "logs": "gone"}],
            },
        ),
        (
            {**use("ask", q=1), "type": "mcp_tool_use", "server_name": "wiki"},
            {**result("mcp", [{"type": "text", "text": "No."}]), "is_error": True},
            {
                "type": "mcp_call",
                "status": "failed",
                "server_label": "wiki",
                "name": "ask",
                "arguments": '{"q":1}',
                "error": "No.",
            },
        ),
    ],
)
def test_a_call_and_its_result_are_one_item(called: Json, answered: Json, item: Item) -> None:
    (found,) = items_of(read(called, answered))
    blocks = found.pop("anthropic:blocks")
    del found["id"]
    assert found == item
    assert blocks == [called, answered]


def test_a_search_is_seen_while_it_runs() -> None:
    deltas = read(use("web_search", query="rain"), result("web_search", SEARCHED))
    kinds = [type(delta) for delta in deltas if not isinstance(delta, ItemPassed)]
    assert kinds[1:4] == [ItemOpened, ItemProgressed, ItemClosed]
    names = [event_type(event) for event in build(deltas)]
    steps = [name.rpartition(".")[2] for name in names if name.startswith("response.web_search")]
    assert steps == ["in_progress", "searching", "completed"]


def test_a_call_without_a_result_is_incomplete_and_its_late_result_is_passed() -> None:
    call, late = use("web_search", query="rain"), result("web_search", SEARCHED)
    (first,) = items_of(read(call, stop="pause_turn"))
    assert (first["status"], first["anthropic:blocks"]) == ("incomplete", [call])
    (second,) = items_of(read(late))
    assert second["type"] == "anthropic:web_search_tool_result"
    assert native_blocks(second) == [late]


_NAMES = ["web_search", "web_fetch", "bash_code_execution", "advisor"]


@st.composite
def _answers(draw: st.DrawFn) -> list[Json]:
    """Return blocks in which calls overlap, and some have no result."""
    blocks: list[Json] = []
    waiting: list[tuple[str, int]] = []
    flips: st.SearchStrategy[bool] = st.booleans()
    for number in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(_NAMES))
        blocks.append(use(name, number, query="x"))
        waiting.append((name, number))
        for _ in range(draw(st.integers(0, len(waiting)))):
            name, number = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            blocks.append(result(name, SEARCHED, number))
        if draw(flips):
            blocks.append({"type": "text", "text": f"So {number}."})
    return blocks


@given(_answers())
def test_blocks_go_back_in_the_order_in_which_they_came(blocks: list[Json]) -> None:
    items = items_of(read(*blocks))
    user: Item = {"type": "message", "role": "user", "content": "x"}
    written = write_conversation([user, *items], NO_TOOLS, account="", mid_system=False)
    assert written.messages[1]["content"] == blocks


def test_only_blocks_are_taken_back() -> None:
    assert native_blocks({"type": "web_search_call", "anthropic:blocks": [5]}) is None
    assert native_blocks({"type": "web_search_call", "anthropic:blocks": []}) == []


def _note(start: int, end: int, index: str = "i") -> Json:
    citation = {"type": "web_search_result_location", "encrypted_index": index}
    return {"start_index": start, "end_index": end, "anthropic:citation": citation}


@given(st.text("ab \n", max_size=12), st.lists(st.tuples(st.integers(-1, 12), st.integers(0, 13))))
def test_a_text_that_cites_is_cut_without_a_change(
    text: str, places: list[tuple[int, int]]
) -> None:
    blocks = cited_blocks(text, [_note(*place) for place in places])
    assert "".join(block["text"] for block in blocks) == text
    assert not text.strip() or all(block["text"].strip() for block in blocks)


def test_citations_stand_at_their_words_and_those_without_an_index_are_left_out() -> None:
    cited = cited_blocks("It rains. So.", [_note(3, 8), _note(10, 12, ""), _note(3, 8)])
    citation = _note(0, 1)["anthropic:citation"]
    assert cited == [
        {"type": "text", "text": "It "},
        {"type": "text", "text": "rains", "citations": [citation, citation]},
        {"type": "text", "text": ". So."},
    ]
    assert cited_blocks("a", 5) == [{"type": "text", "text": "a"}]


def test_the_twin_of_a_search_goes_back_as_it_came() -> None:
    twin = TWINS["search"]["content"]
    user: Item = {"type": "message", "role": "user", "content": "x"}
    items = [user, *items_of(read(*twin)), user]
    written = write_conversation(items, NO_TOOLS, account="", mid_system=False)
    assert written.messages[1]["content"] == twin
