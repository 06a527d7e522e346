"""Which answer of the gateway does a conversation continue?

The last part of an answer carries the id of its response, the address of the gateway, and a
fingerprint of the conversation up to there. llm keeps that with the part, also from one command to
the next. If the conversation that is sent begins with what the fingerprint was made of, the gateway
is asked to continue from that response, and only what is new travels. In any other case, such as
an edited history or another gateway, all of it is sent. A gateway that has lost the response is
sent all of it by the client.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import llm
from llm import parts as own

from llm_antiphon.messages import notes_of
from llm_antiphon.server import base_url

__all__ = ["find_thread", "mark_thread"]


def mark_thread(response_id: str, conversation: Sequence[llm.Message]) -> dict[str, str]:
    """Return what to note on the last part of an answer, which is the last message here."""
    return {"id": response_id, "server": base_url(), "conversation": _fingerprint(conversation)}


def find_thread(conversation: Sequence[llm.Message]) -> str | None:
    """Return the id of the response that the new messages follow; None: send everything."""
    spoken = [n for n, message in enumerate(conversation) if message.role == "assistant"]
    if not spoken or spoken[-1] == len(conversation) - 1:
        return None
    known = conversation[: spoken[-1] + 1]
    for part in known[-1].parts:
        mark = notes_of(part).get("thread")
        if isinstance(mark, dict) and mark == mark_thread(str(mark.get("id")), known):
            return str(mark["id"])
    return None


def _fingerprint(conversation: Sequence[llm.Message]) -> str:
    known = [_substance(message) for message in conversation]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode("utf-8")).hexdigest()


def _substance(message: llm.Message) -> list[Any]:
    """Return the content of a message, however its text is cut. Reasoning is not counted."""
    text = "".join(part.text for part in message.parts if isinstance(part, own.TextPart))
    return [message.role, text, [made for part in message.parts if (made := _extra(part))]]


def _extra(part: own.Part) -> list[Any] | None:
    match part:
        case own.ToolCallPart(server_executed=False):
            return ["call", part.tool_call_id, part.name, part.arguments]
        case own.ToolResultPart(server_executed=False):
            attached = [attachment.id() for attachment in part.attachments]
            return ["result", part.tool_call_id, part.output, attached]
        case own.AttachmentPart(attachment=llm.Attachment() as attachment):
            return ["attachment", attachment.id()]
        case _:
            return None
