"""What does a caller mean by a parameter that the Responses API does not have?

A name of chat completions has another name here, and a misspelt name is near one that is known.
The answer is a hint for a report: nothing is renamed, because a guess must not change a request.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from antiphon.protocol.request import PARAMETERS

__all__ = ["explain_unknown"]

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
    near = get_close_matches(name, sorted(known), 1, _NEAR) if len(name) <= _MAX_NAME else []
    return (
        f"unknown parameter; did you mean {near[0]}?" if near else f"unknown parameter; {_CANNOT}"
    )
