"""What a chat application deals in: messages made of parts.

Faithful to VS Code's language-model API, so that an editor or a chat program can sit on it:
`TextPart` is LanguageModelTextPart, and so on. Parts are values; nothing here knows the wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal

import msgspec

__all__ = [
    "DataPart",
    "Message",
    "Part",
    "ResponsePart",
    "Role",
    "TextPart",
    "ThinkingPart",
    "ToolCallPart",
    "ToolResultPart",
]


class Role(Enum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(msgspec.Struct, frozen=True):
    """Text; in an answer, the piece that is new."""

    value: str


class ThinkingPart(msgspec.Struct, frozen=True):
    """The model's reasoning; in an answer, the piece that is new.

    `id` is the reasoning item it belongs to, so that it can be handed back with the next turn.
    """

    value: str
    id: str | None = None
    metadata: Mapping[str, Any] = {}
    """What must come back with it, such as `encrypted_content`."""


class ToolCallPart(msgspec.Struct, frozen=True):
    """A tool call, whole: it comes exactly once, with its arguments parsed.

    The call of a custom tool is free text: `input` holds it under `input`.
    """

    call_id: str
    name: str
    input: Mapping[str, Any]
    kind: Literal["function", "custom"] = "function"


class DataPart(msgspec.Struct, frozen=True):
    """Bytes of some media type: an image, a file, JSON."""

    data: bytes
    mime: str


class ToolResultPart(msgspec.Struct, frozen=True):
    """What a tool gave back."""

    call_id: str
    content: Sequence[TextPart | DataPart]
    is_error: bool = False


Part = TextPart | ThinkingPart | ToolCallPart | ToolResultPart | DataPart
ResponsePart = TextPart | ThinkingPart | ToolCallPart | DataPart


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    content: Sequence[Part]
    name: str | None = None

    @classmethod
    def system(cls, text: str) -> Message:
        """Return a system message of plain text."""
        return cls(Role.SYSTEM, (TextPart(text),))

    @classmethod
    def user(cls, content: str | Sequence[Part]) -> Message:
        """Return what the user said."""
        return cls(Role.USER, (TextPart(content),) if isinstance(content, str) else content)

    @classmethod
    def assistant(cls, content: str | Sequence[Part]) -> Message:
        """Return what the model said."""
        return cls(Role.ASSISTANT, (TextPart(content),) if isinstance(content, str) else content)
