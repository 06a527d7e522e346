"""Which calls are checked before they are handed over, and against what?

The arguments of strict functions, and of the tools whose schema is ours, against the schema;
those of other functions must be a JSON object; the input of custom tools against their grammar.
What a backend enforces by itself is not checked again: its calls grow as they come. What cannot
be checked is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from antiphon.engine.prepare.format import FormatCheck
from antiphon.engine.prepare.grammars import HOW_TO, aside, grammar_check
from antiphon.engine.prepare.schemas import NO_JSON, SchemaCheck, decode, schema_check
from antiphon.plans.tool_schemas import SCHEMAS
from antiphon.plans.toolbox import Offer, Toolbox
from antiphon.protocol.errors import InvalidRequest

__all__ = ["Check", "Checks", "call_checks", "has_grammars", "make_checks"]

Check = Callable[[str], str | None]
"""Returns what is wrong with the arguments, or the input, of a call; None if nothing is."""


class Checks(msgspec.Struct, frozen=True):
    """What an answer is held against: calls by the alias of their tool, and the text."""

    calls: dict[str, Check]
    form: FormatCheck | None = None
    are_slow: bool = False
    """Whether some take so long that the event loop must not wait for them."""
    enforced: frozenset[str] = frozenset()
    """What the backend holds its model to by itself."""


async def make_checks(
    toolbox: Toolbox, form: FormatCheck | None, enforced: frozenset[str]
) -> tuple[Checks | None, list[str]]:
    """Return what an answer is held against, None for nothing, and what cannot be checked.

    Raise InvalidRequest for an invalid grammar.
    """
    if not toolbox.offers and form is None:
        return None, []
    are_slow = toolbox.derived.get(has_grammars, lambda: has_grammars(toolbox))
    make = partial(call_checks, toolbox, enforced)
    if are_slow:
        calls, report = await aside(make)
    else:
        calls, report = toolbox.derived.get((call_checks, enforced), make)
    return Checks(calls, form, are_slow, enforced), report.copy()


def call_checks(toolbox: Toolbox, enforced: frozenset[str]) -> tuple[dict[str, Check], list[str]]:
    """Return the checks by alias, and a report of what cannot be checked.

    Raise InvalidRequest for an invalid grammar.
    """
    checks: dict[str, Check] = {}
    report: list[str] = []
    for offer in toolbox.offers:
        check = _check_of(offer, enforced, report)
        if check is not None:
            checks[offer.alias] = check
    return checks, report


def has_grammars(toolbox: Toolbox) -> bool:
    """Return whether some tool has a grammar: to compile and to check those takes its time."""
    return any(_grammar(offer) is not None for offer in toolbox.offers)


def _grammar(offer: Offer) -> dict[str, Any] | None:
    form = offer.tool.get("format") if offer.kind == "custom" else None
    return form if form and form.get("type") == "grammar" else None


def _check_of(offer: Offer, enforced: frozenset[str], report: list[str]) -> Check | None:
    match offer.kind:
        case "custom":
            return _grammar_of(offer, report)
        case "function":
            if not offer.tool.get("strict"):
                return _object_problem
            return None if "arguments" in enforced else _strict_of(offer, report)
        case "tool_search":
            return _object_problem
        case kind:
            return partial(_problem, schema_check(SCHEMAS[kind], kind))


def _grammar_of(offer: Offer, report: list[str]) -> Check | None:
    form = _grammar(offer)
    if form is None:
        return None
    grammar = grammar_check(form, f"{offer.where}.format")
    if grammar is None:
        report.append(f"{offer.where}.format: {HOW_TO}")
        return None
    return grammar.problem


def _strict_of(offer: Offer, report: list[str]) -> Check | None:
    parameters = offer.tool.get("parameters")
    if not parameters:
        return _object_problem
    param = f"{offer.where}.parameters"
    try:
        return partial(_problem, schema_check(parameters, param))
    except InvalidRequest as error:
        report.append(f"{offer.where}.strict: it cannot be checked: {error.message}")
        return None


def _problem(schema: SchemaCheck, arguments: str) -> str | None:
    value = decode(arguments or "{}")
    if value is NO_JSON:
        return "the arguments are not JSON"
    if schema.is_too_deep(value):
        return "the arguments are nested too deep"
    miss = schema.miss(value)
    return (
        None
        if miss is None
        else f"the arguments do not match the schema at {miss.where}: {miss.why}"
    )


def _object_problem(arguments: str) -> str | None:
    return (
        None if isinstance(decode(arguments or "{}"), dict) else "the arguments are no JSON object"
    )
