"""Pages: what is read, what is cut, and what is never asked for."""

from __future__ import annotations

import asyncio
import gzip
import os
import resource
import socket
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web as http

from antiphon.tools.base import ToolFailed
from antiphon.tools.documents.charsets import decode_page
from antiphon.tools.web import pages as pages_module
from antiphon.tools.web.pages import Page, PageLimits, PageReader
from tests.tools.documents.making import make_pdf
from tests.transport.raw import Connection, RawServer, Request, raw_server, reply
from tests.transport.test_egress import LOOPBACK_HOSTS, OTHER_HOSTS, resolving
from tests.web import LoopbackWeb, loopback_web

_MIB = 1024 * 1024


@pytest.fixture
async def web() -> AsyncIterator[LoopbackWeb]:
    async with loopback_web() as running:
        yield running


@pytest.fixture
async def reader(web: LoopbackWeb) -> AsyncIterator[PageReader]:
    made = PageReader(PageLimits(seconds=60), frozenset({web.place}))
    yield made
    await made.close()


@pytest.fixture
async def inside() -> AsyncIterator[RawServer]:
    """A server on loopback that no page may reach."""

    async def tell(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"inner secret"))

    async with raw_server(tell) as running:
        yield running


def _anywhere(_: str) -> bool:
    return True


async def _read(reader: PageReader, url: str) -> Page:
    return await reader.read(url, _anywhere)


async def _refused(reader: PageReader, url: str) -> str:
    with pytest.raises(ToolFailed) as caught:
        await _read(reader, url)
    return str(caught.value)


def _serve(web: LoopbackWeb, path: str, **answer: Any) -> str:
    async def give(_: http.Request) -> http.Response:
        return http.Response(**answer)

    web.pages[path] = give
    return web.url + path


# Where no request goes.


@pytest.mark.parametrize("host", [*LOOPBACK_HOSTS, *OTHER_HOSTS])
async def test_no_spelling_of_an_inner_address_is_opened(
    host: str, reader: PageReader, inside: RawServer
) -> None:
    port = inside.url.rpartition(":")[2]
    await _refused(reader, f"http://{host}:{port}/")
    assert inside.connections == 0


@pytest.mark.parametrize("host", [*LOOPBACK_HOSTS, *OTHER_HOSTS])
async def test_no_redirect_leads_to_an_inner_address(
    host: str, web: LoopbackWeb, reader: PageReader, inside: RawServer
) -> None:
    port = inside.url.rpartition(":")[2]
    url = _serve(web, "/away", status=302, headers={"Location": f"http://{host}:{port}/"})
    why = await _refused(reader, url)
    assert "inner secret" not in why
    assert web.opened == ["/away"]
    assert inside.connections == 0


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "gopher://127.0.0.1/", "ftp://example.com/", "data:text/plain,x"],
)
async def test_redirects_to_other_schemes_are_refused(
    location: str, web: LoopbackWeb, reader: PageReader
) -> None:
    url = _serve(web, "/away", status=301, headers={"Location": location})
    await _refused(reader, url)
    assert web.opened == ["/away"]


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["10.1.2.3", "127.0.0.1"]]
)
async def test_a_name_that_leads_inside_is_refused(
    addresses: list[str],
    reader: PageReader,
    inside: RawServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving(*addresses))
    port = inside.url.rpartition(":")[2]
    why = await _refused(reader, f"http://news.example.com:{port}/")
    assert why.endswith("the address is not a public one")
    assert inside.connections == 0


