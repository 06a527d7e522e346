"""Sealed texts: a caller carries them for us, and only we can read them.

    text = base64url( version | key id | nonce | AES-256-GCM of the data )

Every owner has a key of their own, derived from ours, and owner and kind are bound to the
text: what one owner was given, or for one purpose, opens for no other. The first key seals and
all of them open, so a key is replaced by putting a new one in front and dropping the old one
when its texts are no longer wanted. A text that does not open is not ours.

`cryptography` is an extra and imported when it is first needed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import importlib.util
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from antiphon.store.base import Keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["HOW_TO", "KEY_BYTES", "Sealer", "can_seal", "new_key", "open_sealer", "read_keys"]

HOW_TO: Final = "sealing needs `pip install '.[seal]'` in antiphon's directory"
KEY_BYTES: Final = 32
MAX_KEYS: Final = 16

_VERSION: Final = b"\x01"
_KEY_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD_BYTES: Final = len(_VERSION) + _KEY_ID_BYTES
_HEAD_CHARS: Final = 8  # of base64, which are a byte more than the head
_NAME: Final = "seal"
# Deriving a key takes microseconds, so it is not worth remembering many owners.
_MAX_CIPHERS: Final = 256


class Sealer:
    """Seals for an owner and a kind of thing, and opens what it sealed.

    Needs `cryptography`; `open_sealer` looks whether it is there.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a sealer needs keys of {KEY_BYTES} bytes")
        # The same key id twice is as good as impossible; the first one then wins.
        self._keys = {_key_id(key): key for key in reversed(keys)}
        self._first = _key_id(keys[0])
        self._ciphers: dict[tuple[bytes, str], AESGCM] = {}

    def seal(self, owner: str, kind: str, data: bytes) -> str:
        """Return the data as a text that only this owner can have opened, as this kind."""
        head = _VERSION + self._first
        nonce = os.urandom(_NONCE_BYTES)
        body = self._cipher(self._first, owner).encrypt(nonce, data, _bound(head, owner, kind))
        return base64.urlsafe_b64encode(head + nonce + body).decode().rstrip("=")

    def open(self, owner: str, kind: str, text: str) -> bytes | None:
        """Return what was sealed, or None: foreign, another owner's or kind's, or damaged."""
        from cryptography.exceptions import InvalidTag

        head = _decode(text[:_HEAD_CHARS])[:_HEAD_BYTES]
        key_id = head[len(_VERSION) :]
        if not head.startswith(_VERSION) or key_id not in self._keys:
            return None  # before the rest is read: foreign texts may be long
        raw = _decode(text)
        if len(raw) < _HEAD_BYTES + _NONCE_BYTES + _TAG_BYTES:
            return None
        nonce = raw[_HEAD_BYTES : _HEAD_BYTES + _NONCE_BYTES]
        try:
            return self._cipher(key_id, owner).decrypt(
                nonce, raw[_HEAD_BYTES + _NONCE_BYTES :], _bound(head, owner, kind)
            )
        except InvalidTag:
            return None

    def _cipher(self, key_id: bytes, owner: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher = self._ciphers.get((key_id, owner))
        if cipher is None:
            if len(self._ciphers) >= _MAX_CIPHERS:
                self._ciphers.clear()
            cipher = AESGCM(_derive(self._keys[key_id], b"owner", owner.encode()))
            self._ciphers[key_id, owner] = cipher
        return cipher


def can_seal() -> bool:
    """Return whether `cryptography` is installed."""
    return importlib.util.find_spec("cryptography") is not None


def new_key() -> str:
    """Return a fresh key in the form that `read_keys` takes."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


def read_keys(text: str) -> list[bytes]:
    """Return the keys of a text in which commas separate them.

    Raise ValueError, which names the key and the fault but never shows the key.
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) > MAX_KEYS:
        raise ValueError(f"there are more than {MAX_KEYS} keys")
    return [_read_key(word, number) for number, word in enumerate(words, 1)]


async def open_sealer(store: Keys, keys: Sequence[bytes] = ()) -> Sealer | None:
    """Return a sealer, or None if `cryptography` is missing.

    Without keys there is one in the store, made when it is first asked for: it survives
    restarts, and processes that share the store share it.
    """
    if not can_seal():
        return None
    return Sealer(keys or [await store.secret(_NAME, os.urandom(KEY_BYTES))])


def _read_key(word: str, number: int) -> bytes:
    if not word:
        raise ValueError(f"key {number} is empty")
    if re.fullmatch(r"[0-9a-fA-F]{64}", word):
        return bytes.fromhex(word)
    key = _decode(word)
    if len(key) != KEY_BYTES:
        raise ValueError(f"key {number} is not {KEY_BYTES} bytes in base64 or hex")
    return key


def _decode(text: str) -> bytes:
    """Return the bytes of base64 in either alphabet, with or without padding; none if it is not."""
    bare = text.rstrip("=")
    try:
        data = bare.encode("ascii").translate(_PLAIN_ALPHABET) + b"=" * (-len(bare) % 4)
        return base64.b64decode(data, validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""


_PLAIN_ALPHABET: Final = bytes.maketrans(b"-_", b"+/")


def _key_id(key: bytes) -> bytes:
    return _derive(key, b"id", b"")[:_KEY_ID_BYTES]


def _derive(key: bytes, purpose: bytes, name: bytes) -> bytes:
    return hmac.digest(key, b"antiphon seal 1\0" + purpose + b"\0" + name, hashlib.sha256)


def _bound(head: bytes, owner: str, kind: str) -> bytes:
    """Return what is bound to a text: kinds hold no NUL, so no two pairs read alike."""
    return head + kind.encode() + b"\0" + owner.encode()
