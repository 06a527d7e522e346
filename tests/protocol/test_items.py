"""Items: what we know of a shape is checked, and everything has an id of its kind."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.families import FAMILIES
from antiphon.protocol.items import check_item, item_prefix, item_type, text_of, with_id
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
