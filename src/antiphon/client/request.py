"""The body of one call, built from its keywords.

`build_request` decides everything that can be decided without the cache: what is asked
(exactly one of `input`, `messages` and `prompt`), where each parameter goes, and whether the
tools may be sent. What the server already knows is taken out later, by `continuation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.client.errors import AmbiguousInput, BadCall, MissingInput
from antiphon.client.messages import items_from_input, items_from_messages
from antiphon.client.parameters import place_parameters
from antiphon.client.tool_limits import ToolLimits, prepare_tools
from antiphon.protocol.items import Item

__all__ = ["Request", "build_request", "read_items"]

_LIMITS: Final = ToolLimits()
_NOTHING: Final = "there is nothing to answer: give input, messages or prompt"


class Request(msgspec.Struct, frozen=True):
    """One call, checked. `body` is JSON without `stream`; `items` is its input as items."""

    body: dict[str, Any]
    items: list[Item]
    is_history: bool
    """The input came as `messages`: it is the whole conversation."""
    session: str | None = None
    is_stateful: bool = True


def build_request(params: Mapping[str, Any], limits: ToolLimits = _LIMITS) -> Request:
    """Return the request that the keywords make. Raise a BadCall that says what is wrong."""
    body = place_parameters(params)
    if "conversation" in body and "previous_response_id" in body:
        raise BadCall(
            "a conversation and previous_response_id cannot both be continued; give one",
            param="previous_response_id",
        )
    if "tools" in body:
        body["tools"] = prepare_tools(body["tools"], limits)
    items = read_items(params)
    if isinstance(params.get("prompt"), Mapping):
        body["prompt"] = dict(params["prompt"])
    if items:
        body["input"] = params["input"] if isinstance(params.get("input"), str) else items
    return Request(
        body=body,
        items=items,
        is_history=params.get("messages") is not None,
        session=_session(params.get("session")),
        is_stateful=params.get("stateful") is not False,
    )


def read_items(params: Mapping[str, Any]) -> list[Item]:
    """Return what is asked, as items: none only where a stored template asks."""
    prompt = params.get("prompt")
    if prompt is not None and not isinstance(prompt, str | Mapping):
        raise BadCall("prompt must be a string, or a stored template as a dict", param="prompt")
    names = [name for name in ("input", "messages") if params.get(name) is not None]
    if isinstance(prompt, str):
        names.append("prompt")
    if len(names) > 1:
        raise AmbiguousInput(names)
    items: list[Item] = []
    if "messages" in names:
        items = items_from_messages(params["messages"])
    elif names:
        items = items_from_input(params[names[0]])
    if not items and not (isinstance(prompt, Mapping) and prompt):
        raise MissingInput(_NOTHING, param="input")
    return items


def _session(given: Any) -> str | None:
    if given is None or (isinstance(given, str) and given):
        return given
    raise BadCall("session must be a string that is not empty", param="session")
