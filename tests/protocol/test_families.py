"""The families of tools: what their calls are on the wire, and as arguments of a function."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.families import (
    FAMILIES,
    WHOLE,
    Kind,
    answers,
    arguments_of,
    call_family,
    call_item,
    is_call,
    is_output,
    opening_of,
    output_family,
    payload_of,
)

EXEC: dict[str, Any] = {"type": "exec", "command": ["ls"], "env": {}}
PATCH: dict[str, Any] = {"type": "update_file", "path": "a.py", "diff": "@@"}


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_knows_its_calls_and_their_outputs(kind: Kind) -> None:
    family = FAMILIES[kind]
    assert call_family({"type": family.call}) is family
    assert output_family({"type": family.output}) is family
    assert is_call({"type": family.call})
    assert not is_call({"type": family.output})
    assert is_output({"type": family.output})
    assert not is_output({"type": family.call})


def test_a_message_is_neither_call_nor_output() -> None:
    message = {"role": "user", "content": "x"}
    assert call_family(message) is None
    assert output_family(message) is None


def test_calls_that_hold_an_object_are_told_whole() -> None:
    assert {"shell", "local_shell", "apply_patch", "tool_search", "computer"} == WHOLE


@pytest.mark.parametrize(
    ("item", "call_id"),
    [
        ({"call_id": "c", "id": "i"}, "c"),
        ({"call_id": None, "id": "i"}, "i"),
        ({"call_id": "", "id": "i"}, "i"),
        ({"id": "i"}, "i"),
        ({}, None),
        ({"call_id": 3, "id": None}, None),
    ],
)
def test_a_call_goes_by_its_call_id_or_else_by_its_id(
    item: dict[str, Any], call_id: str | None
) -> None:
    assert answers(item) == call_id


@pytest.mark.parametrize(
    ("kind", "arguments", "payload"),
    [
        (
            "shell",
            '{"commands":["ls"],"timeout_ms":5}',
            {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None},
        ),
        (
            "shell",
            '{"commands":"ls -l"}',
            {"commands": ["ls -l"], "timeout_ms": None, "max_output_length": None},
        ),
        ("local_shell", '{"command":["ls"]}', EXEC),
        ("local_shell", '{"command":"ls | wc"}', EXEC | {"command": ["bash", "-lc", "ls | wc"]}),
        (
            "local_shell",
            '{"command":["ls"],"env":{"A":"1"},"user":null,"working_directory":"/x"}',
            EXEC | {"env": {"A": "1"}, "working_directory": "/x"},
        ),
        ("apply_patch", '{"operation":{"type":"update_file","path":"a.py","diff":"@@"}}', PATCH),
        ("apply_patch", '{"type":"update_file","path":"a.py","diff":"@@"}', PATCH),
        (
            "apply_patch",
            '{"operation":{"type":"delete_file","path":"a.py"}}',
            {"type": "delete_file", "path": "a.py"},
        ),
        ("tool_search", '{"paths":["a"]}', {"paths": ["a"]}),
        ("tool_search", "", {}),
    ],
)
def test_arguments_become_what_the_call_holds(
    kind: Kind, arguments: str, payload: dict[str, Any]
) -> None:
    assert payload_of(kind, arguments) == payload


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("shell", ""),
        ("shell", "{}"),
        ("shell", '{"commands":[]}'),
        ("shell", '{"commands":[1]}'),
        ("shell", '{"commands":{"a":1}}'),
        ("shell", "[]"),
        ("shell", '{"commands":["ls"'),
        ("shell", "[" * 100_000),
        ("shell", '"\ud800"'),
        ("local_shell", '{"commands":["ls"]}'),
        ("apply_patch", "{}"),
        ("apply_patch", '{"operation":"delete it"}'),
        ("apply_patch", '{"operation":{"path":"a.py","diff":""}}'),
        ("apply_patch", '{"operation":{"type":"rename_file","path":"a.py"}}'),
        ("apply_patch", '{"operation":{"type":"update_file","path":"","diff":""}}'),
        ("apply_patch", '{"operation":{"type":"update_file","path":"a.py"}}'),
        ("apply_patch", '{"operation":{"type":"delete_file","path":7}}'),
        ("tool_search", "3"),
    ],
)
def test_arguments_that_are_no_such_call_are_none(kind: Kind, arguments: str) -> None:
    assert payload_of(kind, arguments) is None


@pytest.mark.parametrize(
    ("kind", "payload", "arguments"),
    [
        (
            "shell",
            {"commands": ["ls"], "timeout_ms": None, "max_output_length": 0},
            '{"commands":["ls"],"max_output_length":0}',
        ),
        ("local_shell", EXEC, '{"command":["ls"]}'),
        ("local_shell", EXEC | {"env": {"A": ""}}, '{"command":["ls"],"env":{"A":""}}'),
        ("apply_patch", PATCH, '{"operation":{"type":"update_file","path":"a.py","diff":"@@"}}'),
        ("tool_search", {"type": None, "env": {}}, '{"type":null,"env":{}}'),
    ],
)
def test_what_a_call_holds_becomes_arguments_that_say_no_more(
    kind: Kind, payload: dict[str, Any], arguments: str
) -> None:
    assert arguments_of(kind, payload) == arguments


def test_a_new_call_has_what_its_family_has_and_shares_nothing() -> None:
    def made(kind: Kind) -> dict[str, Any]:
        return call_item(kind, id="i", call_id="c", name="f", namespace="n", status="in_progress")

    base = {"id": "i", "status": "in_progress", "call_id": "c"}
    named = base | {"name": "f", "namespace": "n"}
    assert made("function") == named | {"type": "function_call", "arguments": ""}
    assert made("custom") == named | {"type": "custom_tool_call", "input": ""}
    assert made("tool_search") == base | {
        "type": "tool_search_call",
        "execution": "client",
        "arguments": {},
    }
    made("shell")["action"]["commands"].append("rm")
    assert made("shell")["action"]["commands"] == []


def test_a_call_without_a_namespace_has_no_such_field() -> None:
    call = call_item("function", id="i", call_id="c", name="f", namespace=None, status="x")
    assert "namespace" not in call


def test_a_patch_names_its_file_when_it_opens_and_a_shell_nothing() -> None:
    assert opening_of("apply_patch", PATCH) == PATCH | {"diff": ""}
    gone = {"type": "delete_file", "path": "a.py"}
    assert opening_of("apply_patch", gone) == gone
    assert opening_of("shell", {"commands": ["ls"]})["commands"] == []
    assert opening_of("tool_search", {"diff": "x"}) == {"diff": "x"}
    assert opening_of("function", "{}") == ""
    assert opening_of("custom", "text") == ""


@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        '{"action": 1}',
        '{"action": {"type": "explode"}}',
        '{"action": {"type": "click", "x": 1, "y": 2}}',
        '{"action": {"type": "click", "x": "1", "y": 2, "button": "left"}}',
        '{"action": {"type": "move", "x": true, "y": 2}}',
        '{"action": {"type": "type"}}',
    ],
)
def test_an_action_that_is_not_whole_is_none(arguments: str) -> None:
    assert payload_of("computer", arguments) is None


def test_an_action_may_stand_without_its_wrapper() -> None:
    assert payload_of("computer", '{"type": "wait"}') == {"type": "wait"}
    assert arguments_of("computer", {"type": "wait"}) == '{"action":{"type":"wait"}}'
