"""Which addresses are this machine's alone, and what is said when one cannot be had."""

from __future__ import annotations

import socket

import pytest

from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.gateway.listen import bind, resolve, url_of


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
    ],
)
def test_only_loopback_addresses_are_loopback(host: str, is_loopback: bool) -> None:
    assert resolve(host, 0).is_loopback is is_loopback


def test_a_name_nobody_knows_is_told() -> None:
    with pytest.raises(BadSettings, match="is not a known name or address"):
        resolve("x" * 64, 0)


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"127.0.0.1 port {port} is in use; stop the other"):
            bind(resolve("127.0.0.1", port))


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(Unavailable, match="is not an address of this machine"):
        bind(resolve("192.0.2.1", 0))


def test_clients_can_connect_as_soon_as_it_is_bound() -> None:
    with bind(resolve("127.0.0.1", 0)) as sock:
        socket.create_connection(sock.getsockname()[:2]).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_url_is_one_that_this_machine_can_use(host: str) -> None:
    with bind(resolve(host, 0)) as sock:
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
