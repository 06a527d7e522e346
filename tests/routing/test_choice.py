"""Which deployment is asked: weights, stickiness, bounded load, room and breakers."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from antiphon.backends.fault_classes import CLASSES
from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.errors import Overloaded
from antiphon.routing import choice
from antiphon.routing.candidates import Candidate, Route
from antiphon.routing.choice import Session, choose, choose_first, choose_other
from tests.routing.making import Clock, deployments, route_of

KEYS = [f"key-{number}" for number in range(600)]
weights = st.lists(st.floats(0.5, 4), min_size=2, max_size=6)


def chosen(route: Route, key: str | None = None) -> str:
    return choose_first(route, Session(key)).candidate.provider


def shares(route: Route) -> dict[str, float]:
    found = Counter(chosen(route, key) for key in KEYS)
    return {name: count / len(KEYS) for name, count in found.items()}


def open_breaker(route: Route, *names: str) -> None:
    for name in names:
        route.board.breaker.note_failure(f"{name}/m", CLASSES["refused"])


@given(weights)
def test_keys_spread_by_weight(sizes: list[float]) -> None:
    route = route_of(deployments(*sizes))
    found = shares(route)
    for one in route.deployments:
        assert found.get(one.provider, 0) == pytest.approx(one.weight / sum(sizes), abs=0.1)


@given(weights, st.text())
def test_a_key_stays_where_it_is(sizes: list[float], key: str) -> None:
    route = route_of(deployments(*sizes))
    assert len({chosen(route, key) for _ in range(5)}) == 1


@given(weights, st.integers(0, 5))
def test_only_the_keys_of_a_deployment_that_leaves_move(sizes: list[float], gone: int) -> None:
    route = route_of(deployments(*sizes))
    lost = route.deployments[gone % len(sizes)].provider
    before = {key: chosen(route, key) for key in KEYS[:100]}
    open_breaker(route, lost)
    after = {key: chosen(route, key) for key in before}
    assert all(after[key] == was for key, was in before.items() if was != lost)
    assert lost not in after.values()


@given(weights, st.data())
def test_a_key_leaves_a_deployment_that_is_too_busy(
    sizes: list[float], data: st.DataObject
) -> None:
    route = route_of(deployments(*sizes))
    for one in route.deployments:
        route.board.inflight[one.provider] = data.draw(st.integers(0, 50))
    found = choose_first(route, Session("some key")).candidate
    load = route.board.inflight
    mean = sum(load.values()) * found.weight / sum(sizes)
    assert load[found.provider] <= 1.25 * mean + 1


@given(weights)
def test_without_a_key_idle_deployments_take_turns_by_weight(sizes: list[float]) -> None:
    route = route_of(deployments(*sizes))
    found = Counter(chosen(route) for _ in range(1000))
    for one in route.deployments:
        assert found[one.provider] / 1000 == pytest.approx(one.weight / sum(sizes), abs=0.02)


def test_without_a_key_the_least_busy_one_is_asked_by_weight() -> None:
    route = route_of(deployments(1, 3))
    route.board.inflight.update(a=1, b=2)
    assert chosen(route) == "b"
    route.board.inflight.update(a=1, b=4)
    assert chosen(route) == "a"


def test_a_deployment_that_comes_back_is_not_flooded() -> None:
    route = route_of(deployments(1, 1), clock=Clock())
    open_breaker(route, "a")
    for _ in range(100):
        assert chosen(route) == "b"
    route.board.breaker._states.clear()  # time heals
    found = Counter(chosen(route) for _ in range(10))
    assert found == {"a": 5, "b": 5}


def test_a_provider_that_is_full_is_not_asked() -> None:
    route = route_of(deployments(1, 1), limits={"a": 2, "b": 2})
    route.board.inflight.update(a=2, b=1)
    assert chosen(route) == chosen(route, "key") == "b"
    route.board.inflight.update(b=2)
    with pytest.raises(Overloaded) as caught:
        choose_first(route)
    assert caught.value.retry_after is not None


def test_fallbacks_are_asked_if_no_deployment_is_ready() -> None:
    first, second, third = deployments(1, 1, 1)
    route = route_of([first], fallbacks=[second, third])
    assert choose_first(route) == (first, "only")
    open_breaker(route, "a")
    assert choose_first(route) == (second, "fallback")
    open_breaker(route, "b")
    assert choose_first(route) == (third, "fallback")


def test_if_all_are_open_the_one_that_failed_least_recently_is_asked() -> None:
    clock = Clock()
    route = route_of(deployments(1, 1, 1), clock=clock)
    for name in "bca":
        open_breaker(route, name)
        clock.now += 1
    found = choose_first(route)
    assert (found.candidate.provider, found.reason) == ("b", "all_open")


def test_the_account_of_an_open_tool_loop_comes_before_everything_but_its_breaker() -> None:
    route = route_of(deployments(1, 1, 5), limits={"b": 1})
    route.board.inflight.update(b=9)
    session = Session("key", frozenset({"b"}))
    assert choose_first(route, session) == (route.deployments[1], "account")
    open_breaker(route, "b")
    assert choose_first(route, session).candidate.provider in "ac"


def test_a_model_that_does_not_run_the_tools_is_no_substitute() -> None:
    plain = Candidate(ScriptedBackend(), "m", "plain")
    able = Candidate(ScriptedBackend(tool_kinds=frozenset({"web_search"})), "m", "able")
    route = route_of(deployments(1), fallbacks=[plain, able])
    board = route.board
    assert choose_other(route.fallbacks, board, "fallback") == (plain, "fallback")
    found = choose_other(route.fallbacks, board, "fallback", {"web_search"})
    assert found == (able, "fallback")


def test_what_was_tried_is_not_chosen_again() -> None:
    route = route_of(deployments(1, 1))
    assert choose(route, tried={"a/m"}) == (route.deployments[1], "next")
    assert choose(route, tried={"a/m", "b/m"}) is None


# Planted bugs: the properties notice them.


def planted_modulo(key: int, one: Candidate) -> float:
    return float(hash((key, len(one.provider))) % 7)


def test_the_properties_notice_a_hash_that_forgets_the_deployment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "_score", planted_modulo)
    with pytest.raises(AssertionError):
        test_keys_spread_by_weight()


def test_the_properties_notice_a_hash_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    score = choice._score  # a bug is planted there

    def unweighted(key: int, one: Candidate) -> float:
        return float(score(key, msgspec.structs.replace(one, weight=1.0)))

    monkeypatch.setattr(choice, "_score", unweighted)
    with pytest.raises(AssertionError):
        test_keys_spread_by_weight()


def test_the_properties_notice_unbounded_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_SPREAD", 100.0)
    with pytest.raises(AssertionError):
        test_a_key_leaves_a_deployment_that_is_too_busy()
