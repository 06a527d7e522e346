"""Which deployments are worth asking now: a circuit breaker for each.

A deployment is a model at a provider, named `provider/model`. Its breaker is

    closed ── too many failures ──> open ── deadline passed ──> half-open
       ^                              ^                            │
       └──── the model answers ───────┼──── one trial: answers ────┤
                                      └──── one trial: fails ──────┘  open twice as long

- Too many are 3 failures in a row, or 5 if these are at least half of the requests; both in the
  last 30 seconds. What opens at once, and for how long, is in `fault_classes`.
- A deadline only ever moves later, until it has passed.
- A half-open breaker lets one request through. A trial that neither answers nor fails, because
  its caller left or made a mistake, is made again.
- The breaker only remembers and answers; it refuses nothing by itself. Where all deployments of
  a request are open, the one that failed least recently is asked.

It stands below `routing`, which asks it, because backends report to it when a model answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from antiphon.backends.fault_classes import FaultClass

__all__ = ["FAILURES_TO_OPEN", "Breaker"]

FAILURES_TO_OPEN: Final = 3
_WINDOW_SECONDS: Final = 30.0
_MOST_IN_WINDOW: Final = 256
_ENOUGH_TO_JUDGE: Final = 5
_FIRST_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 60.0
# No server may close itself for longer than this by its Retry-After.
_LONGEST_WISH: Final = 3600.0
# More than it takes to reach the longest: after days of failures a float could not hold the power.
_MOST_DOUBLINGS: Final = 10
_TRIAL_SECONDS: Final = 30.0
_MAX_REMEMBERED: Final = 1000


class _State:
    """What is remembered of a deployment."""

    __slots__ = ("failed_at", "in_a_row", "is_asked", "opened", "requests", "trial_since", "until")

    def __init__(self) -> None:
        self.requests: deque[tuple[float, bool]] = deque(maxlen=_MOST_IN_WINDOW)
        """When requests ended, and whether they failed."""
        self.in_a_row = 0
        self.opened = 0
        """How often in a row it was opened."""
        self.until: float | None = None
        """When the open breaker may be tried; None while it is closed."""
        self.trial_since: float | None = None
        """When the one trial of a half-open breaker began, while it runs."""
        self.is_asked = False
        """Whether a request was sent since it opened."""
        self.failed_at = 0.0

    def note(self, now: float, *, is_failure: bool) -> None:
        while self.requests and self.requests[0][0] <= now - _WINDOW_SECONDS:
            self.requests.popleft()
        in_a_row = min(self.in_a_row, len(self.requests))
        self.requests.append((now, is_failure))
        self.in_a_row = in_a_row + 1 if is_failure else 0

    @property
    def is_too_bad(self) -> bool:
        if self.in_a_row >= FAILURES_TO_OPEN:
            return True
        failures = sum(is_failure for _, is_failure in self.requests)
        return failures >= _ENOUGH_TO_JUDGE and 2 * failures >= len(self.requests)


class Breaker:
    """The breakers of one process. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._states: dict[str, _State] = {}
        self.on_open: Callable[[str], None] = lambda deployment: None
        """Called with each deployment whose breaker opens."""

    def is_ready(self, deployment: str) -> bool:
        """Return whether the deployment is worth a request: closed, or due for its one trial."""
        state = self._states.get(deployment)
        if state is None or state.until is None:
            return True
        now = self._clock()
        # A trial whose caller left says nothing; after a while another one may be made.
        on_trial = state.trial_since is not None and now < state.trial_since + _TRIAL_SECONDS
        return now >= state.until and not on_trial

    def note_request(self, deployment: str) -> None:
        """Note that a request is sent: to a half-open deployment, it is the trial."""
        state = self._states.get(deployment)
        if state is None or state.until is None:
            return
        state.is_asked = True
        if self._clock() >= state.until:
            state.trial_since = self._clock()

    def is_open(self, deployment: str) -> bool:
        """Return whether the deployment failed lately and is not yet due for a trial."""
        return self.seconds_left(deployment) > 0

    def seconds_left(self, deployment: str) -> float:
        """Return how long the breaker stays open; 0 if it is not."""
        state = self._states.get(deployment)
        if state is None or state.until is None:
            return 0.0
        return max(state.until - self._clock(), 0.0)

    def failed_at(self, deployment: str) -> float:
        """Return when the deployment failed last; 0 if that is not known."""
        state = self._states.get(deployment)
        return state.failed_at if state else 0.0

    def open_deployments(self, provider: str) -> list[str]:
        """Return the deployments of a provider that are open."""
        prefix = f"{provider}/"
        return [name for name in self._states if name.startswith(prefix) and self.is_open(name)]

    def forget(self, provider: str) -> None:
        """Forget the deployments of a provider: it is another one from now on."""
        prefix = f"{provider}/"
        self._states = {
            name: state for name, state in self._states.items() if not name.startswith(prefix)
        }

    def note_answer(self, deployment: str) -> None:
        """Close the breaker: the model has begun to answer.

        The answer to a request that was sent before it opened changes nothing.
        """
        state = self._states.get(deployment)
        if state is not None and state.until is not None and state.is_asked:
            state.until = state.trial_since = None
            state.in_a_row = 0
            state.requests.clear()

    def note_success(self, deployment: str) -> None:
        """Count an answer that is complete, and close the breaker."""
        state = self._states.get(deployment) or self._state(deployment)
        if state.until is not None:
            self.note_answer(deployment)
        if state.until is None:
            state.opened = 0
        state.note(self._clock(), is_failure=False)

    def note_failure(
        self, deployment: str, fault: FaultClass, retry_after: float | None = None
    ) -> None:
        """Count a request that failed; open the breaker if it is one too many."""
        if fault.breaker == "none":
            state = self._states.get(deployment)
            if state is not None:
                state.trial_since = None  # the trial showed nothing: another one may be made
            return
        state, now = self._state(deployment), self._clock()
        state.failed_at = now
        if fault.breaker == "opens":
            seconds = _doubled(fault.first_seconds, state.opened, fault.longest_seconds)
            self._open(deployment, state, max(seconds, min(retry_after or 0.0, _LONGEST_WISH)))
            state.opened += fault.longest_seconds > fault.first_seconds
            return
        was_trial, state.trial_since = state.trial_since is not None, None
        state.note(now, is_failure=True)
        if was_trial or (state.until is None and state.is_too_bad):
            seconds = _doubled(_FIRST_SECONDS, state.opened, _LONGEST_SECONDS)
            self._open(deployment, state, seconds)
            state.opened += 1

    def _open(self, deployment: str, state: _State, seconds: float) -> None:
        state.trial_since, state.is_asked = None, False
        # A deadline only ever moves later.
        state.until = max(state.until or 0.0, self._clock() + seconds)
        self.on_open(deployment)

    def _state(self, deployment: str) -> _State:
        state = self._states.pop(deployment, None)
        if state is None:
            state = _State()
            if len(self._states) >= _MAX_REMEMBERED:
                self._states.pop(next(iter(self._states)))
        self._states[deployment] = state  # the last one used is forgotten last
        return state


def _doubled(seconds: float, times: int, longest: float) -> float:
    return min(seconds * 2.0 ** min(times, _MOST_DOUBLINGS), longest)
