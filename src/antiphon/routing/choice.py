"""Which deployment of a route is asked?

- Only deployments that are ready: the breaker is not open, and the provider has room.
- Native state decides first: if the open tool loop carries state of an account, a deployment of
  that account is preferred to everything but an open breaker, because only it can read it.
- With a key, the same key goes to the same deployment as long as that is ready and not busier
  than its share allows. This is rendezvous hashing: when a deployment leaves, only its own keys
  move, and they come back with it.
- Without a key, the least busy one is asked, by weight; among equals they take turns.
- If none is ready, the fallbacks are next. If their breakers are open too, the deployment that
  failed least recently is asked: a request is never refused because of an open breaker. The same
  holds for one that has just failed where it was sent first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import log
from typing import Final, NamedTuple

from antiphon.protocol.errors import Overloaded
from antiphon.routing.candidates import Board, Candidate, Reason, Route

__all__ = [
    "NO_SESSION",
    "Choice",
    "Session",
    "choose",
    "choose_first",
    "choose_open",
    "choose_other",
]

_SPREAD: Final = 1.25
"""How much more than its share a deployment may have before a key goes elsewhere."""
_MASK: Final = (1 << 64) - 1


class Session(NamedTuple):
    """What ties a request to those before it."""

    key: str | None = None
    """Requests with the same key go to the same deployment."""
    accounts: frozenset[str] = frozenset()
    """Whose native state the open tool loop carries."""


NO_SESSION: Final = Session()


class Choice(NamedTuple):
    """The deployment to ask, and why this one."""

    candidate: Candidate
    reason: Reason


def choose_first(
    route: Route, session: Session = NO_SESSION, tools: Collection[str] = ()
) -> Choice:
    """Return the deployment to begin with. Raise Overloaded if all providers are full.

    `tools` are the kinds of tools that the upstream has to run.
    """
    found = choose(route, session) or choose_other(route.fallbacks, route.board, "fallback", tools)
    if found is not None:
        return found
    found = choose_open((*route.deployments, *route.fallbacks), route.board, tools)
    if found is None:
        raise Overloaded(
            f"all providers of {route.name!r} have as many requests as they may have; try again"
        )
    return found


def choose(
    route: Route, session: Session = NO_SESSION, tried: Collection[str] = ()
) -> Choice | None:
    """Return the best deployment of the model, without those that were tried; None if none is."""
    board = route.board
    if len(route.deployments) == 1 and not tried:
        only = route.deployments[0]
        return Choice(only, "only") if board.is_ready(only) else None
    left = route.deployments
    if tried:
        left = [one for one in left if one.name not in tried]
    if session.accounts:
        own = [one for one in left if one.account in session.accounts]
        own = [one for one in own if board.breaker.is_ready(one.name)]
        if own:
            return Choice(_pick(own, session.key, board), "account")
    ready = board.ready_of(left)
    if not ready:
        return None
    reason: Reason = "load" if session.key is None else "affinity"
    return Choice(_pick(ready, session.key, board), "next" if tried else reason)


def choose_other(
    others: Sequence[Candidate],
    board: Board,
    reason: Reason,
    tools: Collection[str] = (),
    tried: Collection[str] = (),
) -> Choice | None:
    """Return the first of these models that is ready, in their order; None if none is.

    One that does not run a tool of the plan is no substitute.
    """
    for one in others:
        if _runs(one, tools) and one.name not in tried and board.is_ready(one):
            return Choice(one, reason)
    return None


def choose_open(
    others: Sequence[Candidate],
    board: Board,
    tools: Collection[str] = (),
    tried: Collection[str] = (),
) -> Choice | None:
    """Return the one that failed least recently, also if it is open; None if all are full."""
    left = [
        one
        for one in others
        if _runs(one, tools) and one.name not in tried and board.has_room(one.provider)
    ]
    if not left:
        return None
    return Choice(min(left, key=lambda one: board.breaker.failed_at(one.name)), "all_open")


def _runs(one: Candidate, tools: Collection[str]) -> bool:
    return one.backend.capabilities.tool_kinds.issuperset(tools)


def _pick(ready: Sequence[Candidate], key: str | None, board: Board) -> Candidate:
    if len(ready) == 1:
        return ready[0]
    return _least_busy(ready, board) if key is None else _by_key(ready, key, board)


def _by_key(ready: Sequence[Candidate], key: str, board: Board) -> Candidate:
    """Return the deployment of this key, or the next in its order that is not too busy."""
    inflight = board.inflight
    # Lists, and not generators: this is most of what a decision costs.
    share = _SPREAD * sum([inflight[one.provider] for one in ready])
    share /= sum([one.weight for one in ready])
    fit = [one for one in ready if inflight[one.provider] <= share * one.weight + 1] or ready
    hashed = _hash(key)
    scores = [_score(hashed, one) for one in fit]
    return fit[scores.index(max(scores))]


def _score(hashed: int, one: Candidate) -> float:
    """Return the rank of a deployment for a key: rendezvous hashing with weights."""
    # Mixed as in splitmix64: each bit of both hashes changes half of the bits of the result.
    mixed = hashed ^ _name_hash(one.name)
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    # Between 0 and 1, both excluded.
    return -one.weight / log(((mixed ^ (mixed >> 31)) + 0.5) / (_MASK + 2.0))


def _hash(text: str) -> int:
    """Return a hash that is the same in every process."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


_name_hash = lru_cache(maxsize=4096)(_hash)


def _least_busy(ready: Sequence[Candidate], board: Board) -> Candidate:
    """Return the least busy one; among equals, each has its turns in proportion to its weight."""
    inflight, turns = board.inflight, board.turns
    load = {one.name: inflight[one.provider] / one.weight for one in ready}
    least = min(load.values())
    equal = [one for one in ready if load[one.name] == least]
    for one in equal:
        turns[one.name] += one.weight
    chosen = max(equal, key=lambda one: turns[one.name])
    turns[chosen.name] -= sum(one.weight for one in equal)
    return chosen
