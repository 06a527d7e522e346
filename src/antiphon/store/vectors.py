"""Which vectors are nearest to another? Exact, by cosine, for every kind of store.

Databases use `VectorCache`: the vectors of a vector store as one matrix in memory, so that a
search is one product (numpy, which is imported on first use). The cache never decides what
exists: the caller names the parts that may be found and their versions, as the database has them
now, and loads those that are missing or stale. So several processes may share a database.
Where numpy is not installed, `nearest_plain` does the same in Python, slowly.

Vectors are float32 numbers, little endian. None of this is safe for several threads at once.
"""

from __future__ import annotations

import heapq
import importlib.util
import itertools
import math
import operator
import sys
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

__all__ = [
    "CACHE_BYTES",
    "Kind",
    "Near",
    "VectorCache",
    "cosine",
    "has_numpy",
    "nearest_plain",
    "numpy_engine",
    "to_numbers",
    "to_unit",
]

CACHE_BYTES: Final = 512 * 1024 * 1024
_NUMBER: Final = 4
# Beyond this share of dead rows a matrix is made again; a smaller share of rows is gathered
# before the product.
_MAX_DEAD: Final = 0.25
_GATHER: Final = 0.25

Near = tuple[int, float]
"""The key of a chunk and its cosine."""


class Kind(NamedTuple):
    """Which vectors can be compared: of one vector store, one model and one length in bytes."""

    store: int
    embedding: str
    size: int


@cache
def has_numpy() -> bool:
    """Return whether numpy is installed, without importing it."""
    return importlib.util.find_spec("numpy") is not None


def numpy_engine() -> str:
    """Return what compares vectors in this process, for reports."""
    return "numpy, exact, in memory" if has_numpy() else "Python, exact and slow: install numpy"


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 if one of them has no length."""
    length = math.sqrt(_product(first, first) * _product(second, second))
    return _product(first, second) / length if length else 0.0


def to_numbers(vector: bytes) -> Sequence[float]:
    """Return the numbers of a vector."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def to_unit(vector: bytes) -> bytes:
    """Return the vector of length one in this direction; one without a length as it is."""
    numbers = to_numbers(vector)
    length = math.sqrt(_product(numbers, numbers))
    unit = array("f", [number / length for number in numbers] if length else numbers)
    if sys.byteorder == "big":
        unit.byteswap()
    return unit.tobytes()


def nearest_plain(vector: bytes, rows: Iterable[tuple[int, bytes]], limit: int) -> list[Near]:
    """Return the nearest of these keys and vectors, the nearest first."""
    wanted = to_numbers(vector)
    found = ((key, cosine(wanted, to_numbers(one))) for key, one in rows)
    return heapq.nsmallest(limit, found, key=_order)


def _order(near: Near) -> tuple[float, int]:
    return -near[1], near[0]


def _product(first: Sequence[float], second: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, first, second))


