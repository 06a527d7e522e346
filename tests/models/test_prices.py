"""Prices: what a response cost, to the nano-dollar."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.models.prices import Price, PriceSettings, dollars_of, nano_dollars_of
from antiphon.models.table import ROWS
from antiphon.protocol.response import InputDetails, Usage
from antiphon.protocol.token_counts import TokenCounts

PRICES = {row.name: row.facts.price for row in ROWS if row.facts.price}
TOKENS = st.integers(0, 10_000_000)


def usage(read: int, cached: int, written: int) -> Usage:
    details = InputDetails(cached_tokens=cached)
    return Usage(input_tokens=read, input_tokens_details=details, output_tokens=written)


@pytest.mark.parametrize(("name", "price"), PRICES.items())
def test_cached_input_costs_least_and_output_most(name: str, price: Price) -> None:
    assert 0 < (price.cached or price.input) <= price.input < price.output, name


def test_cached_input_is_cheaper_where_its_price_is_known() -> None:
    spent = usage(1_000_000, 400_000, 100_000)
    assert Price(2.0, 10.0, 0.5).cost(spent) == pytest.approx(1.2 + 0.2 + 1.0)
    assert Price(2.0, 10.0).cost(spent) == pytest.approx(3.0)


def test_no_more_is_read_from_the_cache_than_was_sent() -> None:
    assert Price(3, 15, 0.3).cost(usage(10, 1000, 0)) == pytest.approx(10 * 0.3 / 1_000_000)


@given(st.sampled_from(list(PRICES.values())), TOKENS, TOKENS, TOKENS)
def test_a_cost_is_exact_to_half_a_nano_dollar(
    price: Price, read: int, cached: int, written: int
) -> None:
    kept = min(read, cached)
    per_million = [
        ((read - kept), price.input),
        (kept, price.input if price.cached is None else price.cached),
        (written, price.output),
    ]
    exact = sum(tokens * Fraction(str(dollars)) * 1000 for tokens, dollars in per_million)
    assert price.nano_dollars(usage(read, cached, written)) == round(exact)


def test_half_a_nano_dollar_is_rounded_to_the_even_one() -> None:
    costs = [Price(0.0005, 0).nano_dollars(usage(tokens, 0, 0)) for tokens in (1, 3, 5)]
    assert costs == [0, 2, 2]


COUNTS = st.builds(TokenCounts, *(st.integers(0, 10_000_000) for _ in range(5)))
DECIMALS = st.decimals(0, 1000, places=6)


@given(DECIMALS, DECIMALS, DECIMALS, DECIMALS, COUNTS)
def test_every_decimal_price_is_exact(
    fresh: Decimal, cached: Decimal, written: Decimal, made: Decimal, used: TokenCounts
) -> None:
    price = PriceSettings(input=fresh, cached=cached, cache_write=written, output=made).price
    exact = (
        used.fresh * Fraction(fresh)
        + used.cached * Fraction(cached)
        + used.cache_write * Fraction(written)
        + used.output_total * Fraction(made)
    ) * 1000
    assert price.cost_of(used) == round(exact)
    assert price.most_of(used) >= price.cost_of(used)


@pytest.mark.parametrize("wrong", ["-1", "NaN", "Infinity", "0.0000001", "1000001"])
def test_a_price_that_cannot_be_exact_is_refused(wrong: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"input": wrong, "output": "1"}, PriceSettings)


@given(st.integers(0, 10**15))
def test_an_amount_is_read_as_it_is_written(amount: int) -> None:
    assert nano_dollars_of(dollars_of(amount)) == amount


@pytest.mark.parametrize("wrong", ["", ".", "1.", "-1", "1e3", "1,0", "0.0000000001", "٣"])
def test_an_amount_that_is_no_plain_number_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        nano_dollars_of(wrong)
