"""Content blocks of an answer while they grow: each is opened, grown and closed, as deltas.

    | block               | deltas                                                             |
    |---------------------|--------------------------------------------------------------------|
    | text                | TextGrew; its citations as AnnotationAdded when it ends            |
    | thinking            | SummaryGrew or ReasoningGrew; with a signature, NativeState        |
    | redacted_thinking   | NativeState                                                        |
    | tool_use            | CallOpened, CallGrew, CallClosed                                   |
    | of a server's tool  | a hosted item (`server_tools`)                                     |
    | any other           | ItemPassed with the block as it is, its type `anthropic:<type>`    |

A block that starts with content is read as one that grew by it, so an answer that is not streamed
gives the same deltas. `whole` is the block as it must be sent back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallOpened,
    Delta,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    SummaryGrew,
    TextGrew,
)
from antiphon.protocol.halves import GrowingText, join_all, join_halves
from antiphon.wires.messages.events import Body, Growth, invalid_answer, read_delta
from antiphon.wires.messages.history import CITATION, OPAQUE
from antiphon.wires.messages.ids import call_id_of
from antiphon.wires.messages.partial_json import read_partial

__all__ = [
    "WIRE",
    "CallBlock",
    "OpaqueBlock",
    "OpenBlock",
    "RedactedBlock",
    "TextBlock",
    "ThinkingBlock",
]

WIRE: Final = "messages"
"""What native state of this API is called."""

_MAX_CITATIONS: Final = 10_000
_encode = msgspec.json.Encoder().encode


class OpenBlock(Protocol):
    """A block that has started and not stopped."""

    @property
    def grows_by(self) -> frozenset[str] | None:
        """The types of deltas that it can hold; None for any."""
        ...

    def opened(self) -> Sequence[Delta]:
        """Return the deltas of its start."""
        ...

    def grow(self, growth: Growth, data: bytes) -> Sequence[Delta]:
        """Return the deltas of one of its events; `data` is all of it."""
        ...

    def rest(self) -> Sequence[Delta]:
        """Return what stands for half a character whose other half did not come."""
        ...

    def close(self) -> Sequence[Delta]:
        """Return the deltas of its end."""
        ...

    def whole(self) -> Body | msgspec.Raw:
        """Return the block as it is sent back to the server."""
        ...


class TextBlock:
    """A text. `begin` is where it begins in the text that it continues."""

    grows_by: Final = frozenset({"", "text_delta", "citations_delta"})

    def __init__(self, fields: Body, begin: int) -> None:
        self._fields = fields
        self._begin = begin
        self._grown = GrowingText()
        self._pieces: list[str] = []
        self._length = 0
        given = fields.get("citations")
        cited = given if isinstance(given, list) else ()
        self._citations = [one for one in cited if isinstance(one, dict)]

    def opened(self) -> Sequence[Delta]:
        """Return the text that it starts with."""
        text = self._fields.get("text")
        return self._grow(text) if isinstance(text, str) else ()

    def grow(self, growth: Growth, data: bytes) -> Sequence[Delta]:
        """Return how the text grew; a citation waits for the end of the block."""
        if growth.citation is not None:
            self._cite(growth.citation)
        return self._grow(growth.text) if growth.text else ()

    @property
    def is_torn(self) -> bool:
        """Whether half a character waits for the next piece."""
        return bool(self._grown.half)

    def add(self, texts: Sequence[str]) -> int:
        """Take the next pieces of the text; return how long they are."""
        self._pieces += texts
        size = len(texts[0]) if len(texts) == 1 else sum(map(len, texts))
        self._length += size
        return size

    def _grow(self, text: str) -> Sequence[Delta]:
        return self._say(self._grown.take(text))

    def _say(self, text: str) -> Sequence[Delta]:
        self.add((text,))
        return (TextGrew(text),) if text else ()

    def rest(self) -> Sequence[Delta]:
        """Return what stands for half a character whose other half did not come."""
        return self._say(self._grown.rest())

    def close(self) -> Sequence[Delta]:
        """Return the citations; each is about all of the block."""
        found: list[Delta] = [*self.rest()]
        end = self._begin + self._length
        found += [AnnotationAdded(_annotation(one, self._begin, end)) for one in self._citations]
        return found

    def whole(self) -> Body:
        """Return the block with all of its text and citations."""
        block = {**self._fields, "text": "".join(self._pieces)}
        return {**block, "citations": self._citations} if self._citations else block

    def _cite(self, citation: Body) -> None:
        if len(self._citations) >= _MAX_CITATIONS:
            raise invalid_answer("its citations do not end")
        self._citations.append(join_all(citation))


class ThinkingBlock:
    """A thought with its signature. Without a signature there is nothing to send back.

    `grew` is the delta that its text becomes; `account` is who can read the signature.
    """

    grows_by: Final = frozenset({"", "thinking_delta", "signature_delta"})

    def __init__(self, fields: Body, grew: type[SummaryGrew | ReasoningGrew], account: str) -> None:
        self._fields = fields
        self._grew = grew
        self._account = account
        self._grown = GrowingText()
        self._pieces: list[str] = []
        self._signature: list[str] = []

    def opened(self) -> Sequence[Delta]:
        """Return the thought that it starts with."""
        signature, text = self._fields.get("signature"), self._fields.get("thinking")
        if isinstance(signature, str):
            self._signature.append(signature)
        return self._add(text) if isinstance(text, str) and text else ()

    def grow(self, growth: Growth, data: bytes) -> Sequence[Delta]:
        """Return how the thought grew."""
        if growth.signature:
            self._signature.append(growth.signature)
        return self._add(growth.thinking) if growth.thinking else ()

    def _add(self, text: str) -> Sequence[Delta]:
        return self._say(self._grown.take(text))

    def _say(self, text: str) -> Sequence[Delta]:
        self._pieces.append(text)
        return (self._grew(text),) if text else ()

    def rest(self) -> Sequence[Delta]:
        """Return what stands for half a character whose other half did not come."""
        return self._say(self._grown.rest())

    def close(self) -> Sequence[Delta]:
        """Return the whole block as native state if it is signed."""
        rest = self.rest()
        if not any(self._signature):
            return rest
        return (*rest, NativeState(WIRE, _encode(self.whole()), account=self._account))

    def whole(self) -> Body:
        """Return the block with all of its text and its signature."""
        text, signature = "".join(self._pieces), "".join(self._signature)
        return {**self._fields, "thinking": text, "signature": signature}


class RedactedBlock:
    """A thought that only the provider can read. Its bytes are kept as they came."""

    grows_by: Final = None

    def __init__(self, raw: bytes, account: str) -> None:
        self._raw = raw
        self._account = account

    def opened(self) -> Sequence[Delta]:
        """Return nothing: it is reported when it ends."""
        return ()

    def grow(self, growth: Growth, data: bytes) -> Sequence[Delta]:
        """Raise BackendError: such a block does not grow."""
        raise invalid_answer("a block of redacted thinking grew")

    def rest(self) -> Sequence[Delta]:
        """Return nothing: it has no text."""
        return ()

    def close(self) -> Sequence[Delta]:
        """Return the block as native state."""
        return (NativeState(WIRE, self._raw, account=self._account),)

    def whole(self) -> msgspec.Raw:
        """Return the bytes that came."""
        return msgspec.Raw(self._raw)


class CallBlock:
    """A call of a tool of ours. `key` is how the deltas name it."""

    grows_by: Final = frozenset({"", "input_json_delta"})

    def __init__(self, fields: Body, key: int) -> None:
        name, call_id = fields.get("name"), fields.get("id")
        if not isinstance(name, str) or not name:
            raise invalid_answer("a tool_use block has no name")
        self._fields = fields
        self._key = key
        self._name = name
        self._id = call_id if isinstance(call_id, str) and call_id else None
        self._grown = GrowingText()
        self._pieces: list[str] = []

    def opened(self) -> Sequence[Delta]:
        """Return that the call began."""
        call_id = None if self._id is None else call_id_of(self._id)
        return (CallOpened(self._key, self._name, call_id),)

    def grow(self, growth: Growth, data: bytes) -> Sequence[Delta]:
        """Return how its input grew."""
        return self._say(self._grown.take(growth.partial_json or ""))

    def _say(self, piece: str) -> Sequence[Delta]:
        if not piece:
            return ()
        self._pieces.append(piece)
        return (CallGrew(self._key, piece),)

    def rest(self) -> Sequence[Delta]:
        """Return what stands for half a character whose other half did not come."""
        return self._say(self._grown.rest())

    def close(self) -> Sequence[Delta]:
        """Return its end. An input that did not grow is that of the start, or an empty one."""
        rest, closed = self.rest(), CallClosed(self._key)
        if any(piece.strip() for piece in self._pieces):
            return (*rest, closed)
        given = self._fields.get("input")
        text = _encode({} if given is None else given).decode()
        return CallGrew(self._key, text), closed

    def whole(self) -> Body:
        """Return the block with all of its input."""
        return _with_input(self._fields, self._pieces)


class OpaqueBlock:
    """A block of the provider's own servers: a search, its result, what is not known yet."""

    grows_by: Final = None

    def __init__(self, fields: Body) -> None:
        self._fields = fields
        self._input: list[str] = []
        self._grown: dict[str, list[Any]] = {}

    def opened(self) -> Sequence[Delta]:
        """Return nothing: it is reported when it is whole."""
        return ()

    def grow(self, growth: Growth, data: bytes) -> Sequence[Delta]:
        """Take a delta. Any field of it continues the field of the block of that name."""
        if growth.partial_json is not None:
            self._input.append(growth.partial_json)
            return ()
        for name, value in read_delta(data).items():
            if name != "type":
                self._grown.setdefault(name, []).append(value)
        return ()

    def rest(self) -> Sequence[Delta]:
        """Return nothing: it is reported when it is whole."""
        return ()

    def close(self) -> Sequence[Delta]:
        """Return the whole block as an item."""
        block = self.whole()
        return (ItemPassed({**block, "type": f"{OPAQUE}{block.get('type')}"}),)

    def whole(self) -> Body:
        """Return the block with everything that it grew by."""
        block = _with_input(self._fields, self._input)
        for name, values in self._grown.items():
            block[name] = join_all(_joined(block.get(name), values))
        return block


