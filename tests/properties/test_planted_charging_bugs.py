"""Would a bug in what is charged be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to a module's own source. The changed
modules charge the turns of a gateway whose upstream keeps the bill.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from antiphon.backends import http
from antiphon.engine.run import ask_route, charging, meter, turn, turn_charges
from antiphon.models import prices
from antiphon.protocol.errors import AntiphonError
from antiphon.store.memory import MemoryStore
from antiphon.tools.index import file_index
from tests.engine.test_bill import (
    ENDINGS,
    MODES,
    PROMPT,
    billed_gateway,
    check_bill,
    check_response,
    settled,
    test_a_request_that_did_not_go_out_costs_nothing,
)
from tests.properties.planting import plant
from tests.server.test_file_search import test_the_owner_pays_for_every_call_that_makes_vectors

TRIED: Final = (
    *("cached", "reasoning", "400", "no_usage_small_pieces", "left_late"),
    *("broken_early", "broken_late", "usage_without_output"),
)
MODULES: Final = (prices, meter, turn_charges, charging)

BUGS: Final[dict[str, tuple[str, str]]] = {
    "a call that was left is released": (
        'self._settle("cancelled", basis, used)',
        'self._settle("released", basis, used)',
    ),
    "a call that was left is not settled": (
        "        if self._charge is not None:\n            basis, used = await self._facts()\n",
        "        if False:\n            basis, used = await self._facts()\n",
    ),
    "an answer that breaks off before its output is free": (
        'return not error.has_answered and error.code != "upstream_timeout"',
        "return True",
    ),
    "a refusal is charged": (
        "is_free = end.error is not None and (",
        "is_free = False and (",
    ),
    "a missing output is taken for 0": (
        "self.has_output = delta.has_output",
        "self.has_output = True",
    ),
    "pieces are not counted": ("return max(self.pieces, ", "return max(0, "),
    "usage is counted twice": (
        "self.used = add_counts(self.used, used)",
        "self.used = add_counts(add_counts(self.used, used), used)",
    ),
    "money is a float": (
        "return round(picos, -3) // 1000",
        "return int(sum([picos / 1e12 / 10] * 10) * 1e9)",
    ),
    "what the server had kept costs the full price": (
        "self.input if self.cached is None else self.cached",
        "self.input",
    ),
    "reasoning costs nothing": ("counts.output_total * _picos", "counts.output * _picos"),
    "reasoning is paid twice": (
        "picos += counts.output_total * _picos(self.output)\n        return round",
        "picos += (counts.output_total + counts.reasoning) * _picos(self.output)\n"
        "        return round",
    ),
}


async def _objections(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Raise AssertionError if the books are wrong after one of the endings."""
    monkeypatch.setattr(ask_route, "Charging", module.Charging)
    for name in TRIED:
        ending, store = ENDINGS[name], MemoryStore()
        async with billed_gateway(ending.plays, store) as (gateway, bill):
            body = {"input": PROMPT, "store": True}
            response = await MODES["stream"](gateway, bill, ending.leaves, body)
            charges = await settled(store)
            check_bill(bill, charges)
            check_response(response, charges)
        await store.close()


async def test_without_a_bug_the_books_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    await _objections(monkeypatch, charging)


@pytest.mark.parametrize("bug", BUGS)
async def test_a_bug_in_the_charges_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = plant(MODULES, *BUGS[bug])
    _use(planted, monkeypatch)
    with pytest.raises((AssertionError, AntiphonError, TimeoutError)):
        async with asyncio.timeout(60):
            await _objections(monkeypatch, planted)


def _use(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let turns use the changed modules: their charges and prices."""
    changed = planted.TurnCharges
    for name in ("settle", "_add", "close", "reserve"):
        monkeypatch.setattr(turn_charges.TurnCharges, name, getattr(changed, name))
    price = changed.settle.__globals__["Price"]
    for name in ("cost_of", "most_of"):
        monkeypatch.setattr(prices.Price, name, getattr(price, name))


async def test_output_that_was_on_its_way_and_is_dropped_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted: Any = plant(
        (http,),
        "reading.rest(await sending.linger(), sending, plan.stream)",
        "await sending.linger()",
    )
    monkeypatch.setattr(http.HttpBackend, "_run", planted.HttpBackend._run)
    store, ending = MemoryStore(), ENDINGS["left_with_output_on_its_way"]
    async with billed_gateway(ending.plays, store) as (gateway, bill):
        await MODES["stream"](gateway, bill, True, {"input": PROMPT})
        with pytest.raises(AssertionError):
            check_bill(bill, await settled(store))
    await store.close()


async def test_vectors_that_nobody_pays_for_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    planted: Any = plant((file_index,), "self.embedder.pay_with(pay)", "pass")
    monkeypatch.setattr(file_index.FileIndex, "pay_with", planted.FileIndex.pay_with)
    with pytest.raises(AssertionError):
        await test_the_owner_pays_for_every_call_that_makes_vectors(True)


async def test_a_charge_for_a_request_that_did_not_go_out_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = plant(MODULES, "and not self._is_taken:", "and False:")
    monkeypatch.setattr(ask_route, "Charging", planted.Charging)
    with pytest.raises(AssertionError):
        await test_a_request_that_did_not_go_out_costs_nothing("stream")


STORE_BUGS: Final[dict[str, tuple[str, str]]] = {
    "a turn that is left does not settle": (
        "        await asyncio.shield(self.charges.close())\n",
        "        pass\n",
    ),
}


@pytest.mark.parametrize("bug", STORE_BUGS)
async def test_a_turn_that_does_not_settle_is_caught(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted: Any = plant((turn,), *STORE_BUGS[bug])
    monkeypatch.setattr(turn.Turn, "_settle", planted.Turn._settle)
    store, ending = MemoryStore(), ENDINGS["completed"]
    with pytest.raises((AssertionError, TimeoutError)):
        async with billed_gateway(ending.plays, store) as (gateway, bill):
            await MODES["stream"](gateway, bill, False, {"input": PROMPT, "store": False})
            async with asyncio.timeout(5):
                check_bill(bill, await settled(store))
