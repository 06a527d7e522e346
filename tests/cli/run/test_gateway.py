"""A gateway of our own: where it is, what it lists, and that it ends with us."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from antiphon.cli.errors import CliError
from antiphon.cli.run import gateway as module
from antiphon.cli.run.gateway import Listing, open_gateway
from tests.cli.processes import ECHO

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")


def test_it_lists_its_models_and_ends_when_we_leave(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    with open_gateway({}, tmp_path / "log") as gateway:
        listing = asyncio.run(gateway.list_models())
        assert gateway.process.poll() is None
    assert gateway.is_over
    assert [model.id for model in listing.data] == ["scripted", "echo"]
    assert (tmp_path / "log").read_text() == ""


def test_it_ends_also_when_we_leave_by_a_fault(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    with pytest.raises(KeyError), open_gateway({}, tmp_path / "log") as gateway:
        raise KeyError
    assert gateway.is_over


def test_one_that_does_not_begin_in_time_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_START_SECONDS", 0.0)
    with (
        pytest.raises(CliError, match=r"the gateway did not start: it printed nothing"),
        open_gateway({}, tmp_path / "log"),
    ):
        pass


def test_one_that_does_not_end_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.0)
    with open_gateway({}, tmp_path / "log") as gateway:
        gateway.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, gateway.process.pid, os.WSTOPPED)
    assert gateway.process.returncode == -signal.SIGKILL


def test_one_that_is_gone_takes_no_orders_and_that_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    with open_gateway({}, tmp_path / "log") as gateway:
        gateway.process.kill()
        gateway.process.wait()
        gateway.guard(17)
        assert gateway.is_over


def test_the_context_of_a_model_is_told_if_it_is_known() -> None:
    listing = Listing(data=[module._Model("a", 4096), module._Model("b")], models=[{"slug": "a"}])
    assert [listing.context_of(name) for name in ("a", "b", "c")] == [4096, None, None]
