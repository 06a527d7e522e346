"""Skills as archives: what is read, and what is refused before it is unpacked."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.tools.containers.archives import pack, read_archive

HEAD = b"---\nname: csv-tools\ndescription: Work with tables.\n---\n# Use\n"


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    """Return an archive with these entries, whatever their names."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return data.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    """Return an entry that is a symbolic link."""
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize("top", ["", "csv-tools/"])
def test_a_skill_is_read_with_or_without_a_folder_around_it(top: str, tmp_path: Path) -> None:
    data = zipped((f"{top}SKILL.md", HEAD), (f"{top}bin/run.sh", b"#!/bin/sh\necho hi\n"))
    skill = read_archive(data, "files")
    assert (skill.name, skill.description) == ("csv-tools", "Work with tables.")
    skill.unpack(tmp_path / "s")
    assert (tmp_path / "s" / "bin" / "run.sh").stat().st_mode & 0o111
    assert (tmp_path / "s" / "SKILL.md").read_bytes() == HEAD


def test_files_that_come_one_by_one_are_packed() -> None:
    skill = read_archive(pack([("x/SKILL.md", HEAD), ("x/a.txt", b"1")]), "files")
    assert set(skill.files) == {"SKILL.md", "a.txt"}


def test_a_folded_description_and_quotes_are_read() -> None:
    head = b"---\nname: 'a'\nlicense: MIT\ndescription: >\n  one\n  two\nother: x\n---\n"
    skill = read_archive(zipped(("SKILL.md", head)), "files")
    assert (skill.name, skill.description) == ("a", "one two")


REFUSED: dict[str, bytes] = {
    "no archive": b"not a zip",
    "no head": zipped(("a.txt", b"x")),
    "no name": zipped(("SKILL.md", b"---\ndescription: x\n---\n")),
    "no description": zipped(("SKILL.md", b"---\nname: x\n---\n")),
    "a name that is a path": zipped(("SKILL.md", b"---\nname: ../x\ndescription: x\n---\n")),
    "upwards": zipped(("SKILL.md", HEAD), ("../evil", b"x")),
    "upwards inside": zipped(("SKILL.md", HEAD), ("a/../../evil", b"x")),
    "absolute": zipped(("SKILL.md", HEAD), ("/etc/evil", b"x")),
    "backslash": zipped(("SKILL.md", HEAD), ("a\\..\\evil", b"x")),
    "a link": zipped(("SKILL.md", HEAD), (link("evil"), b"/etc/passwd")),
    "twice": zipped(("SKILL.md", HEAD), ("a", b"1"), ("A", b"2")),
    "too deep": zipped(("SKILL.md", HEAD), ("d/" * 40 + "f", b"x")),
    "too many": zipped(("SKILL.md", HEAD), *((f"f{n}", b"") for n in range(1001))),
    "a bomb": zipped(("SKILL.md", HEAD), ("zeros", bytes(8 * 1024 * 1024))),
    "cut": zipped(("SKILL.md", HEAD), ("a", b"x" * 1000))[:-60],
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_safe_skill_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_archive(REFUSED[name], "files")
    assert refused.value.code == "invalid_skill"


def test_an_entry_that_is_larger_than_it_declares_is_refused() -> None:
    data = bytearray(zipped(("SKILL.md", HEAD), ("a", b"x" * 5000)))
    place = data.rindex(b"PK\x01\x02")
    struct.pack_into("<I", data, place + 24, 10)  # the size in the list of entries
    with pytest.raises(InvalidRequest):
        read_archive(bytes(data), "files")
