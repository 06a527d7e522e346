"""How many tokens is a chat request? Asked from its server, without running it.

There is no standard way: `template` renders the prompt with `/apply-template` and counts it
with `/tokenize`, as llama.cpp has them; `messages` gives the messages to `/tokenize`, as vLLM
has it. Both stand beside `/v1`. The answer is None whenever it would not be the very figure
that the usage reports: with pictures, or from a server that does not know the way.
"""

from __future__ import annotations

from typing import Any

from antiphon.wires.chat.profiles import Profile
from antiphon.wires.wire import Post

__all__ = ["count_prompt"]

# A chat-completions object: Any is what JSON holds.
Json = dict[str, Any]


async def count_prompt(post: Post, body: Json, profile: Profile) -> int | None:
    """Return the tokens of a chat request's prompt, or None if they cannot be counted."""
    if _has_attachments(body["messages"]):
        return None
    match profile.counts_by:
        case "template":
            return await _count_template(post, body)
        case "messages":
            return await _count_messages(post, body)
        case "none":
            return None


async def _count_template(post: Post, body: Json) -> int | None:
    prompt = (await post("~/apply-template", body)).get("prompt")
    if not isinstance(prompt, str):
        return None
    # As the server itself does it with a prompt that it is to run.
    asked = {"content": prompt, "add_special": True, "parse_special": True}
    tokens = (await post("~/tokenize", asked)).get("tokens")
    return len(tokens) if isinstance(tokens, list) else None


async def _count_messages(post: Post, body: Json) -> int | None:
    if "reasoning_effort" in body:
        return None  # it changes the prompt of some models, and /tokenize does not take it
    fields = ("model", "messages", "tools", "chat_template_kwargs")
    asked = {name: body[name] for name in fields if name in body}
    count = (await post("~/tokenize", asked)).get("count")
    return count if isinstance(count, int) else None


def _has_attachments(messages: list[Json]) -> bool:
    return any(
        isinstance(content := message.get("content"), list)
        and any(part.get("type") != "text" for part in content)
        for message in messages
    )
