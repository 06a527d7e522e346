"""Messages about PostgreSQL's errors: what to do, and nothing secret."""

from __future__ import annotations

import asyncpg
import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.postgres.errors import concerns_all, is_away, is_broken, unavailable


def server_error(state: str) -> asyncpg.PostgresError:
    return asyncpg.PostgresError.new({"C": state, "M": "for user ada with hush"})


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (server_error("28P01"), "refuses the user or the password"),
        (server_error("3D000"), "no database of this name"),
        (server_error("3F000"), "no schema of this name; make it with CREATE SCHEMA"),
        (server_error("42501"), "grant it the right"),
        (server_error("25006"), "read-only"),
        (server_error("53300"), "no room left, or no connection"),
        (server_error("53100"), "there is no room left"),
        (server_error("57P03"), "going down or coming up"),
        (server_error("57014"), "did not answer in time; nothing was stored"),
        (server_error("40P01"), "too busy"),
        (server_error("22021"), r"refused it \(SQLSTATE 22021\)"),
        (ConnectionRefusedError(111, "ada@host"), "cannot be reached"),
        (TimeoutError("ada"), "did not answer in time; try again"),
        (asyncpg.InterfaceError("connection of ada is closed"), "cannot be reached"),
        (asyncpg.ConnectionDoesNotExistError("hush"), "connection to the database was lost"),
        (StoreUnavailable("said already"), "said already"),
        (RuntimeError("hush"), "failed with RuntimeError"),
    ],
)
def test_every_error_is_a_sentence_without_secrets(error: Exception, sentence: str) -> None:
    with pytest.raises(StoreUnavailable, match=sentence) as caught:
        raise unavailable(error)
    assert "ada" not in caught.value.message
    assert "hush" not in caught.value.message
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (server_error("57P01"), (True, True, True)),
        (server_error("40001"), (True, True, False)),
        (server_error("53100"), (False, False, True)),
        (server_error("23505"), (False, False, False)),
        (OSError(), (True, True, True)),
        (TimeoutError(), (False, True, True)),
        (asyncpg.InterfaceError("closed"), (True, True, True)),
        (asyncpg.InternalClientError("cannot switch to state 12"), (True, True, True)),
        # What we sent makes no sense: trying again, or with others, would not help.
        (asyncpg.DataError("odd"), (False, False, False)),
        (RuntimeError(), (False, False, False)),
    ],
)
def test_what_an_error_is_about(error: Exception, expected: tuple[bool, bool, bool]) -> None:
    assert (is_away(error), is_broken(error), concerns_all(error)) == expected
