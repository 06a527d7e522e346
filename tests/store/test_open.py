"""Store URLs: which store they name, and the messages about invalid ones."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from antiphon.store import MemoryStore, SqliteStore, open_store
from antiphon.store.open import public_url, servers_of
from antiphon.store.postgres import PostgresStore


def test_memory_names_the_memory_store() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)


@pytest.mark.parametrize("form", ["a.db", "~/a.db", "{home}/a.db", "//{home}/a.db", "sub/a.db"])
async def test_sqlite_names_a_file(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_store("sqlite:" + form.format(home=tmp_path))
    assert isinstance(store, SqliteStore)
    await store.close()
    assert store.path.is_file()
    assert tmp_path in store.path.parents


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://localhost", "redis: is no store that antiphon knows; use sqlite:PATH, postgres"),
        ("postgresql:db", "postgresql: needs a place, as in postgresql://USER@HOST/DATABASE"),
        ("postgresql://ada:hush@h:99999/db", "must be a number from 1 to 65535"),
        ("postgresql://ada:hush@h:nonsense/db", "must be a number from 1 to 65535"),
        ("postgresql://ada:hush@h/db?port=0", "must be a number from 1 to 65535"),
        ("antiphon.db", "'antiphon.db' is no store: write sqlite:PATH, postgresql://USER@HOST"),
        ("sqlite:", "sqlite: needs a path"),
        ("sqlite::memory:", "for a store in memory write memory:"),
        ("memory:somewhere", "memory: takes no path"),
    ],
)
def test_other_urls_are_refused_in_words(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        open_store(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_a_database_server_is_not_asked_before_it_is_needed(scheme: str) -> None:
    store = open_store(f"{scheme}://nobody@192.0.2.1/none")
    assert isinstance(store, PostgresStore)
    await store.close()


def test_a_missing_driver_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("antiphon.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ValueError, match=re.escape("`pip install '.[postgres]'` in antiphon's")):
        open_store("postgresql://host/db")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:a.db", "sqlite:a.db"),
        ("memory:", "memory:"),
        ("postgresql://u:p@h:5/db", "postgresql://u@h:5/db"),
        ("postgres://u:p%40@h1:1,h2:2/db?password=p&a=b", "postgres://u@h1:1,h2:2/db?a=b"),
        ("postgresql:///db?host=/run/pg", "postgresql:///db?host=/run/pg"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert public_url(url) == shown


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgresql://ada:hush@h/db", "h:5432"),
        ("postgresql://ada:hu@sh@h:5/db?user=ada&password=hush", "h:5"),
        ("postgresql://ada@h1:1,h2:2/db", "h1:1, h2:2"),
        ("postgresql://ada@h1,h2/db?port=7,8", "h1:7, h2:8"),
        ("postgresql://[::1]/db", "[::1]:5432"),
        ("postgresql://[::1]:5/db", "[::1]:5"),
        ("postgresql://h:/db", "h:5432"),
        ("postgresql:///db?host=h&port=6", "h:6"),
        ("postgresql:///db?host=/run/pg&port=6", "/run/pg"),
        ("postgresql:///db", "localhost:5432"),
    ],
)
def test_servers_are_named_without_user_and_password(
    url: str, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGPORT", raising=False)
    assert servers_of(url) == servers


def test_servers_are_found_where_the_driver_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("PGPORT", "6")
    assert servers_of("postgresql:///db") == "elsewhere:6"
    assert servers_of("postgresql://h:5/db") == "h:5"
