"""Every family as functions: the tools, and what was called and came back before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.plans.tool_schemas import SCHEMAS
from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.items import Item
from antiphon.protocol.tools import Tool
from antiphon.wires.lower import lower_items, lower_tools


def box(*tools: Tool) -> Toolbox:
    return gather_tools(tools)[0]


def lowered(*tools: Tool) -> list[Tool]:
    return list(lower_tools(box(*tools)))


# Tools.


def test_a_function_keeps_what_it_says_of_itself() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = {"type": "function", "name": "f", "description": "d", "parameters": schema}
    assert lowered(tool | {"strict": True}) == [tool | {"strict": True}]


def test_what_a_function_leaves_open_is_left_out() -> None:
    tool = {"type": "function", "name": "f"}
    nothing = {"description": None, "parameters": None, "strict": None}
    assert lowered(tool | nothing | {"defer_loading": True}) == [tool]


def test_which_json_schema_is_spoken_is_left_out_and_the_tool_is_not_changed() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
    tool = {"type": "function", "name": "f", "parameters": schema}
    assert lowered(tool)[0]["parameters"] == {"type": "object"}
    assert "$schema" in schema


def test_a_custom_tool_takes_its_input_as_one_text() -> None:
    (tool,) = lowered({"type": "custom", "name": "c", "description": "Runs code."})
    assert tool["name"] == "c"
    assert tool["description"] == "Runs code."
    assert tool["parameters"]["required"] == ["input"]
    assert tool["parameters"]["properties"]["input"]["type"] == "string"
    assert "pattern" not in tool["parameters"]["properties"]["input"]


def test_a_custom_tool_without_a_description_gets_one() -> None:
    assert lowered({"type": "custom", "name": "c"})[0]["description"]


@pytest.mark.parametrize("about", [None, "Runs code."])
def test_a_grammar_is_told_in_words(about: str | None) -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    (tool,) = lowered({"type": "custom", "name": "c", "description": about, "format": form})
    assert tool["description"].startswith(about or "`input` must match")
    assert tool["description"].endswith('Lark grammar exactly:\nstart: "a"')


def test_a_regular_expression_is_in_the_schema_too() -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "a|b"}
    (tool,) = lowered({"type": "custom", "name": "c", "format": form})
    assert tool["parameters"]["properties"]["input"]["pattern"] == "^(a|b)$"
    assert "regular expression" in tool["description"]


def test_plain_text_is_no_grammar_whatever_else_is_said_of_it() -> None:
    (tool,) = lowered(
        {"type": "custom", "name": "c", "format": {"type": "text", "syntax": "regex"}}
    )
    assert "pattern" not in tool["parameters"]["properties"]["input"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [(kind, SCHEMAS[kind]) for kind in ("shell", "local_shell", "apply_patch")],
)
def test_tools_with_no_schema_of_their_own_get_ours(kind: str, schema: dict[str, Any]) -> None:
    (tool,) = lowered({"type": kind})
    assert (tool["type"], tool["name"], tool["parameters"]) == ("function", kind, schema)
    assert tool["description"]


def test_a_search_says_what_there_is_to_be_found() -> None:
    late = {"type": "function", "name": "late", "defer_loading": True}
    search = {"type": "tool_search", "execution": "client"}
    space = {"type": "namespace", "name": "files", "tools": [late]}
    (tool,) = lowered(search, late, space)
    assert tool["description"].endswith("To be found: late, files.")
    assert "paths" in tool["parameters"]["properties"]


def test_a_search_may_have_words_and_a_schema_of_its_own() -> None:
    own = {"description": "Look.", "parameters": {"type": "object"}}
    (tool,) = lowered({"type": "tool_search", "execution": "client", **own})
    assert tool == {"type": "function", "name": "tool_search", **own}


@pytest.mark.parametrize(("own", "said"), [("Reads.", "Reads.\n\n(Files.)"), (None, "Files.")])
def test_a_tool_in_a_namespace_says_what_that_is_for(own: str | None, said: str) -> None:
    inner = {"type": "function", "name": "f", "description": own}
    space = {"type": "namespace", "name": "n", "description": "Files.", "tools": [inner]}
    (tool,) = lowered(space)
    assert (tool["name"], tool["description"]) == ("n__f", said)


def test_tools_stay_in_their_order() -> None:
    kinds = ["apply_patch", "shell", "local_shell"]
    assert [tool["name"] for tool in lowered(*({"type": kind} for kind in kinds))] == kinds


# Items.


def down(*items: Item, tools: tuple[Tool, ...] = ()) -> list[Item]:
    return lower_items(items, box(*tools))


def test_what_is_no_call_stays_the_very_same() -> None:
    message: Item = {"role": "user", "content": "x"}
    strange: Item = {"type": "acme:thing"}
    call: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output: Item = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items = [message, strange, call, output]
    assert [id(item) for item in down(*items)] == [id(item) for item in items]


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (
            {"type": "function_call", "name": "f", "namespace": "n", "arguments": '{"a": 1}'},
            "n__f",
            '{"a": 1}',
        ),
        ({"type": "function_call", "name": "a.b", "arguments": ""}, "a_b", ""),
        ({"type": "custom_tool_call", "name": "c", "input": 'a"\n'}, "c", '{"input":"a\\"\\n"}'),
        (
            {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": None}},
            "shell",
            '{"commands":["ls"]}',
        ),
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
            "local_shell",
            '{"command":["ls"]}',
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            "apply_patch",
            '{"operation":{"type":"delete_file","path":"a"}}',
        ),
        (
            {"type": "tool_search_call", "execution": "client", "arguments": {"paths": ["a"]}},
            "tool_search",
            '{"paths":["a"]}',
        ),
        ({"type": "tool_search_call", "arguments": '{"q":1}'}, "tool_search", '{"q":1}'),
        ({"type": "tool_search_call"}, "tool_search", ""),
    ],
)
def test_a_call_of_any_family_becomes_a_function_call(
    call: Item, name: str, arguments: str
) -> None:
    (item,) = down(call | {"call_id": "c", "id": "i", "status": "completed"})
    assert item == {
        "type": "function_call",
        "id": "i",
        "status": "completed",
        "call_id": "c",
        "name": name,
        "arguments": arguments,
    }


def test_a_call_is_written_under_the_name_that_its_tool_has_now() -> None:
    tools = ({"type": "function", "name": "c"}, {"type": "custom", "name": "c"})
    call: Item = {"type": "custom_tool_call", "call_id": "1", "name": "c", "input": ""}
    (item,) = down(call, tools=tools)
    assert item["name"] == box(*tools).alias_of("custom", None, "c") != "c"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"type": "custom_tool_call_output", "output": "done"}, "done"),
        ({"type": "shell_call_output", "output": "done"}, "done"),
        (
            {"type": "shell_call_output", "output": [{"stdout": "a"}], "max_output_length": 3},
            '[{"stdout":"a"}]',
        ),
        ({"type": "apply_patch_call_output", "status": "failed", "output": "no"}, "failed: no"),
        ({"type": "apply_patch_call_output", "status": "completed"}, "completed"),
        ({"type": "apply_patch_call_output"}, "completed"),
        ({"type": "local_shell_call_output", "output": "{}"}, "{}"),
    ],
)
def test_what_came_of_a_call_becomes_the_output_of_a_function(output: Item, text: str) -> None:
    (item,) = down(output | {"call_id": "c"})
    assert item["type"] == "function_call_output"
    assert (item["call_id"], item["output"]) == ("c", text)
    assert "max_output_length" not in item


def test_images_that_came_of_a_custom_call_stay_images() -> None:
    parts = [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]
    (item,) = down({"type": "custom_tool_call_output", "call_id": "c", "output": parts})
    assert item["output"] == parts


@pytest.mark.parametrize("label", [{"id": "i"}, {"id": "i", "call_id": None}, {"id": "c"}])
def test_a_local_shell_may_name_its_call_by_either_id(label: Item) -> None:
    action = {"type": "exec", "command": ["ls"], "env": {}}
    call: Item = {"type": "local_shell_call", "id": "i", "call_id": "c", "action": action}
    _, output = down(call, {"type": "local_shell_call_output", "output": "x", **label})
    assert output["call_id"] == "c"


def test_what_a_server_found_itself_belongs_to_the_search_before_it() -> None:
    server = {"execution": "server", "call_id": None, "status": "completed"}
    items: list[Item] = []
    for number in "12":
        items.append({"type": "tool_search_call", "id": f"tsc_{number}", "arguments": {}, **server})
        items.append({"type": "tool_search_output", "id": f"tso_{number}", "tools": [], **server})
    assert [item["call_id"] for item in down(*items)] == ["tsc_1", "tsc_1", "tsc_2", "tsc_2"]


def test_what_a_search_found_is_told_by_the_names_that_can_be_called() -> None:
    found: list[Any] = [
        {"type": "function", "name": "a.b"},
        {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}, 3]},
        {"type": "web_search"},
        {"type": ["odd"], "name": "odd"},
    ]
    (item,) = down({"type": "tool_search_output", "call_id": "c", "tools": found})
    names = json.loads(item["output"])["tools"]
    assert [names[0], names[1], names[3], names[4]] == ["a_b", "n__c", "web_search", "odd"]
    assert "tools" not in item


def test_fields_that_nobody_here_knows_are_kept_to_be_reported() -> None:
    call: Item = {"type": "custom_tool_call", "call_id": "c", "name": "c", "input": "", "mood": 1}
    assert down(call)[0]["mood"] == 1
