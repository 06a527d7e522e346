"""Ask a chat server how many tokens a request is, without running it.

There is no standard way: `template` renders the prompt with `/apply-template` and counts it
with `/tokenize`, as llama.cpp has them; `messages` gives the messages to `/tokenize`, as vLLM
has it. Both stand beside `/v1`. The answer is None whenever it would not be the very figure
that the usage reports: with pictures, or from a server that does not know the way.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.transport.http import HttpClient
from antiphon.wires.chat.profiles import Profile

__all__ = ["count_prompt"]

_PATIENCE: Final = 10.0

# A chat-completions object: Any is what JSON holds.
Json = dict[str, Any]


async def count_prompt(
    client: HttpClient, base_url: str, body: Json, profile: Profile
) -> int | None:
    """Return the tokens of a chat request's prompt, or None if they cannot be counted."""
    if profile.counts_by == "none" or _has_attachments(body["messages"]):
        return None
    root = base_url.rstrip("/").removesuffix("/v1")
    count = _count_template if profile.counts_by == "template" else _count_messages
    try:
        async with asyncio.timeout(_PATIENCE):
            return await count(client, root, body)
    except TimeoutError:
        return None


async def _count_template(client: HttpClient, root: str, body: Json) -> int | None:
    rendered = await _post(client, f"{root}/apply-template", body)
    prompt = rendered.get("prompt")
    if not isinstance(prompt, str):
        return None
    # As the server itself does it with a prompt that it is to run.
    asked = {"content": prompt, "add_special": True, "parse_special": True}
    tokens = (await _post(client, f"{root}/tokenize", asked)).get("tokens")
    return len(tokens) if isinstance(tokens, list) else None


async def _count_messages(client: HttpClient, root: str, body: Json) -> int | None:
    if "reasoning_effort" in body:
        return None  # it changes the prompt of some models, and /tokenize does not take it
    fields = ("model", "messages", "tools", "chat_template_kwargs")
    asked = {name: body[name] for name in fields if name in body}
    count = (await _post(client, f"{root}/tokenize", asked)).get("count")
    return count if isinstance(count, int) else None


async def _post(client: HttpClient, url: str, body: Json) -> Json:
    """Return the object that the server answers with; nothing if it has no such answer."""
    reply = await client.fetch("POST", url, body=msgspec.json.encode(body))
    value = decode_json(reply.body) if reply.head.status == 200 else None
    return value if isinstance(value, dict) else {}


def _has_attachments(messages: list[Json]) -> bool:
    return any(
        isinstance(content := message.get("content"), list)
        and any(part.get("type") != "text" for part in content)
        for message in messages
    )
