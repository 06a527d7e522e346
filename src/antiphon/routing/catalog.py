"""Which models do the providers have?

The models of a provider are served under their own names. Where two providers list the same
name, the first in the settings has it, and `provider/name` reaches the other. A list is cached
for a minute. It is fetched again earlier for a name that is not in it, and kept longer while the
provider does not answer. A provider that cannot list its models is assumed to have the model
that a request names. The settings and the bundled table complete what a list states; settings
for a model that no provider lists do not create it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from antiphon.backends.base import Backend, ModelInfo
from antiphon.backends.breaker import Breaker
from antiphon.protocol.errors import BackendError, InvalidRequest, NotFound
from antiphon.routing.candidates import Candidate
from antiphon.routing.describe import ModelSettings, describe

__all__ = ["Catalog"]

_FRESH_SECONDS: Final = 60.0
# How soon to fetch again for a name that is not in the list, and after a failure.
_PATIENCE_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 2.0


class _Provider:
    """A backend, its last list of models, and why the last request for it failed."""

    def __init__(self, name: str, backend: Backend, settings: Mapping[str, ModelSettings]) -> None:
        self.name = name
        self.prefix = f"{name}/"
        self.backend = backend
        self._settings = settings
        self._models: Sequence[ModelInfo] | None = None
        self._candidates: dict[str, Candidate] = {}
        self._failure: BackendError | None = None
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    async def models(self, clock: Callable[[], float], max_age: float) -> Sequence[ModelInfo]:
        """Return the models; fetch the list again if it is older than `max_age`.

        Raise BackendError if the provider has never listed them.
        """
        if clock() - self._asked_at >= max_age:
            async with self._lock:
                # The last holder of the lock may have fetched it.
                if clock() - self._asked_at >= max_age:
                    await self._ask()
                    self._asked_at = clock()
        if self._models is None:
            assert self._failure is not None
            raise self._failure
        return self._models

    async def find(self, name: str, clock: Callable[[], float], max_age: float) -> Candidate | None:
        """Return the deployment of a model, if the provider lists it. Raise as `models` does."""
        await self.models(clock, max_age)
        return self._candidates.get(name)

    async def problem(
        self, clock: Callable[[], float], breaker: Breaker, seconds: float
    ) -> str | None:
        """Return why the provider cannot serve anything now, or None if it can.

        A provider that answers but refuses to list its models can.
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
        listed = {f"{self.prefix}{name}" for name in self._candidates}
        return "its last requests failed" if listed and listed <= failing else None

    def age_limit(self) -> float:
        """Return how old the list may be before it is fetched again."""
        return _FRESH_SECONDS if self._failure is None else _PATIENCE_SECONDS

    async def _ask(self) -> None:
        try:
            models = await self.backend.models()
            self._models = [describe(model, self.name, self._settings) for model in models]
            self._candidates = {
                # If a list has a name twice, the first entry wins.
                model.id: Candidate(self.backend, model.id, self.name, model.context_length)
                for model in reversed(self._models)
            }
            self._failure = None
        except BackendError as error:
            self._failure = error


class Catalog:
    """The providers of one gateway. `clock` is monotonic seconds, `models` are the settings.

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
        """The model for requests that name none, if the settings have one."""
        return self._default

    async def models(self) -> list[ModelInfo]:
        """Return the models that can be asked for, each name once.

        Raise BackendError only if no provider could list any.
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

        Each provider has this many seconds to answer.
        """
        asked = (p.problem(self._clock, self._breaker, seconds) for p in self._providers)
        found = await asyncio.gather(*asked)
        return {
            provider.name: problem for provider, problem in zip(self._providers, found, strict=True)
        }

    async def candidates(self, model: str | None) -> tuple[Candidate, ...]:
        """Return the deployments that may answer, best first; today one. Raise NotFound.

        Without a name: those of the default model, else of the first model that can chat.
        """
        model = model or self._default or await self._first_model()
        found = await self._find(model) or await self._find(model, max_age=_PATIENCE_SECONDS)
        if found is None:
            raise NotFound(
                f"The model '{model}' does not exist here. GET /v1/models lists what does.",
                code="model_not_found",
                param="model",
            )
        return (found,)

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

    async def _find(self, model: str, *, max_age: float | None = None) -> Candidate | None:
        """Return the first provider that lists the model, else the first without a list."""
        silent: Candidate | None = None
        for provider in self._providers:
            name = model.removeprefix(provider.prefix)
            try:
                limit = max_age or provider.age_limit()
                found = await provider.find(name, self._clock, limit)
            except BackendError:
                silent = silent or Candidate(provider.backend, name, provider.name)
                continue
            if found is not None:
                return found
        return silent
