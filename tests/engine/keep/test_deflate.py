"""What is compressed with blocks that were compressed before is what any reader of zlib expands."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.keep.deflate import compress, find_block, make_block

_TOOLS = b'[{"name":"read","description":"' + b"reads a file of the workspace, " * 60 + b'"}]'


@given(st.binary(max_size=200), st.binary(min_size=64, max_size=3000), st.binary(max_size=200))
def test_a_text_around_a_block_comes_back_whole(before: bytes, text: bytes, after: bytes) -> None:
    whole = before + text + after
    assert zlib.decompress(compress(find_block(whole, make_block(text)))) == whole


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=9000))))
def test_texts_and_blocks_in_any_order_come_back_whole(parts: list[tuple[bool, bytes]]) -> None:
    packed = compress(make_block(text) if is_block else text for is_block, text in parts)
    assert zlib.decompress(packed) == b"".join(text for _, text in parts)


def test_the_checksum_of_a_long_text_is_right() -> None:
    text = bytes(range(256)) * 4096 + b"\xff" * 300_000
    packed = compress([text, make_block(text), make_block(text), b"end"])
    assert zlib.decompress(packed) == text * 3 + b"end"


def test_a_text_without_the_block_comes_back_whole() -> None:
    block = make_block(_TOOLS)
    for other in (b"", b"other", _TOOLS[:-1], _TOOLS[:100] + b"x" + _TOOLS):
        assert zlib.decompress(compress(find_block(other, block))) == other


def test_the_block_is_copied() -> None:
    block = make_block(_TOOLS)
    packed = compress(find_block(b'{"model":"m","tools":' + _TOOLS + b"}", block))
    assert block.packed in packed
    assert len(packed) < len(block.packed) + 60
