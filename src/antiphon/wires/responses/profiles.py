"""How servers of the Responses API differ, as data.

A profile lists what a server takes; no code branches on a server's name. What a server does not
take is reported as degraded, never dropped in silence. `generic` is for a server we know nothing
about: it gets what most servers of this API honour.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from antiphon.plans.capabilities import Capabilities
from antiphon.protocol.families import Kind
from antiphon.wires.profiles import find_profile

__all__ = [
    "GENERIC",
    "HOSTED",
    "PROFILES",
    "VENDOR",
    "Profile",
    "ToolKind",
    "capabilities_of",
    "profile_for",
]

ToolKind = Kind | Literal["namespace"]

_FUNCTIONS: Final[frozenset[ToolKind]] = frozenset({"function"})
_OPENAI_KINDS: Final[frozenset[ToolKind]] = frozenset(
    {"function", "custom", "namespace", "shell", "local_shell", "apply_patch"}
)
_OPENAI_HOSTED: Final = frozenset(
    {
        "web_search",
        "web_search_preview",
        "file_search",
        "code_interpreter",
        "image_generation",
        "mcp",
        "computer",
        "computer_use_preview",
    }
)
_OPENAI_FIELDS: Final = frozenset(
    {
        "max_tool_calls",
        "moderation",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
    }
)
# What may be asked for of tools that a server runs.
_SEEN: Final = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
_LOCAL_SAMPLERS: Final = frozenset({"seed", "stop", "top_k", "min_p", "logit_bias"})


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of Responses server takes, and how it wants it."""

    name: str
    key_header: str = "Authorization"
    kinds: frozenset[ToolKind] = _FUNCTIONS
    """Kinds of the caller's own tools that are passed as they are; others become functions."""
    hosted: frozenset[str] = frozenset()
    """Kinds of tools that the server runs itself."""
    parts: frozenset[str] = frozenset({"input_text", "input_image"})
    fields: frozenset[str] = frozenset()
    """Further request fields that are passed on."""
    reasoning: Literal["encrypted", "text"] = "encrypted"
    """How the reasoning of earlier turns is sent back: in the server's own cipher, or as text."""
    seals_text: bool = False
    """Whether `encrypted_content` holds plain reasoning text."""
    effort: bool = True
    summary: bool = True
    json_schema: bool = True
    enforces_format: bool = False
    enforces_strict: bool = False
    allowed_tools: bool = False
    parallel_tool_calls: bool = True
    verbosity: bool = False
    penalties: bool = False
    logprobs: bool = False
    service_tier: bool = False
    obfuscation: bool = False
    """Whether streams are padded unless the request declines that."""
    breakpoints: bool = False
    """Whether a part may mark what is to be cached."""
    completes_at_limit: bool = True
    """Whether an answer that was cut at the limit of tokens may be called completed."""
    counts: bool = False
    """Whether there is `/responses/input_tokens`."""


_OPENAI: Final = Profile(
    name="openai",
    kinds=_OPENAI_KINDS,
    hosted=_OPENAI_HOSTED,
    parts=frozenset({"input_text", "input_image", "input_file"}),
    fields=_OPENAI_FIELDS,
    enforces_format=True,
    enforces_strict=True,
    allowed_tools=True,
    verbosity=True,
    logprobs=True,
    service_tier=True,
    obfuscation=True,
    breakpoints=True,
    completes_at_limit=False,
    counts=True,
)

GENERIC: Final = Profile(name="generic", logprobs=True)

PROFILES: Final = {
    profile.name: profile
    for profile in (
        GENERIC,
        _OPENAI,
        msgspec.structs.replace(
            _OPENAI,
            name="azure",
            key_header="api-key",
            fields=_OPENAI_FIELDS - {"moderation", "prompt_cache_options"},
            breakpoints=False,
            counts=False,
        ),
        Profile(
            name="xai",
            hosted=frozenset({"web_search", "x_search", "code_interpreter", "file_search", "mcp"}),
            parts=frozenset({"input_text", "input_image", "input_file"}),
            fields=frozenset({"prompt_cache_key", "user"}),
            enforces_format=True,
            logprobs=True,
            completes_at_limit=False,
        ),
        Profile(
            name="openrouter",
            parts=frozenset({"input_text", "input_image", "input_file"}),
            fields=frozenset(
                {
                    "max_tool_calls",
                    "models",
                    "plugins",
                    "prompt_cache_key",
                    "provider",
                    "route",
                    "safety_identifier",
                    "session_id",
                    "top_k",
                    "user",
                }
            ),
            verbosity=True,
            penalties=True,
            logprobs=True,
            service_tier=True,
            completes_at_limit=False,
        ),
        Profile(
            name="copilot",
            kinds=frozenset({"function", "custom"}),
            enforces_format=True,
            verbosity=True,
            completes_at_limit=False,
        ),
        Profile(
            name="lmstudio",
            reasoning="text",
            logprobs=True,
            fields=frozenset({"seed", "top_k", "min_p", "repeat_penalty"}),
            parallel_tool_calls=False,
        ),
        Profile(
            name="llamacpp",
            reasoning="text",
            effort=False,
            summary=False,
            # `text.format` is read by none: the answer is checked here instead.
            json_schema=False,
            fields=_LOCAL_SAMPLERS | {"cache_prompt", "id_slot", "repeat_penalty"},
            penalties=True,
        ),
        Profile(
            name="vllm",
            reasoning="text",
            summary=False,
            enforces_format=True,
            logprobs=True,
            penalties=True,
            fields=frozenset(
                {
                    "chat_template_kwargs",
                    "max_tool_calls",
                    "min_p",
                    "priority",
                    "prompt_cache_key",
                    "repetition_penalty",
                    "seed",
                    "stop",
                    "top_k",
                    "user",
                }
            ),
        ),
        Profile(
            name="ollama",
            reasoning="text",
            seals_text=True,
            parallel_tool_calls=False,
        ),
    )
}

_PLACES: Final = {
    "api.openai.com": "openai",
    ".openai.azure.com": "azure",
    ".services.ai.azure.com": "azure",
    "api.x.ai": "xai",
    "openrouter.ai": "openrouter",
    ".githubcopilot.com": "copilot",
    ":1234": "lmstudio",
    ":11434": "ollama",
}


HOSTED: Final = frozenset(kind for profile in PROFILES.values() for kind in profile.hosted)
"""Kinds of tools that some server of this API runs itself."""
VENDOR: Final = re.compile(r"[a-z0-9_-]+:[a-z0-9_.-]+")
"""The type of a tool that one vendor alone has."""


_TAKEN: Final = {"input_image": ("image", "file_id"), "input_file": ("file",)}


def capabilities_of(profile: Profile, hosted: frozenset[str] | None = None) -> Capabilities:
    """Return what a server of this profile does by itself. `hosted` overrides its tools."""
    kinds = profile.hosted if hosted is None else hosted
    enforced = {
        "format": profile.json_schema and profile.enforces_format,
        "arguments": profile.enforces_strict,
    }
    return Capabilities(
        tool_kinds=kinds,
        enforces=frozenset(what for what, is_so in enforced.items() if is_so),
        includes=_SEEN if kinds else frozenset(),
        parts=frozenset().union(*(_TAKEN.get(part, ()) for part in profile.parts)),
        file_urls="https?:" if "input_file" in profile.parts else "",
        counts=profile.counts,
    )


def profile_for(which: str | None) -> Profile:
    """Return the profile of a name or of a base URL; the generic one for a URL we do not know.

    Raise UnknownProfile for a name that there is no profile of.
    """
    return GENERIC if which is None else find_profile(which, PROFILES, _PLACES)
