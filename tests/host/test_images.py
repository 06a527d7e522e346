"""Images by their bytes: which kind, how large, and what a damaged one gives."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.host.images import image_size, sniff_image


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02"


def gif(width: int, height: int, version: bytes = b"89a") -> bytes:
    return b"GIF" + version + struct.pack("<HH", width, height) + b"\xf7\x00\x00"


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpeg(width: int, height: int, *, before: bytes = b"", frame: int = 0xC0) -> bytes:
    body = struct.pack(">BHHB", 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + segment(0xE0, b"JFIF\x00") + before + segment(frame, body)


def riff(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk


def webp_lossy(width: int, height: int) -> bytes:
    return riff(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height))


def webp_lossless(width: int, height: int) -> bytes:
    return riff(b"VP8L", b"\x2f" + struct.pack("<I", (height - 1) << 14 | (width - 1)))


def webp_extended(width: int, height: int) -> bytes:
    sides = b"".join((side - 1).to_bytes(3, "little") for side in (width, height))
    return riff(b"VP8X", b"\x10\x00\x00\x00" + sides)


def bmp(width: int, height: int, header: int = 40) -> bytes:
    sides = struct.pack("<HH" if header == 12 else "<ii", width, height)
    return b"BM" + struct.pack("<IIII", 999, 0, 54, header) + sides


WHOLE = {
    "png": ("image/png", png(640, 480)),
    "gif": ("image/gif", gif(640, 480)),
    "old gif": ("image/gif", gif(640, 480, b"87a")),
    "jpeg": ("image/jpeg", jpeg(640, 480)),
    "progressive jpeg": ("image/jpeg", jpeg(640, 480, frame=0xC2)),
    "lossy webp": ("image/webp", webp_lossy(640, 480)),
    "lossless webp": ("image/webp", webp_lossless(640, 480)),
    "extended webp": ("image/webp", webp_extended(640, 480)),
    "bmp": ("image/bmp", bmp(640, 480)),
    "bmp from the top down": ("image/bmp", bmp(640, -480, 124)),
    "old bmp": ("image/bmp", bmp(640, 480, 12)),
}


@pytest.mark.requirement("RFC016-translator")
@pytest.mark.parametrize(("mime", "data"), WHOLE.values(), ids=WHOLE)
def test_the_bytes_say_what_kind_of_image_it_is(mime: str, data: bytes) -> None:
    assert sniff_image(data) == mime


@pytest.mark.parametrize("data", [data for _, data in WHOLE.values()], ids=WHOLE)
def test_the_header_says_how_large_it_is(data: bytes) -> None:
    assert image_size(data) == (640, 480)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BMW builds cars, and this is a text about them.",
        b"BM" + bytes(40),
        b"BM" + struct.pack("<IIII", 999, 7, 54, 40) + bytes(8),
        b"RIFF\x00\x00\x00\x00WAVEfmt ",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x89PNG",
    ],
)
def test_what_is_no_image_is_not_taken_for_one(data: bytes) -> None:
    assert sniff_image(data) is None
    assert image_size(data) is None


def test_the_scale_in_a_lossy_webp_is_no_part_of_its_size() -> None:
    assert image_size(webp_lossy(640 | 1 << 14, 480 | 2 << 14)) == (640, 480)


def test_a_frame_header_is_found_behind_notes_fill_bytes_and_lone_markers() -> None:
    notes = segment(0xE1, b"x" * 60_000) + segment(0xC4, b"table") + b"\xff\xff\xff\x01"
    assert image_size(jpeg(640, 480, before=notes)) == (640, 480)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xd8" + segment(0xDA, b"scan"), id="a scan before any frame"),
        pytest.param(b"\xff\xd8\xff\xd9", id="the end before any frame"),
        pytest.param(b"\xff\xd8" + segment(0xE0, b"") + b"junk", id="junk between segments"),
        pytest.param(b"\xff\xd8\xff\xe0\x00\x00\xff\xd9", id="a segment of impossible length"),
        pytest.param(png(0, 480), id="no width"),
        pytest.param(jpeg(640, 0), id="no height yet"),
        pytest.param(png(640, 480).replace(b"IHDR", b"CgBI"), id="a PNG with another first chunk"),
        pytest.param(riff(b"ALPH", bytes(20)), id="a WebP that begins with another chunk"),
        pytest.param(riff(b"VP8 ", bytes(20)), id="a WebP without its start code"),
        pytest.param(riff(b"VP8L", bytes(20)), id="a WebP without its signature"),
    ],
)
def test_a_header_that_does_not_say_gives_no_size(data: bytes) -> None:
    assert sniff_image(data) is not None
    assert image_size(data) is None


@pytest.mark.parametrize("data", [data for _, data in WHOLE.values()], ids=WHOLE)
def test_an_image_cut_short_gives_its_size_or_nothing(data: bytes) -> None:
    assert {image_size(data[:length]) for length in range(len(data))} <= {None, (640, 480)}


@given(st.sampled_from([data[:12] for _, data in WHOLE.values()]), st.binary(max_size=64))
def test_no_bytes_are_an_error(head: bytes, rest: bytes) -> None:
    size = image_size(head + rest)
    assert size is None or (size[0] > 0 and size[1] > 0)
