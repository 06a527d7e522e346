"""What went wrong, as llm's own errors: its commands print their sentence and no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import llm

from llm_antiphon.server import KEY_ALIAS, KEY_VARIABLE, base_url

__all__ = ["as_llm_errors"]


@contextmanager
def as_llm_errors() -> Iterator[None]:
    """Raise antiphon's errors as those of llm."""
    from antiphon import AntiphonError

    try:
        yield
    except AntiphonError as error:
        raise _translate(error) from error


def _translate(error: Exception) -> llm.ModelError:
    from antiphon.client.errors import AuthFailed, ServerUnreachable

    where = f"the gateway at {base_url()}"
    match error:
        case AuthFailed():
            return llm.NeedsKeyException(
                f"{where} does not accept the key: {error}. Set one with "
                f"'llm keys set {KEY_ALIAS}' or in {KEY_VARIABLE}"
            )
        case ServerUnreachable():
            return llm.ModelError(
                f"{where} cannot be reached: {error}. Start it with 'antiphon serve', or set "
                "LLM_ANTIPHON_URL"
            )
        case _:
            return llm.ModelError(str(error))
