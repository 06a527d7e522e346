"""The working folder of a container: what programs leave in it cannot lead out of it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from antiphon.tools.containers.folder import (
    MAX_DEPTH,
    changes,
    copy_out,
    is_storable,
    place_file,
    plain_name,
    remove_file,
    scan,
)


def write(data: bytes) -> object:
    """Return what writes these bytes."""
    return lambda file: os.write(file, data)


def paths(folder: Path) -> list[str]:
    """Return what a scan finds."""
    return [entry.path for entry in scan(folder).entries]


def test_plain_files_are_found_with_their_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("x")
    (tmp_path / "ü 1.csv").write_text("x")
    assert paths(tmp_path) == ["/mnt/data/a/b.txt", "/mnt/data/ü 1.csv"]


def test_links_devices_and_odd_names_are_left_out_and_reported(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    (folder / "new\nline").write_text("x")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("x")
    (folder / ".hidden").write_text("x")
    found = scan(folder)
    assert found.entries == []
    assert len(found.left_out) == 6
    assert sum("a link" in why for why in found.left_out) == 2
    assert sum("not a plain file" in why for why in found.left_out) == 2


def test_deep_trees_and_many_files_end_a_scan(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(MAX_DEPTH + 4):
        deep = deep / "d"
        deep.mkdir()
    (deep / "f").write_text("x")
    found = scan(tmp_path)
    assert found.entries == []
    assert "folders deep" in found.left_out[0]


def test_changes_are_seen_even_if_a_program_sets_the_time_back(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    (before,) = scan(tmp_path).entries
    status = file.stat()
    file.write_text("2")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    entries = scan(tmp_path).entries
    assert changes(entries, {before.path: before.stamp}) == (entries, [])
    assert changes([], {before.path: before.stamp}) == ([], [before.path])


def test_a_file_is_read_up_to_a_limit_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "big").write_bytes(b"x" * 100)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    assert b"".join(copy_out(folder, "/mnt/data/big", 10)) == b"x" * 10
    for path in ("/mnt/data/link", "/mnt/data/out/secret", "/mnt/data/pipe", "/mnt/data/../secret"):
        with pytest.raises(OSError):
            list(copy_out(folder, path, 10))


def test_a_sparse_file_has_the_size_it_pretends(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**10)
    assert scan(tmp_path).entries[0].size == 10**10


def test_writing_never_follows_what_a_program_put_in_the_way(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("kept")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "sub").symlink_to(outside)
    (folder / "file").symlink_to(outside / "a.txt")
    place_file(folder, "/mnt/data/sub/a.txt", write(b"new"))  # type: ignore[arg-type]  # returns a number
    place_file(folder, "/mnt/data/file", write(b"new"))  # type: ignore[arg-type]  # returns a number
    assert (outside / "a.txt").read_text() == "kept"
    assert (folder / "sub" / "a.txt").read_text() == "new"
    assert not (folder / "file").is_symlink()
    (folder / "dir").symlink_to(outside)
    remove_file(folder, "/mnt/data/dir/a.txt")
    remove_file(folder, "/mnt/data/file")
    assert (outside / "a.txt").exists()
    assert not (folder / "file").exists()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("a.csv", "a.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\x\\a b.txt", "a b.txt"),
        (".bashrc", "file_bashrc"),
        ("..", "file_"),
        ("", "file"),
        ("a\nb", "a_b"),
        ("x" * 300, "x" * 255),
    ],
)
def test_names_of_uploads_can_stand_in_the_folder(given: str, name: str) -> None:
    assert plain_name(given) == name
    assert is_storable(f"/mnt/data/{name}")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/mnt/data/",
        "/mnt/data/../a",
        "/mnt/data//a",
        "/mnt/data/.a",
        "/mnt/data/a\0",
    ],
)
def test_other_paths_are_no_files_of_a_container(path: str) -> None:
    assert not is_storable(path)
