"""Where does a conversation continue on the server, also after the application was restarted?

An answer may end with two notes for the application, as data:

- `usage` has the token counts that an editor needs to know how full the context is;
- `stateful_marker` has the place to continue from, in the form of VS Code's own chat: the model,
  a backslash, and the marker. Ours is `1:DIGEST:RESPONSE_ID`.

The digest is that of the server, the model and the whole conversation with the answer, as the
application saw it and as `client.history` compares histories. A marker that comes back counts only
if the messages up to it still have this digest. So a conversation that was edited, shortened or
summarised is never continued from a response that knows more than the messages show, and no server
is asked to continue from the response of another one, whose id it may ignore or use itself. What
stands before the backslash is not read: an application may write its own name of the model there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from antiphon.client.continuation import kept_id
from antiphon.client.conversation import ConversationCache, Thread
from antiphon.client.history import fingerprint
from antiphon.client.parameters import Params
from antiphon.host.content import media_type
from antiphon.host.translate import TranslateSettings, translate_messages
from antiphon.protocol.response import Response, Usage, with_total
from antiphon.wires.host.parts import DataPart, Message, ResponsePart, Role

__all__ = ["STATE_MIME", "USAGE_MIME", "ConversationState", "show_usage"]

STATE_MIME: Final = "stateful_marker"
USAGE_MIME: Final = "usage"

_VERSION: Final = "1"
# An editor that shortens its history keeps the beginning: one of the markers before may hold.
_MOST_TRIED: Final = 4
_NAMED: Final = ("previous_response_id", "parent_id", "conversation", "conversation_id", "prompt")


class _Marker(msgspec.Struct, frozen=True):
    """A marker that came back, and where its answer ends in the messages."""

    end: int
    digest: str
    response_id: str


class ConversationState:
    """The markers of one turn: the one that it continues from, and the one that it ends with.

    `server` is the address that is asked.
    """

    def __init__(
        self, server: str, model: str, messages: Sequence[Message], settings: TranslateSettings
    ) -> None:
        self._server = server
        self._model = model
        self._messages = messages
        self._settings = settings
        # A link in the text may come back as a part of the text.
        self._plain = msgspec.structs.replace(settings, inline_links=False)

    def resume(self, params: Params, cache: ConversationCache) -> None:
        """Let the request continue from the last marker that holds, if there is one.

        A request that names its place itself is left alone.
        """
        if any(params.get(name) for name in _NAMED):
            return
        thread = self._find_thread()
        if thread is None or thread.response_id is None:
            return
        session = params.get("session") or f"{STATE_MIME} {thread.response_id}"
        params["session"] = session
        known = cache.get(session, self._model)
        if known is None or known.conversation is None:
            cache.set(session, self._model, _move(known, thread))

    def mark(
        self, shown: Sequence[ResponsePart], response: Response, *, is_stored: bool
    ) -> DataPart | None:
        """Return the marker of an answer, or None if the server kept nothing."""
        response_id = kept_id(response, was_asked=is_stored)
        if response_id is None:
            return None
        digest = self._digest([*self._messages, Message.assistant(shown)])
        return DataPart(
            f"{self._model}\\{_VERSION}:{digest}:{response_id}".encode(),
            STATE_MIME,
        )

    def _find_thread(self) -> Thread | None:
        for marker in islice(_markers(self._messages), _MOST_TRIED):
            before = self._messages[: marker.end]
            if self._digest(before) == marker.digest:
                items = translate_messages(before, self._settings).items
                return Thread(marker.response_id, items=tuple(items))
        return None

    def _digest(self, messages: Sequence[Message]) -> str:
        items = translate_messages(messages, self._plain).items
        where = {"type": "model", "name": self._model, "server": self._server}
        return fingerprint([where, *items])


def show_usage(usage: Usage) -> DataPart:
    """Return token counts as the data that VS Code's chat reads."""
    usage = with_total(usage)
    figures = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
    }
    return DataPart(msgspec.json.encode(figures), USAGE_MIME)


def _move(known: Thread | None, thread: Thread) -> Thread:
    """Return the thread of a session at another place; what its turns have cost stays."""
    return msgspec.structs.replace(
        known or thread, response_id=thread.response_id, items=thread.items, is_whole=True
    )


def _markers(messages: Sequence[Message]) -> Iterator[_Marker]:
    """Yield the markers, the last one first.

    An answer ends with the last message of the assistant in a row: it may have been split.
    """
    end = len(messages)
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role is not Role.ASSISTANT:
            end = place
            continue
        for part in reversed(messages[place].content):
            if isinstance(part, DataPart) and media_type(part) == STATE_MIME:
                marker = _read(part.data, end)
                if marker is not None:
                    yield marker


def _read(data: bytes, end: int) -> _Marker | None:
    """Return the marker, or None for that of another program."""
    _, _, marker = data.decode("utf-8", "replace").partition("\\")
    version, _, rest = marker.partition(":")
    digest, _, response_id = rest.partition(":")
    if version != _VERSION or not response_id:
        return None
    return _Marker(end, digest, response_id)
