"""How an answer ended, for the application that showed it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.codec import response_object
from antiphon.protocol.halves import join_halves
from antiphon.protocol.items import Item
from antiphon.protocol.machines.partial_items import string_of, substance
from antiphon.protocol.response import Notes, Response, Usage

__all__ = [
    "SUMMARY_BREAK",
    "Meta",
    "Outcome",
    "notes_of",
    "parts_of",
    "spoken_text",
    "thought_text",
]

SUMMARY_BREAK: Final = "\n\n"


class Meta(msgspec.Struct, frozen=True):
    """What is worth knowing about how an answer came."""

    skipped_choices: int = 0
    deviations: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """An answer that came to its end: completed, or incomplete for a reason."""

    response: Response
    meta: Meta = Meta()

    @property
    def response_id(self) -> str:
        """The id to continue from."""
        return self.response.id

    @property
    def status(self) -> str:
        """`completed` or `incomplete`."""
        return self.response.status

    @property
    def usage(self) -> Usage | None:
        """What the server counted, if it did."""
        return self.response.usage

    @property
    def incomplete_reason(self) -> str | None:
        """Why the model was stopped early; None if it was not."""
        if self.status != "incomplete":
            return None
        details = self.response.incomplete_details
        return (details and details.reason) or "unknown"

    @property
    def refusal(self) -> str:
        """The words in which the model declined, if it did."""
        parts = [part for item in self.response.output for part in parts_of(item)]
        return join_halves("".join(string_of(part, "refusal") for part in parts))

    @property
    def is_refused(self) -> bool:
        """Whether the model declined."""
        return bool(self.refusal)

    @property
    def degraded(self) -> tuple[str, ...]:
        """What was asked for and not honoured, as an antiphon gateway reports it."""
        notes = self.response.antiphon
        return notes.degraded if isinstance(notes, Notes) else ()

    def to_dict(self) -> dict[str, Any]:
        """Return the whole response as JSON can hold it, for an application's own log."""
        return response_object(self.response)


def spoken_text(item: Item) -> str:
    """Return the text of a message, refusals included, in the order of its parts.

    Reasoning that a server put into a message is left out.
    """
    if string_of(item, "type") != "message":
        return ""
    content = item.get("content")
    if isinstance(content, list):
        content = [part for part in parts_of(item) if part.get("type") != "reasoning_text"]
    return join_halves(substance(content))


def thought_text(item: Item, field: str) -> str:
    """Return the text of a reasoning item in its `summary` or its `content`.

    The parts of a summary are paragraphs, often with a heading: a blank line parts them.
    """
    value = item.get(field)
    if field != "summary" or not isinstance(value, list):
        return join_halves(substance(value))
    return join_halves(SUMMARY_BREAK.join(filter(None, (substance([part]) for part in value))))


def parts_of(item: Item) -> list[dict[str, Any]]:
    """Return the content parts of a message; none of anything else."""
    content = item.get("content")
    if string_of(item, "type") != "message" or not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict)]


def notes_of(item: Item) -> list[dict[str, Any]]:
    """Return the annotations of a message, those of all its parts."""
    lists = [part.get("annotations") for part in parts_of(item)]
    return [
        note
        for notes in lists
        if isinstance(notes, list)
        for note in notes
        if isinstance(note, dict)
    ]
