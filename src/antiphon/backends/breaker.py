"""Which deployments are worth asking now: a circuit breaker for each.

A deployment is a model at a provider, named `provider/model`. Its breaker is

    closed ── 3 failed requests in a row ──> open ── deadline passed ──> half-open
       ^                                       ^                            │
       └────────────── a request works ────────┼──── one trial: works ──────┤
                                               └──── one trial: fails ──────┘  open twice as long

The breaker only remembers and answers `may_try`; it refuses nothing by itself. Where a request
has no other deployment to go to, it is sent all the same, once and without retries. Only the
deployment's own failures count: a caller's mistake, a rate limit or a full context does not.

It stands below `routing`, which asks it, because backends report to it: a backend alone knows
when its model has answered, and repeats no request that the breaker does not allow (`Patience`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.protocol.errors import BackendError, ContextOverflow

__all__ = ["FAILURES_TO_OPEN", "Breaker"]

FAILURES_TO_OPEN: Final = 3
_FIRST_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 60.0
# More than it takes to reach the longest: after days of failures a float could not hold the power.
_MOST_DOUBLINGS: Final = 10
_TRIAL_SECONDS: Final = 30.0
# A wrong key or an empty account stays so for longer than seconds.
_OPEN_AT_ONCE: Final = frozenset({"upstream_auth", "insufficient_quota"})
# The server works; what its model wrote cannot be used.
_WRITTEN_WRONG: Final = frozenset(
    {"tool_choice_violated", "tool_call_invalid", "output_format_violated"}
)
_MAX_REMEMBERED: Final = 1000


class _State:
    """What is remembered of a deployment whose last request failed."""

    def __init__(self) -> None:
        self.failures = 0
        self.opened = 0
        self.until = 0.0
        self.trial_since: float | None = None
        """When the one trial of a half-open breaker began, while it runs."""


class Breaker:
    """The breakers of one process. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._states: dict[str, _State] = {}

    def may_try(self, deployment: str) -> bool:
        """Return whether the deployment is worth a request: closed, or due for its one trial."""
        state = self._states.get(deployment)
        if state is None or not state.opened:
            return True
        now = self._clock()
        # A trial whose caller left says nothing; after a while another one may be made.
        on_trial = state.trial_since is not None and now < state.trial_since + _TRIAL_SECONDS
        if on_trial or now < state.until:
            return False
        state.trial_since = now
        return True

    def is_open(self, deployment: str) -> bool:
        """Return whether the deployment failed lately and is not yet due for a trial."""
        return self.seconds_left(deployment) > 0

    def seconds_left(self, deployment: str) -> float:
        """Return how long the breaker stays open; 0 if it is not."""
        state = self._states.get(deployment)
        return max(state.until - self._clock(), 0.0) if state else 0.0

    def open_deployments(self, provider: str) -> list[str]:
        """Return the deployments of a provider that are open."""
        prefix = f"{provider}/"
        return [name for name in self._states if name.startswith(prefix) and self.is_open(name)]

    def note_success(self, deployment: str) -> None:
        """Close the breaker: the deployment has answered."""
        self._states.pop(deployment, None)

    def note_failure(self, deployment: str, error: BackendError) -> bool:
        """Count a request that failed; open the breaker if it is one too many.

        Return whether the failure is the deployment's own: only such a one may pass with time.
        """
        state = self._states.get(deployment)
        if not _counts(error):
            if state is not None:
                state.trial_since = None  # the trial showed nothing: another one may be made
            return False
        if state is None:
            if len(self._states) >= _MAX_REMEMBERED:
                self._states.pop(next(iter(self._states)))
            state = self._states[deployment] = _State()
        state.failures += 1
        if error.code in _OPEN_AT_ONCE:
            self._open(state, _LONGEST_SECONDS)
        elif state.trial_since is not None or (
            state.failures >= FAILURES_TO_OPEN and not state.opened
        ):
            doublings = min(state.opened, _MOST_DOUBLINGS)
            self._open(state, min(_FIRST_SECONDS * 2.0**doublings, _LONGEST_SECONDS))
        return True

    def _open(self, state: _State, seconds: float) -> None:
        state.opened += 1
        state.trial_since = None
        # A deadline only ever moves later.
        state.until = max(state.until, self._clock() + seconds)


def _counts(error: BackendError) -> bool:
    """Return whether the failure is the deployment's own."""
    if isinstance(error, ContextOverflow):
        return False
    if error.code in _WRITTEN_WRONG:
        return False
    return error.status >= 500 or error.code in _OPEN_AT_ONCE
