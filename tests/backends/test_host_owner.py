"""Who listens at a port: another user must not get what was meant for an editor."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from antiphon.backends import host
from antiphon.backends.host import HostBackend
from antiphon.backends.host_owner import listening_users
from antiphon.protocol.errors import BackendError
from tests.faults.house import PATIENCE
from tests.host_upstream import serve_editor

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux states whose socket it is"
)
OTHER = os.geteuid() + 1
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
NOBODY = 65534
LISTEN = f"""
import os, socket, sys
os.setuid({NOBODY})
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
server.accept()
print("connected", flush=True)
"""


def table(tmp_path: Path, *rows: tuple[str, int, str, int], name: str = "tcp") -> Path:
    """Write a table with address, port, state and user of each socket."""
    lines = [
        f"   {n}: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000"
        f"  {uid}        0 1234 1 0000000000000000 100 0 0 10 0\n"
        for n, (address, port, state, uid) in enumerate(rows)
    ]
    (tmp_path / name).write_text(HEAD + "".join(lines))
    return tmp_path


def word(address: str) -> str:
    """Return an address as the kernel of this machine writes it."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    parts = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_another_user_who_listens_is_found(tmp_path: Path, address: str) -> None:
    proc = table(tmp_path, (word(address), 4711, "0A", OTHER))
    assert listening_users("127.0.0.1", 4711, proc) == frozenset({OTHER})


@pytest.mark.parametrize("address", ["::", "::1", "::ffff:127.0.0.1"])
def test_another_user_who_listens_on_ipv6_is_found(tmp_path: Path, address: str) -> None:
    proc = table(tmp_path, (word(address), 4711, "0A", OTHER), name="tcp6")
    asked = "::1" if address == "::1" else "127.0.0.1"
    assert listening_users(asked, 4711, proc) == frozenset({OTHER})


def test_other_ports_addresses_and_states_are_not_meant(tmp_path: Path) -> None:
    proc = table(
        tmp_path,
        (word("127.0.0.1"), 4712, "0A", OTHER),
        (word("127.0.0.2"), 4711, "0A", OTHER),
        (word("127.0.0.1"), 4711, "01", OTHER),
    )
    assert listening_users("127.0.0.1", 4711, proc) == frozenset()


def test_a_system_that_does_not_state_it_is_trusted(tmp_path: Path) -> None:
    assert listening_users("127.0.0.1", 4711, tmp_path) is None


@pytest.mark.parametrize("later", [{OTHER}, set(), {OTHER, os.geteuid()}])
async def test_a_listener_that_came_after_the_first_look_gets_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: set[int]
) -> None:
    looks = iter([frozenset(), later])
    monkeypatch.setattr(host, "listening_users", lambda *place: next(looks))
    async with asyncio.timeout(PATIENCE), serve_editor(tmp_path / "editor.json") as editor:
        with pytest.raises(BackendError) as caught:
            await HostBackend(editor.path).models()
        await editor.stop()

    assert caught.value.code == "upstream_auth"
    assert editor.hellos == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as another user")
async def test_an_editor_of_another_user_gets_no_greeting(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LISTEN, stdout=asyncio.subprocess.PIPE
        )
        assert other.stdout is not None
        port = int(await other.stdout.readline())
        path = tmp_path / "editor.json"
        path.write_text(
            json.dumps({"version": 1, "address": f"127.0.0.1:{port}", "token": "a-token-0123"})
        )
        path.chmod(0o600)
        with pytest.raises(BackendError) as caught:
            await HostBackend(path).models()
        other.kill()
        assert await other.stdout.read() == b""  # nobody connected
        await other.wait()

    assert caught.value.code == "upstream_auth"
    assert "another user listens" in caught.value.message
