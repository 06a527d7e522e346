"""Forms: every way to cut the bytes gives the same parts, and broken forms are refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.errors import InvalidRequest
from antiphon.server.multipart import (
    MAX_PART_HEADERS,
    MAX_PARTS,
    FormReader,
    PartBegins,
    PartEnds,
    boundary_of,
)

Part = tuple[PartBegins, bytes]


def read(pieces: list[bytes], boundary: bytes = b"X") -> list[Part]:
    reader, parts, is_open = FormReader(boundary), list[Part](), False
    for piece in pieces:
        for event in reader.feed(piece):
            match event:
                case PartBegins():
                    assert not is_open
                    is_open = True
                    parts.append((event, b""))
                case PartEnds():
                    assert is_open
                    is_open = False
                case bytes():
                    assert is_open
                    assert event
                    parts[-1] = (parts[-1][0], parts[-1][1] + event)
    reader.end()
    assert not is_open
    return parts


def write(contents: list[bytes], boundary: bytes = b"X") -> bytes:
    body = b"".join(
        b'--%s\r\nContent-Disposition: form-data; name="p%d"\r\n\r\n%s\r\n'
        % (boundary, number, content)
        for number, content in enumerate(contents)
    )
    return body + b"--%s--\r\n" % boundary


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(marks)]


# Pieces of the delimiter make the hard cases: what looks like the end of a part and is none.
CONTENT = st.lists(
    st.sampled_from([b"\r", b"\n", b"-", b"--", b"\r\n", b"\r\n-", b"\r\n--", b"Y", b"a"])
).map(b"".join)


@given(st.lists(CONTENT, max_size=4), st.lists(st.integers(0, 10_000), max_size=12))
def test_parts_do_not_depend_on_how_the_bytes_are_cut(
    contents: list[bytes], places: list[int]
) -> None:
    data = write(contents)
    parts = read(cut(data, places))
    assert [content for _, content in parts] == contents
    assert [begin.name for begin, _ in parts] == [f"p{n}" for n in range(len(contents))]


@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=5))
def test_garbage_is_refused_or_read_but_never_breaks(garbage: bytes, places: list[int]) -> None:
    for data in (garbage, b"--X\r\n" + garbage, b"--X\r\n" + garbage + b"\r\n--X--"):
        try:
            read(cut(data, places))
        except InvalidRequest as error:
            assert error.code == "invalid_multipart"


def test_memory_stays_small_while_a_large_part_passes() -> None:
    reader = FormReader(b"X")
    head = b'--X\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n'
    assert list(reader.feed(head)) == [PartBegins("f", "a")]
    passed = 0
    for _ in range(200):
        events = list(reader.feed(b"\r\n--" * 4096))
        passed += sum(len(event) for event in events if isinstance(event, bytes))
        assert len(reader._buffer) < 16
    assert passed >= 200 * 4 * 4096 - 16


@pytest.mark.parametrize(
    ("disposition", "expected"),
    [
        (b'form-data; name="file"; filename="a b.txt"', PartBegins("file", "a b.txt")),
        (b"form-data; name=file; filename=a.txt", PartBegins("file", "a.txt")),
        (b'Form-Data; NAME="file"; FileName="x;y.txt"', PartBegins("file", "x;y.txt")),
        (b'form-data; name="a\\"b"; filename="c\\\\d"', PartBegins('a"b', "c\\d")),
        (
            'form-data; name="f"; filename="naïve 日本.txt"'.encode(),
            PartBegins("f", "naïve 日本.txt"),
        ),
        (
            b'form-data; name="f"; filename="x"; filename*=UTF-8\'\'%e2%82%ac.txt',
            PartBegins("f", "€.txt"),
        ),
        (b'form-data; name="expires_after[seconds]"', PartBegins("expires_after[seconds]")),
        (b'form-data; name=""', PartBegins("")),
    ],
)
def test_names_are_read_as_clients_write_them(disposition: bytes, expected: PartBegins) -> None:
    data = b"--X\r\nContent-Disposition: " + disposition + b"\r\n\r\n1\r\n--X--"
    assert read([data]) == [(expected, b"1")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"--X", id="cut in the first boundary"),
        pytest.param(b"--X\r\nContent-Disposition: form-data; name=a\r\n", id="cut in headers"),
        pytest.param(write([b"1"])[:-6], id="cut before the last boundary"),
        pytest.param(b"--Y\r\n\r\n--Y--" + b"." * 5000, id="another boundary"),
        pytest.param(b"--Xtra\r\n\r\n", id="a longer boundary"),
        pytest.param(b"--X\n\n1\n--X--", id="line feeds alone"),
        pytest.param(b"--X\r\n\r\n1\r\n--X--", id="no headers"),
        pytest.param(b"--X\r\nContent-Disposition: form-data\r\n\r\n1\r\n--X--", id="no name"),
        pytest.param(b"--X\r\nContent-Disposition: file; name=a\r\n\r\n1\r\n--X--", id="no form"),
        pytest.param(
            b"--X\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n1\r\n--X--",
            id="two names",
        ),
        pytest.param(
            b'--X\r\nContent-Disposition: form-data; name="a\r\n\r\n1\r\n--X--', id="open quote"
        ),
        pytest.param(
            b"--X\r\nContent-Disposition: form-data; name=a; filename*=x''%ff\r\n\r\n1\r\n--X--",
            id="unknown charset",
        ),
        pytest.param(
            b"--X\r\nContent-Disposition: form-data; name=\xff\r\n\r\n1\r\n--X--", id="not UTF-8"
        ),
        pytest.param(
            b"--X\r\nContent-Disposition: form-data; name=a\r\n folded\r\n\r\n1\r\n--X--",
            id="folded header",
        ),
        pytest.param(
            b"--X\r\nContent-Disposition: form-data; name=a\r\n"
            b"Content-Transfer-Encoding: base64\r\n\r\n1\r\n--X--",
            id="base64",
        ),
        pytest.param(b"--X\r\nA: " + b"a" * MAX_PART_HEADERS + b"\r\n\r\n", id="huge header"),
        pytest.param(b"--X\r\nA: " + b"a" * 2 * MAX_PART_HEADERS, id="endless header"),
        pytest.param(write([b""] * (MAX_PARTS + 1)), id="too many parts"),
    ],
)
def test_broken_forms_are_refused(data: bytes) -> None:
    for pieces in ([data], [data[i : i + 1] for i in range(min(len(data), 20_000))]):
        with pytest.raises(InvalidRequest) as caught:
            read(pieces)
        assert caught.value.code == "invalid_multipart"


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        f"multipart/form-data; boundary={'x' * 71}",
        'multipart/form-data; boundary="é"',
        'multipart/form-data; boundary="a\r\nb"',
        "",
    ],
)
def test_a_form_must_declare_its_boundary(content_type: str) -> None:
    with pytest.raises(InvalidRequest):
        boundary_of(content_type)


@pytest.mark.parametrize("boundary", ["x", "----WebKitFormBoundary7MA4", "a b+c_,-./:=?'()d"])
def test_boundaries_of_clients_are_taken(boundary: str) -> None:
    assert boundary_of(f'Multipart/Form-Data; boundary="{boundary}"') == boundary.encode()
