"""Which APIs beside Responses are answered?"""

from __future__ import annotations

import msgspec

__all__ = ["DoorSettings"]


class DoorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The APIs that are answered beside Responses; a path of one that is off is a 404."""

    chat: bool = True
    """POST /v1/chat/completions."""
    messages: bool = True
    """POST /v1/messages and /v1/messages/count_tokens."""
    embeddings: bool = True
    """POST /v1/embeddings and /v1/completions, which are passed on."""
    store: bool = False
    """The value of `store` for chat completions and messages that do not set it."""
    keep_state: bool = True
    """Whether native state is kept by call id for clients that cannot send it back."""
