"""Which part of an answer did a thought signature come in?

Gemini signs a part and refuses, or understands worse, a history in which the signature is in
another part or gone. A call has its own part. Texts and thoughts arrive in several parts that
become one text, so their signatures are kept with the places of the signed parts in it, counted in
characters from its end: a text that goes on after a pause has another beginning. Such a part may be
empty. The state travels sealed (`NativeState`), never in an id.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.deltas import NativeState

__all__ = ["DUMMY", "WIRE", "Signed", "SignedState", "read_state", "signed_texts", "write_state"]

WIRE: Final = "gemini"

DUMMY: Final = "skip_thought_signature_validator"
"""What the API documents for calls that another model has made."""


class Signed(msgspec.Struct, frozen=True, array_like=True):
    """A signed part of `size` characters with `behind` others after it. Of a call, both are 0."""

    size: int
    behind: int
    signature: str


class SignedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signatures of one item. `call_id` is the id that the model itself gave a call."""

    kind: Literal["text", "thought", "part"]
    parts: tuple[Signed, ...]
    call_id: str | None = None


_decode: Final = msgspec.json.Decoder(SignedState).decode


def write_state(
    state: SignedState, account: str, attach: Literal["next", "previous"] | None
) -> NativeState:
    """Return the delta that carries the signatures."""
    return NativeState(WIRE, msgspec.json.encode(state), attach, account)


def read_state(state: NativeState) -> SignedState | None:
    """Return the signatures, or None if they cannot be read."""
    try:
        return _decode(state.data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def signed_texts(text: str, state: SignedState | None) -> list[dict[str, Any]]:
    """Return the text as the parts that it came in, as far as they were signed."""
    if state is None:
        return [{"text": text}] if text else []
    parts: list[dict[str, Any]] = []
    done = 0
    for signed in state.parts:
        end = max(len(text) - signed.behind, done)
        start = max(end - signed.size, done)
        if start > done:
            parts.append({"text": text[done:start]})
        parts.append({"text": text[start:end], "thoughtSignature": signed.signature})
        done = end
    if done < len(text):
        parts.append({"text": text[done:]})
    return parts
