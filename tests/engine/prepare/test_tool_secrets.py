"""Secrets of tools in stored requests."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.engine.prepare.seal import Sealer
from antiphon.engine.prepare.tool_secrets import hide_secrets, reveal_secrets
from antiphon.protocol.errors import InvalidRequest

_TOOL = {
    "type": "mcp",
    "server_label": "desk",
    "authorization": "token-one",
    "headers": {"X-Key": "token-two"},
}
_BODY = {"model": "m", "tools": [_TOOL, {"type": "function", "name": "f"}], "input": "mcp"}


def _tools(body: bytes) -> list:
    return list(msgspec.json.decode(body)["tools"])


def test_sealed_secrets_are_put_back_for_their_owner_only() -> None:
    sealer = Sealer([bytes(32)])
    body = hide_secrets(msgspec.json.encode(_BODY), "anna", sealer)
    assert b"token" not in body and b"headers" not in body
    assert reveal_secrets(_tools(body), "anna", sealer) == _BODY["tools"]
    with pytest.raises(InvalidRequest, match="'desk'"):
        reveal_secrets(_tools(body), "bert", sealer)


def test_without_a_sealer_secrets_are_lost_and_that_is_said() -> None:
    body = hide_secrets(msgspec.json.encode(_BODY), "anna", None)
    assert b"token" not in body
    with pytest.raises(InvalidRequest, match="in memory only") as caught:
        reveal_secrets(_tools(body), "anna", None)
    assert caught.value.code == "tool_secrets_lost"


def test_secrets_of_a_tool_whose_type_is_written_escaped_are_sealed() -> None:
    written = msgspec.json.encode({**_BODY, "input": "hello"}).replace(b'"mcp"', rb'"m\u0063p"')
    body = hide_secrets(written, "anna", Sealer([bytes(32)]))
    assert b"token" not in body


@pytest.mark.parametrize("tools", [None, [], [{"type": "mcp", "server_label": "x"}], "mcp"])
def test_a_body_without_secrets_is_kept_as_it_is(tools: object) -> None:
    body = msgspec.json.encode({"input": "mcp", "tools": tools})
    assert hide_secrets(body, "anna", None) is body