def _with_input(fields: Body, pieces: Sequence[str]) -> Body:
    """Return the block with its input; one that was cut short is as much of it as is whole."""
    text = join_halves("".join(pieces))
    return {**fields, "input": read_partial(text)} if text.strip() else {**fields}


def _joined(first: object, values: Sequence[Any]) -> Any:  # Any: JSON of a peer
    """Return what a field has become: texts in a row, lists in a row, or the last value."""
    if all(isinstance(value, str) for value in values):
        return "".join([first if isinstance(first, str) else "", *values])
    if all(isinstance(value, list) for value in values):
        rows = [first if isinstance(first, list) else [], *values]
        return [one for row in rows for one in row]
    return values[-1]


# Citations.


def _annotation(citation: Body, begin: int, end: int) -> Body:
    """Return a citation as an annotation, a web page or a document, with itself."""
    url, own = _url_of(citation), {CITATION: citation}
    if url is not None:
        place = {"start_index": begin, "end_index": end}
        page = {"title": citation.get("title") or "", "url": url}
        return {"type": "url_citation", **place, **page, **own}
    name = citation.get("document_title") or citation.get("title") or citation.get("source")
    file = {"file_id": citation.get("file_id") or "", "filename": name or ""}
    return {"type": "file_citation", **file, "index": end, **own}


def _url_of(citation: Body) -> str | None:
    url = citation.get("url") or citation.get("source")
    is_web = isinstance(url, str) and url.startswith(("http://", "https://"))
    return url if is_web else None
