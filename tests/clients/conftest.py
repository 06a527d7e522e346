"""Fixtures for the suites of clients, and the recorder of their results."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.clients.house import House, open_house
from tests.clients.index import versions
from tests.clients.results import Key, Outcome, claimed, merged, read, write

_RECORDER = "antiphon-client-results"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file that the outcomes are written to."""
    parser.addoption("--client-results", metavar="FILE", help="record how the clients' turns went")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that hears of all tests, which is not a worker of xdist."""
    path = config.getoption("--client-results", None)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)), _RECORDER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the turns of a test travel with its report."""
    for mark in item.iter_markers("turn"):
        client, what = mark.args
        item.user_properties.append(("turn", (client, what, mark.kwargs.get("transport", "-"))))


class Recorder:
    """Hears how each test went; writes the record when all have ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ran: dict[Key, Outcome] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of all tests and phases of a turn."""
        for name, value in report.user_properties:
            if name == "turn":
                self._keep(msgspec.convert(value, type=Key), report)

    def _keep(self, key: Key, report: pytest.TestReport) -> None:
        if report.failed:
            self.ran[key] = "failed"
        elif report.skipped and self.ran.get(key) != "failed":
            self.ran[key] = "skipped"
        elif report.when == "call":
            self.ran.setdefault(key, "passed")

    def pytest_sessionfinish(self) -> None:
        """Write what is known now."""
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        write(self.path, merged(read(self.path), self.ran, versions(), claimed(), today))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A gateway that keeps what it remembers in memory, before a model that plays turns."""
    async with open_house(tmp_path / "house") as house:
        yield house


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home for the client alone."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty folder for the client to work in."""
    path = tmp_path / "work"
    path.mkdir()
    return path
