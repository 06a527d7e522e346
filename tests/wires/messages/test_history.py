"""The conversation of a Messages request: what each block becomes, and where it stands."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from antiphon.protocol.items import Item
from antiphon.wires.messages.history import read_messages, read_system
from antiphon.wires.messages.parts import read_parts

CACHED = {"cache_control": {"type": "ephemeral"}}
PIXEL = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def message(role: str, *parts: dict[str, Any]) -> Item:
    return {"type": "message", "role": role, "content": list(parts)}


def read(role: str, *blocks: dict[str, Any]) -> list[Item]:
    return read_messages([{"role": role, "content": list(blocks)}])


def test_every_system_block_is_an_item() -> None:
    first, second = {"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}
    assert read_system([text("one"), text("two", **CACHED)]) == [
        message("system", first),
        message("system", second | CACHED),
    ]
    assert read_system("one") == [message("system", first)]
    assert read_system(None) == read_system("") == []


def test_the_billing_header_is_left_out() -> None:
    """Its hash changes with every request, and a prompt that begins with it is never cached."""
    system = [text("x-anthropic-billing-header: v=1; h=8f3a"), text("Be brief.")]
    assert read_system(system) == read_system("Be brief.")


def test_a_system_message_stays_where_it_is() -> None:
    items = read_messages(
        [
            {"role": "user", "content": "one"},
            {"role": "system", "content": "a note"},
            {"role": "user", "content": [text("two")]},
        ]
    )
    assert [item["role"] for item in items] == ["user", "system", "user"]


def test_a_string_and_a_text_block_are_the_same() -> None:
    for role in ("user", "assistant", "system"):
        assert read_messages([{"role": role, "content": "one"}]) == read(role, text("one"))


def test_input_keeps_the_order_of_its_keys() -> None:
    (call,) = read(
        "assistant",
        {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {"z": 1, "a": {"y": "ü"}}},
    )
    assert call == {
        "type": "function_call",
        "call_id": "a",
        "name": "look",
        "arguments": '{"z":1,"a":{"y":"ü"}}',
    }


def test_text_calls_and_results_keep_their_order() -> None:
    use = {"type": "tool_use", "name": "look", "input": {}}
    assistant = read("assistant", text("a"), text("b"), use | {"id": "toolu_1"}, text("c"))
    assert [item["type"] for item in assistant] == ["message", "function_call", "message"]
    assert [part["text"] for part in assistant[0]["content"]] == ["a", "b"]

    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}
    user = read("user", result, text("and?"), text("more"))
    assert user[0] == {"type": "function_call_output", "call_id": "1", "output": "found"}
    assert [part["text"] for part in user[1]["content"]] == ["and?", "more"]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        (None, ""),
        ("", ""),
        ([], []),
        ("found", "found"),
        ([text("found")], [{"type": "input_text", "text": "found"}]),
        (
            [{"type": "tool_reference", "tool_name": "look"}],
            [{"type": "input_text", "text": '{"type":"tool_reference","tool_name":"look"}'}],
        ),
        (
            [text("see"), {"type": "image", "source": PIXEL}],
            [
                {"type": "input_text", "text": "see"},
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,AAAA",
                    "detail": "auto",
                },
            ],
        ),
    ],
)
def test_no_result_is_dropped(content: object, output: object) -> None:
    (item,) = read("user", {"type": "tool_result", "tool_use_id": "toolu_1", "content": content})
    assert item == {"type": "function_call_output", "call_id": "1", "output": output}


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("no such file", "Error: no such file"),
        ([text("no")], [{"type": "input_text", "text": "Error: no"}]),
        ([], [{"type": "input_text", "text": "Error: "}]),
    ],
)
def test_a_failed_call_is_marked_in_words(content: object, output: object) -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
    (item,) = read("user", block | {"is_error": True})
    assert (item["output"], item["status"]) == (output, "incomplete")


@pytest.mark.parametrize(
    ("block", "items"),
    [
        (
            {"type": "thinking", "thinking": "hm", "signature": "sealed"},
            [{"type": "reasoning", "summary": [], "encrypted_content": "sealed"}],
        ),
        (
            {"type": "redacted_thinking", "data": "sealed"},
            [{"type": "reasoning", "summary": [], "encrypted_content": "sealed"}],
        ),
        ({"type": "thinking", "thinking": "hm", "signature": ""}, []),
        ({"type": "thinking", "thinking": "hm"}, []),
    ],
)
def test_thinking_is_what_its_signature_seals(block: dict[str, Any], items: list[Item]) -> None:
    assert read("assistant", block) == items


def test_blocks_of_other_servers_are_kept_whole() -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    assert read("assistant", block) == [{**block, "type": "anthropic:server_tool_use"}]


def test_hints_stay_on_calls_and_results() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, **CACHED}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x", **CACHED}
    (call,), (output,) = read("assistant", use), read("user", result)
    assert call["cache_control"] == output["cache_control"] == CACHED["cache_control"]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (PIXEL, {"image_url": "data:image/png;base64,AAAA"}),
        (
            {"type": "url", "url": "https://a.example/b.png"},
            {"image_url": "https://a.example/b.png"},
        ),
        ({"type": "file", "file_id": "file_1"}, {"file_id": "file_1"}),
    ],
)
def test_images_become_parts(source: dict[str, Any], part: dict[str, Any]) -> None:
    read_part = read_parts({"type": "image", "source": source}, "x")
    assert read_part == [{"type": "input_image", "detail": "auto", **part}]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (
            {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            {"filename": "document.pdf", "file_data": "data:application/pdf;base64,AAAA"},
        ),
        (
            {"type": "text", "media_type": "text/plain", "data": "hällo"},
            {
                "filename": "document.txt",
                "file_data": "data:text/plain;base64,"
                + base64.b64encode("hällo".encode()).decode(),
            },
        ),
        (
            {"type": "url", "url": "https://a.example/b.pdf"},
            {"filename": "document", "file_url": "https://a.example/b.pdf"},
        ),
        ({"type": "file", "file_id": "file_1"}, {"filename": "document", "file_id": "file_1"}),
    ],
)
def test_documents_become_files(source: dict[str, Any], part: dict[str, Any]) -> None:
    block = {"type": "document", "source": source}
    assert read_parts(block, "x") == [{"type": "input_file", **part}]
    (titled,) = read_parts(block | {"title": "a.txt", "citations": {"enabled": True}}, "x")
    assert (titled["filename"], titled["citations"]) == ("a.txt", {"enabled": True})


def test_a_document_of_blocks_is_its_blocks() -> None:
    source = {"type": "content", "content": [text("one"), text("two")]}
    parts = read_parts({"type": "document", "title": "T", "source": source}, "x")
    assert [part["text"] for part in parts] == ["Document T:", "one", "two"]


def test_a_search_result_is_its_text_with_its_source() -> None:
    block = {"type": "search_result", "title": "T", "source": "S", "content": [text("one")]}
    found = {"source": "S", "title": "T", "content": [text("one")]}
    part = {"type": "input_text", "text": "T (S)\none", "search_result": found}
    assert read_parts(block, "x") == [part]