async def test_a_name_that_changes_its_address_is_checked_at_every_connection(
    inside: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is public when it is looked up first, and loopback when it is looked up again."""
    answers = [["198.51.100.7"], ["127.0.0.1"]]
    asked: list[str] = []

    def look_up(host: str, *rest: object, **named: object) -> list[tuple[object, ...]]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return resolving(*found)(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    port = inside.url.rpartition(":")[2]
    for _ in range(2):
        reader = PageReader(PageLimits(seconds=60))
        await _refused(reader, f"http://rebind.example.com:{port}/")
        await reader.close()
    assert len(asked) == 2
    assert inside.connections == 0


async def test_an_open_place_is_a_host_with_its_port(web: LoopbackWeb, inside: RawServer) -> None:
    reader = PageReader(PageLimits(seconds=60), frozenset({web.place}))
    assert (await _read(reader, f"{web.url}/moon")).title == "The Moon & tides"
    await _refused(reader, f"{inside.url}/")
    await _refused(reader, f"http://localhost:{web.place.rpartition(':')[2]}/moon")
    await reader.close()
    assert inside.connections == 0


async def test_a_password_in_the_address_is_refused(web: LoopbackWeb, reader: PageReader) -> None:
    await _refused(reader, web.url.replace("http://", "http://user:pass@") + "/moon")
    assert web.opened == []


# Redirects.


async def test_three_redirects_are_followed_and_no_more(
    web: LoopbackWeb, reader: PageReader
) -> None:
    for number in range(1, 5):
        target = f"/hop{number - 1}" if number > 1 else "/moon"
        _serve(web, f"/hop{number}", status=307, headers={"Location": target})
    page = await _read(reader, f"{web.url}/hop3")
    assert (page.title, page.url) == ("The Moon & tides", f"{web.url}/moon")
    why = await _refused(reader, f"{web.url}/hop4")
    assert why == "the page cannot be read: it redirects more than 3 times"


async def test_a_redirect_out_of_the_domains_is_not_followed(
    web: LoopbackWeb, reader: PageReader
) -> None:
    url = _serve(web, "/away", status=302, headers={"Location": "/moon"})
    with pytest.raises(ToolFailed, match="outside the domains"):
        await reader.read(url, lambda one: one.endswith("/away"))
    assert web.opened == ["/away"]


async def test_nothing_but_the_page_is_asked_for(inside: RawServer) -> None:
    reader = PageReader(PageLimits(seconds=60), frozenset({inside.url.removeprefix("http://")}))
    page = await _read(reader, f"{inside.url}/a?b=c#d")
    await reader.close()
    assert page.text == "inner secret"
    (request,) = inside.requests
    assert request.method == "GET"
    assert not {"cookie", "authorization", "referer"} & set(request.headers)
    assert request.headers["user-agent"].startswith("antiphon/")


# What is read.


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/plain", b"words", "words"),
        ("text/markdown; charset=utf-8", "é".encode(), "é"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/ld+json", b"{}", "{}"),
        ("application/xhtml+xml", b"<p>one<p>two", "one\ntwo"),
        ("text/html; charset=iso-8859-1", b"<p>caf\xe9", "café"),
        ("text/html", b'<meta charset="windows-1251"><p>\xcf\xf0\xe8', "При"),
        ("text/html", "<p>日本".encode("shift_jis"), None),
    ],
)
async def test_texts_are_read_in_their_encoding(
    kind: str, body: bytes, expected: str | None, web: LoopbackWeb, reader: PageReader
) -> None:
    url = _serve(web, "/x", body=body, headers={"Content-Type": kind})
    page = await _read(reader, url)
    assert expected is None or page.text == expected


@pytest.mark.parametrize("kind", ["image/png", "video/mp4", "application/zip"])
async def test_other_types_are_refused(kind: str, web: LoopbackWeb, reader: PageReader) -> None:
    url = _serve(web, "/x", body=b"\x89PNG", headers={"Content-Type": kind})
    assert await _refused(reader, url) == f"pages of the type {kind} cannot be read"


@pytest.mark.parametrize("status", [204, 401, 403, 404, 429, 500, 503])
async def test_an_error_of_the_site_is_reported(
    status: int, web: LoopbackWeb, reader: PageReader
) -> None:
    url = _serve(web, "/x", status=status)
    assert (
        await _refused(reader, url) == f"the page cannot be read: the site answered HTTP {status}"
    )


async def test_html_is_not_read_without_the_extra(
    web: LoopbackWeb, reader: PageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "can_read_html", lambda: False)
    assert "extra `documents`" in await _refused(reader, f"{web.url}/moon")
    url = _serve(web, "/plain", text="plain words")
    assert (await _read(reader, url)).text == "plain words"


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"\xef\xbb\xbfa", "text/plain; charset=latin1", "a"),
        ("é".encode("utf-16"), "text/plain", "é"),
        (b"\xe9", "text/plain", "é"),
        (b"a", "text/plain; charset=zlib", "a"),
        (b"a", "text/plain; charset=unicode_escape", "a"),
        (b"a", "text/plain; charset=idna", "a"),
        (b"\\x41", 'text/plain; charset="unicode-escape"', "\\x41"),
    ],
)
def test_encodings_are_those_of_the_web(body: bytes, kind: str, expected: str) -> None:
    assert decode_page(body, kind) == expected


def test_a_cut_page_may_end_in_half_a_character() -> None:
    assert decode_page("aé".encode()[:2], "text/plain", is_cut=True) == "a\ufffd"


# Too much.


async def test_a_huge_page_is_cut(web: LoopbackWeb) -> None:
    sent = 0

    async def flood(request: http.Request) -> http.StreamResponse:
        nonlocal sent
        response = http.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for _ in range(3200):
            await response.write(b"x" * 65536)
            sent += 65536
        return response

    web.pages["/flood"] = flood
    reader = PageReader(PageLimits(seconds=60, bytes=_MIB), frozenset({web.place}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    page = await _read(reader, f"{web.url}/flood")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    await reader.close()
    assert (len(page.text), page.is_cut) == (_MIB, True)
    assert grown < 30 * 1024
    assert sent < 64 * _MIB


async def test_a_page_that_drips_is_given_up(web: LoopbackWeb) -> None:
    gone = asyncio.Event()

    async def drip(request: http.Request) -> http.StreamResponse:
        response = http.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x")
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    web.pages["/drip"] = drip
    reader = PageReader(PageLimits(seconds=0.3), frozenset({web.place}))
    why = await _refused(reader, f"{web.url}/drip")
    assert why == "the page cannot be read: it did not arrive in 0.3 s"
    async with asyncio.timeout(30):
        await gone.wait()
    await reader.close()


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", _raw_deflate),
        ("identity", bytes),
    ],
)
async def test_a_compressed_page_is_read(
    encoding: str, pack: Callable[[bytes], bytes], web: LoopbackWeb, reader: PageReader
) -> None:
    headers = {"Content-Encoding": encoding, "Content-Type": "text/plain"}
    text = b"a line of the page\n" * 5000
    url = _serve(web, "/packed", body=pack(text), headers=headers)
    page = await _read(reader, url)
    assert (page.text, page.is_cut) == (text.decode().strip(), False)


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_a_compressed_bomb_is_cut_at_the_limit(
    encoding: str, pack: Callable[[bytes], bytes], web: LoopbackWeb, reader: PageReader
) -> None:
    bomb = pack(b"x" * (64 * _MIB))
    headers = {"Content-Encoding": encoding, "Content-Type": "text/plain"}
    url = _serve(web, "/bomb", body=bomb, headers=headers)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    page = await _read(reader, url)
    assert (len(page.text), page.is_cut) == (2 * _MIB, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 * 1024


@pytest.mark.parametrize(
    ("encoding", "body", "why"),
    [("br", b"x", "compressed as br"), ("gzip", b"no gzip", "damaged"), ("gzip, gzip", b"x", "as")],
)
async def test_what_cannot_be_unpacked_is_refused(
    encoding: str, body: bytes, why: str, web: LoopbackWeb, reader: PageReader
) -> None:
    headers = {"Content-Encoding": encoding, "Content-Type": "text/plain"}
    url = _serve(web, "/packed", body=body, headers=headers)
    assert why in await _refused(reader, url)


# PDF.


async def test_a_pdf_is_read(web: LoopbackWeb, reader: PageReader) -> None:
    body = make_pdf([["first page"], ["second page"]])
    url = _serve(web, "/paper.pdf", body=body, headers={"Content-Type": "application/pdf"})
    page = await _read(reader, url)
    assert (page.title, page.text) == ("paper.pdf", "first page\n\fsecond page")
    packed = {"Content-Type": "application/pdf", "Content-Encoding": "gzip"}
    url = _serve(web, "/packed.pdf", body=gzip.compress(body), headers=packed)
    assert "second page" in (await _read(reader, url)).text


async def test_a_pdf_may_be_longer_than_a_page_but_is_not_cut(web: LoopbackWeb) -> None:
    body = make_pdf([["a word"]]) + b"%" * 100_000
    url = _serve(web, "/paper", body=body, headers={"Content-Type": "application/pdf"})
    limits = PageLimits(seconds=60, bytes=1000, pdf_bytes=200_000)
    reader = PageReader(limits, frozenset({web.place}))
    assert (await _read(reader, url)).text == "a word"
    await reader.close()
    short = PageReader(PageLimits(seconds=60, pdf_bytes=50_000), frozenset({web.place}))
    assert await _refused(short, url) == "the PDF is longer than 50000 bytes"
    await short.close()


async def test_a_bad_pdf_fails_with_a_reason(web: LoopbackWeb, reader: PageReader) -> None:
    url = _serve(web, "/x", body=b"%PDF-1.7 nothing", headers={"Content-Type": "application/pdf"})
    assert "damaged" in await _refused(reader, url)


def _check_no_children() -> None:
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _nested() -> str:
    return "<div>" * (400 * 1024)


def _reopened() -> str:
    return "".join(f"<font a={number}><p>" for number in range(100_000))


@pytest.mark.parametrize("bomb", [_nested, _reopened])
async def test_html_that_takes_too_much_is_given_up_and_leaves_no_process(
    bomb: Callable[[], str], web: LoopbackWeb, reader: PageReader
) -> None:
    url = _serve(web, "/bomb", text=bomb(), content_type="text/html")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ticks = 0

    async def count() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    counting = asyncio.create_task(count())
    assert await _refused(reader, url) == "the page is too complicated to be read"
    counting.cancel()
    assert ticks > 5, "the event loop stood still"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024
    _check_no_children()


async def test_a_cancelled_page_leaves_no_process(
    web: LoopbackWeb, reader: PageReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = _serve(web, "/bomb", text=_nested(), content_type="text/html")
    started = asyncio.Event()
    run = asyncio.create_subprocess_exec

    async def start(*args: Any, **named: Any) -> asyncio.subprocess.Process:
        process = await run(*args, **named)
        started.set()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    reading = asyncio.create_task(_read(reader, url))
    async with asyncio.timeout(30):
        await started.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    _check_no_children()
