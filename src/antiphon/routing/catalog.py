"""Which models do the providers have, and who answers for a name?

A name is looked up among the routes of the settings first, exact before pattern, then among the
models of the providers. A route needs no list of its providers: the settings name its models.

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
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from antiphon.backends.base import Backend, ModelInfo
from antiphon.backends.breaker import Breaker
from antiphon.models.prices import Price
from antiphon.protocol.errors import BackendError, InvalidRequest, NotFound
from antiphon.routing.candidates import Board, Candidate, Lease, Route
from antiphon.routing.describe import (
    ModelSettings,
    PriceSource,
    describe,
    overrule,
    price_source,
)
from antiphon.routing.settings import (
    RouteSettings,
    find_route,
    is_pattern,
    split_name,
)

__all__ = ["Catalog", "PricedModel"]

_FRESH_SECONDS: Final = 60.0
# How soon to fetch again for a name that is not in the list, and after a failure.
_PATIENCE_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 2.0


class PricedModel(NamedTuple):
    """A model of a provider, what it costs, and who states that."""

    provider: str
    model: str
    price: Price | None
    source: PriceSource


class _Provider:
    """A backend, its last list of models, and why the last request for it failed."""

    def __init__(
        self, name: str, backend: Backend, settings: Mapping[str, ModelSettings], account: str
    ) -> None:
        self.name = name
        self.prefix = f"{name}/"
        self.backend = backend
        self._settings = settings
        self._account = account
        self._models: Sequence[ModelInfo] | None = None
        self._candidates: dict[str, Candidate] = {}
        self._sources: dict[str, PriceSource] = {}
        self._failure: BackendError | None = None
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()
        self.listings = 0
        """How often its list was read: what is known of its models may change then."""

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

    def find(self, name: str) -> Candidate | None:
        """Return the deployment of a model, if its last list has it."""
        return self._candidates.get(name)

    def lists(self, model: str) -> bool:
        """Return whether its last list has this model."""
        return model in self._candidates

    def deployment(
        self, model: str, weight: float = 1.0, route: ModelSettings | None = None
    ) -> Candidate:
        """Return a deployment that the settings name, with what is known of it now.

        The price of its route counts if the settings have none of the deployment itself.
        """
        known = msgspec.structs.replace(self.describe(model), id=model)
        price = None if route is None else route.price
        if price is not None and price_source(known, self.name, self._settings) != "settings":
            known = msgspec.structs.replace(known, price=price.price)
        return self._candidate(known, weight)

    def _candidate(self, known: ModelInfo, weight: float = 1.0) -> Candidate:
        return Candidate(
            self.backend,
            known.id,
            self.name,
            known.context_length,
            weight,
            self._account,
            max_output_tokens=known.max_output_tokens,
            price=known.price,
        )

    def prices(self) -> list[PricedModel]:
        """Return what its models cost, by its last list."""
        return [
            PricedModel(self.name, model.id, model.price, self._sources[model.id])
            for model in self._models or ()
        ]

    def describe(self, model: str) -> ModelInfo:
        """Return what is known of a model now, without fetching the list."""
        listed = (one for one in self._models or () if one.id == model)
        found = next(listed, None)
        return found or describe(ModelInfo(id=model), self.name, self._settings)

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

    @property
    def list_failure(self) -> str | None:
        """Why it has never listed its models, if it was asked."""
        if self._models is not None or self._failure is None:
            return None
        return self._failure.message

    def age_limit(self) -> float:
        """Return how old the list may be before it is fetched again."""
        return _FRESH_SECONDS if self._failure is None else _PATIENCE_SECONDS

    async def _ask(self) -> None:
        try:
            models = await self.backend.models()
            self.listings += 1
            self._models = [describe(model, self.name, self._settings) for model in models]
            self._sources = {
                model.id: price_source(model, self.name, self._settings) for model in models
            }
            self._candidates = {
                # If a list has a name twice, the first entry wins.
                model.id: self._candidate(model)
                for model in reversed(self._models)
            }
            self._failure = None
        except BackendError as error:
            self._failure = error


class Catalog:
    """The providers and routes of one gateway. `clock` is monotonic seconds.

    `models` and `routes` are the settings, `limits` the most requests at once by provider,
    `accounts` the accounts of providers that are not named as the provider. `breaker` is the one
    that the backends report to. The routes were checked (`check_routes`). A catalog that is to
    replace another one gets its `board`, and has to `take_over`.
    """

    def __init__(
        self,
        providers: Mapping[str, Backend],
        clock: Callable[[], float],
        *,
        default_model: str | None = None,
        models: Mapping[str, ModelSettings] | None = None,
        breaker: Breaker | None = None,
        routes: Mapping[str, RouteSettings] | None = None,
        limits: Mapping[str, int] | None = None,
        accounts: Mapping[str, str] | None = None,
        board: Board | None = None,
    ) -> None:
        known = accounts or {}
        self.backends = dict(providers)
        self._providers = [
            _Provider(name, backend, models or {}, known.get(name, name))
            for name, backend in providers.items()
        ]
        self._by_name = {provider.name: provider for provider in self._providers}
        self._settings = models or {}
        self._routes = routes or {}
        self._built: dict[str, tuple[int, Route]] = {}
        self._clock = clock
        self._default = default_model
        self._limits = limits or {}
        self.board = board or Board(clock, breaker, self._limits)
        """What this process knows of its deployments."""
        self.lease = Lease()

    @property
    def default_model(self) -> str | None:
        """The model for requests that name none, if the settings have one."""
        return self._default

    async def models(self) -> list[ModelInfo]:
        """Return the models that can be asked for, each name once.

        Raise BackendError only if no provider could list any.
        """
        found = {name: self._describe_route(name) for name in self._listed_routes()}
        failure: BackendError | None = None
        for provider in self._providers:
            try:
                models = await provider.models(self._clock, provider.age_limit())
            except BackendError as error:
                failure = error
                continue
            for model in models:
                name = model.id if model.id not in found else f"{provider.name}/{model.id}"
                found.setdefault(name, msgspec.structs.replace(model, id=name))
        if not found and failure is not None:
            raise failure
        return list(found.values())

    async def problems(self, seconds: float = _CHECK_SECONDS) -> dict[str, str | None]:
        """Return for each provider why it cannot serve anything now; None if it can.

        Each provider has this many seconds to answer.
        """
        asked = (p.problem(self._clock, self.board.breaker, seconds) for p in self._providers)
        found = await asyncio.gather(*asked)
        return {
            provider.name: problem for provider, problem in zip(self._providers, found, strict=True)
        }

    async def prices(self) -> list[PricedModel]:
        """Return what the models of all providers cost that list them."""
        with suppress(BackendError):
            await self.models()
        return [priced for provider in self._providers for priced in provider.prices()]

    def list_failure(self, provider: str) -> str | None:
        """Return why the provider has no list of its models; None if it has one, or was not asked.

        Such a provider is assumed to have every model that no other provider lists.
        """
        return self._by_name[provider].list_failure

    async def route(self, model: str | None) -> Route:
        """Return who may answer for a name. Raise NotFound.

        Without a name: for the default model, else for the first model that can chat.
        """
        name = self._final_name(model or await self.default_name())
        if name in self._routes:
            return self._route(name)
        found = await self._find(name) or await self._find(name, max_age=_PATIENCE_SECONDS)
        if found is None:
            raise NotFound(
                f"The model '{model or name}' does not exist here. GET /v1/models lists what does.",
                code="model_not_found",
                param="model",
            )
        return Route(name=found.model, deployments=(found,), board=self.board, lease=self.lease)

    def counted_name(self, model: str) -> str | None:
        """Return the name under which a model is counted: one that the settings or a list have.

        None for a name that only a caller has chosen.
        """
        found = find_route(self._routes, model)
        if found is not None:
            return found
        if model == self._default or model in self._settings:
            return model
        is_listed = any(one.lists(model.removeprefix(one.prefix)) for one in self._providers)
        return model if is_listed else None

    async def default_name(self) -> str:
        """Return the name that a request without one asks for. Raise InvalidRequest."""
        return self._default or await self._first_model()

    def _final_name(self, name: str) -> str:
        """Return the name of the route, or of the model, that a name stands for in the end."""
        found = find_route(self._routes, name)
        if found is None:
            return name
        target = self._routes[found].to
        return found if target is None else self._final_name(target)

    def _route(self, name: str) -> Route:
        """Return a route; built again when a list of models was read since."""
        listings = sum(provider.listings for provider in self._providers)
        built, route = self._built.get(name, (-1, None))
        if route is None or built != listings:
            route = self._build(name, self._routes[name])
            self._built[name] = listings, route
        return route

    def _build(self, name: str, rules: RouteSettings) -> Route:
        return Route(
            name=name,
            deployments=tuple(self._deployments(name, rules)),
            fallbacks=tuple(one for other in rules.fallbacks for one in self._named(other)),
            on_overflow=tuple(self._named(rules.on_overflow)) if rules.on_overflow else (),
            rules=rules,
            board=self.board,
            lease=self.lease,
        )

    def _deployments(self, name: str, rules: RouteSettings) -> list[Candidate]:
        route = self._settings.get(name)
        return [
            self._by_name[one.provider].deployment(one.model, one.weight, route)
            for one in rules.deployments
        ]

    def _named(self, name: str) -> list[Candidate]:
        """Return the deployments of another route, or of a model `provider/model`."""
        name = self._final_name(name)
        if name in self._routes:
            return self._deployments(name, self._routes[name])
        pair = split_name(name, self._by_name)
        return [] if pair is None else [self._by_name[pair[0]].deployment(pair[1])]

    def _listed_routes(self) -> list[str]:
        return [name for name in self._routes if not is_pattern(name)]

    def _describe_route(self, name: str) -> ModelInfo:
        """Return what is known of a route: what is known of its first deployment.

        The settings for the name of the route come before that, and a context must fit into every
        deployment.
        """
        final = self._final_name(name)
        if final not in self._routes:
            pair = split_name(final, self._by_name)
            known = self._by_name[pair[0]].describe(pair[1]) if pair else ModelInfo(id=final)
            served: dict[str, object] = {"to": final}
        else:
            route = self._route(final)
            first = route.first
            known = msgspec.structs.replace(
                self._by_name[first.provider].describe(first.model),
                context_length=route.context_length,
            )
            served = {"deployments": [one.name for one in route.deployments]}
            if route.fallbacks:
                served["fallbacks"] = [one.name for one in route.fallbacks]
        listed = msgspec.structs.replace(known, id=name, stated={"antiphon": served})
        return overrule(listed, self._settings.get(name))

    def take_over(self, former: Catalog) -> None:
        """Answer instead of another catalog from now on. Its routes stay usable."""
        former.lease.next = self.lease
        self.board.limits = self._limits
        for name, backend in former.backends.items():
            if self.backends.get(name) is not backend:
                self.board.breaker.forget(name)

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
        """Return the first provider that lists the model, else one that has no list.

        Of those without a list, the one that a name `provider/model` names comes first.
        """
        silent: list[_Provider] = []
        for provider in self._providers:
            try:
                await provider.models(self._clock, max_age or provider.age_limit())
            except BackendError:
                silent.append(provider)
                continue
            found = provider.find(model.removeprefix(provider.prefix))
            if found is not None:
                return found
        if not silent:
            return None
        chosen = next((one for one in silent if model.startswith(one.prefix)), silent[0])
        return chosen.deployment(model.removeprefix(chosen.prefix))
