"""Which run does a request belong to, and how much may the run spend?

A run is what a caller does with many requests, such as one job of an agent. The caller names it
in a header, and may set what all of its requests together may cost:

    x-antiphon-run: ID
    x-antiphon-run-budget: usd=2.00

The first budget of a run holds; a later one can only lower it. A key may have a budget for runs
whose requests name none, and a maximum for all of its runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.accounts.principal import Principal
from antiphon.models.prices import dollars_of, nano_dollars_of
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
    default: int | None = None
    """The same for a run that has no budget yet: it lowers none that there is."""

    @property
    def is_limited(self) -> bool:
        """Whether the request limits its run."""
        return self.ceiling is not None or self.default is not None


NO_RUN: Final = Run()


def read_run(headers: Mapping[str, str], principal: Principal) -> Run:
    """Return the run that the headers of a request name, as its key limits it.

    Raise InvalidRequest, also for a budget above the maximum of the key.
    """
    name, budget = headers.get(RUN_HEADER), headers.get(RUN_BUDGET_HEADER)
    if name is None and budget is None:
        return NO_RUN
    if name is None:
        raise _invalid(RUN_BUDGET_HEADER, f"needs {RUN_HEADER} to name the run")
    if not _NAME.fullmatch(name):
        raise _invalid(
            RUN_HEADER, "must have 1 to 128 letters, digits or characters of . _ : - and no other"
        )
    most = principal.max_run_budget
    if budget is None:
        return Run(name, most, principal.run_budget)
    wish = _read_budget(budget)
    if most is not None and wish > most:
        raise _invalid(
            RUN_BUDGET_HEADER,
            f"is more than this key allows for a run: usd={dollars_of(most)} is the most",
        )
    return Run(name, wish)


def _read_budget(text: str) -> int:
    try:
        if text.startswith(_UNIT):
            return nano_dollars_of(text.removeprefix(_UNIT).strip())
    except ValueError:
        pass
    raise _invalid(RUN_BUDGET_HEADER, "must be an amount in dollars, such as usd=2.00")


def _invalid(header: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{header} {why}", code="invalid_value", param=header)
