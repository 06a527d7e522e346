"""Would a bug in the replay of programs be seen? Each planted one must be.

Every bug is a small change to the source of the cell that runs programs. The scenario is a whole
life of a program: it is run again with all results so far until it ends.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from antiphon.tools.programs import inside

SOURCE = Path(inside.__file__).read_text()
# One chain is slower by some steps; chance and time decide what is called.
CHAINS = """
const order = [];
const note = async (sku) => { order.push(sku); return await tools.stock({sku}); };
const fast = async () => { for (const sku of ["f1", "f2", "f3"]) await note(sku); };
const slow = async () => { await note("s1"); for (let i = 0; i < 9; i++) await null;
                           await note(`s2-${Math.random()}-${Date.now()}`); };
await Promise.all([fast(), slow()]);
text(order.length);
tools.stock({sku: "last"});
"""
BUGS = {
    "random numbers differ": ("  Math.random = () =>", "  const unused = () =>"),
    "the time differs": ('name === "now" ? () => 0', 'name === "then" ? () => 0'),
    "results come before their batch is whole": ("self._context.execute_pending_job()", "False"),
    "arguments are not compared": ('in (call["arguments"], None)', "in (ANY,)"),
    "names are not compared": ('record["name"] == call["name"]', "True"),
    "calls without arguments in their item are not found": (
        'call["arguments"], None)',
        "ANY,)[:0]",
    ),
    "calls that nothing waits for are lost": (
        'if not calls or state["status"] == "failed"',
        'if not calls or state["status"] != "waiting"',
    ),
    "results of calls that were not made are ignored": ("and not is_whole", "and False"),
    "calls are not counted": ("if made > most_calls:", "if False:"),
}


def _check(source: str) -> None:
    """Raise AssertionError if programs are not replayed as they must be."""
    pytest.importorskip("_quickjs")
    printed: list[str] = []
    scope: dict[str, Any] = {"__name__": "cell", "print": printed.append, "ANY": ANY}
    exec(compile(source, "inside.py", "exec"), scope)
    scope["_load"] = lambda: importlib.import_module("_quickjs")

    def run(code: str, records: list[Any]) -> Any:
        given = {"code": code, "names": ["stock"], "records": records}
        scope["main"](json.dumps({**given, "memory_bytes": 1 << 25, "most_calls": 8}))
        return json.loads(printed[-1])

    records: list[Any] = []
    state = run(CHAINS, records)
    batches: list[int] = []
    while state["status"] == "waiting" and len(batches) < 9:
        batches.append(len(state["calls"]))
        records += [{**call, "result": {"value": 1}} for call in state["calls"]]
        state = run(CHAINS, records)
    assert batches == [2, 2, 1, 1]
    assert (state["status"], state["output"]) == ("done", [{"type": "text", "text": "5"}])
    other = {"name": "stock", "arguments": '{"sku":"x"}', "result": {"value": 1}}
    assert run(CHAINS, [other, *records[1:]])["status"] == "failed"
    assert run("text(1)", [other])["status"] == "failed"
    short = "text(await tools.stock({sku: 'x'}))"
    hosted = {**other, "arguments": None}
    assert run(short, [hosted])["status"] == "done"
    assert run(short, [{**hosted, "name": "order"}])["status"] == "failed"
    many = "for (let i = 0; i < 9; i++) tools.stock({})"
    assert run(many, [])["status"] == "failed"


def test_the_replay_as_it_is_holds() -> None:
    _check(SOURCE)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(name: str) -> None:
    old, new = BUGS[name]
    assert SOURCE.count(old) == 1
    with pytest.raises(AssertionError):
        _check(SOURCE.replace(old, new))
