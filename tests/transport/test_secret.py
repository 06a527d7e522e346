"""A secret does not show itself."""

from __future__ import annotations

import pickle

import pytest

from antiphon.transport.secret import Secret


def test_it_prints_as_stars_everywhere() -> None:
    secret = Secret("sk-abc")
    assert [repr(secret), str(secret), f"{secret}", f"{[secret]}"] == ["***", "***", "***", "[***]"]


def test_it_is_revealed_on_request_without_the_space_around_it() -> None:
    assert Secret(" sk-abc\n").reveal() == "sk-abc"


def test_it_is_cut_out_of_foreign_text() -> None:
    assert Secret("sk-abcde").redact("wrong key sk-abcde!") == "wrong key ***!"


@pytest.mark.parametrize("key", ["k", "EMPTY", "sk-abcd"])
def test_a_key_that_may_stand_in_any_word_is_left_there(key: str) -> None:
    text = f"check the base URL: {key}"
    assert Secret(key).redact(text) == text


def test_two_of_the_same_value_are_equal() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


@pytest.mark.parametrize("value", ["", "  ", "a\r\nb: c", "schlüssel"])
def test_what_cannot_stand_in_a_header_is_refused_unseen(value: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        Secret(value)
    assert not value.strip() or value not in str(caught.value)


def test_it_cannot_be_pickled() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret("a"))
