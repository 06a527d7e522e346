"""Lists of tools from strangers: what is used, what is left out, what changes a digest."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from antiphon.tools.mcp.definitions import MAX_TOOLS, definitions_in, read_tools
from antiphon.tools.mcp.results import read_result


def _tool(**fields: Any) -> dict[str, Any]:
    return {"name": "echo", "inputSchema": {"type": "object"}, **fields}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}}
    return schema


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "echo",
        {},
        _tool(name=1),
        _tool(name=""),
        _tool(name="x" * 2**20),
        _tool(name="a\nb"),
        _tool(name="a\x1b[31m"),
        _tool(name="a\u202eb"),
        _tool(name="\ud800"),
        _tool(inputSchema=[1]),
        _tool(inputSchema=_deep(12)),
        _tool(inputSchema={"type": "object", "description": "x" * 70_000}),
    ],
)
def test_a_tool_that_cannot_be_used_is_left_out_and_reported(entry: object) -> None:
    listing = read_tools([entry, _tool(name="good")])
    assert list(listing.tools) == ["good"]
    assert len(listing.notes) == 1 and "left out" in listing.notes[0]
    assert len(listing.notes[0]) < 300


def test_a_schema_that_unfolds_without_end_is_left_out() -> None:
    bomb: dict[str, Any] = {"$defs": {"d0": {"type": "string"}}}
    for level in range(1, 40):
        twice = [{"$ref": f"#/$defs/d{level - 1}"}] * 2
        bomb["$defs"][f"d{level}"] = {"anyOf": twice}
    bomb["$ref"] = "#/$defs/d39"
    assert read_tools([_tool(inputSchema=bomb)]).tools == {}


def test_long_texts_are_shortened_and_lists_are_cut() -> None:
    listing = read_tools([_tool(name=f"t{number}") for number in range(MAX_TOOLS + 5)])
    assert len(listing.tools) == MAX_TOOLS
    (found,) = read_tools([_tool(description="x" * 10_000, title=1)]).tools.values()
    assert len(found.description) == 4096


def test_of_two_tools_with_one_name_the_first_is_used() -> None:
    listing = read_tools([_tool(description="one"), _tool(description="two")])
    assert listing.tools["echo"].description == "one"
    assert "two of its tools" in listing.notes[0]


def test_an_entry_has_no_null_and_only_known_annotations() -> None:
    (bare,) = read_tools([_tool(description=None, annotations=None)]).tools.values()
    assert bare.as_entry() == {"name": "echo", "input_schema": {"type": "object"}}
    hints = {"readOnlyHint": True, "destructiveHint": None, "x": "y" * 10**6, "title": "T"}
    (full,) = read_tools([_tool(annotations=hints)]).tools.values()
    assert full.as_entry()["annotations"] == {"readOnlyHint": True, "title": "T"}


@pytest.mark.parametrize(
    "change",
    [
        {"description": "other"},
        {"inputSchema": {"type": "object", "required": ["a"]}},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_every_change_of_a_definition_changes_its_digest(change: dict[str, Any]) -> None:
    (before,) = read_tools([_tool()]).tools.values()
    (after,) = read_tools([_tool(**change)]).tools.values()
    assert before.digest != after.digest


def test_a_list_read_back_from_the_context_has_the_same_digests() -> None:
    listed = read_tools([_tool(description="d", annotations={"readOnlyHint": True})]).tools
    item = {"type": "mcp_list_tools", "tools": [tool.as_entry() for tool in listed.values()]}
    assert definitions_in(item)["echo"].digest == listed["echo"].digest
    assert definitions_in({"type": "mcp_list_tools", "tools": "none"}) == {}


def test_results_keep_text_and_name_what_has_none() -> None:
    blocks = [
        {"type": "text", "text": "one \x1b[31m【1】"},
        {"type": "image", "mimeType": "image/png", "data": "aGk="},
        {"type": "resource", "resource": {"uri": "a:b", "text": "two"}},
        {"type": "resource_link", "uri": "a:c", "name": "c"},
        {"type": "hologram"},
    ]
    lines = read_result({"content": blocks}).output.split("\n")
    assert lines[0] == "one \x1b[31m【1】" and lines[2] == "two"
    assert lines[1] == "[image, image/png, about 3 bytes: it is not part of the text]"
    assert "a:c" in lines[3] and "hologram" in lines[4]


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()


def _image(data: str, kind: str = "image/png") -> dict[str, str]:
    return {"type": "image", "mimeType": kind, "data": data}


def test_images_are_shown_beside_the_text_that_names_them() -> None:
    found = read_result({"content": [{"type": "text", "text": "see"}, _image(PNG)]})
    assert found.shown() == [
        {"type": "input_text", "text": found.output},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
    ]
    assert found.output.startswith("see\n[image, image/png, about 1")


@pytest.mark.parametrize(
    "data",
    [
        "aGk=",  # no image
        "not base64",
        base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode(),
        base64.b64encode(b"RIFF....AVI " + bytes(99)).decode(),
        PNG + "A" * (6 * 1024 * 1024),
    ],
)
def test_what_is_no_common_image_or_too_large_is_only_named(data: str) -> None:
    found = read_result({"content": [_image(data)]})
    assert found.images == ()
    assert found.output.startswith("[image, image/png")


def test_no_more_than_eight_images_are_shown_and_the_bytes_tell_their_type() -> None:
    jpeg = base64.b64encode(b"\xff\xd8\xff" + bytes(100)).decode()
    found = read_result({"content": [_image(jpeg)] * 20})
    assert found.images == (f"data:image/jpeg;base64,{jpeg}",) * 8
    failed = read_result({"content": [_image(jpeg)], "isError": True})
    assert failed.images == ()


def test_a_long_result_is_cut_and_says_so() -> None:
    output = read_result({"content": [{"type": "text", "text": "é" * 2**20}]}).output
    assert len(output.encode()) < 2**20 + 100
    assert output.endswith("bytes more]")


def test_structured_content_alone_is_the_output() -> None:
    assert read_result({"content": [], "structuredContent": {"a": 1}}).output == '{"a":1}'


def test_definitions_that_are_too_long_together_are_cut() -> None:
    schema = {"type": "object", "description": "x" * 60_000}
    listing = read_tools([_tool(name=f"t{number}", inputSchema=schema) for number in range(40)])
    assert 10 < len(listing.tools) < 20
    assert "1048576 bytes" in listing.notes[-1]
