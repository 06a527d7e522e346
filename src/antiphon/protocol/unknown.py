"""What does a caller mean by a parameter that the Responses API does not have?

A name of chat completions has another name here, and a misspelt name is near one that is known.
The answer is a hint for a report: nothing is renamed, because a guess must not change a request.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from antiphon.protocol.request import PARAMETERS

__all__ = ["MOST_HINTS", "explain_unknown", "nearest_name"]

# Parameters of the API that this version does not read.
_UNREAD: Final = frozenset(
    {
        "access_programs",
        "image",
        "moderation",
        "prompt_cache_options",
        "prompt_cache_retention",
    }
)
_KNOWN: Final = PARAMETERS | _UNREAD
# What other APIs call a parameter, and what it is called here.
_HERE: Final = {
    "conversation_id": "conversation",
    "function_call": "tool_choice",
    "functions": "tools",
    "logprobs": "top_logprobs, and include with message.output_text.logprobs",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "system": "instructions",
    "verbosity": "text.verbosity",
    "web_search_options": "tools with web_search",
}
MOST_HINTS: Final = 16
"""To look for the nearest name takes its time: not for a body that is full of unknown ones."""
_NEAR: Final = 0.8
_MAX_NAME: Final = 64
_CANNOT: Final = "this backend cannot send it"


@lru_cache(256)
def explain_unknown(name: str, also_known: frozenset[str] = frozenset()) -> str:
    """Return why a parameter is not honoured, and what to use instead if that can be guessed.

    `also_known` are the names that some backend takes.
    """
    if name in _HERE:
        return f"unknown parameter; use {_HERE[name]}"
    known = _KNOWN | also_known
    if name in known:
        return _CANNOT
    near = nearest_name(name, known)
    return f"unknown parameter; did you mean {near}?" if near else f"unknown parameter; {_CANNOT}"


def nearest_name(name: str, known: frozenset[str]) -> str | None:
    """Return the known name that this one is a misspelling of, if there is one.

    Of a path, only the last step is compared, with the other names below the same object.
    """
    if len(name) > _MAX_NAME:
        return None
    parent, dot, last = name.rpartition(".")
    rivals = sorted(other for other in known if other.startswith(parent + dot))
    steps = [other.removeprefix(parent + dot) for other in rivals]
    near = get_close_matches(last, steps, 1, _NEAR)
    return parent + dot + near[0] if near else None
