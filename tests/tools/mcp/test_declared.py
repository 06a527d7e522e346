"""What a request may declare, and what it is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol.errors import InvalidRequest
from antiphon.tools.mcp.declared import DeclaredServer, Directory, read_servers
from antiphon.tools.mcp.endpoints import Endpoint, configured_endpoints, url_endpoint
from antiphon.tools.mcp.settings import McpServer, McpSettings

_SECRET = "sk-1234567890"
_DIRECTORY = Directory(
    {
        "desk": Endpoint(label="desk", url="https://desk.example/mcp"),
        "connector_x": Endpoint(label="connector_x", url="https://x.example/mcp"),
        "open": Endpoint(label="open", url="https://open.example/mcp", takes_headers=True),
    },
    ("https://*.good.example/*",),
)


def _read(where: str = "tools[0]", **fields: Any) -> tuple[DeclaredServer, list[str]]:
    tool = DeclaredTool({"type": "mcp", **fields}, where)
    servers, notes = read_servers([tool], _DIRECTORY)
    (server,) = servers.values()
    return server, notes


def _refusal(where: str = "tools[0]", **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        _read(where, **fields)
    assert _SECRET not in caught.value.message
    return caught.value


def test_a_label_means_a_configured_server() -> None:
    server, notes = _read(server_label="desk")
    assert server.endpoint.url == "https://desk.example/mcp"
    assert (server.endpoint.is_guarded, notes) == (False, [])
    assert "no MCP server of this gateway" in _refusal(server_label="other").message


def test_a_connector_means_a_configured_server_of_that_name() -> None:
    server, _ = _read(server_label="mine", connector_id="connector_x")
    assert (server.label, server.endpoint.url) == ("mine", "https://x.example/mcp")
    assert _refusal(server_label="mine", connector_id="connector_y").code == "unsupported_tool"
    assert _refusal(server_label="mine", tunnel_id="desk").code == "unsupported_tool"


def test_a_url_must_be_allowed_and_is_guarded() -> None:
    server, _ = _read(server_label="mine", server_url="https://a.good.example/mcp")
    assert server.endpoint.is_guarded
    known, _ = _read(server_label="desk", server_url="https://desk.example/mcp")
    assert not known.endpoint.is_guarded
    for url in ("https://evil.example/mcp", "http://a.good.example/mcp", "https://good.example/"):
        assert "mcp.allow_urls" in _refusal(server_label="mine", server_url=url).message


@pytest.mark.parametrize(
    ("pattern", "url", "is_allowed"),
    [
        ("https://*.good.example/*", "https://a.b.good.example/x/y?z", True),
        ("https://*.good.example/*", "https://evil.example/.good.example/x", False),
        ("https://*.good.example/*", "https://evil.example?.good.example/x", False),
        ("https://*.good.example/*", "https://evil.example/?.good.example/", False),
        ("https://*.good.example/*", "https://a.good.example", True),
        ("https://*.good.example", "https://a.good.example/x", True),
        ("https://*.good.example", "https://evil.example/a.good.example", False),
        ("https://good.example/mcp", "https://good.example/mcp/more", False),
        ("https://good.example/a/*", "https://good.example/b/a/", False),
        ("http*://good.example/*", "http://good.example/", True),
        ("http://*", "http://any.example/path", True),
        ("*.good.example/*", "https://evil.example/.good.example/x", False),
        ("*", "https://any.example/path", True),
    ],
)
def test_a_pattern_for_hosts_does_not_reach_into_the_path(
    pattern: str, url: str, is_allowed: bool
) -> None:
    if is_allowed:
        assert url_endpoint("x", url, (pattern,), "tools[0]").url == url
        return
    with pytest.raises(InvalidRequest, match=r"mcp\.allow_urls"):
        url_endpoint("x", url, (pattern,), "tools[0]")


@pytest.mark.parametrize(
    "url",
    [
        7,
        "",
        "ftp://a.good.example/x",
        "https://user:pw@a.good.example/x",
        "https://a.good.example/x#y",
        "https://evil.example\\@a.good.example/x",
        "https://a.good.example/ x",
        "https://a.good.example/" + "x" * 3000,
    ],
)
def test_a_url_of_another_form_is_refused(url: object) -> None:
    assert "must be an http or https URL" in _refusal(server_label="m", server_url=url).message


@pytest.mark.parametrize("label", [None, 3, "", "x" * 65, "a\nb"])
def test_a_label_must_be_short_and_printable(label: object) -> None:
    assert _refusal(server_label=label).param == "tools[0].server_label"


def test_two_places_and_two_equal_labels_are_refused() -> None:
    fields = {"server_label": "desk", "server_url": "https://a.good.example/", "connector_id": "c"}
    assert "only one of" in _refusal(**fields).message
    tool = {"type": "mcp", "server_label": "desk"}
    with pytest.raises(InvalidRequest, match="two tools"):
        read_servers([DeclaredTool(tool, "tools[0]"), DeclaredTool(tool, "tools[1]")], _DIRECTORY)


def test_credentials_go_only_where_they_are_taken() -> None:
    headers = {"X-Key": _SECRET}
    server, notes = _read(server_label="open", authorization=_SECRET, headers=headers)
    sent = {name: value.reveal() for name, value in server.endpoint.headers.items()}
    assert (sent, notes) == ({"X-Key": _SECRET, "Authorization": f"Bearer {_SECRET}"}, [])
    server, notes = _read(server_label="desk", authorization=_SECRET)
    assert server.endpoint.headers == {}
    assert notes == ["tools[0].authorization: the server has credentials of its own"]


@pytest.mark.parametrize(
    "fields",
    [
        {"authorization": 7},
        {"authorization": f"{_SECRET}\r\nX-Evil: 1"},
        {"headers": {"Host": _SECRET}},
        {"headers": {"Mcp-Session-Id": _SECRET}},
        {"headers": {"X Y": _SECRET}},
        {"headers": {"X": f"{_SECRET}\n"}, "authorization": ""},
        {"headers": [_SECRET]},
        {"headers": {f"X-{number}": _SECRET for number in range(40)}},
    ],
)
def test_credentials_that_cannot_be_sent_are_refused_without_showing_them(
    fields: dict[str, Any],
) -> None:
    _refusal(server_label="open", **fields)


def test_credentials_in_items_are_refused_because_items_are_stored() -> None:
    error = _refusal("input[0].tools[0]", server_label="open", authorization=_SECRET)
    assert "items are stored" in error.message


def test_what_cannot_be_honoured_is_reported() -> None:
    _, notes = _read(
        server_label="desk",
        defer_loading=True,
        colour="red",
        require_approval={"never": {"read_only": True}},
    )
    assert [note.partition(":")[0] for note in notes] == [
        "tools[0].colour",
        "tools[0].defer_loading",
        "tools[0].require_approval.never.read_only",
    ]


def test_settings_name_variables_and_hold_no_secret() -> None:
    server = McpServer(
        url="https://a/", key_env="KEY", header_envs={"X-A": "A"}, headers={"X-B": "b"}
    )
    environ = {"KEY": _SECRET, "A": "aaa"}
    found = configured_endpoints(McpSettings(servers={"s": server}), environ)["s"]
    sent = {name: value.reveal() for name, value in found.headers.items()}
    assert sent == {"X-B": "b", "X-A": "aaa", "Authorization": f"Bearer {_SECRET}"}
    process = McpServer(command="run", args=("x",), env={"P": "1"}, env_names=("A",))
    started = configured_endpoints(McpSettings(servers={"p": process}), environ)["p"]
    assert (started.command, started.env) == (("run", "x"), {"P": "1", "A": "aaa"})


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer(), "either url or command"),
        (McpServer(url="https://a/", command="b"), "either url or command"),
        (McpServer(url="ftp://a/"), "http or https"),
        (McpServer(url="https://a/", key_env="MISSING"), "MISSING, which is not set"),
        (McpServer(url="https://a/", headers={"Host": "x"}), "'Host' cannot be set"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(server: McpServer, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        configured_endpoints(McpSettings(servers={"s": server}), {})
