"""Sealed texts: who can open them, and what shows from outside."""

from __future__ import annotations

import base64
import hmac
import importlib.util
from typing import Final

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.prepare.seal import KEY_BYTES, Sealer, new_key, open_sealer, read_keys
from antiphon.store.memory import MemoryStore

KEY: Final = bytes(range(KEY_BYTES))
OTHER: Final = bytes(reversed(range(KEY_BYTES)))
PLAIN: Final = b"the quick brown fox jumps over the lazy dog"


def raw_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@given(st.binary(max_size=200), st.text(max_size=20, alphabet="abcé-_. "), st.sampled_from("xy"))
def test_what_was_sealed_opens_for_its_owner_and_kind(data: bytes, owner: str, kind: str) -> None:
    sealer = Sealer([KEY])
    assert sealer.open(owner, kind, sealer.seal(owner, kind, data)) == data


def test_nothing_of_the_plain_text_shows() -> None:
    text = Sealer([KEY]).seal("alice", "reasoning", PLAIN)
    assert all(word not in raw_of(text) for word in PLAIN.split())
    assert b"alice" not in raw_of(text)
    assert text.replace("-", "").replace("_", "").isalnum()


def test_equal_data_gives_different_texts() -> None:
    sealer = Sealer([KEY])
    assert len({sealer.seal("alice", "reasoning", PLAIN) for _ in range(100)}) == 100


def test_another_owner_cannot_open_it() -> None:
    sealer = Sealer([KEY])
    text = sealer.seal("alice", "reasoning", PLAIN)
    assert sealer.open("bob", "reasoning", text) is None
    assert sealer.open("", "reasoning", text) is None


def test_each_owner_has_a_key_of_their_own() -> None:
    raw = raw_of(Sealer([KEY]).seal("alice", "reasoning", PLAIN))
    head, nonce, body = raw[:5], raw[5:17], raw[17:]
    bound = head + b"reasoning\0alice"
    key = hmac.digest(KEY, b"antiphon seal 1\0owner\0alice", "sha256")
    assert AESGCM(key).decrypt(nonce, body, bound) == PLAIN
    foreign = hmac.digest(KEY, b"antiphon seal 1\0owner\0bob", "sha256")
    with pytest.raises(InvalidTag):
        AESGCM(foreign).decrypt(nonce, body, bound)


def test_it_does_not_open_as_another_kind() -> None:
    sealer = Sealer([KEY])
    assert sealer.open("alice", "compaction", sealer.seal("alice", "reasoning", PLAIN)) is None


def test_owner_and_kind_cannot_be_shifted_into_each_other() -> None:
    sealer = Sealer([KEY])
    assert sealer.open("b", "xa", sealer.seal("ab", "x", PLAIN)) is None


def test_every_flipped_bit_is_noticed() -> None:
    sealer = Sealer([KEY])
    raw = raw_of(sealer.seal("alice", "reasoning", b"hi"))
    for place in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[place // 8] ^= 1 << place % 8
        text = base64.urlsafe_b64encode(changed).decode()
        assert sealer.open("alice", "reasoning", text) is None, place


@pytest.mark.parametrize("text", ["", "x", "gAAAAABpM0Yj-foreign", "é", "a b", "AQ==", "A" * 4096])
def test_a_foreign_text_opens_as_nothing(text: str) -> None:
    assert Sealer([KEY]).open("alice", "reasoning", text) is None


def test_a_shortened_text_opens_as_nothing() -> None:
    sealer = Sealer([KEY])
    text = sealer.seal("alice", "reasoning", PLAIN)
    assert all(sealer.open("alice", "reasoning", text[:end]) is None for end in range(len(text)))


def test_the_first_key_seals_and_all_open() -> None:
    old = Sealer([OTHER]).seal("alice", "reasoning", PLAIN)
    rotated = Sealer([KEY, OTHER])
    assert rotated.open("alice", "reasoning", old) == PLAIN
    new = rotated.seal("alice", "reasoning", PLAIN)
    assert Sealer([KEY]).open("alice", "reasoning", new) == PLAIN
    assert Sealer([OTHER]).open("alice", "reasoning", new) is None


def test_a_text_of_a_key_that_was_dropped_opens_as_nothing() -> None:
    text = Sealer([OTHER]).seal("alice", "reasoning", PLAIN)
    assert Sealer([KEY]).open("alice", "reasoning", text) is None


def test_many_owners_are_served_without_being_remembered() -> None:
    sealer = Sealer([KEY])
    texts = {f"owner{n}": sealer.seal(f"owner{n}", "reasoning", PLAIN) for n in range(600)}
    assert all(sealer.open(name, "reasoning", text) == PLAIN for name, text in texts.items())
    assert len(sealer._ciphers) <= 256


@pytest.mark.parametrize("keys", [[], [b"short"], [KEY, b""]])
def test_a_sealer_takes_only_whole_keys(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer(keys)


def test_keys_are_read_as_base64_and_as_hex() -> None:
    plain = base64.b64encode(KEY).decode()
    url = base64.urlsafe_b64encode(bytes([255] * 32)).decode().rstrip("=")
    assert read_keys(f"{plain}, {OTHER.hex()} ,{url}") == [KEY, OTHER, bytes([255] * 32)]
    assert len(read_keys(new_key())[0]) == KEY_BYTES


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "key 1 is empty"),
        (f"{KEY.hex()},", "key 2 is empty"),
        ("topsecret", "key 1 is not 32 bytes"),
        (f"{KEY.hex()},topsecret", "key 2 is not 32 bytes"),
        (",".join([KEY.hex()] * 17), "more than 16"),
    ],
)
def test_what_is_no_key_is_refused_without_showing_it(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        read_keys(text)
    assert "topsecret" not in str(caught.value)
    assert KEY.hex() not in str(caught.value)


async def test_without_keys_the_store_keeps_one() -> None:
    store = MemoryStore()
    one, two = await open_sealer(store), await open_sealer(store)
    assert one is not None
    assert two is not None
    assert two.open("alice", "reasoning", one.seal("alice", "reasoning", PLAIN)) == PLAIN


async def test_keys_that_are_set_win_over_the_one_in_the_store() -> None:
    sealer = await open_sealer(MemoryStore(), [KEY])
    assert sealer is not None
    text = sealer.seal("alice", "reasoning", PLAIN)
    assert Sealer([KEY]).open("alice", "reasoning", text) == PLAIN


async def test_without_cryptography_there_is_no_sealer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert await open_sealer(MemoryStore()) is None


def test_a_key_that_is_made_is_random() -> None:
    assert new_key() != new_key()
