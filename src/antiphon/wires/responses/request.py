"""A plan as a request of the Responses API.

Pure: a plan and a profile go in, a request body and a report come out. The whole context is sent
and the server keeps nothing (`store: false`), because the conversation is kept here. What this
server does not take is reported under its name, before anything is sent.

The input comes last in the body, so that the bytes of a turn begin like those of the turn before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.plans.plan import BETAS, Plan
from antiphon.protocol.pieces import encode_long
from antiphon.protocol.response import MOST_NOTES
from antiphon.protocol.unknown import MOST_HINTS, explain_unknown
from antiphon.wires.responses.history import write_input
from antiphon.wires.responses.profiles import PROFILES, Profile
from antiphon.wires.responses.tools import choice_of, tools_of

__all__ = ["encode_request", "write_request"]

Body = dict[str, Any]

_SEALED: Final = "reasoning.encrypted_content"
_LOGPROBS: Final = "message.output_text.logprobs"
_NO_SETTING: Final = "this server has no such setting"
_ORDER: Final = "Answer only with JSON that matches this JSON Schema: "
# Leaving these out means the same.
_ANY_TIER: Final = frozenset({"auto", "default"})
_ANY_EXTRA: Final = frozenset(name for one in PROFILES.values() for name in one.fields)
# Nobody loses anything where these are not known.
_MERE_HINTS: Final = frozenset({BETAS, "prompt_cache_key", "safety_identifier", "user"})


def write_request(
    plan: Plan, profile: Profile, hosted: frozenset[str], account: str
) -> tuple[Body, list[str]]:
    """Return the body for POST /responses, and what could not be sent."""
    items, report = write_input(plan.items, plan.toolbox, profile, hosted, account)
    body = _write_head(plan, profile, report)
    body["input"] = items
    return body, report


def encode_request(
    plan: Plan, profile: Profile, hosted: frozenset[str], account: str
) -> tuple[bytes, list[str]]:
    """Return the same as bytes. A large one is encoded item by item: other threads must run."""
    body, report = write_request(plan, profile, hosted, account)
    if not plan.is_large:
        return msgspec.json.encode(body), report
    items = body.pop("input")
    head = msgspec.json.encode(body)[:-1]
    return head + b',"input":[' + b",".join(map(encode_long, items)) + b"]}", report


def _write_head(plan: Plan, profile: Profile, report: list[str]) -> Body:
    body: Body = {"model": plan.model, "stream": plan.stream, "store": False}
    if plan.stream and profile.obfuscation:
        body["stream_options"] = {"include_obfuscation": False}
    if instructions := _instructions(plan, profile):
        body["instructions"] = instructions
    _put_include(plan, profile, body)
    _put_tools(plan, profile, body, report)
    _put_text(plan, profile, body, report)
    _put_reasoning(plan, profile, body, report)
    _put_sampling(plan, profile, body, report)
    _put_hints(plan, profile, body, report)
    _put_extra(plan.extra, profile, body, report)
    return body


def _instructions(plan: Plan, profile: Profile) -> str:
    """Return the instructions, with the schema where the server does not take one."""
    orders = [plan.instructions] if plan.instructions else []
    form = plan.format or {}
    if form.get("type") == "json_schema" and not profile.json_schema:
        orders.append(_ORDER + msgspec.json.encode(form["schema"]).decode())
    return "\n\n".join(orders)


def _put_include(plan: Plan, profile: Profile, body: Body) -> None:
    wanted = [name for name in plan.include if name not in (_SEALED, _LOGPROBS)]
    if profile.reasoning == "encrypted":
        wanted.append(_SEALED)
    if plan.logprobs and profile.logprobs:
        wanted.append(_LOGPROBS)
    if wanted:
        body["include"] = wanted


def _put_tools(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    tools = tools_of(plan, profile)
    if not tools:
        return
    body["tools"] = plan.toolbox.derived.get(
        (_put_tools, profile.kinds), lambda: msgspec.Raw(msgspec.json.encode(tools))
    )
    if (choice := choice_of(plan, profile)) is not None:
        body["tool_choice"] = choice
    if plan.parallel_tool_calls is None:
        return
    if profile.parallel_tool_calls:
        body["parallel_tool_calls"] = plan.parallel_tool_calls
    elif not plan.parallel_tool_calls:
        report.append("parallel_tool_calls: this server may still call several at once")


def _put_text(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    text: Body = {}
    kind = (plan.format or {}).get("type")
    if kind == "grammar":
        report.append("text.format (grammar): this backend cannot send it")
    elif plan.format is not None and profile.json_schema:
        text["format"] = plan.format
    if plan.verbosity is not None:
        if profile.verbosity:
            text["verbosity"] = plan.verbosity
        elif plan.verbosity != "medium":
            report.append(f"text.verbosity: {_NO_SETTING}")
    if text:
        body["text"] = text


def _put_reasoning(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    reasoning: Body = {}
    for name, value, is_known in (
        ("effort", plan.reasoning_effort, profile.effort),
        ("summary", plan.reasoning_summary, profile.summary),
    ):
        if value is not None and is_known:
            reasoning[name] = value
        elif value is not None and name == "effort":
            report.append(f"reasoning.{name}: {_NO_SETTING}")
    if reasoning:
        body["reasoning"] = reasoning


def _put_sampling(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    for name in ("max_output_tokens", "temperature", "top_p"):
        if (value := getattr(plan, name)) is not None:
            body[name] = value
    for name in ("presence_penalty", "frequency_penalty"):
        value = getattr(plan, name)
        if value is not None and profile.penalties:
            body[name] = value
        elif value:
            report.append(f"{name}: {_NO_SETTING}")
    if plan.top_logprobs is not None and profile.logprobs:
        body["top_logprobs"] = plan.top_logprobs
    elif (plan.logprobs or plan.top_logprobs) and not profile.logprobs:
        report.append("top_logprobs: this server gives none")


def _put_hints(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    if plan.service_tier is not None:
        if profile.service_tier:
            body["service_tier"] = plan.service_tier
        elif plan.service_tier not in _ANY_TIER:
            report.append("service_tier: this server has only one")
    for name, value in plan.hints.items():
        if name in profile.fields:
            body[name] = value
        elif name not in _MERE_HINTS:
            report.append(f"{name}: {_NO_SETTING}")


def _put_extra(extra: Mapping[str, Any], profile: Profile, body: Body, report: list[str]) -> None:
    is_short = len(extra) <= MOST_HINTS
    for name, value in extra.items():
        if value is None or name == "stream_options.include_usage":
            continue  # every stream ends with its usage anyway
        if name in profile.fields and name not in body:
            body[name] = value
        elif name == "n" and value == 1:
            continue  # every answer is one anyway
        elif len(report) <= MOST_NOTES:  # a response lists only so many
            hint = explain_unknown(name, _ANY_EXTRA) if is_short else _NO_SETTING
            report.append(f"{name}: {hint}")
