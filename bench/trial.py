"""One target, started alone, and what each test of it costs.

The server has one core to itself, the upstream and the readers share another, where the system
lets us choose (a server with two workers may use both). A figure is the CPU of the server's
whole family from before the readers start until they are done, divided by what was delivered.
Beside it stands who was busy, for a server that was waiting shows another cost than one that
was not, and a reader or an upstream without rest measures itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from family import Family, busy_seconds, cores, free_port, pin, run_server
from processes import HERE, Process, Trouble, script
from readers import Job
from rivals import Launch, Target, prepare
from stamped import PACES, TOKENS
from upstream import LAST_WORD

__all__ = ["Measure", "Stand", "Trial", "run_upstream", "try_target"]

_START_SECONDS: Final = 120.0
_SETTLE_SECONDS: Final = 0.3
_GRACE_SECONDS: Final = 30.0
_FULL: Final = 0.9
_LATE_MS: Final = 1500.0
_SAMPLE_SECONDS: Final = 0.25
_LOOP_LIMIT: Final = 45.0


class Measure(NamedTuple):
    """What one test showed."""

    units: int
    """Deltas, or answers that were not streamed."""
    cpu: float
    """CPU seconds of the server for one unit."""
    seconds: float
    readers: int
    lost: int
    """Answers that were missing, short or refused."""
    refusal: str
    rate: float
    """Deltas a second, as a share of what all streams say together at their pace."""
    delay_p50: float
    delay_p99: float
    first_p50: float
    first_p99: float
    answer_p50: float
    """Milliseconds until a whole answer was there."""
    answer_p99: float
    at_once: int
    """Answers that were arriving at the same time, at most."""
    memory: float
    """The most MiB that the server had meanwhile."""
    busy: dict[str, float]
    """Cores used by the server, the upstream, the readers and everybody else."""

    @property
    def keeps_up(self) -> bool:
        """Whether everybody got everything, about when it was said."""
        return (
            not self.lost and self.rate > _FULL and max(self.delay_p99, self.first_p99) < _LATE_MS
        )


class Stand(NamedTuple):
    """What all targets share: the upstream, and who runs where."""

    upstream: Process
    server_cores: list[int]
    other_cores: list[int]


@contextmanager
def run_upstream(*, is_pinned: bool = True) -> Iterator[Stand]:
    """Start the upstream, and keep it and ourselves from the server's core if there are two."""
    usable = cores()
    mine, theirs = ([usable[0]], usable[1:2]) if is_pinned and len(usable) > 1 else ([], [])
    with script("stamped.py") as upstream:
        pin(upstream.pid, theirs)
        pin(0, theirs)
        try:
            yield Stand(upstream, mine, theirs)
        finally:
            pin(0, usable)


