"""Which calls are checked before they are handed over, and against what."""

from __future__ import annotations

from typing import Any, Final

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.prepare import grammars
from antiphon.engine.prepare.checks import call_checks, has_grammars
from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.errors import InvalidRequest
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask

NOBODY: Final[frozenset[str]] = frozenset()
WHOLE: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
DIGITS: Final = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}


def box(*tools: dict[str, Any]) -> Toolbox:
    return gather_tools(list(tools))[0]


@pytest.mark.parametrize(
    ("tool", "right", "wrong"),
    [
        ({"type": "function", "name": "t", "strict": True, "parameters": WHOLE}, '{"n":1}', "{}"),
        ({"type": "function", "name": "t", "strict": True}, "{}", "[]"),
        ({"type": "function", "name": "t", "strict": True}, "", "no"),
        ({"type": "custom", "name": "t", "format": DIGITS}, "12", "a"),
        ({"type": "shell"}, '{"commands":["ls"]}', '{"commands":[]}'),
        ({"type": "local_shell"}, '{"command":["ls"]}', '{"command":"ls"}'),
        (
            {"type": "apply_patch"},
            '{"operation":{"type":"delete_file","path":"a"}}',
            '{"operation":{"type":"update_file","path":"a"}}',
        ),
        ({"type": "tool_search", "execution": "client"}, '{"paths":["a"]}', '"a"'),
        ({"type": "function", "name": "t", "parameters": WHOLE}, '{"other":1}', "[1]"),
    ],
)
def test_a_call_is_held_against_what_its_tool_takes(
    tool: dict[str, Any], right: str, wrong: str
) -> None:
    checks, report = call_checks(box(tool), NOBODY)
    (check,) = checks.values()
    assert report == []
    assert check(right) is None
    assert check(wrong)


@pytest.mark.parametrize(
    ("tool", "enforced"),
    [
        ({"type": "function", "name": "t", "strict": True}, frozenset({"arguments"})),
        ({"type": "custom", "name": "t"}, NOBODY),
        ({"type": "custom", "name": "t", "format": {"type": "text"}}, NOBODY),
    ],
)
def test_what_nobody_asked_to_check_is_not_checked(
    tool: dict[str, Any], enforced: frozenset[str]
) -> None:
    assert call_checks(box(tool), enforced) == ({}, [])
    assert not has_grammars(box(tool))


def test_a_schema_that_is_of_no_use_is_reported() -> None:
    tool = {"type": "function", "name": "t", "strict": True, "parameters": {"type": "nonsense"}}
    checks, (note,) = call_checks(box(tool), NOBODY)
    assert checks == {}
    assert note.startswith("tools[0].strict: it cannot be checked")


def test_a_grammar_that_is_none_is_refused() -> None:
    tool = {"type": "custom", "name": "t", "format": DIGITS | {"definition": "("}}
    with pytest.raises(InvalidRequest):
        call_checks(box(tool), NOBODY)


async def test_a_grammar_that_nobody_can_check_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "can_check", lambda: False)
    tool = {"type": "custom", "name": "t", "format": DIGITS}
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await ask(gateway, tools=[tool])
        refused = await ask(gateway, {"x-antiphon-strict": "1"}, tools=[tool])

    assert "tools[0].format" in answer.headers["x-antiphon-degraded"]
    assert "[grammar]" in answer.headers["x-antiphon-degraded"]
    assert refused.status == 400
