"""Which run does a request belong to, and how much may the run spend?

A run is what a caller does with many requests, such as one job of an agent. The caller names it
in a header, and may set what all of its requests together may cost:

    x-antiphon-run: ID
    x-antiphon-run-budget: usd=2.00

The first budget of a run holds; a later one can only lower it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.models.prices import nano_dollars_of
from antiphon.protocol.errors import InvalidRequest

__all__ = ["NO_RUN", "RUN_BUDGET_HEADER", "RUN_HEADER", "Run", "read_run"]

RUN_HEADER: Final = "x-antiphon-run"
RUN_BUDGET_HEADER: Final = "x-antiphon-run-budget"
_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_UNIT: Final = "usd="


class Run(msgspec.Struct, frozen=True):
    """A run, and the nano-dollars that it may cost; None if nothing limits it here."""

    id: str | None = None
    ceiling: int | None = None


NO_RUN: Final = Run()


def read_run(headers: Mapping[str, str]) -> Run:
    """Return the run that the headers of a request name. Raise InvalidRequest."""
    name, budget = headers.get(RUN_HEADER), headers.get(RUN_BUDGET_HEADER)
    if name is None and budget is None:
        return NO_RUN
    if name is None:
        raise _invalid(RUN_BUDGET_HEADER, f"needs {RUN_HEADER} to name the run")
    if not _NAME.fullmatch(name):
        raise _invalid(
            RUN_HEADER, "must have 1 to 128 letters, digits or characters of . _ : - and no other"
        )
    return Run(name, None if budget is None else _read_budget(budget))


def _read_budget(text: str) -> int:
    try:
        if text.startswith(_UNIT):
            return nano_dollars_of(text.removeprefix(_UNIT).strip())
    except ValueError:
        pass
    raise _invalid(RUN_BUDGET_HEADER, "must be an amount in dollars, such as usd=2.00")


def _invalid(header: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{header} {why}", code="invalid_value", param=header)
