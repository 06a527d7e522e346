"""With which variables does Claude Code use a gateway? For `antiphon run` and `antiphon connect`.

Every name that Claude Code has for a model means the same one, because it also asks for other
models: for titles, and for agents below the agent. It assumes 200,000 tokens for a model that it
does not know, so the window is set where it is known. The header about the account is left out,
since it would change the beginning of each prompt.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LOGINS", "gateway_variables"]

LOGINS: Final = (
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
)
"""Variables that would send it elsewhere, or send a key of the user along."""
_FAMILIES: Final = ("FABLE", "OPUS", "SONNET", "HAIKU")
_MAX_OUTPUT: Final = 32_000


def gateway_variables(base_url: str, model: str, window: int | None) -> dict[str, str]:
    """Return the variables, without the one for the key. `base_url` ends in /v1."""
    found = {
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_MODEL": model,
        **{f"ANTHROPIC_DEFAULT_{family}_MODEL": model for family in _FAMILIES},
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if window is not None:
        found["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(window)
        found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(window)
        found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(min(_MAX_OUTPUT, window // 4))
    return found
