"""The packed extension: what is in it, and that the same sources make the same bytes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Final

import pytest

from antiphon.version import __version__
from tests.clients.install import ROOT
from tests.vscode.vsix import EXTENSION, build

FOLDER: Final = ROOT / EXTENSION
MAX_BYTES: Final = 600_000


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension, packed once."""
    return build(tmp_path_factory.mktemp("vsix") / "antiphon.vsix")


def test_the_same_sources_make_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    assert build(tmp_path / "again.vsix").read_bytes() == packed.read_bytes()


def test_only_what_is_listed_is_in_it(packed: Path) -> None:
    sources = {f"extension/src/{path.name}" for path in (FOLDER / "src").glob("*.js")}
    pictures = {f"extension/pictures/{path.name}" for path in (FOLDER / "pictures").glob("*.png")}

    with zipfile.ZipFile(packed) as archive:
        names = set(archive.namelist())

    assert names - sources - pictures == {
        "[Content_Types].xml",
        "extension.vsixmanifest",
        "extension/LICENSE.txt",
        "extension/changelog.md",
        "extension/icon.png",
        "extension/package.json",
        "extension/readme.md",
    }
    assert sources | pictures <= names
    assert packed.stat().st_size < MAX_BYTES


def test_version_and_licence_are_those_of_antiphon(packed: Path) -> None:
    with zipfile.ZipFile(packed) as archive:
        manifest = json.loads(archive.read("extension/package.json"))
        licence = archive.read("extension/LICENSE.txt")

    assert manifest["version"] == __version__
    assert manifest["license"] == "Apache-2.0"
    assert licence == (ROOT / "LICENSE").read_bytes()
