"""Which backend answers for a model?

Every provider's models are served under their own names; where two providers offer the same
name, the first one configured has it, and `provider/name` always reaches the other. A list
that was learnt once is kept for a while, asked for again when a name is not in it, and kept
beyond that when the provider cannot be asked. A provider that cannot list its models is taken
at the caller's word. What config and the bundled table know of a model is put to what the
provider says of it; config about a model that nobody lists makes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from antiphon.backends.base import Backend, ModelInfo
from antiphon.backends.breaker import Breaker
from antiphon.protocol.errors import BackendError, InvalidRequest, NotFound
from antiphon.routing.describe import ModelSettings, describe

__all__ = ["Catalog", "Route"]

_FRESH_SECONDS: Final = 60.0
# How soon we ask again: for a name that is not in the list, and after a failure.
_PATIENCE_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 2.0


class Route(msgspec.Struct, frozen=True):
    """Where a model is found, and the name it has there."""

    backend: Backend
    model: str
    provider: str
    """The name of the provider in the settings."""
    context_length: int | None = None
    """How many tokens it takes, if anybody says so."""


class _Provider:
    """A backend and what it said last about its models, or why it did not."""

    def __init__(self, name: str, backend: Backend, settings: Mapping[str, ModelSettings]) -> None:
        self.name = name
        self.prefix = f"{name}/"
        self.backend = backend
        self._settings = settings
        self._models: Sequence[ModelInfo] | None = None
        self._routes: dict[str, Route] = {}
        self._failure: BackendError | None = None
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    async def models(self, clock: Callable[[], float], max_age: float) -> Sequence[ModelInfo]:
        """Return the models, asking anew if what is known is older than `max_age`.

        Raise BackendError if the provider has never told.
        """
        if clock() - self._asked_at >= max_age:
            async with self._lock:
                # Who held the lock may have asked meanwhile.
                if clock() - self._asked_at >= max_age:
                    await self._ask()
                    self._asked_at = clock()
        if self._models is None:
            assert self._failure is not None
            raise self._failure
        return self._models

    async def route(self, name: str, clock: Callable[[], float], max_age: float) -> Route | None:
        """Return the way to a model of this name, if there is one. Raise as `models` does."""
        await self.models(clock, max_age)
        return self._routes.get(name)

    async def problem(
        self, clock: Callable[[], float], breaker: Breaker, seconds: float
    ) -> str | None:
        """Return why the provider cannot serve anything now, or None if it can.

        One that answers but does not list its models is taken at its word.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.models(clock, _PATIENCE_SECONDS)
        except TimeoutError:
            return "it did not list its models in time"
        except BackendError:
            pass  # kept as `_failure`
        if self._failure is not None and self._failure.code != "upstream_refused":
            return self._failure.message
        failing = set(breaker.open_deployments(self.name))
        listed = {f"{self.prefix}{name}" for name in self._routes}
        return "its last requests failed" if listed and listed <= failing else None

    def age_limit(self) -> float:
        """Return how old an answer may be before we ask again."""
        return _FRESH_SECONDS if self._failure is None else _PATIENCE_SECONDS

    async def _ask(self) -> None:
        try:
            models = await self.backend.models()
            self._models = [describe(model, self.name, self._settings) for model in models]
            self._routes = {
                # Where a list has a name twice, the first one counts.
                model.id: Route(self.backend, model.id, self.name, model.context_length)
                for model in reversed(self._models)
            }
            self._failure = None
        except BackendError as error:
            self._failure = error


class Catalog:
    """The providers of one gateway. `clock` is monotonic seconds, `models` what config says.

    `breaker` is the one that the backends report to.
    """

    def __init__(
        self,
        providers: Mapping[str, Backend],
        clock: Callable[[], float],
        *,
        default_model: str | None = None,
        models: Mapping[str, ModelSettings] | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self._providers = [
            _Provider(name, backend, models or {}) for name, backend in providers.items()
        ]
        self._clock = clock
        self._default = default_model
        self._breaker = breaker or Breaker(clock)

    @property
    def default_model(self) -> str | None:
        """The model of requests that name none, if config says which."""
        return self._default

    async def models(self) -> list[ModelInfo]:
        """Return what can be asked for, each name once.

        Raise BackendError only if no provider could say anything.
        """
        found: dict[str, ModelInfo] = {}
        failure: BackendError | None = None
        for provider in self._providers:
            try:
                models = await provider.models(self._clock, provider.age_limit())
            except BackendError as error:
                failure = error
                continue
            for model in models:
                name = model.id if model.id not in found else f"{provider.name}/{model.id}"
                found[name] = msgspec.structs.replace(model, id=name)
        if not found and failure is not None:
            raise failure
        return list(found.values())

    async def problems(self, seconds: float = _CHECK_SECONDS) -> dict[str, str | None]:
        """Return for each provider why it cannot serve anything now; None if it can.

        Each has this many seconds to answer.
        """
        asked = (p.problem(self._clock, self._breaker, seconds) for p in self._providers)
        found = await asyncio.gather(*asked)
        return {
            provider.name: problem for provider, problem in zip(self._providers, found, strict=True)
        }

    async def route(self, model: str | None) -> Route:
        """Return where this model is. Without a name: the default, else the first that chats."""
        model = model or self._default or await self._first_model()
        route = await self._find(model) or await self._find(model, max_age=_PATIENCE_SECONDS)
        if route is None:
            raise NotFound(
                f"The model '{model}' does not exist here. GET /v1/models lists what does.",
                code="model_not_found",
                param="model",
            )
        return route

    async def close(self) -> None:
        """Close every backend."""
        for provider in self._providers:
            await provider.backend.close()

    async def _first_model(self) -> str:
        models = await self.models()
        if not models:
            raise InvalidRequest(
                "model is missing, and the upstream lists none to choose from",
                code="missing_required_parameter",
                param="model",
            )
        return next((model.id for model in models if model.is_chat), models[0].id)

    async def _find(self, model: str, *, max_age: float | None = None) -> Route | None:
        """Return who lists this model, else who lists nothing and may have it."""
        silent: Route | None = None
        for provider in self._providers:
            name = model.removeprefix(provider.prefix)
            try:
                limit = max_age or provider.age_limit()
                route = await provider.route(name, self._clock, limit)
            except BackendError:
                silent = silent or Route(provider.backend, name, provider.name)
                continue
            if route is not None:
                return route
        return silent
