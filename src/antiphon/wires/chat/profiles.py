"""How chat servers differ, as data.

A profile lists what a server takes; no code branches on a server's name. What a server does not
take is reported as degraded, never dropped in silence. `generic` is for a server we know
nothing about: it gets what the chat API has long had and most servers honour.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from antiphon.plans.capabilities import Capabilities
from antiphon.wires.profiles import find_profile

__all__ = ["GENERIC", "PROFILES", "Profile", "capabilities_of", "profile_for"]

_COMMON: Final = frozenset({"seed", "stop", "logit_bias", "user"})
_SAMPLERS: Final = _COMMON | {"top_k", "min_p"}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of chat server takes, and how it wants it."""

    name: str
    max_tokens_field: str = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    merges_system: bool = True
    """Whether instructions and leading system messages become one message, the first."""
    late_system_role: Literal["system", "developer", "user"] = "system"
    """The role of a system message after the conversation has begun."""
    images: bool = True
    files: bool = False
    """Whether there is a `file` part for what is not text."""
    reasoning_replay: Literal["none", "reasoning_content", "reasoning"] = "none"
    """The field of an assistant message that takes the reasoning of earlier turns."""
    reasoning_effort: bool = True
    json_schema: bool = True
    strict_tools: bool = True
    enforces_required: bool = True
    """Whether `tool_choice` "required", or a named tool, binds the model."""
    enforces_strict: bool = False
    """Whether the arguments of a strict function always match its schema."""
    grammar: Literal["none", "gbnf", "structured_outputs"] = "none"
    """How a text is bound to a grammar, if it can be."""
    parallel_tool_calls: bool = True
    logprobs: bool = True
    verbosity: bool = False
    service_tier: bool = False
    stream_options: bool = True
    penalties: bool = True
    think_tags: bool = True
    """Whether an answer may begin with `<think>` that the server leaves in the text."""
    text_calls: bool = True
    """Whether the server may leave a tool call in the text (see `chat.recover`)."""
    continues: Literal["no", "last_message", "continue_final_message", "prefix"] = "no"
    """How the server is asked to go on with a text: by a last message of the assistant, which some
    servers want to be told by a field of the body or of the message."""
    counts_by: Literal["none", "template", "messages"] = "none"
    """How the server counts a prompt without running it (see `chat.counting`)."""
    extra_fields: frozenset[str] = _SAMPLERS | {"repetition_penalty"}
    """Fields beyond the Responses API that are passed on."""
    seed_field: str = "seed"
    """What the server calls the seed."""


GENERIC: Final = Profile(name="generic")

PROFILES: Final = {
    profile.name: profile
    for profile in (
        GENERIC,
        Profile(
            name="openai",
            text_calls=False,
            max_tokens_field="max_completion_tokens",
            enforces_strict=True,
            system_role="developer",
            late_system_role="developer",
            files=True,
            verbosity=True,
            service_tier=True,
            think_tags=False,
            extra_fields=_COMMON
            | {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "prediction"},
        ),
        Profile(
            name="vllm",
            continues="continue_final_message",
            grammar="structured_outputs",
            reasoning_replay="reasoning",
            counts_by="messages",
            extra_fields=_SAMPLERS
            | {
                "chat_template_kwargs",
                "ignore_eos",
                "length_penalty",
                "min_tokens",
                "repetition_penalty",
                "stop_token_ids",
                "structured_outputs",
                "thinking_token_budget",
            },
        ),
        Profile(
            name="llamacpp",
            continues="last_message",
            grammar="gbnf",
            reasoning_replay="reasoning_content",
            reasoning_effort=False,
            strict_tools=False,
            counts_by="template",
            # A template without tools drops them, and nothing else makes the model obey.
            enforces_required=False,
            extra_fields=_SAMPLERS
            | {
                "cache_prompt",
                "chat_template_kwargs",
                "grammar",
                "id_slot",
                "mirostat",
                "reasoning_format",
                "repeat_penalty",
                "typical_p",
            },
        ),
        Profile(
            name="sglang",
            continues="continue_final_message",
            reasoning_replay="reasoning_content",
            extra_fields=_SAMPLERS
            | {"chat_template_kwargs", "ignore_eos", "min_tokens", "repetition_penalty"},
        ),
        Profile(
            name="ollama",
            reasoning_replay="reasoning",
            strict_tools=False,
            enforces_required=False,
            parallel_tool_calls=False,
            # It ignores logit_bias without an error, so that is reported instead of sent.
            extra_fields=_COMMON - {"logit_bias"},
        ),
        Profile(
            name="deepseek",
            continues="prefix",
            text_calls=False,
            images=False,
            reasoning_replay="reasoning_content",
            reasoning_effort=False,
            json_schema=False,
            strict_tools=False,
            parallel_tool_calls=False,
            extra_fields=frozenset({"stop", "thinking"}),
        ),
        Profile(
            name="mistral",
            continues="prefix",
            text_calls=False,
            reasoning_effort=False,
            logprobs=False,
            stream_options=False,
            seed_field="random_seed",
            extra_fields=frozenset({"stop", "seed", "random_seed", "safe_prompt", "prompt_mode"}),
        ),
        Profile(
            name="openrouter",
            text_calls=False,
            files=True,
            reasoning_replay="reasoning",
            verbosity=True,
            extra_fields=_SAMPLERS
            | {"repetition_penalty", "provider", "models", "plugins", "transforms", "top_a"}
            # Its models make images only if they are asked to.
            | {"modalities", "image_config"},
        ),
        Profile(
            name="groq",
            text_calls=False,
            service_tier=True,
            images=True,
            # It answers 400 to logprobs and logit_bias.
            logprobs=False,
            extra_fields=_COMMON - {"logit_bias"},
        ),
    )
}

_PLACES: Final = {
    "api.openai.com": "openai",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral",
    "openrouter.ai": "openrouter",
    "api.groq.com": "groq",
    ":11434": "ollama",
}


def capabilities_of(profile: Profile) -> Capabilities:
    """Return what a server of this profile does by itself."""
    enforced = {"format": profile.json_schema, "arguments": profile.enforces_strict}
    taken = {"image": profile.images, "file": profile.files}
    return Capabilities(
        enforces=frozenset(what for what, is_so in enforced.items() if is_so),
        parts=frozenset(what for what, is_so in taken.items() if is_so),
        counts=True,
        continues=profile.continues != "no",
    )


def profile_for(which: str | None) -> Profile:
    """Return the profile of a name or of a base URL; the generic one for a URL we do not know.

    Raise UnknownProfile for a name that there is no profile of.
    """
    return GENERIC if which is None else find_profile(which, PROFILES, _PLACES)
