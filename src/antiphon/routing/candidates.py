"""Which deployments may answer a request?

A deployment is a model at a provider. `Catalog.candidates` returns those for a name, best first.
Today there is one for each name; a fallback will be a second one.
"""

from __future__ import annotations

import msgspec

from antiphon.backends.base import Backend

__all__ = ["Candidate"]


class Candidate(msgspec.Struct, frozen=True):
    """A deployment that may answer: a backend, and the name that the model has there."""

    backend: Backend
    model: str
    provider: str
    """The name of the provider in the settings."""
    context_length: int | None = None
    """Input and output tokens together, if a source states it."""
