"""Files of weights from the Hugging Face hub, by a name such as `hf:OWNER/REPO/FILE.gguf`.

The hub lists the size and the SHA-256 of a file; the file must match both. A download that
was cut off goes on where it ended. HF_ENDPOINT names another hub, HF_TOKEN a key for files that
need one, and the proxy variables of the environment (HTTPS_PROXY, NO_PROXY) are honoured. The key
goes to the hub alone, not to the store of files that it redirects to.
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.error
import urllib.request
import urllib.response
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import msgspec

from antiphon.backends.weights import Progress, WeightsUnavailable, cache_dir

__all__ = ["PREFIX", "HubFile", "pull_file", "read_name"]

PREFIX: Final = "hf:"
_ENDPOINT: Final = "https://huggingface.co"
_BLOCK: Final = 1024 * 1024
_TIMEOUT: Final = 60.0
_TRIES: Final = 5
_STEP: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME: Final = re.compile(rf"hf:({_STEP}/{_STEP})(?:@({_STEP}))?/((?:{_STEP}/)*{_STEP}\.gguf)")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class HubFile(msgspec.Struct, frozen=True):
    """A file on the hub, at a branch, tag or commit of its repository."""

    repo: str
    revision: str
    file: str

    def path(self, directory: Path | None = None) -> Path:
        """Return where the file belongs here, whether it is there or not."""
        place = (directory or cache_dir()) / "hub" / self.repo / self.revision
        return place / self.file


class _Facts(msgspec.Struct, frozen=True):
    """What the hub lists for a file."""

    size: int
    sha256: str


def read_name(name: str) -> HubFile:
    """Return the file that a name means. Raise WeightsUnavailable if it means none."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise WeightsUnavailable(
            f"{name!r} does not name a file; write hf:OWNER/REPO/FILE.gguf, "
            "or hf:OWNER/REPO@REVISION/FILE.gguf"
        )
    return HubFile(found[1], found[2] or "main", found[3])


def pull_file(
    wanted: HubFile,
    progress: Progress,
    *,
    environ: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> Path:
    """Return the path of the file, fetching it first if it is not here. This may take long."""
    path = wanted.path(directory)
    if path.is_file():
        return path  # it has its name only since its digest was checked
    path.parent.mkdir(parents=True, exist_ok=True)
    hub = _Hub(wanted, environ)
    facts = hub.ask()
    part = path.with_suffix(f".{facts.sha256[:16]}.part")
    for attempt in range(1, _TRIES + 1):
        try:
            hub.fetch(part, facts, progress)
            break
        except urllib.error.HTTPError as error:
            raise _failed(wanted, error) from error
        except (OSError, HTTPException) as error:
            if attempt == _TRIES:
                raise _failed(wanted, error) from error
    _check(part, facts, progress)
    part.replace(path)
    return path


class _Hub:
    """One file of a hub, over HTTP."""

    def __init__(self, wanted: HubFile, environ: Mapping[str, str]) -> None:
        endpoint = environ.get("HF_ENDPOINT") or _ENDPOINT
        if not endpoint.startswith(("https://", "http://")):
            raise WeightsUnavailable("HF_ENDPOINT must begin with https:// or http://")
        self._wanted = wanted
        self._url = (
            f"{endpoint.rstrip('/')}/{wanted.repo}/resolve/{wanted.revision}/{quote(wanted.file)}"
        )
        self._token = environ.get("HF_TOKEN", "")
        proxies = urllib.request.ProxyHandler()
        self._opener = urllib.request.build_opener(proxies)
        self._asker = urllib.request.build_opener(proxies, _StayHere())

    def ask(self) -> _Facts:
        """Return the size and the digest of the file. Raise WeightsUnavailable if it has none."""
        try:
            with self._asker.open(self._request("HEAD"), timeout=_TIMEOUT) as answer:
                return self._read_facts(answer.headers)
        except (OSError, HTTPException) as error:
            raise _failed(self._wanted, error) from error

    def fetch(self, part: Path, facts: _Facts, progress: Progress) -> None:
        """Append to the part what it lacks."""
        done = part.stat().st_size if part.exists() else 0
        if done >= facts.size:
            return
        request = self._request("GET")
        request.add_header("Range", f"bytes={done}-")
        with self._opener.open(request, timeout=_TIMEOUT) as answer:
            if answer.status != 206:  # the whole file comes, from its first byte
                done = 0
            with part.open("r+b" if done else "wb") as sink:
                sink.seek(done)
                self._copy(answer, sink, done, facts.size, progress)

    def _copy(
        self, source: IO[bytes], sink: IO[bytes], done: int, size: int, progress: Progress
    ) -> None:
        while block := source.read(_BLOCK):
            sink.write(block)
            done += len(block)
            progress("fetch", min(done, size), size)
            if done > size:
                break
        if done < size:
            raise ConnectionError("the connection was cut off")

    def _request(self, method: str) -> urllib.request.Request:
        request = urllib.request.Request(self._url, method=method)  # noqa: S310 - checked above
        request.add_header("User-Agent", "antiphon")
        request.add_header("Accept-Encoding", "identity")
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return request

    def _read_facts(self, headers: HTTPMessage) -> _Facts:
        size = headers.get("X-Linked-Size") or headers.get("Content-Length") or ""
        digest = (headers.get("X-Linked-Etag") or headers.get("ETag") or "").strip('"').lower()
        if not size.isdecimal() or not _SHA256.fullmatch(digest):
            raise WeightsUnavailable(
                f"the hub does not list the size and the SHA-256 of {self._wanted.file}, "
                "so it cannot be checked"
            )
        return _Facts(int(size), digest)


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Takes a redirect as the answer: the hub's own headers hold the digest."""

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
    ) -> IO[bytes]:
        return urllib.response.addinfourl(fp, headers, req.full_url, code)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _check(part: Path, facts: _Facts, progress: Progress) -> None:
    """Read the file through. Remove it and raise WeightsUnavailable if it is another one."""
    digest, done = hashlib.sha256(), 0
    with part.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            progress("check", min(done, facts.size), facts.size)
    if done != facts.size or digest.hexdigest() != facts.sha256:
        part.unlink()
        raise WeightsUnavailable("the file that arrived is not the one the hub names; try again")


def _failed(wanted: HubFile, error: Exception) -> WeightsUnavailable:
    name = f"{wanted.repo}/{wanted.file}"
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        hint = {
            401: "; set HF_TOKEN to a key that may read it",
            403: "; set HF_TOKEN to a key that may read it",
            404: "; look at the names of the repository and the file",
        }.get(error.code, "")
        return WeightsUnavailable(f"the hub refuses {name} (HTTP {error.code}){hint}")
    reason = getattr(error, "reason", None) or error
    return WeightsUnavailable(
        f"{name} could not be fetched: {reason}; the next try goes on where this one ended"
    )
