"""Several processes behind one socket, kept alive by their parent.

The parent binds the socket and forks, and then only watches: it passes SIGTERM and SIGINT on to
the children, reloads them on SIGHUP (see `worker_reload`) and replaces each child that dies, after
a pause that grows. It gives up when a
child repeatedly dies soon after its start. What a child does is a function of its number.

- The parent has no threads, no event loop and no open store, so forking it is safe.
- A child is the leader of its own process group: Ctrl-C reaches only the parent, which passes
  it on once. A second signal would make the child stop waiting for its turns.
- A child reports over a line of its own that it is ready and that it lives. The service manager
  learns from the parent alone: that all are ready, and that none of them is stuck.
- A child whose parent has ended stops as if it had received a signal: it notices the end of a
  pipe whose other end only the parent holds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from antiphon.gateway.hangup import Terminal
from antiphon.gateway.notify import ServiceManager
from antiphon.gateway.worker_line import Line, Message, ParentLine, line_pair
from antiphon.gateway.worker_reload import ReloadVote, SharedSettings

__all__ = ["MAX_DEATHS", "restart_pause", "run_workers"]

MAX_DEATHS: Final = 5
_HEALTHY_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.1
_KILL_AFTER: Final = 10.0
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)

Work = Callable[[int, ParentLine], None]
"""Serves as the worker with this number until a signal arrives; raises if it cannot."""


def restart_pause(deaths: int) -> float | None:
    """Return the seconds to wait before another try, or None to give up.

    `deaths` counts how often in a row this worker has died young.
    """
    if deaths >= MAX_DEATHS:
        return None
    return _FIRST_PAUSE * 2.0 ** max(deaths - 1, 0)


def run_workers(
    count: int,
    run: Work,
    manager: ServiceManager,
    *,
    drain_seconds: Callable[[], float],
    settings: SharedSettings,
) -> int:
    """Keep that many workers running until a signal arrives; return the exit code.

    `drain_seconds` returns what a worker may need to stop; one that takes much longer is killed.
    `settings` are what SIGHUP reads again.
    """
    return _Parent(count, run, manager, drain_seconds, settings).watch()


class _Worker:
    """One place among the workers; several processes may fill it in turn."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid = 0
        self.started = 0.0
        self.deaths = 0
        self.due: float | None = None
        """When to start the next process, if none is running."""
        self.line: Line | None = None
        self.is_ready = False
        self.last_beat = 0.0


