"""A key's secret and a token: never in a log, an error, the audit log or any file of the store."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.backends.scripted import ScriptedBackend
from antiphon.cli import main
from antiphon.gateway.assemble import ServerSettings
from antiphon.store.base import AuditQuery
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request

KEYED = ServerSettings(require_keys=True)
PATHS = ("/models", "/responses/x", "/../metrics", "/organization/projects", "/nothing")


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--store", "sqlite:a.db"])
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def _secrets_of(*keys: str) -> list[str]:
    return [key.split("_", 2)[2] for key in keys]


def _administrate() -> list[str]:
    """Do all that can be done with keys; return their secrets."""
    first = _run("keys", "create", "--project", "ann", "--user", "ann", "--models", "echo")
    second = _run("keys", "create", "--project", "ann", "--role", "admin", "--never-store")
    key_id = first.split("_")[1]
    third = _run("keys", "rotate", key_id, "--overlap", "1h")
    _run("projects", "update", "ann", "--name", "Ann")
    shown = _run("keys", "list") + _run("projects", "list")
    found = _secrets_of(first, second, third)
    assert [one for one in found if one in shown] == []
    return found


def _leaks(folder: Path, secrets: list[str]) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [
        path.name for path in files if any(one.encode() in path.read_bytes() for one in secrets)
    ]


async def test_no_secret_is_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    secrets = await asyncio.to_thread(_administrate)
    store = SqliteStore(tmp_path / "a.db")
    keys = {record.id: record for record in await store.list_keys()}
    answers = []
    async with serve_gateway(ScriptedBackend(), store=store, settings=KEYED) as gateway:
        for secret in secrets:
            for key_id in keys:
                # Good keys, and keys with the secret of another one.
                headers = {"Authorization": f"Bearer ak_{key_id}_{secret}"}
                answers.append(await ask(gateway, headers, model="echo"))
                answers.append(await ask(gateway, headers, model="forbidden"))
                for path in PATHS:
                    answers.append(await request(gateway, "GET", path, headers=headers))
            answers.append(await ask(gateway, {"Authorization": f"Bearer {secret}.{secret}.x"}))
            answers.append(await ask(gateway, {"x-api-key": secret}))
    entries = await store.audit.page(AuditQuery(), limit=100)
    await store.close()
    statuses = {answer.status for answer in answers}
    assert statuses >= {200, 401, 403, 404}
    for secret in secrets:
        assert secret not in caplog.text
        assert all(secret not in str(entry) for entry in entries)
        for answer in answers:
            assert secret not in answer.body.decode() + str(dict(answer.headers))
    assert len(entries) >= 4
    for record in keys.values():
        assert all(record.digest.hex() not in str(entry) for entry in entries)
        assert all(str(record.digest) not in str(entry) for entry in entries)
    assert _leaks(tmp_path, secrets) == []
