"""How long is a request, without running it?

Exact where the backend can render and tokenize what it would send, which is then what the
usage of the real run reports. Otherwise an estimate over the same plan, and marked as one.
"""

from __future__ import annotations

import msgspec

from antiphon.backends.base import Backend
from antiphon.plans.estimate import estimate_usage
from antiphon.plans.plan import Plan
from antiphon.protocol.errors import BackendError
from antiphon.transport.aside import aside_if

__all__ = ["Count", "count_tokens"]


class Count(msgspec.Struct, frozen=True):
    """Input tokens, and whether they are only estimated."""

    tokens: int
    is_estimated: bool


async def count_tokens(backend: Backend, plan: Plan) -> Count:
    """Return the input tokens of a plan. A backend that cannot be asked now is not waited for."""
    known = None
    if backend.capabilities.counts:
        try:
            known = await backend.count(plan)
        except BackendError:
            known = None
    if known is not None:
        return Count(known, is_estimated=False)
    usage = await aside_if(plan.is_large, estimate_usage, plan, ())
    return Count(usage.input_tokens, is_estimated=True)
