"""Do tool lists and histories survive the way down to a chat model and up again?

Made-up tools of all families and conversations in which they were called (tests/tool_histories.py)
are written as chat requests; the calls in those are streamed back in pieces, and must come out as
the items that they were. The same check, from the same seeds, runs in tests/properties. The
process ends with 1 at the first one that does not survive.

    python bench/families.py [SHARES]
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hypothesis import HealthCheck, given, seed, settings
from tests.properties.test_families import (
    EXAMPLES,
    SHARES,
    Split,
    check_survival,
    quick_splits,
)
from tests.tool_histories import History, quick_histories

from antiphon.plans.plan import Plan

__all__ = ["main"]

_QUIET: Final = settings(
    max_examples=EXAMPLES // SHARES,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class _Count:
    def __init__(self) -> None:
        self.examples = 0
        self.distinct: set[int] = set()
        self.calls: Counter[str] = Counter()
        self.offers = 0
        self.renamed = 0

    def add(self, history: History, split: Split, plan: Plan) -> None:
        """Count one that has survived."""
        self.examples += 1
        self.distinct.add(hash(repr((history, split))))
        self.calls.update(call["type"] for call in history.calls)
        offers = plan.toolbox.offers
        self.offers += len(offers)
        self.renamed += sum(offer.alias != offer.name for offer in offers)


def _run(share: int, count: _Count) -> None:
    @seed(share)
    @_QUIET
    @given(quick_histories(), quick_splits)
    def survives(history: History, split: Split) -> None:
        count.add(history, split, check_survival(history, split))

    survives()


def main() -> int:
    """Run all shares and print what was seen."""
    shares = int(sys.argv[1]) if len(sys.argv) > 1 else SHARES
    count = _Count()
    began = time.perf_counter()
    try:
        for share in range(shares):
            _run(share, count)
    except AssertionError as error:
        print(f"after {count.examples} histories one did not survive: {error}")
        return 1
    calls = ", ".join(f"{number} {kind}" for kind, number in count.calls.most_common())
    print(f"{count.examples} tool lists and histories came back unchanged, ", end="")
    print(f"{len(count.distinct)} of them distinct")
    print(f"{count.offers} tools, {count.renamed} of them under another name")
    print(f"{count.calls.total()} calls: {calls}")
    print(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
