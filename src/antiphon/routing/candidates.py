"""Which deployments may answer a request?

A deployment is a model at a provider. A `Route` holds all that may answer for one name, and the
rules for asking them; `choice` chooses among them. `Board` holds what this process knows of all
deployments: who is busy, who fails, and what was decided. Nothing of it is shared with other
processes: each learns by itself, with one request, that a deployment fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from antiphon.backends.base import Backend
from antiphon.backends.breaker import Breaker
from antiphon.backends.fault_classes import FaultName, classify
from antiphon.models.prices import Price
from antiphon.plans.capabilities import Capabilities, common_capabilities
from antiphon.protocol.errors import BackendError
from antiphon.routing.settings import RouteSettings

__all__ = ["Board", "Candidate", "Lease", "Reason", "Route", "Tally"]

Reason = Literal["only", "load", "affinity", "account", "all_open", "next", "fallback", "overflow"]
"""Why a deployment was chosen."""

_NO_RULES: Final = RouteSettings()


class Candidate(msgspec.Struct, frozen=True):
    """A deployment that may answer: a backend, and the name that the model has there."""

    backend: Backend
    model: str
    provider: str
    """The name of the provider in the settings."""
    context_length: int | None = None
    """Input and output tokens together, if a source states it."""
    weight: float = 1.0
    account: str = ""
    """Whose account it is: native state goes only to the account that made it."""
    max_output_tokens: int | None = None
    """How long an answer may be, if a source states it."""
    price: Price | None = None
    """What it costs, if a source states it."""

    name: str = ""
    """The name of the deployment, `provider/model`; set by itself."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", f"{self.provider}/{self.model}")


class Lease:
    """What a catalog and all routes of it hold: while it lives, their backends may be asked.

    When a reload replaces the catalog, its lease holds the next one, so leases end in their order:
    a backend that several catalogs had is closed after the last turn that may ask it.
    """

    __slots__ = ("__weakref__", "next")

    def __init__(self) -> None:
        self.next: Lease | None = None


class Tally(msgspec.Struct):
    """What was decided so far, for the metrics. Providers come from the settings only."""

    choices: dict[tuple[str, Reason], int] = msgspec.field(default_factory=lambda: defaultdict(int))
    fallbacks: dict[tuple[str, FaultName], int] = msgspec.field(
        default_factory=lambda: defaultdict(int)
    )
    """Requests that another deployment got after this provider had failed, by the fault."""
    opens: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))


class Board:
    """What one process knows of its deployments. `limits` are the `max_inflight` of providers.

    It outlives the catalogs that a reload replaces: requests of earlier turns still count.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        breaker: Breaker | None = None,
        limits: Mapping[str, int] = {},
    ) -> None:
        self.breaker = breaker or Breaker(clock)
        self.breaker.on_open = self._note_open
        self.inflight: dict[str, int] = defaultdict(int)
        """Requests that run now, by provider."""
        self.turns: dict[str, float] = defaultdict(float)
        """Whose turn it is among equals, by deployment (see `choice`)."""
        self.tally = Tally()
        self.limits = limits

    def open_deployments(self) -> dict[str, int]:
        """Return how many deployments have an open breaker, by provider that was asked."""
        found = dict.fromkeys((provider for provider, _ in self.tally.choices), 0)
        return {name: len(self.breaker.open_deployments(name)) for name in found}

    def has_room(self, provider: str) -> bool:
        """Return whether another request may be sent to a provider now."""
        limit = self.limits.get(provider)
        return limit is None or self.inflight[provider] < limit

    def is_ready(self, candidate: Candidate) -> bool:
        """Return whether a deployment is worth a request now."""
        return self.has_room(candidate.provider) and self.breaker.is_ready(candidate.name)

    def ready_of(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return those of the deployments that are worth a request now."""
        if self.limits:
            return [one for one in candidates if self.is_ready(one)]
        is_closed = self.breaker.is_ready
        return [one for one in candidates if is_closed(one.name)]

    def enter(self, candidate: Candidate, reason: Reason) -> None:
        """Note that a request goes to this deployment; `leave` follows."""
        self.inflight[candidate.provider] += 1
        self.breaker.note_request(candidate.name)
        self.tally.choices[candidate.provider, reason] += 1

    def leave(self, candidate: Candidate) -> None:
        """Note that the request has ended."""
        self.inflight[candidate.provider] -= 1

    @contextmanager
    def seat(self, candidate: Candidate, reason: Reason) -> Iterator[None]:
        """Send one request to this deployment inside this context, and note how it ends."""
        self.enter(candidate, reason)
        try:
            yield
            self.breaker.note_success(candidate.name)
        except BackendError as error:
            self.breaker.note_failure(candidate.name, classify(error), error.retry_after)
            raise
        finally:
            self.leave(candidate)

    def _note_open(self, deployment: str) -> None:
        self.tally.opens[deployment.partition("/")[0]] += 1


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Who may answer for one name, and by which rules."""

    name: str
    deployments: Sequence[Candidate]
    """At least one; all of the same model, as far as the caller is concerned."""
    fallbacks: Sequence[Candidate] = ()
    on_overflow: Sequence[Candidate] = ()
    rules: RouteSettings = _NO_RULES
    board: Board
    lease: Lease | None = None
    """Keeps the backends open."""

    @property
    def first(self) -> Candidate:
        """The deployment that the settings name first."""
        return self.deployments[0]

    @property
    def all(self) -> list[Candidate]:
        """Every deployment that may be asked."""
        return [*self.deployments, *self.fallbacks, *self.on_overflow]

    @property
    def capabilities(self) -> Capabilities:
        """What can be relied on.

        Tools that the upstream runs must be run by all deployments of the model. Other models are
        asked only if they run those too, so they do not take them away. What a model enforces
        must be enforced by all, because otherwise it has to be checked.
        """
        if len(self.deployments) == 1 and not self.fallbacks and not self.on_overflow:
            return self.deployments[0].backend.capabilities
        own = common_capabilities([one.backend.capabilities for one in self.deployments])
        every = common_capabilities([one.backend.capabilities for one in self.all])
        return msgspec.structs.replace(every, tool_kinds=own.tool_kinds)

    @property
    def context_length(self) -> int | None:
        """How many tokens every deployment of the model takes, as far as that is known."""
        return min(
            (one.context_length for one in self.deployments if one.context_length), default=None
        )
