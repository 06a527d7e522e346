"""Errors of the host: they carry the facts and say nothing of the content."""

from __future__ import annotations

import pytest

from antiphon.host.errors import (
    ChangedCall,
    DamagedText,
    HostError,
    MalformedCall,
    ResponseFailed,
    StreamCut,
    TurnCancelled,
    UnsupportedContent,
)
from antiphon.protocol.response import Response

RESPONSE = Response(id="resp_1")
ERRORS = [
    StreamCut(None),
    ResponseFailed("overloaded", "too much", RESPONSE),
    MalformedCall("call_1", "weather", "secret", why="it was cut off", response=RESPONSE),
    ChangedCall("call_1", "weather", told="secret", said="secrets", response=RESPONSE),
    TurnCancelled(None),
    DamagedText("secret", "secrets", RESPONSE),
    UnsupportedContent("stateful_marker"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_is_a_host_error_without_content_in_its_message(error: HostError) -> None:
    assert isinstance(error, HostError)
    assert error.code
    assert "secret" not in str(error)


def test_content_that_no_model_takes_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="stateful_marker"):
        raise UnsupportedContent("stateful_marker")


def test_a_failure_without_words_says_so() -> None:
    assert "no reason given" in str(ResponseFailed(None, "", None))
