"""Is a request one that Google's own types accept? They refuse fields that they do not know."""

from __future__ import annotations

import json
from typing import Any

from google.genai import types
from pydantic import TypeAdapter

from antiphon.plans.plan import Plan
from antiphon.wires.gemini.exchange import GeminiExchange
from antiphon.wires.gemini.profiles import PROFILES, Profile

__all__ = ["GEMINI", "VERTEX", "judge", "request"]

GEMINI = PROFILES["gemini"]
VERTEX = PROFILES["vertex"]
_SECTIONS: dict[str, Any] = {
    "contents": list[types.Content],
    "systemInstruction": types.Content,
    "tools": list[types.Tool],
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
    "safetySettings": list[types.SafetySetting],
    "serviceTier": types.ServiceTier,
    "labels": dict[str, str],
    "continuationToken": str,
}


def judge(body: dict[str, Any]) -> None:
    """Raise an error for a body that the service could not read."""
    for name, value in body.items():
        TypeAdapter(_SECTIONS[name]).validate_python(value)
    roles = [content["role"] for content in body["contents"]]
    assert roles[0] == "user"
    assert all(content["parts"] for content in body["contents"])


def request(
    plan: Plan, profile: Profile = GEMINI, account: str = "me"
) -> tuple[dict[str, Any], list[str]]:
    """Return the body for a plan, which the vendor's types accept, and the report."""
    exchange = GeminiExchange(plan, profile, account)
    body: dict[str, Any] = json.loads(exchange.body)
    judge(body)
    return body, [*exchange.degraded]
