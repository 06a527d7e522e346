"""How servers that speak Messages differ, as data.

What a model takes is another question (`traits`). `generic` is for llama.cpp, vLLM, Ollama and any
other server that we know nothing about: it gets what the API has long had.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.wires.profiles import find_profile

__all__ = ["ANTHROPIC", "DATED", "GENERIC", "HOSTED", "PROFILES", "Profile", "profile_for"]

HOSTED: Final = frozenset({"web_search", "code_interpreter", "mcp"})
"""Kinds of tools of the Responses API that Anthropic has tools of its own for."""
DATED: Final = re.compile(r"[a-z][a-z_]*_20\d{6}")
"""The type of a tool of Anthropic's own."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of server takes, and how it wants it."""

    name: str
    key_header: str = "Authorization"
    service_tier: bool = False
    metadata: bool = False
    """Whether it wants to know the end user, for its own limits."""
    extra_fields: Mapping[str, str]
    """Fields beyond the Responses API that are passed on, and the beta that each needs."""
    continued_models: str = ""
    """A regular expression for the names of models that go on with an answer; empty for none."""
    caller_betas: tuple[str, ...] = ()
    """How the names of betas begin that a caller may turn on for its request."""


GENERIC: Final = Profile(name="generic", extra_fields={"top_k": ""})
ANTHROPIC: Final = Profile(
    name="anthropic",
    key_header="x-api-key",
    service_tier=True,
    metadata=True,
    extra_fields={
        "top_k": "",
        "cache_control": "",
        "container": "",
        "diagnostics": "",
        "inference_geo": "",
        "speed": "",
        "user_profile_id": "",
        "context_management": "context-management",
        "fallbacks": "fallback",
        "mcp_servers": "mcp-client",
    },
    # Up to Claude 4.5. Newer ones answer 400: they do not support assistant message prefill.
    continued_models=(r"claude-(?:3(?:[-.]\d)?-[a-z]+|[a-z]+-4(?:[-.][0-5])?(?![-.]?\d(?!\d{7})))"),
    # What they add to a request or an answer is understood here, and none raises the price.
    caller_betas=(
        "claude-code-",
        "context-management-",
        "effort-",
        "extended-cache-ttl-",
        "fine-grained-tool-streaming-",
        "interleaved-thinking-",
        "mid-conversation-system-",
        "prompt-caching-scope-",
        "thinking-token-count-",
    ),
)
PROFILES: Final = {profile.name: profile for profile in (ANTHROPIC, GENERIC)}
_PLACES: Final = {"api.anthropic.com": "anthropic"}


def profile_for(which: str) -> Profile:
    """Return the profile of a name or of a base URL; the generic one for a URL we do not know.

    Raise UnknownProfile for a name that there is no profile of.
    """
    return find_profile(which, PROFILES, _PLACES)
