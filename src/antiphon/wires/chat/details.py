"""What do OpenRouter's `reasoning_details` hold beside the text in `reasoning`?

The text of a detail is carried when the answer has no `reasoning` text: servers put the same
words into both. A summary is carried as a summary. Encrypted reasoning and signatures belong
to the provider that made them and are not carried. What is left out is reported, each kind
once for an answer.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from antiphon.protocol.deltas import Reported

__all__ = ["DetailPiece", "DetailReader"]

DetailPiece = tuple[Literal["reasoning", "summary"], str]

_MAX_SHOWN: Final = 100
# Entries of these types may be empty: the first and the last of a stream often are.
_KNOWN: Final = frozenset({"reasoning.text", "reasoning.summary", "reasoning.encrypted"})
_ENCRYPTED: Final = "encrypted reasoning is not carried"
_SIGNED: Final = "signatures of reasoning are not carried"
_LATE: Final = "text that came apart from `reasoning` is left out: it may repeat it"


class DetailReader:
    """Reads the details of one answer."""

    def __init__(self) -> None:
        self._has_plain = False
        self._reported: set[str] = set()

    def note_plain(self) -> None:
        """Note that reasoning came under its usual name."""
        self._has_plain = True

    def read(self, details: object, *, is_said: bool) -> tuple[list[DetailPiece], list[Reported]]:
        """Return the text to carry, and a report of the rest.

        `is_said`: the same chunk has the text under its usual name.
        """
        pieces: list[DetailPiece] = []
        lost: list[str] = []
        for detail in details if isinstance(details, list) else [details]:
            piece = _piece(detail)
            if piece is not None and not self._has_plain:
                pieces.append(piece)
            elif piece is not None and not is_said:
                lost.append(_LATE)
            lost += _lost(detail, is_text=piece is not None)
        return pieces, self._report(lost)

    def _report(self, lost: list[str]) -> list[Reported]:
        new = [what for what in dict.fromkeys(lost) if what not in self._reported]
        self._reported.update(new)
        return [Reported(f"reasoning_details: {what}") for what in new]


def _piece(detail: Any) -> DetailPiece | None:  # Any: JSON of a server
    if not isinstance(detail, dict):
        return None
    text, summary = detail.get("text"), detail.get("summary")
    if isinstance(text, str) and text:
        return "reasoning", text
    return ("summary", summary) if isinstance(summary, str) and summary else None


def _lost(detail: Any, *, is_text: bool) -> list[str]:  # Any: JSON of a server
    if not isinstance(detail, dict):
        return ["an entry is no object, and is left out"]
    lost = [_SIGNED] if detail.get("signature") else []
    if detail.get("data"):
        lost.append(_ENCRYPTED)
    kind = detail.get("type")
    if not is_text and not lost and kind not in _KNOWN:
        lost.append(f"an entry of the type '{str(kind)[:_MAX_SHOWN]}' is left out")
    return lost
