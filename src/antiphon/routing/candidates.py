"""Which deployments may answer a request?

A deployment is a model at a provider. `Catalog.candidates` returns those for a name, best first.
Today there is one for each name; each further one is asked when those before it have failed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.backends.base import Backend
from antiphon.protocol.errors import BackendError, ContextOverflow

__all__ = ["Candidate", "may_fall_back"]

# Faults of one deployment although their status is that of a caller's mistake.
_OWN_STATUSES: Final = frozenset({408, 429})
_OWN_CODES: Final = frozenset({"upstream_auth", "insufficient_quota"})


class Candidate(msgspec.Struct, frozen=True):
    """A deployment that may answer: a backend, and the name that the model has there."""

    backend: Backend
    model: str
    provider: str
    """The name of the provider in the settings."""
    context_length: int | None = None
    """Input and output tokens together, if a source states it."""


def may_fall_back(error: BackendError) -> bool:
    """Return whether another deployment may answer what this one could not.

    A request that is wrong stays wrong, and a context that is too long is shortened first.
    """
    if isinstance(error, ContextOverflow):
        return False
    return error.status >= 500 or error.status in _OWN_STATUSES or error.code in _OWN_CODES
