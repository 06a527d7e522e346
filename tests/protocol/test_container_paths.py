"""Paths of container files in an answer: which are cited, and exactly where."""

from __future__ import annotations

import pytest

from antiphon.protocol.citations import CitationFilter
from antiphon.protocol.container_paths import ContainerPaths
from antiphon.protocol.deltas import TextGrew

FILES = [("/mnt/data/a.c", "1"), ("/mnt/data/a.csv", "2"), ("/mnt/data/a b.txt", "3")]


def cited(*pieces: str) -> list[tuple[str, str]]:
    """Return the texts that are annotated, with the ids of their files."""
    paths = ContainerPaths()
    paths.show("cntr_1", FILES)
    looks = CitationFilter(paths)
    deltas = [delta for piece in pieces for delta in looks.feed(piece)] + list(looks.finish())
    text, found = "", []
    for delta in deltas:
        if isinstance(delta, TextGrew):
            text += delta.text
        else:
            assert delta.covers is not None
            found.append((text[len(text) - delta.covers :], delta.annotation["file_id"]))
    assert text == "".join(pieces)
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](sandbox:/mnt/data/a.csv)", [("sandbox:/mnt/data/a.csv", "2")]),
        ("It is in /mnt/data/a.csv.", [("/mnt/data/a.csv", "2")]),
        ("/mnt/data/a.c, /mnt/data/a.csv", [("/mnt/data/a.c", "1"), ("/mnt/data/a.csv", "2")]),
        ("(sandbox:/mnt/data/a%20b.txt)", [("sandbox:/mnt/data/a%20b.txt", "3")]),
        ("/mnt/data/a b.txt", [("/mnt/data/a b.txt", "3")]),
        ("/mnt/data/none.csv", []),
        ("/mnt/data/a.csvx", []),
        ("/mnt/data/a.csv.gz", []),
        ("/mnt/data/a.csv/b", []),
        ("/home/mnt/data/a.csv", []),
        ("x/mnt/data/a.csv", []),
        ("`/mnt/data/a.csv`", []),
        ("/mnt/data/", []),
    ],
)
def test_only_whole_paths_of_files_that_exist_are_cited(
    text: str, found: list[tuple[str, str]]
) -> None:
    assert cited(text) == found
    assert cited(*text) == found


def test_a_file_that_is_gone_is_not_cited_any_more() -> None:
    paths = ContainerPaths()
    paths.show("cntr_1", FILES)
    paths.show("cntr_1", [])
    assert paths.begin == ""


def test_the_annotation_names_the_container_and_the_file() -> None:
    paths = ContainerPaths()
    paths.show("cntr_1", FILES)
    (text, note) = CitationFilter(paths).feed("/mnt/data/a.csv ")[:2]
    assert isinstance(text, TextGrew)
    assert not isinstance(note, TextGrew)
    assert note.annotation == {
        "type": "container_file_citation",
        "container_id": "cntr_1",
        "file_id": "2",
        "filename": "a.csv",
    }
