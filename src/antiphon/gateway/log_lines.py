"""How a log record becomes a line, and how lines reach the terminal without blocking the loop.

Every line has a UTC time, a level and, where one is known, the id of the request it belongs to.
A reader of the log that does not keep up must not stop the gateway: lines wait in memory for a
thread that writes them, up to a limit; what is dropped beyond that is counted in a line.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from typing import Any, Final, Literal, TextIO

from antiphon.server.request_log import current_request_id

__all__ = ["JsonLines", "LineWriter", "LogFormat", "TextLines", "formatter_for"]

LogFormat = Literal["text", "json"]
_encode: Final = json.JSONEncoder(ensure_ascii=False, default=str).encode
_MAX_WAITING: Final = 10_000
# Lines that come this close together are written at once.
_GATHER_SECONDS: Final = 0.02
_PATIENCE: Final = 5.0


def formatter_for(form: LogFormat) -> logging.Formatter:
    """Return the formatter of a log format."""
    return JsonLines() if form == "json" else TextLines()


def _timestamp(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


def _request_id(record: logging.LogRecord) -> str:
    """Return the request id of a record that does not name it itself."""
    return "" if hasattr(record, "fields") else current_request_id()


class TextLines(logging.Formatter):
    """Lines for a person: time, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line, with its traceback below if it has one."""
        line = f"{_timestamp(record)} {record.levelname:7} {record.getMessage()}"
        if request := _request_id(record):
            line += f" request={request}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """Lines for a program: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON object in one line."""
        line: dict[str, Any] = {  # Any: the fields of a line may hold anything
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "fields", None)
        if fields is None:
            line["message"] = record.getMessage()
            if request := _request_id(record):
                line["request"] = request
        else:
            line |= fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line)


def _dropped_record(count: int) -> logging.LogRecord:
    message = "%d log lines were dropped: the reader of the log is too slow"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, (count,), None)


class LineWriter(logging.Handler):
    """Writes lines in a thread of its own. Close it to have written everything.

    A reader that takes nothing holds up the end of the process for `patience` seconds at most.
    """

    def __init__(
        self, stream: TextIO, max_waiting: int = _MAX_WAITING, patience: float = _PATIENCE
    ) -> None:
        super().__init__()
        self._stream = stream
        self._max_waiting = max_waiting
        self._patience = patience
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._has_lines = threading.Event()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record here and now, and leave the writing to the thread."""
        if len(self._lines) >= self._max_waiting:
            self._dropped += 1
            return
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a line that cannot be written must not end a request
            self.handleError(record)
            return
        self._lines.append(line)
        self._has_lines.set()

    def close(self) -> None:
        """Write what waits, then stop the thread; give up on a reader that takes nothing."""
        self._is_closing.set()
        self._has_lines.set()
        self._thread.join(self._patience)
        super().close()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self._has_lines.wait()
            self._is_closing.wait(_GATHER_SECONDS)
            self._has_lines.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append(self.format(_dropped_record(dropped)))
        if not lines:
            return
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # the terminal was closed; there is no place to report that
            self._lines.clear()
