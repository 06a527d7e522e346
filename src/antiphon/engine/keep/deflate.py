"""How is a text compressed if a large part of it was compressed before?

Deflate can begin anew at any place, so pieces that were compressed apart can follow each other in
one stream, which any reader of zlib expands. An agent sends the same tools with every request, and
the same conversation: they are compressed once, and their compressed bytes are copied after that.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["FAST", "Block", "compress", "find_block", "make_block"]

FAST: Final = 1
"""The level of what is compressed each time."""

# Two bytes that say deflate, with a window of 32 KiB; the second makes both a multiple of 31.
_HEAD: Final = b"\x78\x01"
_RAW: Final = -15
_ADLER: Final = 65521
# By how much of a block it is looked for. To find all of it takes ten times as long.
_PROBE: Final = 64


class Block(NamedTuple):
    """A part of a text, what it is compressed to, and its checksum."""

    text: bytes
    packed: bytes
    adler: int


def make_block(text: bytes, level: int = zlib.Z_DEFAULT_COMPRESSION) -> Block:
    """Compress a part of texts to come."""
    packer = zlib.compressobj(level, wbits=_RAW)
    packed = packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH)
    return Block(text, packed, zlib.adler32(text))


def find_block(text: bytes, block: Block) -> list[bytes | Block]:
    """Return the text in parts, of which the block is one if the text contains it."""
    start = text.find(block.text[:_PROBE])
    if start < 0 or not text.startswith(block.text, start):
        return [text]
    return [text[:start], block, text[start + len(block.text) :]]


def compress(parts: Iterable[bytes | Block]) -> bytes:
    """Return the text of these parts in the format of zlib. Blocks are copied."""
    packer = zlib.compressobj(FAST, wbits=_RAW)
    pieces, adler = [_HEAD], 1
    is_apart = True
    for part in parts:
        if isinstance(part, Block):
            if not is_apart:
                pieces.append(packer.flush(zlib.Z_FULL_FLUSH))
            pieces.append(part.packed)
            adler, is_apart = _join_sums(adler, part), True
        elif part:
            pieces.append(packer.compress(part))
            adler, is_apart = zlib.adler32(part, adler), False
    return b"".join([*pieces, packer.flush(), adler.to_bytes(4, "big")])


def _join_sums(adler: int, block: Block) -> int:
    """Return the checksum of what has this one and the block behind it, as RFC 1950 defines it."""
    low, high = adler & 0xFFFF, adler >> 16
    low_after, high_after = block.adler & 0xFFFF, block.adler >> 16
    high = (high + high_after + (low - 1) * len(block.text)) % _ADLER
    return high << 16 | (low + low_after - 1) % _ADLER
