"""How log records become lines, and that a reader who stalls stops nothing."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading

import pytest

from antiphon.gateway.log_lines import JsonLines, LineWriter, TextLines
from antiphon.server.request_log import start_entry


def record(message: str, **extra: object) -> logging.LogRecord:
    found = logging.LogRecord("antiphon.x", logging.WARNING, __file__, 1, message, (), None)
    found.created, found.msecs = 0.25, 250.0
    found.__dict__ |= extra
    return found


def test_every_line_has_a_utc_time_and_the_id_of_its_request() -> None:
    start_entry("req_1", "POST")
    assert TextLines().format(record("slow")) == (
        "1970-01-01T00:00:00.250Z WARNING slow request=req_1"
    )
    assert json.loads(JsonLines().format(record("slow"))) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "antiphon.x",
        "message": "slow",
        "request": "req_1",
    }


def test_a_traceback_stays_inside_its_json_line() -> None:
    try:
        raise ValueError("planted")
    except ValueError:
        line = JsonLines().format(record("broke", exc_info=sys.exc_info()))
    assert "\n" not in line
    assert "ValueError: planted" in json.loads(line)["exception"]


class Stalled(io.StringIO):
    """A terminal whose reader does not read until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached = threading.Event()
        self.may_go_on = threading.Event()

    def write(self, text: str) -> int:
        self.is_reached.set()
        assert self.may_go_on.wait(60)
        return super().write(text)


def test_a_log_that_is_not_read_drops_lines_and_reports_how_many() -> None:
    stream = Stalled()
    writer = LineWriter(stream, max_waiting=10)
    writer.setFormatter(logging.Formatter("%(message)s"))
    writer.emit(record("first"))
    assert stream.is_reached.wait(60)
    for number in range(25):
        writer.emit(record(f"line {number}"))  # returns although nothing can be written
    stream.may_go_on.set()
    writer.close()
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["first", "line 0"]
    assert "15 log lines were dropped: the reader of the log is too slow" in lines


def test_dropped_lines_are_reported_in_the_format_of_the_log() -> None:
    stream = Stalled()
    writer = LineWriter(stream, max_waiting=1)
    writer.setFormatter(JsonLines())
    writer.emit(record("first"))
    assert stream.is_reached.wait(60)
    for _ in range(3):
        writer.emit(record("more"))
    stream.may_go_on.set()
    writer.close()
    last = json.loads(stream.getvalue().splitlines()[-1])
    assert last["level"] == "warning"
    assert last["message"].startswith("2 log lines were dropped")


def test_a_log_that_is_not_read_does_not_hold_up_the_end() -> None:
    stream = Stalled()
    writer = LineWriter(stream, patience=0.1)
    writer.emit(record("first"))
    assert stream.is_reached.wait(60)
    writer.close()  # it would wait for the reader for ever
    assert stream.getvalue() == ""
    stream.may_go_on.set()


def test_a_line_that_cannot_be_written_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    writer = LineWriter(stream)
    wrong = record("%d lines")
    wrong.args = ("many",)
    writer.emit(wrong)
    writer.emit(record("next"))
    writer.close()
    assert stream.getvalue() == "next\n"
    assert "Logging error" in capsys.readouterr().err


def test_closing_writes_what_waits() -> None:
    stream = io.StringIO()
    writer = LineWriter(stream)
    for number in range(100):
        writer.emit(record(f"line {number}"))
    writer.close()
    assert len(stream.getvalue().splitlines()) == 100
