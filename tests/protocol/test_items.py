"""Items: what we know of a shape is checked, and everything has an id of its kind."""

from __future__ import annotations

from typing import Any, Final

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.families import FAMILIES
from antiphon.protocol.items import (
    check_item,
    check_items,
    item_prefix,
    item_type,
    item_types,
    text_of,
    with_id,
)
from tests.building import counting_mint

GOOD: list[dict[str, Any]] = [
    {"type": "function_call", "call_id": "c", "name": "f", "namespace": "n", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "", "namespace": None},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
    {
        "type": "custom_tool_call_output",
        "call_id": "c",
        "output": [{"type": "input_image", "image_url": "data:,"}],
    },
    {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "environment": None},
    {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": ""}]},
    {"type": "shell_call_output", "call_id": "c", "output": "x", "max_output_length": 9},
    {"type": "local_shell_call", "call_id": "c", "id": "i", "action": {"type": "exec"}},
    {"type": "local_shell_call_output", "id": "i", "output": "{}"},
    {"type": "local_shell_call_output", "call_id": "c", "output": "{}"},
    {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file"}},
    {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": None},
    {"type": "tool_search_call", "call_id": None, "arguments": {}, "execution": "server"},
    {"type": "tool_search_output", "call_id": None, "tools": []},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]},
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"type": "custom_tool_call", "call_id": "", "name": "f", "input": ""}, "call_id"),
    ({"type": "custom_tool_call", "call_id": "c", "name": "", "input": ""}, "name"),
    ({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": {}}, "input"),
    (
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "namespace": 3},
        "namespace",
    ),
    (
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"text": "x"}]},
        "output[0].type",
    ),
    ({"type": "shell_call", "call_id": "c"}, "action"),
    ({"type": "shell_call_output", "call_id": "c", "output": None}, "output"),
    ({"type": "local_shell_call_output", "id": "i", "output": {}}, "output"),
    ({"type": "apply_patch_call", "call_id": "c", "operation": []}, "operation"),
    ({"type": "apply_patch_call_output"}, "call_id"),
    ({"type": "tool_search_output", "tools": ["f"]}, "tools[0]"),
    ({"type": "additional_tools", "tools": {}}, "tools"),
]


@pytest.mark.parametrize("item", GOOD)
def test_items_of_every_family_are_taken(item: dict[str, Any]) -> None:
    check_item(item, "input[0]")


@pytest.mark.parametrize(("item", "field"), BAD)
def test_what_is_wrong_with_an_item_is_named(item: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_item(item, "input[0]")
    assert caught.value.param == f"input[0].{field}"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "FILE:/x", " \tfile://host/x"])
@pytest.mark.parametrize("field", ["image_url", "file_url"])
def test_the_address_of_a_local_file_is_refused(url: str, field: str) -> None:
    """A model server that reads such addresses would show a caller files of its own machine."""
    kind = {"image_url": "input_image", "file_url": "input_file"}[field]
    message = {"role": "user", "content": [{"type": kind, field: url}]}
    output = {"type": "function_call_output", "call_id": "c", "output": message["content"]}
    chat = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    for item in (message, output, chat):
        with pytest.raises(InvalidRequest) as caught:
            check_item(item, "input[0]")
        assert "local file" in caught.value.message


def test_every_item_of_a_family_has_a_prefix_of_its_own() -> None:
    kinds = [kind for family in FAMILIES.values() for kind in (family.call, family.output)]
    assert len({item_prefix(kind) for kind in kinds} - {"item"}) == len(kinds)


def test_an_item_is_remembered_with_type_and_id() -> None:
    mint = counting_mint()
    assert with_id({"role": "user", "content": "x"}, mint)["id"] == "msg_0"
    assert with_id({"type": "shell_call"}, mint) == {"type": "shell_call", "id": "sh_1"}
    assert with_id({"type": "acme", "id": "own"}, mint)["id"] == "own"


def test_an_item_without_a_type_is_a_message_or_a_reference() -> None:
    assert item_type({"role": "user"}) == "message"
    assert item_type({"id": "x"}) == "item_reference"


@pytest.mark.parametrize("other", [{"role": "user"}, {"id": "x"}, {"type": ["a"], "role": "user"}])
def test_the_types_of_many_items_are_the_type_of_each(other: dict[str, Any]) -> None:
    items = [{"type": "message"}, {"type": "acme"}, other] * 1000

    assert item_types(items) == [item_type(item) for item in items]
    assert item_types(items[:2]) == ["message", "acme"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "x"),
        (None, ""),
        ([{"text": "a"}, {"refusal": "b"}, {"text": 3}, "c", {"type": "input_image"}], "ab"),
    ],
)
def test_the_text_of_a_content_is_that_of_its_parts(content: Any, text: str) -> None:
    assert text_of(content) == text


def test_the_output_of_a_local_shell_gets_an_id_of_its_own() -> None:
    output = {"type": "local_shell_call_output", "id": "lsh_1", "output": "a"}
    kept = with_id(output, lambda prefix: f"{prefix}_new")
    assert (kept["id"], kept["call_id"]) == ("lsho_new", "lsh_1")
    assert output["id"] == "lsh_1"


# Many items at once.

_CALL: Final = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
_OUTPUT: Final = {"type": "function_call_output", "call_id": "c", "output": "x"}
_TEXT: Final = {"type": "input_text", "text": "x"}
_SAID: Final = {"type": "message", "role": "user", "content": [_TEXT]}
_THOUGHT: Final = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}


@pytest.mark.parametrize(
    "item",
    [
        "no object",
        _CALL | {"id": 1},
        _CALL | {"call_id": ""},
        _CALL | {"arguments": {}},
        _CALL | {"status": "odd"},
        _OUTPUT | {"output": [{"type": "input_text"}]},
        _OUTPUT | {"output": [{"text": "no type"}]},
        _OUTPUT | {"output": [{"type": "input_image", "image_url": "file:///etc/passwd"}]},
        _SAID | {"role": "tool"},
        _SAID | {"content": [_TEXT | {"image_url": "file:///etc/passwd"}]},
        _SAID | {"content": None},
        _THOUGHT | {"summary": [{"type": "summary_text", "text": 1}]},
        _THOUGHT | {"encrypted_content": 1},
        _THOUGHT | {"type": 1},
    ],
)
def test_one_wrong_item_among_many_is_refused_as_it_is_alone(item: Any) -> None:
    items = [_SAID, _CALL, _OUTPUT, _THOUGHT] * 20
    check_items(items, "input")
    with pytest.raises(InvalidRequest) as alone:
        check_item(item, "input[50]")
    with pytest.raises(InvalidRequest) as among:
        check_items([*items[:50], item, *items[50:]], "input")
    assert (str(among.value), among.value.param) == (str(alone.value), alone.value.param)


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "without a type"},
        {"type": "unknown", "content": 1},
        {"id": "msg_1"},
        _SAID | {"content": [{"type": "unknown", "text": 1}]},
        _SAID | {"content": [_TEXT | {"odd": 1}], "odd": 1},
        _CALL | {"id": None, "odd": []},
    ],
)
def test_an_unusual_item_among_many_is_taken(item: Any) -> None:
    check_items([_SAID, _CALL, item, _OUTPUT, _THOUGHT], "input")
