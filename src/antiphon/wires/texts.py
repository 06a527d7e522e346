"""Which fields does a part of the Responses API have, and which one holds its text?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from antiphon.protocol.items import Part

__all__ = ["PART_FIELDS", "TEXT_FIELDS", "unknown_fields"]

TEXT_FIELDS: Final[Mapping[str, str]] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
"""By the type of a part. A part of any other type is no text."""

PART_FIELDS: Final = frozenset(
    {
        *("type", "text", "refusal", "annotations", "logprobs", "cache_control"),
        *("image_url", "detail", "filename", "file_data", "file_url", "file_id"),
    }
)
"""What every wire reads of a part, or leaves out because it means nothing to a model."""


def unknown_fields(part: Part, known: Collection[str], where: str) -> Iterator[str]:
    """Yield the fields of a part that are not known, as a report calls them."""
    return (f"{where}.{name}" for name, value in part.items() if value and name not in known)
