"""The file of an editor: what it states, and when it is not used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from antiphon.backends.host_file import read_editor_file
from antiphon.protocol.errors import BackendError

FIELDS = {"version": 1, "address": "127.0.0.1:4711", "token": "a-token-0123", "pid": 1, "name": "E"}


def write(tmp_path: Path, content: object, mode: int = 0o600) -> Path:
    path = tmp_path / "editor.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    path.chmod(mode)
    return path


def refusal(path: Path) -> BackendError:
    with pytest.raises(BackendError) as caught:
        read_editor_file(path)
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("address", "host"), [("127.0.0.1:4711", "127.0.0.1"), ("[::1]:4711", "::1")]
)
def test_a_file_that_can_be_used(tmp_path: Path, address: str, host: str) -> None:
    editor = read_editor_file(write(tmp_path, FIELDS | {"address": address, "more": True}))
    assert (editor.host, editor.port, editor.name) == (host, 4711, "E")
    assert editor.token.reveal() == "a-token-0123"
    assert "a-token-0123" not in repr(editor)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"version": 2}, "its version is 2"),
        ({"address": "10.0.0.1:80"}, "not a loopback address"),
        ({"address": "localhost:80"}, "not a loopback address"),
        ({"address": "127.0.0.1"}, "not a loopback address"),
        ({"address": "127.0.0.1:0"}, "has no port"),
        ({"address": "127.0.0.1:99999999"}, "has no port"),
        ({"address": "127.0.0.1:http"}, "has no port"),
        ({"token": ""}, "it has no token"),
        ({"token": 7}, "not written as we know it"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    error = refusal(write(tmp_path, FIELDS | fields))
    assert error.code == "upstream_auth" and why in error.message


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b" " * 70_000])
def test_a_file_that_is_no_json(tmp_path: Path, content: bytes) -> None:
    assert refusal(write(tmp_path, content)).code == "upstream_auth"


def test_a_missing_file_means_that_no_editor_runs(tmp_path: Path) -> None:
    error = refusal(tmp_path / "editor.json")
    assert (error.code, error.status) == ("upstream_unreachable", 503)


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are of POSIX")
@pytest.mark.parametrize("mode", [0o601, 0o604, 0o620, 0o640, 0o777])
def test_a_file_that_is_open_to_others(tmp_path: Path, mode: int) -> None:
    assert "`chmod 600` closes it" in refusal(write(tmp_path, FIELDS, mode)).message


@pytest.mark.skipif(os.name != "posix", reason="modes and owners are of POSIX")
def test_a_file_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, FIELDS)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert "it belongs to another user" in refusal(path).message


@pytest.mark.skipif(os.name != "posix", reason="pipes with a name are of POSIX")
def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert "it is not a file" in refusal(pipe).message
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    assert refusal(folder).code == "upstream_auth"
