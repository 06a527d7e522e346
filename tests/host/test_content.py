"""Data as content: text, image or file, and never dropped unless it is no content."""

from __future__ import annotations

import base64
import logging

import pytest

from antiphon.host.content import translate_content
from antiphon.host.data import ANNOTATION_MIME
from antiphon.host.errors import UnsupportedContent
from antiphon.wires.host.parts import DataPart, TextPart, UrlPart
from tests.host.test_images import gif, jpeg, png

PNG = png(2, 2)
PDF = b"%PDF-1.7"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def url(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


@pytest.mark.requirement("RFC016-translator", "003-content")
@pytest.mark.parametrize(
    ("data", "declared", "sent"),
    [
        (PNG, "image/png", "image/png"),
        (PNG, "image/jpeg", "image/png"),
        (jpeg(2, 2), "image/jpg", "image/jpeg"),
        (gif(2, 2), "application/octet-stream", "image/gif"),
        (PNG, "application/pdf", "image/png"),
        (PNG, "text/plain", "image/png"),
        (PNG, "png", "image/png"),
        (PNG, "", "image/png"),
        (b"strange", "Image/X-Strange; a=b", "image/x-strange"),
    ],
)
def test_an_image_is_what_its_bytes_say(data: bytes, declared: str, sent: str) -> None:
    image = {"type": "input_image", "image_url": url(data, sent), "detail": "auto"}
    assert translate_content(DataPart(data, declared)) == image


@pytest.mark.requirement("RFC016-translator", "003-content")
@pytest.mark.parametrize(
    ("data", "mime", "text"),
    [
        (b"a,b", "text/csv", "a,b"),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"[]", "text/x-json", "[]"),
        (b"{}", "application/problem+json; charset=utf-8", "{}"),
        ("Ä".encode("latin-1"), 'text/plain; charset="latin-1"', "Ä"),
        (b"BMW and GIF89a", "text/plain", "BMW and GIF89a"),
        (b"GIF89a is a format", "text/plain", "GIF89a is a format"),
    ],
)
def test_data_that_is_text_goes_as_text(data: bytes, mime: str, text: str) -> None:
    assert translate_content(DataPart(data, mime)) == {"type": "input_text", "text": text}


@pytest.mark.requirement("RFC016-translator", "003-content")
@pytest.mark.parametrize(
    ("data", "mime", "filename", "sent"),
    [
        (PDF, "application/pdf", "file.pdf", "application/pdf"),
        (b"PK", "application/zip", "file.zip", "application/zip"),
        (b"PK", SHEET, "file.xlsx", SHEET),
        (b"ID3", "audio/mpeg", "file.mp3", "audio/mpeg"),
        (b"\x00", "application/octet-stream", "file.bin", "application/octet-stream"),
        (b"\x00", "", "file.bin", "application/octet-stream"),
        (b"\x00", "application/vnd.acme.x-1", "file.bin", "application/vnd.acme.x-1"),
        (b"\xff\xfe", "text/plain", "file.txt", "text/plain"),
        (b"\x1f\x8b", "image/svg+xml", "file.svg", "image/svg+xml"),
        (b"abc", "text/plain; charset=klingon", "file.txt", "text/plain"),
    ],
)
def test_any_other_data_goes_as_a_file(data: bytes, mime: str, filename: str, sent: str) -> None:
    file = {"type": "input_file", "filename": filename, "file_data": url(data, sent)}
    assert translate_content(DataPart(data, mime)) == file


@pytest.mark.parametrize(
    ("mime", "sent"),
    [
        ("image/png", {"type": "input_image", "image_url": "http://h/x", "detail": "auto"}),
        (
            "Application/PDF; x=1",
            {"type": "input_file", "filename": "file.pdf", "file_url": "http://h/x"},
        ),
        (
            "image/svg+xml",
            {"type": "input_file", "filename": "file.svg", "file_url": "http://h/x"},
        ),
    ],
)
def test_an_address_goes_as_it_is(mime: str, sent: dict[str, str]) -> None:
    assert translate_content(UrlPart("http://h/x", mime)) == sent


@pytest.mark.requirement("RFC016-translator")
@pytest.mark.parametrize("mime", ["cache_control", "stateful_marker", ANNOTATION_MIME])
def test_a_marker_is_no_content(mime: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert translate_content(DataPart(b"ephemeral", mime)) is None
    assert caplog.messages == [f"a {mime} marker of 9 bytes is not sent"]


@pytest.mark.requirement("RFC016-translator")
@pytest.mark.parametrize("mime", ["acme_note", "pdf"])
def test_data_of_no_media_type_is_an_error_that_names_it(mime: str) -> None:
    with pytest.raises(UnsupportedContent) as caught:
        translate_content(DataPart(b"note", mime))
    assert caught.value.mime == mime


def test_what_is_empty_is_no_content() -> None:
    assert translate_content(TextPart("")) is None
    assert translate_content(DataPart(b"", "image/png")) is None
    assert translate_content(DataPart(b"", "acme_note")) is None


def test_text_is_text() -> None:
    assert translate_content(TextPart("Hi")) == {"type": "input_text", "text": "Hi"}
    assert translate_content(DataPart(b"Hi", "text/plain")) == translate_content(TextPart("Hi"))
