"""How does a claim name what was made inside a vector store?

A claim has one text for what its request made. For a batch or a file it must also name the vector
store, to check that it still exists; callers see the id alone.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from antiphon.store.base.claims import Claim

__all__ = ["Made", "as_shown", "name_made", "read_made"]


class Made(NamedTuple):
    """A vector store; or what was made inside it, a batch or a file."""

    store_id: str
    inside: str | None = None


def name_made(made: Made) -> str:
    """Return what a claim stores."""
    return made.store_id if made.inside is None else json.dumps(made)


def read_made(text: str) -> Made:
    """Return what `name_made` wrote."""
    return Made(*json.loads(text)) if text.startswith("[") else Made(text)


def as_shown(claim: Claim) -> Claim:
    """Return the claim with the id of what was made, and no more."""
    made = read_made(claim.response_id)
    return msgspec.structs.replace(claim, response_id=made.inside or made.store_id)
