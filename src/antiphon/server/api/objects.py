"""How files, uploads and vector stores are answered, listed and created once.

A page is asked for with one object more than it shows: whether that came is `has_more`. A request
that creates something may carry an Idempotency-Key. Then the answer to the same request is what
the first one has made, with the header that says so, and another body is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from aiohttp import web

from antiphon.protocol.codec import encode_json
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.files import read_body
from antiphon.server.api.body import read_data, read_json
from antiphon.server.api.pages import write_json
from antiphon.server.api.request_keys import REPLAYED, check_same, read_claim
from antiphon.server.app import Call
from antiphon.store.base import Claim, ClaimRequest

__all__ = [
    "answer_object",
    "answer_page",
    "find_earlier",
    "read_object",
    "read_once",
    "replayed",
    "wrong_cursor",
]

_Body = TypeVar("_Body", bound=msgspec.Struct)
