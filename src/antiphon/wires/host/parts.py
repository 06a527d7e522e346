"""What a chat application deals in: messages made of parts.

Faithful to VS Code's language-model API, so that an editor or a chat program can sit on it:
`TextPart` is LanguageModelTextPart, and so on. Parts are values. As JSON, `type` is the tag of the
class, and bytes are base64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal

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
    "UrlPart",
    "check_messages",
]


class Role(Enum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """Text; in an answer, the piece that is new."""

    value: str


class ThinkingPart(msgspec.Struct, frozen=True, tag="thinking"):
    """The model's reasoning; in an answer, the piece that is new.

    `id` is the reasoning item it belongs to, so that it can be handed back with the next turn.
    """

    value: str
    id: str | None = None
    metadata: Mapping[str, Any] = {}
    """What must come back with it, such as `encrypted_content`."""


class ToolCallPart(msgspec.Struct, frozen=True, tag="tool_call"):
    """A tool call, whole: it comes exactly once, with its arguments parsed.

    The call of a custom tool is free text: `input` holds it under `input`.
    """

    call_id: str
    name: str
    input: Mapping[str, Any]
    kind: Literal["function", "custom"] = "function"


class DataPart(msgspec.Struct, frozen=True, tag="data"):
    """Bytes of some media type: an image, a file, JSON."""

    data: bytes
    mime: str


class UrlPart(msgspec.Struct, frozen=True, tag="url"):
    """Data at an address, which the server or the model's provider fetches itself."""

    url: str
    mime: str


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    """What a tool gave back."""

    call_id: str
    content: Sequence[TextPart | DataPart | UrlPart]
    is_error: bool = False

    def __post_init__(self) -> None:
        """Refuse what is not a list of parts, with what to write instead."""
        how = "ToolResultPart(call_id, [TextPart(…)])"
        _check_content(self.content, (TextPart, DataPart, UrlPart), how)


Part = TextPart | ThinkingPart | ToolCallPart | ToolResultPart | DataPart | UrlPart
_PARTS: Final = (TextPart, ThinkingPart, ToolCallPart, ToolResultPart, DataPart, UrlPart)
ResponsePart = TextPart | ThinkingPart | ToolCallPart | DataPart


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    content: Sequence[Part]
    name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is not a role with a list of parts, with what to write instead."""
        if not isinstance(self.role, Role):
            raise TypeError(
                f"the role of a message is one of Role, not {self.role!r}; "
                "Message.system, Message.user and Message.assistant set it"
            )
        how = f"Message.{self.role.value}(…)"
        _check_content(self.content, _PARTS, how)

    @classmethod
    def system(cls, text: str) -> Message:
        """Return a system message of plain text."""
        return cls(Role.SYSTEM, (TextPart(text),))

    @classmethod
    def user(cls, content: str | Sequence[Part]) -> Message:
        """Return a message of the user."""
        return cls(Role.USER, (TextPart(content),) if isinstance(content, str) else content)

    @classmethod
    def assistant(cls, content: str | Sequence[Part]) -> Message:
        """Return a message of the model."""
        return cls(Role.ASSISTANT, (TextPart(content),) if isinstance(content, str) else content)


def check_messages(messages: object) -> None:
    """Raise TypeError unless this is a sequence of messages."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise TypeError(
            f"messages is a list of Message, not {type(messages).__name__}; "
            "write [Message.user(…)] for a single question"
        )
    for place, message in enumerate(messages):
        if not isinstance(message, Message):
            raise TypeError(
                f"messages[{place}] is {type(message).__name__}, not a Message; "
                "Message.system, Message.user and Message.assistant make one"
            )


def _check_content(content: object, kinds: tuple[type, ...], how: str) -> None:
    """Raise TypeError unless the content is a sequence of parts of these kinds."""
    if isinstance(content, str | bytes) or not isinstance(content, Sequence):
        raise TypeError(
            f"content is a list of parts, not {type(content).__name__}; write {how} for a text"
        )
    for place, part in enumerate(content):
        if not isinstance(part, kinds):
            allowed = ", ".join(kind.__name__ for kind in kinds)
            raise TypeError(
                f"content[{place}] is {type(part).__name__}, which is not a part; "
                f"the parts are {allowed}"
            )
