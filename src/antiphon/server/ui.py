"""/ui: the files of the dashboard, which is a client of the documented routes and nothing else.

The files are open to all, because there is nothing of anyone in them; the page asks the API with
the caller's own key. They are read once. An address below /ui that is no file is a screen, and gets
the page. The page names its files below a folder that is a digest of all of them, so a browser
keeps them for good; only the page itself is asked for again. The policy lets the page run its own
scripts, ask its own origin, and do nothing else: no inline script, no markup from text, no frame,
no other host. Where people log in with an identity provider, the page may also connect to its token
endpoint, and to nothing else of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

from antiphon.protocol.errors import NotFound
from antiphon.server.app import Call, Route

__all__ = ["ROUTES", "content_policy"]

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FRESH: Final = "no-cache"
_FOREVER: Final = "public, max-age=31536000, immutable"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_IS_DIGEST: Final = re.compile(r"[0-9a-f]{16}").fullmatch
_PAGE: Final = "index.html"
_LIBRARY: Final = "vendor/preact-htm.js"
_FOLDERS: Final = ("js/", "vendor/")
_FOLDER: Final = Path(__file__).parent.parent / "ui"


def content_policy(token_endpoints: Sequence[str] = ()) -> str:
    """Return what the page may do; `token_endpoints` are those of identity providers."""
    connections = " ".join(["'self'", *token_endpoints])
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"connect-src {connections}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


class _File(NamedTuple):
    body: bytes
    content_type: str
    tag: str


async def serve_file(call: Call) -> web.StreamResponse:
    """Return a file of the dashboard, or its page for a screen."""
    files = _read_files()
    folder, _, rest = call.path_id.partition("/")
    # While gateways are replaced, a page may ask another version for its files.
    name = rest if _IS_DIGEST(folder) else call.path_id
    is_kept = folder == _digest() and name in files
    if name.startswith(_FOLDERS) and name not in files:
        raise NotFound(f"There is no file at /ui/{name}.", code="unknown_url")
    found = files.get(name, files[_PAGE])
    is_page = found is files[_PAGE]
    policy = content_policy(await call.app.login.token_endpoints() if is_page else ())
    headers = {**_HEADERS, "Content-Security-Policy": policy, "ETag": found.tag}
    headers["Cache-Control"] = _FOREVER if is_kept and not is_page else _FRESH
    if is_page:
        headers["Link"] = _preloads()
    if found.tag in call.request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = found.content_type
    return web.Response(body=found.body, headers=headers)


@cache
def _read_files() -> dict[str, _File]:
    """Return the files that may be served, by their path below /ui."""
    files = {name: _read(name, body) for name, body in _bodies().items()}
    page = files[_PAGE].body.replace(b'="/ui/', f'="/ui/{_digest()}/'.encode())
    return {**files, _PAGE: _read(_PAGE, page)}


@cache
def _bodies() -> dict[str, bytes]:
    paths = (path for path in sorted(_FOLDER.rglob("*")) if path.suffix in _TYPES)
    return {path.relative_to(_FOLDER).as_posix(): path.read_bytes() for path in paths}


@cache
def _digest() -> str:
    """Return the name of the folder of the files: it changes with each of them."""
    whole = hashlib.sha256()
    for name, body in _bodies().items():
        whole.update(f"{name} {len(body)} ".encode() + body)
    return whole.hexdigest()[:16]


@cache
def _preloads() -> str:
    """Return which modules the page needs, so that a browser does not find them one by one."""
    modules = (name for name in _read_files() if name.startswith("js/") or name == _LIBRARY)
    return ", ".join(f"</ui/{_digest()}/{name}>; rel=modulepreload" for name in modules)


def _read(name: str, body: bytes) -> _File:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return _File(body, _TYPES[Path(name).suffix], tag)


ROUTES: Final = [
    Route("GET", "/ui", serve_file, is_open=True),
    Route("GET", "/ui/", serve_file, is_open=True),
    Route("GET", "/ui/{id}", serve_file, is_open=True, takes_rest=True),
]
