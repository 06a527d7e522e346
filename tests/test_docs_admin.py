"""The pages on usage and budgets keep their word: their commands and programs run."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from click.testing import CliRunner

from antiphon.backends.scripted import ScriptedBackend
from antiphon.cli import main
from antiphon.gateway.assemble import ServerSettings
from antiphon.store.base import KeyRecord
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.server.api.organization.books import ask_as, charge, key_of

_HOWTO = Path(__file__).parent.parent / "docs" / "howto"
_PAGES = ("usage.md", "budgets.md")
_KEY = KeyRecord("1f0c2a9be4d05a7c", "lab", b"", 1)


def _blocks(name: str, language: str) -> list[str]:
    text = (_HOWTO / name).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _commands(name: str) -> list[str]:
    lines = [line for block in _blocks(name, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("antiphon ")]


@pytest.mark.parametrize("name", _PAGES)
def test_every_command_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTIPHON_STORE", "sqlite:a.db")

    async def prepare() -> None:
        store = SqliteStore(tmp_path / "a.db")
        await store.add_key(_KEY)
        await store.close()

    asyncio.run(prepare())
    commands = _commands(name)
    for command in commands:
        result = CliRunner().invoke(main, shlex.split(command)[1:])
        assert result.exit_code == 0, (command, result.stderr)
    assert commands


@pytest.fixture
async def admin_key(tmp_path: Path) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway with a charge of the project acme, and the key of an administrator."""
    store = SqliteStore(tmp_path / "a.db")
    await charge(store, "acme", model="qwen3", run="nightly")
    await key_of(store, "acme")
    key = await key_of(store, "ops", "admin")
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        yield gateway, key
    await store.close()


async def test_the_programs_on_usage_print_what_was_used(admin_key: tuple[Gateway, str]) -> None:
    gateway, key = admin_key
    program = "".join(_blocks("usage.md", "python"))
    program = program.replace("http://127.0.0.1:4680/v1", gateway.base_url).replace("ak_…", key)
    printed: list[Any] = []
    names = {"print": lambda *words: printed.append(words)}
    await asyncio.to_thread(exec, f"{program}\nclient.close()", names)

    assert any(words[1:4] == ("acme", "qwen3", 135) for words in printed)
    assert any(words[1] and words[1][0][0] == "acme" for words in printed if len(words) == 2)
    (of_the_run,) = printed[-1]
    assert [amount.value for amount in of_the_run] == [1]


async def test_the_program_and_the_request_on_budgets_set_them(
    admin_key: tuple[Gateway, str],
) -> None:
    gateway, key = admin_key
    (program,) = _blocks("budgets.md", "python")
    with openai.OpenAI(base_url=gateway.base_url, api_key="x", admin_api_key=key) as client:
        await asyncio.to_thread(exec, program, {"client": client})
    (body,) = re.findall(r"-d '(.*?)'", "".join(_blocks("budgets.md", "sh")), re.DOTALL)
    answer = await ask_as(gateway, key, "POST", "/antiphon/budgets", json.loads(body))
    states = await gateway.store.ledger.budgets()
    (limit,) = await gateway.store.ledger.rate_limits()

    assert answer.status == 200, answer.body
    assert {(one.budget.scope, one.budget.scope_id) for one in states} == {
        ("project", "acme"),
        ("user", "acme/ann"),
    }
    assert (limit.model, limit.requests) == ("qwen3", 60)
