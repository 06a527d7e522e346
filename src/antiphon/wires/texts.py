"""Which field of a part of the Responses API holds its text?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXT_FIELDS"]

TEXT_FIELDS: Final[Mapping[str, str]] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
"""By the type of a part. A part of any other type is no text."""
