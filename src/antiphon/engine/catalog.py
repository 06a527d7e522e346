"""Which backend answers for a model?

Every provider's models are served under their own names; where two providers offer the same
name, the first one configured has it, and `provider/name` always reaches the other. A list
that was learnt once is kept for a while, and kept beyond that when the provider cannot be
asked. A provider that cannot list its models is taken at the caller's word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from antiphon.backends.base import Backend, ModelInfo
from antiphon.protocol.errors import BackendError, InvalidRequest, NotFound

__all__ = ["Catalog", "Route"]

_FRESH_SECONDS: Final = 60.0


class Route(msgspec.Struct, frozen=True):
    """Where a model is found, and the name it has there."""

    backend: Backend
    model: str


class _Provider:
    def __init__(self, name: str, backend: Backend) -> None:
        self.name = name
        self.backend = backend
        self.models: Sequence[ModelInfo] | None = None
        self.asked_at = float("-inf")
        self.lock = asyncio.Lock()


class Catalog:
    """The providers of one gateway. `clock` is monotonic seconds."""

    def __init__(
        self,
        providers: Mapping[str, Backend],
        clock: Callable[[], float],
        *,
        default_model: str | None = None,
    ) -> None:
        self._providers = [_Provider(name, backend) for name, backend in providers.items()]
        self._clock = clock
        self._default = default_model

    async def models(self) -> list[ModelInfo]:
        """Return what can be asked for, each name once.

        Raise BackendError only if no provider could say anything.
        """
        found: dict[str, ModelInfo] = {}
        failure: BackendError | None = None
        for provider in self._providers:
            try:
                models = await self._learn(provider)
            except BackendError as error:
                failure = error
                continue
            for model in models:
                name = model.id if model.id not in found else f"{provider.name}/{model.id}"
                found[name] = msgspec.structs.replace(model, id=name)
        if not found and failure is not None:
            raise failure
        return list(found.values())

    async def route(self, model: str | None) -> Route:
        """Return where this model is. Without a name: the default, else the first of all."""
        if not model:
            return await self._default_route()
        unknown: _Provider | None = None
        for provider in self._providers:
            name = model.removeprefix(f"{provider.name}/")
            try:
                models = await self._learn(provider)
            except BackendError:
                unknown = unknown or provider
                continue
            if any(name == known.id for known in models):
                return Route(provider.backend, name)
        if unknown is None:
            raise NotFound(
                f"The model '{model}' does not exist here. GET /v1/models lists what does.",
                code="model_not_found",
                param="model",
            )
        return Route(unknown.backend, model.removeprefix(f"{unknown.name}/"))

    async def close(self) -> None:
        """Close every backend."""
        for provider in self._providers:
            await provider.backend.close()

    async def _default_route(self) -> Route:
        if self._default:
            return await self.route(self._default)
        models = await self.models()
        if not models:
            raise InvalidRequest(
                "model is missing, and the upstream lists none to choose from",
                code="missing_required_parameter",
                param="model",
            )
        return await self.route(models[0].id)

    async def _learn(self, provider: _Provider) -> Sequence[ModelInfo]:
        """Return the provider's models, asking at most once a minute."""
        if self._clock() - provider.asked_at < _FRESH_SECONDS:
            return self._last_known(provider)
        async with provider.lock:
            if self._clock() - provider.asked_at < _FRESH_SECONDS:
                return self._last_known(provider)
            try:
                provider.models = await provider.backend.models()
            except BackendError:
                if provider.models is None:
                    raise
            provider.asked_at = self._clock()
            return self._last_known(provider)

    def _last_known(self, provider: _Provider) -> Sequence[ModelInfo]:
        return provider.models or ()