class _Parent:
    def __init__(
        self,
        count: int,
        run: Work,
        manager: ServiceManager,
        drain_seconds: Callable[[], float],
        settings: SharedSettings,
    ) -> None:
        self._workers = [_Worker(index) for index in range(count)]
        self._run = run
        self._manager = manager
        self._is_reported = False
        self._beat_at = float("inf") if manager.watchdog_seconds is None else 0.0
        self._drain_seconds = drain_seconds
        self._reload = ReloadVote(settings, manager, self._lines)
        self._terminal = Terminal()
        self._is_stopping = False
        self._kill_at = float("inf")
        self._exit_code = 0
        self._signals, self._signals_in = os.pipe()
        self._life, self._life_in = os.pipe()

    def watch(self) -> int:
        """Run the workers until all have ended."""
        for file in (self._signals, self._signals_in):
            os.set_blocking(file, False)
        for number in _watched():
            # The handler does nothing: the wake-up pipe shows which signal it was.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._signals_in, warn_on_full_buffer=False)
        for worker in self._workers:
            self._start(worker)
        while any(worker.pid or worker.due is not None for worker in self._workers):
            self._wait()
            self._bury()
            self._start_due()
            self._kill_late()
            self._reload.expire()
            self._show_life()
        return self._exit_code

    def _start(self, worker: _Worker) -> None:
        worker.due = None
        worker.started = worker.last_beat = time.monotonic()
        worker.is_ready = False
        worker.line, theirs = line_pair()
        # A signal between the fork and the child's own handlers would be taken for ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, _watched())
        pid = os.fork()
        if pid == 0:
            self._be_child(worker.index, theirs)
        theirs.close()
        worker.pid = pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _watched())

    def _be_child(self, index: int, line: Line) -> None:
        """Run as the worker with this number; never return."""
        code = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent reloads all workers
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for file in (self._signals, self._signals_in, self._life_in):
                os.close(file)
            for worker in self._workers:
                if worker.line is not None:
                    worker.line.close()
            threading.Thread(target=_follow_parent, args=(self._life,), daemon=True).start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _watched())
            self._run(index, ParentLine(line, self._manager.watchdog_seconds))
            code = 0
        except KeyboardInterrupt:
            code = 0  # stopped before it had anything to finish
        except BaseException:  # noqa: BLE001 - the outermost frame of this process
            _log.exception("worker %d broke", index)
        finally:
            os._exit(code)

    def _wait(self) -> None:
        """Sleep until a signal comes or something is due."""
        dues = [worker.due for worker in self._workers if worker.due is not None]
        if self._reload.is_voting:
            dues = []
        until = min([*dues, self._kill_at, self._beat_at, self._reload.deadline])
        timeout = None if until == float("inf") else max(until - time.monotonic(), 0.0)
        lines = {one.line: one for one in self._workers if one.line and one.line.is_open}
        files: list[int | Line] = [self._signals, *lines]
        ready, _, _ = select.select(files, [], [], timeout)
        for line, worker in lines.items():
            if line in ready:
                for message in line.receive():
                    self._note(worker, message)
        for number in os.read(self._signals, 4096) if self._signals in ready else b"":
            self._take(signal.Signals(number))

    def _take(self, number: signal.Signals) -> None:
        """Do what a signal asks for."""
        if number in _STOPPING or (number == signal.SIGHUP and self._terminal.was_closed):
            self._stop(number if number in _STOPPING else signal.SIGTERM)
        elif number == signal.SIGHUP and not (self._is_stopping or self._terminal.is_kept_out):
            self._reload.ask()

    def _lines(self) -> dict[int, Line]:
        """Return the lines of the workers that live."""
        return {one.index: one.line for one in self._workers if one.pid and one.line}

    def _note(self, worker: _Worker, message: Message) -> None:
        """Note what a worker reports."""
        worker.last_beat = time.monotonic()
        if message.kind == "ready":
            worker.is_ready = True
            if not self._is_reported and all(one.is_ready for one in self._workers):
                self._is_reported = True
                self._manager.ready()
        elif message.kind != "beat":
            self._reload.note(worker.index, message)

    def _show_life(self) -> None:
        """Show the service manager a sign of life, unless a worker has shown none."""
        patience = self._manager.watchdog_seconds
        now = time.monotonic()
        if patience is None or now < self._beat_at:
            return
        self._beat_at = now + patience / 2
        stuck = [one.index for one in self._workers if one.pid and now - one.last_beat > patience]
        if stuck:
            _log.error("worker %s shows no sign of life", ", ".join(map(str, stuck)))
        else:
            self._manager.beat()

    def _stop(self, number: signal.Signals) -> None:
        """Pass the signal on; start no more workers."""
        if not self._is_stopping:
            self._kill_at = time.monotonic() + self._drain_seconds() + _KILL_AFTER
            self._manager.stopping()
        self._is_stopping = True
        for worker in self._workers:
            worker.due = None
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)

    def _bury(self) -> None:
        """Note every child that has ended."""
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                worker.pid = 0
                if worker.line is not None:
                    worker.line.close()
                self._reload.lose(worker.index)
                self._note_death(worker, os.waitstatus_to_exitcode(status))

    def _note_death(self, worker: _Worker, code: int) -> None:
        if self._is_stopping:
            self._exit_code = self._exit_code or int(code not in (0, -signal.SIGTERM))
            return
        lived = time.monotonic() - worker.started
        worker.deaths = 1 if lived >= _HEALTHY_SECONDS else worker.deaths + 1
        pause = restart_pause(worker.deaths)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        if pause is None:
            _log.error(
                "worker %d died %s, %d times in a row; giving up", worker.index, how, MAX_DEATHS
            )
            self._exit_code = 1
            self._stop(signal.SIGTERM)
            return
        _log.warning("worker %d died %s; another one in %.1f s", worker.index, how, pause)
        worker.due = time.monotonic() + pause

    def _start_due(self) -> None:
        if self._reload.is_voting:
            return
        now = time.monotonic()
        for worker in self._workers:
            if worker.due is not None and worker.due <= now:
                self._start(worker)

    def _kill_late(self) -> None:
        if time.monotonic() < self._kill_at:
            return
        self._kill_at = float("inf")
        self._exit_code = 1
        for worker in self._workers:
            if worker.pid:
                _log.error("worker %d does not stop; it is killed", worker.index)
                os.kill(worker.pid, signal.SIGKILL)


def _watched() -> tuple[signal.Signals, ...]:
    """Return the signals that the parent takes. Windows, which has no workers, lacks some."""
    return (*_STOPPING, signal.SIGHUP, signal.SIGCHLD)


def _follow_parent(life: int) -> None:
    """Wait for the parent's end, then stop this process as a signal would."""
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)
