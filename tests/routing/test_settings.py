"""Routes in the settings: which are refused, and which name finds which route."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.config import load
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.providers import build_catalog, read_sources
from antiphon.protocol.errors import NotFound
from antiphon.routing.settings import RouteSettings, find_route
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request
from tests.engine.run.test_failover import on

PROVIDERS = """
[providers.a]
wire_api = "scripted"
[providers.b]
wire_api = "scripted"
max_inflight = 2
"""


def read(tmp_path: Path, text: str) -> dict[str, RouteSettings]:
    """Return the routes of a file with providers `a` and `b`. Raise BadSettings."""
    path = tmp_path / "antiphon.toml"
    path.write_text(PROVIDERS + text)
    settings = load({"config": str(path)}, {}, tmp_path).settings
    read_sources(settings, {})
    return settings.routes


GOOD = """
[routes.coder]
deployments = [{ provider = "a", model = "m", weight = 2.5 }, { provider = "b", model = "m" }]
fallbacks = ["b/other", "small"]
on_overflow = "small"
affinity = "prefix"
failover = "stream"
across_models = true
retry = { attempts = 2, budget_seconds = 1 }
[routes.small]
deployments = [{ provider = "a", model = "s" }]
[routes."claude-*"]
to = "coder"
"""


def test_a_route_is_read_with_every_key(tmp_path: Path) -> None:
    route = read(tmp_path, GOOD)["coder"]
    assert [one.weight for one in route.deployments] == [2.5, 1.0]
    assert (route.retry.attempts, route.retry.budget_seconds) == (2, 1.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[routes.x]", '[routes."x"]: it has no deployments'),
        ("[routes.x]\ndeployments = []", "it has no deployments"),
        (
            '[routes.x]\ndeployments = [{ provider = "c", model = "m" }]',
            "there is no provider 'c'; the providers are a, b",
        ),
        (
            '[routes.x]\ndeployments = [{ provider = "a", model = "m" }]\nfallbacks = ["nope"]',
            "there is no route 'nope'; name a route, or a model as provider/model",
        ),
        (
            '[routes.x]\ndeployments = [{ provider = "a", model = "m" }]\non_overflow = "c/m"',
            "there is no route 'c/m'",
        ),
        (
            '[routes.x]\ndeployments = [{ provider = "a", model = "m" }]\nfallbacks = ["x"]',
            "'x' is the route itself",
        ),
        (
            '[routes.x]\ndeployments = [{ provider = "a", model = "m" }]\nfallbacks = ["y"]\n'
            '[routes.y]\nto = "x"',
            "'y' is the route itself",
        ),
        (
            '[routes.x]\ndeployments = [{ provider = "a", model = "m" }]\nfallbacks = ["y"]\n'
            '[routes.y]\nto = "listed"',
            "there is no route 'listed'; name a route, or a model as provider/model",
        ),
        ('[routes.x]\nto = "y"\nfailover = "off"', "nothing else may be set"),
        ('[routes.x]\nto = "x"', "it leads back to itself: x -> x"),
        ('[routes.x]\nto = "y"\n[routes.y]\nto = "x"', "x -> y -> x"),
        ('[routes."x*"]\nto = "xy"', "x* -> x*"),
        (
            '[routes.x]\ndeployments = [{ provider = "a", model = "m" }, '
            '{ provider = "a", model = "m" }]',
            "a/m is listed twice",
        ),
        ("[routes.x]\nfallback = []", "there is no key 'fallback'; did you mean fallbacks?"),
        (
            '[routes.x]\ndeployments = [{ provider = "a", modell = "m" }]',
            "deployments: there is no key 'modell'; did you mean model?",
        ),
        ('[routes.x]\ndeployments = [{ provider = "a" }]', "deployments: model is missing"),
        ('[routes.x]\ndeployments = "a"', "deployments must be tables"),
        ("[routes.x]\nretry = { tries = 3 }", "there is no key 'tries'"),
        ("[routes.x]\nretry = { attempts = 0 }", "attempts must be a whole number >= 1, not 0"),
        ('[routes.x]\nfailover = "always"', "failover must be one of off, start, stream"),
        ("[providers.c]\nmax_inflight = 0", "max_inflight must be a whole number >= 1"),
    ],
)
def test_a_route_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(BadSettings, match=re.escape(why)):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("claude-x", "claude-*"),
        ("claude-sonnet-5", "claude-sonnet-*"),
        ("claude-sonnet-4", "claude-sonnet-4"),
        ("my claude-x", None),
        ("gpt-5-mini", "gpt-*-mini"),
        ("gpt-5", None),
        ("a.b", None),
    ],
)
def test_exact_names_come_before_patterns_and_the_longest_pattern_first(
    name: str, found: str | None
) -> None:
    names = ["claude-*", "claude-sonnet-*", "claude-sonnet-4", "gpt-*-mini", "axb"]
    assert find_route({one: RouteSettings(to="x") for one in names}, name) == found


async def test_a_catalog_follows_aliases_patterns_and_names_of_models(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(PROVIDERS + GOOD + '[routes.mine]\nto = "b/echo"\n[routes.lost]\nto = "no"\n')
    settings = load({"config": str(path)}, {}, tmp_path).settings
    catalog = build_catalog(settings, read_sources(settings, {}))
    route = await catalog.route("claude-opus")
    assert [one.name for one in route.deployments] == ["a/m", "b/m"]
    assert [one.name for one in route.fallbacks] == ["b/other", "a/s"]
    assert [one.name for one in route.on_overflow] == ["a/s"]
    assert (await catalog.route("mine")).first.name == "b/echo"
    assert (await catalog.route("echo")).first.name == "a/echo"
    with pytest.raises(NotFound, match="'lost'"):
        await catalog.route("lost")
    assert await catalog.route("coder") is await catalog.route("coder")


async def test_routes_are_listed_with_who_answers() -> None:
    backends = {name: ScriptedBackend(models=("m",)) for name in "ab"}
    routes = {
        "coder": on("a", "b", fallbacks=("b/x",)),
        "alias": RouteSettings(to="coder"),
        "claude-*": RouteSettings(to="coder"),
    }
    async with serve_gateway(backends, routes=routes) as gateway:
        listed = (await request(gateway, "GET", "/models")).json["data"]
        unnamed = await ask(gateway)
        asked = await ask(gateway, model="claude-opus")
    assert [one["id"] for one in listed] == ["coder", "alias", "m", "b/m"]
    assert listed[0]["antiphon"] == {"deployments": ["a/m", "b/m"], "fallbacks": ["b/x"]}
    assert unnamed.json["model"] == "coder"
    assert asked.json["model"] == "claude-opus"
