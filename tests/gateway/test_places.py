"""Where the user's data goes on each system."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.gateway.places import data_directory, default_store, naming_store, open_named_store
from antiphon.protocol.errors import StoreUnavailable

_HOME = Path("/home/ada")


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, "/home/ada/.local/share/antiphon"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/antiphon"),
        ("linux", {"XDG_DATA_HOME": "relative"}, "/home/ada/.local/share/antiphon"),
        ("darwin", {}, "/home/ada/Library/Application Support/antiphon"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/antiphon"),
        ("win32", {}, "/home/ada/AppData/Local/antiphon"),
    ],
)
def test_data_goes_where_the_system_keeps_it(
    platform: str, environ: dict[str, str], expected: str
) -> None:
    assert data_directory(environ, platform=platform, home=_HOME) == Path(expected)


def test_the_default_store_has_a_directory_to_be_in(tmp_path: Path) -> None:
    scheme, _, path = default_store().partition(":")
    assert scheme == "sqlite"
    assert Path(path).name == "antiphon.db"
    assert Path(path).parent.is_dir()
    assert Path(path).is_relative_to(tmp_path)


def test_a_store_that_is_none_is_refused_in_one_sentence() -> None:
    with pytest.raises(BadSettings, match="--store: redis: is no store that antiphon knows"):
        open_named_store("redis://x")


def test_a_database_server_that_fails_is_named_without_user_and_password() -> None:
    with (
        pytest.raises(Unavailable, match=r"^h:5: it is away$"),
        naming_store("postgresql://ada:hush@h:5/db"),
    ):
        raise StoreUnavailable("it is away")


def test_a_file_that_fails_is_named() -> None:
    with pytest.raises(Unavailable, match=r"^a.db: it is locked$"), naming_store("sqlite:a.db"):
        raise StoreUnavailable("it is locked")