class Trial:
    """A target that runs."""

    def __init__(
        self, target: Target, stand: Stand, family: Family, port: int, launch: Launch
    ) -> None:
        self.target = target
        self._stand = stand
        self._family = family
        self._port = port
        self._launch = launch
        self.start_seconds = 0.0
        self.idle_memory = 0.0

    def through(self, door: str) -> Trial:
        """Return a trial of the same server, asked through another door."""
        return self.asked_as(self.target.through(door))

    def asked_as(self, target: Target) -> Trial:
        """Return a trial of the same server, asked as this target is."""
        return Trial(target, self._stand, self._family, self._port, self._launch)

    def warm_up(self) -> None:
        """Let a server pay for its imports and connections. Raise Trouble if it cannot answer."""
        found = [self.first(0.5)]
        if not self.target.is_stream_only:
            found.append(self.whole(0.5, readers=4))
        for measure in found:
            if measure.lost:
                raise Trouble(f"{measure.lost} answers were not whole {measure.refusal}")

    def flat(
        self,
        seconds: float,
        *,
        readers: int = 16,
        model: str = "flat",
        record: Path | None = None,
    ) -> Measure:
        """Streams as fast as the server passes them on."""
        return self._stream(model, readers, seconds=seconds, limit=_LOOP_LIMIT, record=record)

    def hold(self, streams: int, *, model: str = "paced", record: Path | None = None) -> Measure:
        """So many streams at 20 tokens a second, each read once."""
        pace = PACES[model]
        ramp = TOKENS[model] * pace / 2
        return self._stream(model, streams, ramp=ramp, pace=pace, limit=60.0, record=record)

    def first(self, seconds: float, *, record: Path | None = None) -> Measure:
        """Short streams, one after the other."""
        return self._stream("brief", 1, seconds=seconds, record=record)

    def whole(self, seconds: float, *, readers: int = 32) -> Measure:
        """Answers that are not streamed."""
        body = self.target.body("whole", is_stream=False)
        return self.ask(body, readers=readers, units=0, seconds=seconds, marker=LAST_WORD)

    def _stream(self, model: str, readers: int, *, record: Path | None, **more: Any) -> Measure:
        body = self.target.body(model, is_stream=True)
        named = str(record) if record else ""
        return self.ask(body, readers=readers, units=TOKENS[model], record=named, **more)

    def ask(self, body: dict[str, object], **more: Any) -> Measure:  # Any: fields of a Job
        """Send the readers with this request, and measure meanwhile."""
        job = Job(
            port=self._port,
            path=self.target.path,
            body=body,
            headers=dict(self._launch.headers),
            is_socket=self.target.is_socket,
            **more,
        )
        before = self._clocks()
        result, memory = self._send(job)
        time.sleep(_SETTLE_SECONDS)  # what is written after the answer is a cost of it, too
        spent = [now - then for now, then in zip(self._clocks(), before, strict=True)]
        return self._measure(job, result, memory, spent)

    def _clocks(self) -> list[float]:
        """CPU of the server, the upstream, everybody and this process, and the time."""
        ours = time.process_time()
        return [self._family.cpu, self._stand.upstream.cpu, busy_seconds(), ours, time.monotonic()]

    def _measure(
        self, job: Job, result: dict[str, Any], memory: float, spent: list[float]
    ) -> Measure:
        server, upstream, anybody, ourselves, window = spent
        is_direct = self.target.prepare is None
        if is_direct:
            server = 0.0
        seconds = result["seconds"]
        named = {"server": server, "upstream": upstream, "readers": result["cpu"]}
        busy = {name: value / seconds for name, value in named.items()}
        others = anybody - server - upstream - result["cpu_in_all"] - ourselves
        busy["others"] = max(0.0, others / window)
        return Measure(
            units=result["units"],
            cpu=server / max(1, result["units"]),
            seconds=seconds,
            readers=job.readers,
            lost=result["lost"],
            refusal=result["refusal"],
            rate=result["rate"],
            delay_p50=result["delay"]["p50"],
            delay_p99=result["delay"]["p99"],
            first_p50=result["first"]["p50"],
            first_p99=result["first"]["p99"],
            answer_p50=result["answer"]["p50"],
            answer_p99=result["answer"]["p99"],
            at_once=result["at_once"],
            memory=0.0 if is_direct else memory,
            busy=busy,
        )

    def _send(self, job: Job) -> tuple[dict[str, Any], float]:
        """Run the readers; return their result and the most memory the server had meanwhile."""
        with subprocess.Popen(
            [sys.executable, str(HERE / "readers.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            # The direct road has no server, so its readers get the server's core.
            is_direct = self.target.prepare is None
            pin(child.pid, self._stand.server_cores if is_direct else self._stand.other_cores)
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(json.dumps(job._asdict()))
            child.stdin.close()
            memory, deadline = 0.0, time.monotonic() + job.limit + _GRACE_SECONDS
            while child.poll() is None:
                memory = max(memory, self._family.memory)
                if time.monotonic() > deadline:
                    child.kill()
                time.sleep(_SAMPLE_SECONDS)
            answer = child.stdout.read()
        if child.returncode:
            raise Trouble(f"the readers of {self.target.name} failed")
        result: dict[str, Any] = json.loads(answer)
        return result, memory

    def wait(self, began: float) -> None:
        """Ask until there is an answer, then note how long that took and how much memory."""
        body = self.target.body("brief", is_stream=True)
        job = Job(
            self._port, self.target.path, body, 1, TOKENS["brief"], headers=self._launch.headers
        )
        self.start_seconds = _first_answer(job, began)
        time.sleep(1.0)
        self.idle_memory = self._family.memory


def _first_answer(job: Job, began: float) -> float:
    from http.client import HTTPConnection, HTTPException

    last = ""
    data, headers = json.dumps(job.body), {"Content-Type": "application/json", **job.headers}
    while time.monotonic() < began + _START_SECONDS:
        connection = HTTPConnection("127.0.0.1", job.port, timeout=_START_SECONDS)
        try:
            connection.request("POST", job.path, data, headers)
            answer = connection.getresponse()
            last = f"{answer.status} {answer.read()[:300]!r}"
            if answer.status == 200:
                return time.monotonic() - began
        except (OSError, HTTPException) as error:
            last = repr(error)
        finally:
            connection.close()
        time.sleep(0.01)
    raise Trouble(f"no answer within {_START_SECONDS:.0f} s; the last one was {last}")


@contextmanager
def try_target(
    target: Target, stand: Stand, directory: Path, peers: Path | None = None
) -> Iterator[Trial]:
    """Start a target, wait for its first answer, warm it up; end it afterwards. Raise Missing."""
    if target.prepare is None:
        family = Family(stand.upstream.pid)
        yield Trial(target, stand, family, stand.upstream.port, Launch([]))
        return
    port = free_port()
    home = directory / target.name
    home.mkdir()
    launch = prepare(target, peers=peers, directory=home, port=port, upstream=stand.upstream.port)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANTIPHON_")}
    on = stand.server_cores if target.workers == 1 else stand.server_cores + stand.other_cores
    began = time.monotonic()
    log = home / "log.txt"
    with run_server(
        launch.command, log=log, environment={**environment, **launch.environment}, on=on
    ) as family:
        trial = Trial(target, stand, family, port, launch)
        trial.wait(began)
        trial.warm_up()
        yield trial
