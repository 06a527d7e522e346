"""A plan as a request of the chat API.

Pure: a plan and a profile go in, a request body and a report come out. The report names every
field of the request that this server cannot honour, under its name in the Responses API, so the
request can be marked as degraded, or refused, before anything is sent. Labels that mean nothing
to a chat model (`id`, `status`, `phase`) are left out without a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.long_body import PIECE, LongBody
from antiphon.protocol.pieces import encode_long
from antiphon.protocol.response import MOST_NOTES
from antiphon.protocol.thread import Thread
from antiphon.protocol.tools import Tool, ToolPolicy
from antiphon.protocol.unknown import MOST_HINTS, explain_unknown
from antiphon.wires.chat.emulation import grammar_field
from antiphon.wires.chat.messages import ChatMessage, Written, write_messages, write_thread
from antiphon.wires.chat.profiles import PROFILES, Profile
from antiphon.wires.lower import functions_of

__all__ = ["encode_request", "names_in_text", "unenforced", "write_request"]

# JSON objects in the words of the chat API.
Body = dict[str, Any]

_NO_PARAMETERS: Final = {"type": "object", "properties": {}}
_ORDER: Final = "Answer only with JSON that matches this JSON Schema: "
_CANNOT: Final = "this backend cannot send it"
_ANY_EXTRA: Final = frozenset(name for one in PROFILES.values() for name in one.extra_fields) | {
    "n"
}
# Tiers that mean "as you like": leaving them out means the same.
_ANY_TIER: Final = frozenset({"auto", "default"})


def write_request(plan: Plan, profile: Profile) -> tuple[Body, list[str]]:
    """Return the body for POST /chat/completions, and what could not be sent."""
    messages, report = write_messages(plan.items, plan.toolbox, profile, _orders(plan, profile))
    messages += _begun(plan, profile)
    return _write_body(plan, profile, messages, report), report


def encode_request(plan: Plan, profile: Profile) -> tuple[bytes | LongBody, list[str]]:
    """Return the same as bytes: of a long thread, only what is new has to be written."""
    items, orders = plan.items, _orders(plan, profile)
    if isinstance(items, Thread) and items.is_long:
        messages, report = write_thread(items, plan.toolbox, profile, orders)
    else:
        written, report = write_messages(items, plan.toolbox, profile, orders)
        if not plan.is_large:
            written += _begun(plan, profile)
            body = _write_body(plan, profile, written, report)
            return msgspec.json.encode(_with_encoded_tools(plan, profile, body)), report
        # One by one: encoding all of them in one step would hold up every other thread.
        messages = Written([encode_long(message) for message in written], (), [])
    messages.rest.extend(map(msgspec.json.encode, _begun(plan, profile)))
    fields = _with_encoded_tools(plan, profile, _write_body(plan, profile, [], report))
    begin = msgspec.json.encode({"model": fields.pop("model")})[:-1] + b',"messages":['
    del fields["messages"]
    return _put_around(begin, messages, b"]," + msgspec.json.encode(fields)[1:]), report


def _put_around(begin: bytes, messages: Written, end: bytes) -> bytes | LongBody:
    """Return the messages between these bytes. Those that are settled are not copied if long."""
    first, settled, rest = messages
    if sum(map(len, settled)) >= PIECE:
        begin += b"".join([message + b"," for message in first])
        return LongBody(begin, settled, b",".join([b"", *rest]) + end)
    # Put together in one step: most of the bytes are copied only once.
    pieces = [*first, *([b"".join(settled)] if settled else ()), *rest] or [b""]
    pieces[0] = begin + pieces[0]
    pieces[-1] += end
    return b",".join(pieces)


def _write_body(
    plan: Plan, profile: Profile, messages: list[ChatMessage], report: list[str]
) -> Body:
    body: Body = {"model": plan.model, "messages": messages, "stream": plan.stream}
    if plan.stream and profile.stream_options:
        body["stream_options"] = {"include_usage": True}
    _put_tools(plan, profile, body, report)
    _put_format(plan.format, profile, body, report)
    _put_sampling(plan, profile, body, report)
    _put_hints(plan, profile, body, report)
    _put_extra(plan.extra, profile, body, report)
    if plan.prefix is not None and profile.continues == "continue_final_message":
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def _begun(plan: Plan, profile: Profile) -> list[ChatMessage]:
    """Return the message that holds the beginning of the answer, if there is one."""
    if plan.prefix is None:
        return []
    message: ChatMessage = {"role": "assistant", "content": plan.prefix}
    return [message | {"prefix": True}] if profile.continues == "prefix" else [message]


def _orders(plan: Plan, profile: Profile) -> list[str]:
    """Return the instructions that come before all messages."""
    orders = [plan.instructions] if plan.instructions else []
    if _must_tell_schema(plan.format, profile):
        orders.append(_ORDER + msgspec.json.encode((plan.format or {})["schema"]).decode())
    return orders


def _put_tools(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    functions = functions_of(plan)
    if not functions:
        return
    body["tools"] = plan.toolbox.derived.get(
        (_put_tools, profile.strict_tools),
        lambda: [{"type": "function", "function": _chat_tool(one, profile)} for one in functions],
    )
    choice = _tool_choice(plan.policy)
    if choice is not None:
        body["tool_choice"] = choice
    if plan.parallel_tool_calls is None:
        return
    if profile.parallel_tool_calls:
        body["parallel_tool_calls"] = plan.parallel_tool_calls
    elif not plan.parallel_tool_calls:
        report.append("parallel_tool_calls: this server may still call several at once")


def _with_encoded_tools(plan: Plan, profile: Profile, body: Body) -> Body:
    """Put the tools into the body as they were encoded before: often they are most of it."""
    tools = body.get("tools")
    if tools is not None:
        body["tools"] = plan.toolbox.derived.get(
            (_with_encoded_tools, profile.strict_tools),
            lambda: msgspec.Raw(msgspec.json.encode(tools)),
        )
    return body


def _chat_tool(tool: Tool, profile: Profile) -> Body:
    function: Body = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("parameters") or _NO_PARAMETERS
    if tool.get("strict") is not None and profile.strict_tools:
        function["strict"] = tool["strict"]
    return function


def _tool_choice(policy: ToolPolicy) -> str | Body | None:
    """Return tool_choice; all tools stay visible, and the turn suppresses what is not allowed."""
    if policy.mode == "required" and policy.allowed is not None and len(policy.allowed) == 1:
        return {"type": "function", "function": {"name": next(iter(policy.allowed))}}
    return None if policy.mode == "auto" else policy.mode


def _put_format(
    form: Mapping[str, Any] | None, profile: Profile, body: Body, report: list[str]
) -> None:
    if form is None:
        return
    kind = form.get("type")
    if kind == "json_schema" and profile.json_schema:
        fields = ("name", "description", "schema", "strict")
        given = {field: form[field] for field in fields if form.get(field) is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": given}
    elif kind in {"json_schema", "json_object"}:
        body["response_format"] = {"type": "json_object"}
    elif kind == "grammar" and (bound := grammar_field(dict(form), profile)) is not None:
        body |= bound
    else:
        report.append(f"text.format ({kind}): {_CANNOT}")


def _must_tell_schema(form: Mapping[str, Any] | None, profile: Profile) -> bool:
    """Return whether the schema must be written into the instructions."""
    return form is not None and form.get("type") == "json_schema" and not profile.json_schema


def names_in_text(plan: Plan, profile: Profile) -> dict[str, Any]:
    """Return the tools that a call left in the text may be of: name and schema of arguments."""
    if not profile.text_calls or plan.policy.mode == "none":
        return {}
    functions = functions_of(plan)
    if not functions:
        return {}
    return plan.toolbox.derived.get(
        names_in_text, lambda: {tool["name"]: tool.get("parameters") for tool in functions}
    )


def unenforced(plan: Plan, profile: Profile) -> list[str]:
    """Return what the server does not enforce, so that a caller who relies on it must check it."""
    found = []
    if functions_of(plan) and plan.policy.mode == "required" and not profile.enforces_required:
        found.append("tool_choice: this server does not force a tool call")
    if not profile.strict_tools:
        found += [
            f"{offer.where}.strict: this server does not hold arguments to the schema"
            for offer in plan.toolbox.offers
            if offer.tool.get("strict")
        ]
    if plan.format is None or plan.format.get("type") != "grammar":
        found += [
            f"{offer.where}.format: nothing holds the input to the grammar"
            for offer in plan.toolbox.offers
            if offer.kind == "custom" and (offer.tool.get("format") or {}).get("type") == "grammar"
        ]
    if _must_tell_schema(plan.format, profile):
        found.append("text.format: this server knows JSON but no schema")
    return found


def _put_sampling(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    if plan.max_output_tokens is not None:
        body[profile.max_tokens_field] = plan.max_output_tokens
    if plan.temperature is not None:
        body["temperature"] = plan.temperature
    if plan.top_p is not None:
        body["top_p"] = plan.top_p
    if plan.presence_penalty is not None:
        _put_penalty("presence_penalty", plan.presence_penalty, profile, body, report)
    if plan.frequency_penalty is not None:
        _put_penalty("frequency_penalty", plan.frequency_penalty, profile, body, report)
    if plan.logprobs or plan.top_logprobs:
        _put_logprobs(plan.top_logprobs, profile, body, report)


def _put_penalty(name: str, value: float, profile: Profile, body: Body, report: list[str]) -> None:
    if profile.penalties:
        body[name] = value
    elif value:
        report.append(name)


def _put_logprobs(top: int | None, profile: Profile, body: Body, report: list[str]) -> None:
    if not profile.logprobs:
        report.append("top_logprobs: this server gives none")
        return
    body["logprobs"] = True
    if top is not None:
        body["top_logprobs"] = top


def _put_hints(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    if plan.reasoning_effort is not None:
        if profile.reasoning_effort:
            body["reasoning_effort"] = plan.reasoning_effort
        else:
            report.append("reasoning.effort: this server has no such setting")
    if plan.verbosity is not None:
        if profile.verbosity:
            body["verbosity"] = plan.verbosity
        elif plan.verbosity != "medium":
            report.append("text.verbosity: this server has no such setting")
    if plan.service_tier is not None:
        if profile.service_tier:
            body["service_tier"] = plan.service_tier
        elif plan.service_tier not in _ANY_TIER:
            report.append("service_tier: this server has only one")


def _put_extra(extra: Mapping[str, Any], profile: Profile, body: Body, report: list[str]) -> None:
    known = _ANY_EXTRA if len(extra) <= MOST_HINTS else None
    for name, value in extra.items():
        if value is None:
            continue
        field = profile.seed_field if name == "seed" else name
        if name in profile.extra_fields and field not in body:
            body[field] = value
        elif name == "n" and value == 1:
            continue  # every answer has one choice anyway
        elif name == "stream_options.include_usage":
            continue  # every stream ends with its usage anyway
        elif len(report) <= MOST_NOTES:  # a response lists only so many
            hint = _CANNOT if known is None else explain_unknown(name, known)
            report.append(f"{name}: {hint}")
