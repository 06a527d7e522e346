"""Calls of programs are known by their ids, and by nothing else."""

from __future__ import annotations

from antiphon.protocol.items import Item
from antiphon.protocol.program_calls import caller_field, program_call_id, restore_callers


def _call(call_id: str, **fields: object) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **fields}


def test_callers_are_restored_for_the_calls_of_each_program() -> None:
    programs: list[Item] = [{"type": "program", "call_id": name, "code": ""} for name in "pq"]
    ids = [program_call_id(name, number) for name in "pq" for number in range(2)]
    output: Item = {"type": "function_call_output", "call_id": ids[0], "output": "1"}
    items = [*programs, *map(_call, ids), output, _call("own")]
    found = restore_callers(items)
    callers = [caller_field(name) for name in "ppqq"]
    expected = [_call(one, caller=who) for one, who in zip(ids, callers, strict=True)]
    assert found == [*programs, *expected, output, _call("own")]
    assert items[2] == _call(ids[0]), "what was given is not changed"


def test_without_its_program_a_call_has_no_caller() -> None:
    items = [_call(program_call_id("p", 0))]
    assert restore_callers(items) == items
    odd: list[Item] = [{"type": "program", "call_id": 7}, *items]
    assert restore_callers(odd) == odd
