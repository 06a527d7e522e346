"""Parse documents for the gateway: the program of a parsing process.

It is started with pipes as stdin and stdout (`frames`), limits itself before it reads anything,
and serves until its input ends. On Linux it can neither reach a network nor start, signal or trace
another process: the system refuses these calls. Everything that goes wrong with a document is an
answer; only what the limits stop ends the process, and the gateway starts another.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO, Final

from antiphon.tools.documents.parsing.frames import (
    CONTENT,
    END,
    FAILED,
    INFO,
    LARGEST,
    TASK,
    TEXT,
    Task,
    Unreadable,
    read_frame,
    write_frame,
)
from antiphon.tools.sandbox.seccomp import refuse_calls

__all__ = ["main"]

_IN_MEMORY: Final = 16 * 1024 * 1024
_PIECE: Final = 64 * 1024  # characters
_MIB: Final = 1024 * 1024
_TOO_MUCH: Final = "The file needs more memory to be read than is allowed."


def main(memory: int, file_bytes: int) -> None:
    """Serve until stdin ends."""
    _limit(memory, file_bytes)
    refuse_calls()
    sources, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints is not an answer
    while frame := read_frame(sources):
        tag, body = frame
        assert tag == TASK
        task = Task(**json.loads(body))
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            if not _receive(sources, file):
                return
            _serve(task, file, answers)
        answers.flush()


def _receive(sources: BinaryIO, file: IO[bytes]) -> bool:
    """Take the content; return False if the gateway has gone."""
    while frame := read_frame(sources):
        tag, body = frame
        if tag != CONTENT:
            file.seek(0)
            return True
        file.write(body)
    return False


def _serve(task: Task, file: IO[bytes], answers: BinaryIO) -> None:
    try:
        _limit_time(task.cpu_seconds)
        _send_text(task, _reader_of(task.kind)(file, task), answers)
    except Unreadable as failure:
        _fail(answers, failure.message, failure.code)
    except MemoryError:
        _fail(answers, _TOO_MUCH)
    except Exception:  # noqa: BLE001 - the outermost frame of a process that reads anything
        _fail(answers, "The file is damaged or incomplete.")
    else:
        write_frame(answers, END)


def _fail(answers: BinaryIO, message: str, code: str = "invalid_file") -> None:
    write_frame(answers, FAILED, json.dumps({"code": code, "message": message}).encode())


def _send_text(task: Task, pieces: Iterator[str | dict[str, object]], answers: BinaryIO) -> None:
    """Send the text in pieces of a good size, and count it."""
    held: list[str] = []
    size = left = 0
    left = task.text_bytes
    for piece in pieces:
        if isinstance(piece, dict):
            write_frame(answers, INFO, json.dumps(piece).encode())
            continue
        held.append(piece)
        size += len(piece)
        if size >= _PIECE:
            left = _send_piece("".join(held), left, answers)
            held.clear()
            size = 0
    _send_piece("".join(held), left, answers)


def _send_piece(text: str, left: int, answers: BinaryIO) -> int:
    """Send a piece; return how many bytes may follow. Raise Unreadable if it is too much."""
    data = text.encode("utf-8", "replace")
    if len(data) > left:
        raise Unreadable("The file has more text than can be read.")
    for begin in range(0, len(data), LARGEST):
        write_frame(answers, TEXT, data[begin : begin + LARGEST])
    answers.flush()
    return left - len(data)


def _reader_of(kind: str) -> Callable[[IO[bytes], Task], Iterator[str | dict[str, object]]]:
    """Return what reads this kind. Its library is imported when the first such file comes."""
    if kind == "office":
        from antiphon.tools.documents.parsing.office import read_office

        return read_office
    if kind == "pdf":
        from antiphon.tools.documents.parsing.pdf import read_pdf

        return read_pdf
    from antiphon.tools.documents.parsing.html_text import read_html_file

    return read_html_file


def _limit(memory: int, file_bytes: int) -> None:
    """Give this process little of everything, where the system can do that."""
    try:
        import resource
    except ImportError:  # not on Windows: there the gateway's clock is the limit
        return
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def _limit_time(seconds: int) -> None:
    """Let the next document use so many seconds of CPU; then the system ends this process."""
    try:
        import resource
    except ImportError:  # see `_limit`
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard)
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
