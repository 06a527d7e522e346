"""Store URLs: which store they name, and what is said about the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.store import MemoryStore, SqliteStore, open_store


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
        ("redis://localhost", "redis: is no store that antiphon knows; use sqlite:PATH or memory:"),
        ("postgresql://host/db", "postgresql: is not in this version"),
        ("antiphon.db", "'antiphon.db' is no store: write memory: or sqlite:PATH"),
        ("sqlite:", "sqlite: needs a path"),
        ("sqlite::memory:", "for a store in memory write memory:"),
        ("memory:somewhere", "memory: takes no path"),
    ],
)
def test_other_urls_are_refused_in_words(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        open_store(url)
