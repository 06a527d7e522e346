"""Real clients with code and shell commands that the gateway runs.

What they read of the items, the file and its citation, and what they send back in the next turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from antiphon.testing import Call, Script
from antiphon.tools.base import ToolRunner
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.shell import HostedShell
from tests.clients.stage import Performance, perform, roles
from tests.containers import make_service

CODE: Final = Call(
    "code_interpreter", "{\"code\": \"here('a.txt').write_text('x'); display(PNG); print(42)\"}"
)
SHELL: Final = Call("shell", '{"commands": ["echo hi", "exit 3"]}')
TEXT: Final = "It is 42: [a](sandbox:/mnt/data/a.txt)."
TURN: Final = [Script(calls=[CODE, SHELL]), Script(text=list(TEXT)), Script(text="Still 42.")]
CODE_ALONE: Final = [Script(calls=[CODE]), *TURN[1:]]


@asynccontextmanager
async def hosting() -> AsyncIterator[Sequence[ToolRunner]]:
    service = make_service()
    yield [CodeInterpreter(service), HostedShell(service)]
    await service.store.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    scripts = {"stored": TURN, "not-stored": TURN}
    folder = tmp_path_factory.mktemp("ai-sdk-code")
    return perform("ai_sdk_code.mjs", scripts, folder, tools=hosting)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    scripts = {"agents": TURN, "pydantic": CODE_ALONE}
    folder = tmp_path_factory.mktemp("python-code")
    return perform("code_python.py", scripts, folder, tools=hosting)


@pytest.mark.parametrize("turn", ["stored", "not-stored"])
def test_the_ai_sdk_reads_code_commands_and_a_cited_file(turn: str, node: Performance) -> None:
    seen = node.seen(turn)
    assert seen["errors"] == []
    assert seen["text"] == TEXT
    assert seen["sources"] == ["a.txt"]
    code, shell = seen["outputs"]
    assert [one["type"] for one in code["outputs"]] == ["image", "logs"]
    assert [one["stdout"] for one in shell["output"]] == ["hi\n", ""]
    assert seen["again"] == {"text": "Still 42.", "errors": []}


def test_openai_agents_read_code_and_commands_and_send_them_back(python: Performance) -> None:
    seen = python.seen("agents")
    assert seen["text"] == TEXT
    assert seen["again"] == "Still 42."
    assert seen["notes"] == [["container_file_citation", "a.txt"]]
    assert {"code_interpreter_call", "shell_call", "shell_call_output"} <= set(seen["kinds"])
    _, _, third = python.bodies("agents")
    assert roles(third).count("tool") == 2


def test_pydantic_ai_reads_code(python: Performance) -> None:
    seen = python.seen("pydantic")
    assert TEXT in str(seen["text"])
    assert "Still 42." in str(seen["again"])
