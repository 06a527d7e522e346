"""Codex's other tools on a chat model: free text, MCP servers, tools that are searched for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from antiphon.testing import Call, Script
from tests.clients import mcp_server
from tests.clients.codex import Codex, catalog, items, messages, offered, pairs
from tests.clients.house import House, Json, Turn, content

pytestmark = pytest.mark.slow

PATCH: Final = """\
*** Begin Patch
*** Add File: new.txt
+first
+second
*** Update File: old.txt
@@
-before
+after
*** End Patch
"""


@pytest.fixture
def old(work: Path) -> Path:
    path = work / "old.txt"
    path.write_text("before\n")
    return path


def desk(log: Path, count: int = 1) -> str:
    """Return the table that gives Codex the MCP server."""
    arguments = json.dumps([mcp_server.__file__, str(log), str(count)])
    return f"\n[mcp_servers.desk]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"


def patch(text: str = PATCH) -> Script:
    return Script(calls=[Call("apply_patch", json.dumps({"input": text}), id="call_1")])


@pytest.mark.turn("codex", "changes files with apply_patch, a free text tool", transport="http")
async def test_a_patch_changes_the_files_and_comes_back_as_history(
    house: House, home: Path, work: Path, old: Path
) -> None:
    house.play(patch(), Script(text="Patched."))
    done = await Codex(home, work, house.base_url, "http").ask("Patch it.")

    (change,) = items(done, "file_change")
    assert {Path(one["path"]).name: one["kind"] for one in change["changes"]} == {
        "new.txt": "add",
        "old.txt": "update",
    }
    assert (content(old), content(work / "new.txt")) == ("after\n", "first\nsecond\n")
    assert messages(done) == ["Patched."]
    ((name, arguments, output),) = pairs(house.asked[1])
    assert (name, json.loads(arguments)) == ("apply_patch", {"input": PATCH})
    assert "Success" in output


@pytest.mark.turn(
    "codex", "changes files with apply_patch, a free text tool", transport="websocket"
)
async def test_a_patch_goes_over_a_websocket_too(
    house: House, home: Path, work: Path, old: Path
) -> None:
    house.play(patch(), Script(text="Patched."))
    keys = await catalog(house, home)
    done = await Codex(home, work, house.base_url, "websocket", keys=keys).ask("Patch it.")

    assert content(old) == "after\n"
    assert messages(done) == ["Patched."]
    assert [name for name, _, _ in pairs(house.asked[1])] == ["apply_patch"]


@pytest.mark.turn(
    "codex", "gets a patch only after it fits the grammar of the tool", transport="http"
)
async def test_a_patch_outside_the_grammar_is_repaired_before_codex_sees_it(
    house: House, home: Path, work: Path, old: Path
) -> None:
    pytest.importorskip("llguidance")
    house.play(
        patch(PATCH.replace("*** End Patch", "*** The End")), patch(), Script(text="Patched.")
    )
    done = await Codex(home, work, house.base_url, "http").ask("Patch it.")

    assert len(items(done, "file_change")) == 1
    assert content(old) == "after\n"
    ((_, arguments, _),) = pairs(house.asked[2])
    assert json.loads(arguments) == {"input": PATCH}


@pytest.mark.turn("codex", "calls a tool of an MCP server by its namespace", transport="http")
async def test_a_call_reaches_the_mcp_server_of_its_namespace(
    house: House, home: Path, work: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    house.play(_call_that_ends_in("add", '{"a": 20, "b": 22}'), Script(text="42."))
    done = await Codex(home, work, house.base_url, "http", tables=desk(log)).ask("Add.")

    (call,) = items(done, "mcp_tool_call")
    assert (call["server"], call["tool"], call["status"]) == ("desk", "add", "completed")
    assert _logged(log) == [{"name": "add", "arguments": {"a": 20, "b": 22}}]
    assert messages(done) == ["42."]
    ((name, _, output),) = pairs(house.asked[1])
    assert name in offered(house.asked[1]) and output.endswith("42")


@pytest.mark.turn("codex", "searches for deferred MCP tools and calls one", transport="http")
async def test_a_deferred_tool_is_found_offered_and_called(
    house: House, home: Path, work: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    search = Call("tool_search", json.dumps({"query": "drawer number 7"}), id="call_1")
    house.play(
        Script(calls=[search]),
        _call_that_ends_in("drawer_7", "{}", "call_2"),
        Script(text="Found."),
    )
    keys = await catalog(house, home, supports_search_tool=True)
    codex = Codex(home, work, house.base_url, "http", keys=keys, tables=desk(log, 80))
    done = await codex.ask("What is in drawer 7?")

    first, second, third = house.asked
    assert not any("drawer" in name for name in offered(first))
    assert len([name for name in offered(second) if "drawer" in name]) < 79
    assert _logged(log) == [{"name": "drawer_7", "arguments": {}}]
    assert messages(done) == ["Found."]
    searched, called = pairs(third)
    assert searched[0] == "tool_search" and "drawer_7" in searched[2]
    assert called[2].endswith("a pencil")


@pytest.mark.turn(
    "codex", "brings its tools as an input item, as for the newest models", transport="http"
)
async def test_tools_that_come_as_an_input_item_are_offered_and_called(
    house: House, home: Path, work: Path, old: Path
) -> None:
    def call_shell(body: Json) -> Script:
        run = _ending(body, "exec_command")
        return Script(calls=[Call(run, '{"cmd": "cat old.txt"}', id="call_1")])

    def call_patch(body: Json) -> Script:
        name = _ending(body, "apply_patch")
        return Script(calls=[Call(name, json.dumps({"input": PATCH}), id="call_2")])

    house.play(call_shell, call_patch, Script(text="Done."))
    keys = await catalog(house, home, use_responses_lite=True)
    done = await Codex(home, work, house.base_url, "http", keys=keys).ask("Patch it.")

    (ran,) = items(done, "command_execution")
    assert ran["aggregated_output"] == "before\n"
    assert content(old) == "after\n"
    assert messages(done) == ["Done."]
    assert len(pairs(house.asked[2])) == 2


def _call_that_ends_in(end: str, arguments: str, id: str = "call_1") -> Turn:
    """Return an answer that calls the one tool on offer whose name ends like this."""
    return lambda body: Script(calls=[Call(_ending(body, end), arguments, id=id)])


def _ending(body: Json, end: str) -> str:
    """Return the one tool on offer whose name ends like this."""
    (name,) = [name for name in offered(body) if name.endswith(end)]
    return name


def _logged(log: Path) -> list[Json]:
    return [json.loads(line) for line in content(log).splitlines()]
