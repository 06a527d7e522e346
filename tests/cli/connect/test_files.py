"""Files of others: changed whole or not at all, and restored to the byte."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from antiphon.cli.connect import files
from antiphon.cli.connect.files import Change, apply, diff_of, plan_undo, plan_write
from antiphon.cli.connect.jsonc_piece import Addition, JsonPiece
from antiphon.cli.connect.lines import SettingsPiece
from antiphon.cli.connect.piece import CannotMerge, Piece
from antiphon.cli.errors import CliError

_JSON = JsonPiece((Addition(("p", "antiphon"), {"u": 1}),))
_OTHER = JsonPiece((Addition(("p", "antiphon"), {"u": 2}),))
_ENV = SettingsPiece("agents", ("BASE=u",), names=("BASE",))


def _write(path: Path, piece: Piece) -> Path | None:
    return apply(plan_write(path, piece))


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _undo(path: Path, piece: Piece) -> None:
    apply(plan_undo(path, piece))


@pytest.mark.parametrize("piece", [_JSON, _ENV])
@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\xef\xbb\xbf{}\r\n", b'{ "a": 1 }', b"\n", b"{\r\n  // c\r\n}\r\n"]
)
def test_a_file_is_restored_to_the_byte(tmp_path: Path, piece: Piece, data: bytes) -> None:
    path = tmp_path / "settings"
    path.write_bytes(data)
    kept = _write(path, piece)
    assert kept == tmp_path / "settings.antiphon-backup"
    assert kept.read_bytes() == data != path.read_bytes()
    written = path.read_bytes()
    assert _write(path, piece) is None
    assert path.read_bytes() == written
    _undo(path, piece)
    assert path.read_bytes() == data
    assert _names(tmp_path) == ["settings"]


def test_a_file_that_was_not_there_is_not_there_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "settings.json"
    assert _write(path, _JSON) is None
    assert path.read_text() == _JSON.paste()
    _write(path, _OTHER)
    _undo(path, _JSON)
    assert _names(path.parent) == []


def test_a_new_file_that_was_added_to_stays_with_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    _write(path, _ENV)
    path.write_text(path.read_text() + "MINE=1\n")
    _undo(path, _ENV)
    assert path.read_text() == "MINE=1\n"


def test_an_entry_that_was_there_before_ours_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    theirs = '{"p": {"antiphon": {"mine": true}}}'
    path.write_text(theirs)
    _write(path, _JSON)
    _write(path, _OTHER)
    change = plan_undo(path, _JSON)
    apply(change)
    assert path.read_text() == "{}"
    assert change.left[-1].read_text() == theirs


def test_edits_since_then_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"p": {}, "a": 1}')
    _write(path, _JSON)
    path.write_text(path.read_text().replace('"a": 1', '"a": 2'))
    _undo(path, _JSON)
    assert path.read_text() == '{"p": {}, "a": 2}'
    assert (tmp_path / "settings.json.antiphon-backup").read_text() == '{"p": {}, "a": 1}'


def test_an_older_backup_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    (tmp_path / "settings.json.antiphon-backup").write_text("a broken { one")
    path.write_text("{}")
    assert _write(path, _JSON) == tmp_path / "settings.json.antiphon-backup-2"
    assert _write(path, _OTHER) == tmp_path / "settings.json.antiphon-backup-3"
    _undo(path, _JSON)
    assert path.read_text() == "{}"
    assert _names(tmp_path) == ["settings.json", "settings.json.antiphon-backup"]


def test_the_same_is_not_kept_twice(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    for text in ("{}", '{"a": 1}', "{}"):
        path.write_text(text)
        kept = _write(path, _JSON)
    assert kept == tmp_path / "settings.json.antiphon-backup"
    assert len(_names(tmp_path)) == 3


def test_there_is_an_end_to_backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_BACKUPS", 1)
    path = tmp_path / "settings.json"
    path.write_text("{}")
    (tmp_path / "settings.json.antiphon-backup").write_text("mine")
    with pytest.raises(CliError, match="has 1 backups already"):
        _write(path, _JSON)
    assert path.read_text() == "{}"


def test_permissions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    path.chmod(0o640)
    kept = _write(path, _JSON)
    assert kept is not None
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, kept)] == [0o640, 0o640]


def test_a_new_file_has_the_permissions_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    _write(tmp_path / "settings.json", _JSON)
    modes = {file.stat().st_mode for file in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "real.json", tmp_path / "settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    link.symlink_to(real)
    _write(link, _JSON)
    assert link.is_symlink() and real.read_text() == _JSON.merge("{}")
    assert _names(tmp_path) == ["dotfiles", "settings.json"]
    _undo(link, _JSON)
    assert link.is_symlink() and real.read_text() == "{}"


def test_a_file_that_is_read_only_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    path.chmod(0o444)
    with pytest.raises(CliError, match="is read-only; nothing was changed"):
        _write(path, _JSON)
    assert _names(tmp_path) == ["settings.json"]


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CliError, match=r"cannot be written: .*; nothing was changed"):
        _write(tmp_path / "file" / "settings.json", _JSON)


def test_somebody_who_was_faster_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    change = plan_write(path, _JSON)
    path.write_text("[]")
    with pytest.raises(CliError, match="changed by another program"):
        apply(change)
    assert path.read_text() == "[]"
    assert not [name for name in _names(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize(
    ("data", "complaint"), [(b"\xff", "not UTF-8"), (b" " * (4 * 1024 * 1024 + 1), "larger than")]
)
def test_what_is_no_settings_file_is_refused(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(data)
    for plan in (plan_write, plan_undo):
        with pytest.raises(CannotMerge, match=complaint):
            plan(path, _JSON)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotMerge, match="it is not a file"):
        plan_write(tmp_path, _JSON)


def test_a_place_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotMerge, match="it cannot be read: file name too long"):
        plan_write(tmp_path / ("x" * 300), _JSON)


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(CannotMerge):
        plan_write(tmp_path / "a", _JSON)


def test_nothing_to_take_back_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    assert plan_undo(path, _JSON).is_none
    path.write_text("{}")
    assert plan_undo(path, _JSON).is_none


def test_a_change_can_be_shown(tmp_path: Path) -> None:
    change = Change(Path("/s"), "a\nb\n", "a\nc\n")
    assert diff_of(change) == "--- /s\n+++ /s\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert diff_of(Change(Path("/s"), None, "a\n")).startswith("--- /dev/null\n+++ /s\n")
    assert diff_of(Change(Path("/s"), "a\n", None)).startswith("--- /s\n+++ /dev/null\n")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("OPENAI_API_KEY=sk-1", "OPENAI_API_KEY=…"),
        ('  "apiKey": "sk-1", // c', '  "apiKey": "…", // c'),
        ("experimental_bearer_token = 'sk-1'", "experimental_bearer_token = '…'"),
        ('experimental_bearer_token = "unused"', 'experimental_bearer_token = "unused"'),
        ('env_key = "SOME_KEY"', 'env_key = "SOME_KEY"'),
        ('"apiKey": "{env:SOME_KEY}"', '"apiKey": "{env:SOME_KEY}"'),
        ("max_tokens = 3", "max_tokens = 3"),
    ],
)
def test_keys_are_not_shown(line: str, shown: str) -> None:
    diff = diff_of(Change(Path("/s"), "", f"{line}\n"))
    assert diff.endswith(f"\n+{shown}\n")