class VectorCache:
    """Matrices of vectors; beyond `max_bytes` the one that was used longest ago is dropped."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._matrices: OrderedDict[Kind, _Matrix] = OrderedDict()

    @property
    def used_bytes(self) -> int:
        """How much the matrices take."""
        return sum(matrix.used_bytes for matrix in self._matrices.values())

    def has_room(self, kind: Kind, count: int) -> bool:
        """Return whether so many vectors fit."""
        return kind.size * count <= self._max_bytes

    def missing(self, kind: Kind, parts: Mapping[int, int]) -> list[int]:
        """Return those of the parts, given with their versions, that must be loaded."""
        matrix = self._matrices.get(kind)
        known = {} if matrix is None else matrix.versions
        return [part for part, version in parts.items() if known.get(part) != version]

    def put(
        self, kind: Kind, versions: Mapping[int, int], rows: Sequence[tuple[int, int, bytes]]
    ) -> None:
        """Load parts: rows have the part, the key and the vector. A part may have no row."""
        matrix = self._matrices.setdefault(kind, _Matrix(kind.size // _NUMBER))
        matrix.replace(versions, [row for row in rows if len(row[2]) == kind.size])
        self._matrices.move_to_end(kind)
        while len(self._matrices) > 1 and self.used_bytes > self._max_bytes:
            self._matrices.popitem(last=False)

    def nearest(self, kind: Kind, parts: Collection[int], vector: bytes, limit: int) -> list[Near]:
        """Return the nearest of the chunks of these parts, the nearest first."""
        matrix = self._matrices.get(kind)
        if matrix is None:
            return []
        self._matrices.move_to_end(kind)
        return matrix.nearest(parts, vector, limit)

    def retain(self, kind: Kind, parts: Collection[int]) -> None:
        """Drop the parts that no longer exist."""
        matrix = self._matrices.get(kind)
        if matrix is not None:
            matrix.retain(parts)

    def clear(self) -> None:
        """Drop everything."""
        self._matrices.clear()


class _Matrix:
    """Vectors of length one, with the key and the part of each. Rows of dropped parts are dead.

    Any: numpy is imported here only, when there are vectors.
    """

    def __init__(self, width: int) -> None:
        import numpy

        self._numpy: Any = numpy
        self._width = width
        self._vectors: Any = numpy.empty((0, width), numpy.float32)
        self._keys: Any = numpy.empty(0, numpy.int64)
        self._slots: Any = numpy.empty(0, numpy.int32)
        self._used = 0
        self._dead = 0
        self._counts: dict[int, int] = {}
        # A number for each part, from 1 on; rows of 0 are dead.
        self._slot_of: dict[int, int] = {}
        self._last_slot = 0
        self.versions: dict[int, int] = {}

    @property
    def used_bytes(self) -> int:
        return int(self._vectors.nbytes + self._keys.nbytes + self._slots.nbytes)

    def replace(self, versions: Mapping[int, int], rows: Sequence[tuple[int, int, bytes]]) -> None:
        self._kill([part for part in versions if part in self.versions])
        self.versions.update(versions)
        self._counts.update(dict.fromkeys(versions, 0))
        self._slot_of.update(zip(versions, itertools.count(self._last_slot + 1), strict=False))
        self._last_slot += len(versions)
        self._append(rows)

    def retain(self, parts: Collection[int]) -> None:
        gone = self.versions.keys() - set(parts)
        if gone:
            self._kill(gone)

    def nearest(self, parts: Collection[int], vector: bytes, limit: int) -> list[Near]:
        numpy = self._numpy
        wanted = self._unit(numpy.frombuffer(vector, "<f4").reshape(1, -1))[0]
        rows = self._rows_of(parts)
        if rows is None:
            scores, keys = self._vectors[: self._used] @ wanted, self._keys[: self._used]
        else:
            scores, keys = self._scores_of(rows, wanted), self._keys[rows]
        if len(scores) > limit:
            # One that is as near as the last is kept too: then the key decides, always alike.
            worst = numpy.partition(scores, len(scores) - limit)[len(scores) - limit]
            best = numpy.flatnonzero(scores >= worst)
            scores, keys = scores[best], keys[best]
        order = numpy.lexsort((keys, -scores))[:limit]
        return [(int(keys[at]), float(scores[at])) for at in order]

    def _rows_of(self, parts: Collection[int]) -> Any:
        """Return the rows of these parts; None if they are all rows."""
        if not self._dead and len(parts) == len(self.versions):
            return None
        is_wanted = self._numpy.zeros(self._last_slot + 1, bool)
        is_wanted[[self._slot_of[part] for part in parts if part in self._slot_of]] = True
        return self._numpy.flatnonzero(is_wanted[self._slots[: self._used]])

    def _scores_of(self, rows: Any, wanted: Any) -> Any:
        if len(rows) < self._used * _GATHER:
            return self._vectors[rows] @ wanted
        return (self._vectors[: self._used] @ wanted)[rows]

    def _append(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        if not rows:
            return
        numpy = self._numpy
        parts, keys, vectors = zip(*rows, strict=True)
        first, end = self._used, self._used + len(rows)
        self._reserve(end)
        new = numpy.frombuffer(b"".join(vectors), "<f4").reshape(len(rows), self._width)
        self._vectors[first:end] = self._unit(new)
        self._keys[first:end] = keys
        self._slots[first:end] = [self._slot_of[part] for part in parts]
        self._used = end
        for part in parts:
            self._counts[part] += 1

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._keys):
            return
        # Room for more, if rows were added before: a file that is being indexed grows often.
        size = rows + (rows // 8 if self._used else 0)
        for name in ("_vectors", "_keys", "_slots"):
            old = getattr(self, name)
            new = self._numpy.empty((size, *old.shape[1:]), old.dtype)
            new[: self._used] = old[: self._used]
            setattr(self, name, new)

    def _kill(self, parts: Collection[int]) -> None:
        is_dead = self._numpy.zeros(self._last_slot + 1, bool)
        is_dead[0] = True
        for part in parts:
            del self.versions[part]
            self._dead += self._counts.pop(part)
            is_dead[self._slot_of.pop(part)] = True
        used = self._used
        doomed = is_dead[self._slots[:used]]
        self._slots[:used][doomed] = 0
        if self._dead > used * _MAX_DEAD:
            keep = ~doomed
            self._vectors, self._keys = self._vectors[:used][keep], self._keys[:used][keep]
            self._slots = self._slots[:used][keep]
            self._used, self._dead = len(self._keys), 0

    def _unit(self, vectors: Any) -> Any:
        numpy = self._numpy
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / numpy.where(lengths == 0, 1, lengths)
