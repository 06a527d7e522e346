"""The vote of the workers on a reload: all change over, or none does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from antiphon.gateway import worker_reload
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.notify import ServiceManager
from antiphon.gateway.worker_line import Line, Message, line_pair
from antiphon.gateway.worker_reload import ReloadVote


class _Settings:
    """Settings that can be read, unless `problem` says why not."""

    def __init__(self) -> None:
        self.problem = ""
        self.adopted = 0

    def read(self) -> str:
        if self.problem:
            raise BadSettings(self.problem)
        return "digest"

    def adopt(self) -> str:
        self.adopted += 1
        return "reloaded"


class _Manager(ServiceManager):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__({})
        self.reports: list[str] = []

    def _send(self, message: str) -> None:
        self.reports.append(message.split("\n")[0])


class _House:
    """A vote of two workers, of which the test plays both."""

    def __init__(self) -> None:
        self.settings, self.manager = _Settings(), _Manager()
        pairs = [line_pair(), line_pair()]
        self.lines: dict[int, Line] = {index: ours for index, (ours, _) in enumerate(pairs)}
        self.workers = [theirs for _, theirs in pairs]
        self.vote = ReloadVote(self.settings, self.manager, lambda: self.lines)

    def heard(self) -> list[list[str]]:
        """Return what each worker has been sent since the last time."""
        found: list[list[str]] = []
        for worker in self.workers:
            worker.sock.setblocking(False)
            try:
                found.append([message.kind for message in worker.receive()])
            except BlockingIOError:
                found.append([])
        return found

    def answer(self, kind: str, text: str = "", *workers: int) -> None:
        for index in workers or (0, 1):
            self.vote.note(index, Message(kind, text))  # type: ignore[arg-type] # one of its kinds


@pytest.fixture
def house() -> Iterator[_House]:
    made = _House()
    yield made
    for line in (*made.lines.values(), *made.workers):
        line.close()


def test_all_workers_change_over_when_all_could(house: _House) -> None:
    house.vote.ask()
    assert house.heard() == [["prepare"], ["prepare"]]
    house.answer("prepared", "", 0)
    assert house.vote.is_voting and house.heard() == [[], []]
    house.answer("prepared", "", 1)
    assert house.heard() == [["apply"], ["apply"]]
    assert house.settings.adopted == 1
    assert "READY=1" not in house.manager.reports
    house.answer("done")
    assert house.manager.reports == ["RELOADING=1", "STATUS=reloaded", "READY=1"]


def test_what_one_worker_refuses_is_refused_by_all(house: _House) -> None:
    house.vote.ask()
    house.heard()
    house.answer("prepared", "", 0)
    house.answer("refused", "the store cannot be read", 1)
    assert house.heard() == [["discard"], ["discard"]]
    assert house.settings.adopted == 0
    assert "the store cannot be read" in house.manager.reports[1]
    house.answer("prepared", "", 0)  # late, and of no account
    house.answer("done")
    assert house.manager.reports[-1] == "READY=1"
    house.vote.ask()  # the next one can succeed
    assert house.heard() == [["prepare"], ["prepare"]]


def test_what_the_parent_cannot_read_is_not_built_by_workers(house: _House) -> None:
    house.settings.problem = "there is no key 'prot'"
    house.vote.ask()
    assert house.heard() == [["discard"], ["discard"]]
    house.answer("done")
    assert house.manager.reports[0] == "RELOADING=1"
    assert "there is no key 'prot'" in house.manager.reports[1]
    assert house.manager.reports[-1] == "READY=1"


def test_a_worker_that_dies_is_not_waited_for(house: _House) -> None:
    house.vote.ask()
    house.answer("prepared", "", 0)
    house.lines.pop(1).close()
    house.vote.lose(1)
    assert house.settings.adopted == 1  # its successor starts with the new settings
    house.answer("done", "", 0)
    assert house.manager.reports[-1] == "READY=1"


def test_without_a_living_worker_the_next_ones_get_the_new_settings(house: _House) -> None:
    for index in (0, 1):
        house.lines.pop(index).close()
    house.vote.ask()
    assert house.settings.adopted == 1
    assert house.manager.reports[-1] == "READY=1"


def test_a_worker_that_does_not_answer_ends_the_reload(
    house: _House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_reload, "_VOTE_SECONDS", 0.0)
    house.vote.ask()
    house.answer("prepared", "", 0)
    house.vote.expire()
    assert "worker 1 did not answer" in house.manager.reports[1]
    assert house.settings.adopted == 0
    house.vote.expire()  # it does not report the end either
    assert house.manager.reports[-1] == "READY=1"


def test_a_reload_that_is_asked_for_during_another_follows_it(house: _House) -> None:
    house.vote.ask()
    house.vote.ask()
    house.heard()
    house.answer("prepared")
    assert house.heard() == [["apply"], ["apply"]]
    house.answer("done")
    assert house.heard() == [["prepare"], ["prepare"]]
