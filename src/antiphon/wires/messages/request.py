"""A plan as a request of the Messages API.

Pure: a plan and what is known about server and model go in, a body and a report come out. The
report names every field of the request that cannot be honoured, under its name in the Responses
API, so the request can be marked as degraded, or refused, before anything is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.pieces import encode_long
from antiphon.wires.messages.cache import place_breakpoints
from antiphon.wires.messages.content import text_block
from antiphon.wires.messages.conversation import Message, lacks_thinking, write_conversation
from antiphon.wires.messages.effort import Effort, choose_effort
from antiphon.wires.messages.offers import Offered, choose_tool, offer_tools
from antiphon.wires.messages.profiles import Profile
from antiphon.wires.messages.schemas import bound_schema, is_closed
from antiphon.wires.messages.traits import Traits

__all__ = ["ASSUMED_LENGTH", "Terms", "Written", "count_body", "encode_body", "write_request"]

ASSUMED_LENGTH: Final = 32_000
"""How long an answer may be if nothing is known: the API demands a number."""

_SEALED: Final = "reasoning.encrypted_content"
_SCHEMA_ORDER: Final = "Answer only with JSON that matches this JSON Schema: "
_OBJECT_ORDER: Final = "Answer only with a JSON object."
_CANNOT: Final = "this backend cannot send it"
_NO_FIELD: Final = "this API has no such setting"
_TIERS: Final = {"auto": "auto", "default": "standard_only"}
# What counting takes of a request.
_COUNTED: Final = (
    *("model", "system", "messages", "tools", "tool_choice", "thinking", "output_config"),
    *("mcp_servers", "context_management"),
)
# What every answer does anyway.
_DONE_ANYWAY: Final = {"n": 1, "stream_options.include_usage": True}

Body = dict[str, Any]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a request depends on besides its plan."""

    profile: Profile
    account: str = ""
    """Whose state the server can read."""
    is_cached: bool = False
    """Whether breakpoints are set where the caller sets none."""
    max_tokens: int | None = None
    """How long an answer may be if neither the caller nor the server states it."""
    betas: tuple[str, ...] = ()


class Written(msgspec.Struct, frozen=True):
    """A request, what it cannot express, and whether the provider runs tools in it."""

    body: Body
    report: list[str]
    has_server_tools: bool


def write_request(plan: Plan, traits: Traits, terms: Terms) -> Written:
    """Return the body for POST /v1/messages."""
    conversation = write_conversation(
        plan.items, plan.toolbox, account=terms.account, mid_system=traits.mid_system
    )
    system, messages, report, past = conversation
    if plan.prefix is not None:  # the model goes on with the last message if it is its own
        messages.append({"role": "assistant", "content": [text_block(plan.prefix)]})
    if plan.instructions:
        system.insert(0, text_block(plan.instructions))
    length = _length(plan, traits, terms, report)
    effort = _effort(plan, traits, length, lacks_thinking(messages, past), report)
    body: Body = {"model": plan.model, "max_tokens": length, "stream": plan.stream}
    config = _output_config(plan, effort, traits, system, report)
    offered = offer_tools(plan, traits)
    tools = place_breakpoints(
        offered.tools, system, messages, is_auto=terms.is_cached, report=report
    )
    if system:
        body["system"] = system
    _put_tools(plan, traits, offered, tools, effort, body, report)
    if effort.thinking is not None:
        body["thinking"] = effort.thinking
    if config:
        body["output_config"] = config
    _put_sampling(plan, traits, effort, body, report)
    _put_labels(plan, terms.profile, body, report)
    _put_extra(plan.extra, traits, effort, terms, body, report)
    body["messages"] = [*(message.raw for message in past), *messages]
    return Written(body, report, offered.has_server_tools or "mcp_servers" in body)


def encode_body(body: Body, *, is_large: bool) -> bytes:
    """Return the body as bytes. What is large is encoded message by message.

    Encoding all of it in one step would hold up every other thread.
    """
    if not is_large:
        return msgspec.json.encode(body)
    messages = b",".join([_encode_message(message) for message in body["messages"]])
    rest = {name: value for name, value in body.items() if name != "messages"}
    return encode_long(rest)[:-1] + b',"messages":[' + messages + b"]}"


def _encode_message(message: Message | msgspec.Raw) -> bytes:
    return bytes(message) if isinstance(message, msgspec.Raw) else encode_long(message)


def count_body(body: Body) -> Body:
    """Return the request that counts the prompt of a request."""
    return {name: body[name] for name in _COUNTED if name in body}


# How long, how hard.


def _length(plan: Plan, traits: Traits, terms: Terms, report: list[str]) -> int:
    asked = plan.max_output_tokens
    if asked is None:
        return traits.max_tokens or terms.max_tokens or ASSUMED_LENGTH
    if traits.limit is not None and asked > traits.limit:
        report.append(f"max_output_tokens: this model takes at most {traits.limit}")
        return traits.limit
    return asked


def _effort(plan: Plan, traits: Traits, length: int, lacks: bool, report: list[str]) -> Effort:
    is_shown = plan.reasoning_summary is not None
    effort = choose_effort(plan.reasoning_effort, traits, length, is_shown=is_shown)
    report += effort.notes
    if plan.reasoning_effort is None and traits.adaptive and _SEALED in plan.include:
        return Effort({"type": "adaptive"})  # the caller wants the thinking, and states no effort
    if lacks and effort.thinking is not None and effort.thinking["type"] == "enabled":
        report.append("reasoning.effort: the thinking before the last calls is not known here")
        return effort._replace(thinking={"type": "disabled"} if traits.disabled else None)
    return effort


def _output_config(
    plan: Plan, effort: Effort, traits: Traits, system: list[Body], report: list[str]
) -> Body:
    config: Body = {} if effort.level is None else {"effort": effort.level}
    form = plan.format
    if form is None:
        return config
    if form.get("type") == "json_schema" and traits.json_schema and is_closed(form["schema"]):
        schema, left_out = bound_schema(form["schema"])
        if left_out:
            report.append(f"text.format: {', '.join(left_out)} cannot be sent; checked here")
        return {**config, "format": {"type": "json_schema", "schema": schema}}
    system.append(text_block(_order(form)))
    report.append("text.format: it is sent as an instruction only; the answer is checked here")
    return config


def _order(form: Mapping[str, Any]) -> str:
    """Return the format as an instruction."""
    if form.get("type") == "json_schema":
        return _SCHEMA_ORDER + msgspec.json.encode(form["schema"]).decode()
    if form.get("type") == "grammar":
        return f"Answer only with text that matches this grammar:\n{form.get('definition')}"
    return _OBJECT_ORDER


# What is put into the body.


def _put_tools(
    plan: Plan,
    traits: Traits,
    offered: Offered,
    tools: list[Body],
    effort: Effort,
    body: Body,
    report: list[str],
) -> None:
    if not tools:
        return
    report += offered.notes
    body["tools"] = tools
    if offered.servers:
        body["mcp_servers"] = list(offered.servers)
    choice = choose_tool(plan, traits, thinks=effort.thinks, report=report)
    if choice is not None:
        body["tool_choice"] = choice


def _put_sampling(
    plan: Plan, traits: Traits, effort: Effort, body: Body, report: list[str]
) -> None:
    for name, value in (("temperature", plan.temperature), ("top_p", plan.top_p)):
        if value is None:
            continue
        why = _why_not_sampled(name, value, traits, effort, body)
        if why is None:
            body[name] = min(value, 1.0)
            if value > 1:
                report.append(f"{name}: at most 1 is taken")
        elif value != 1:
            report.append(f"{name}: {why}")
    if plan.presence_penalty:
        report.append(f"presence_penalty: {_NO_FIELD}")
    if plan.frequency_penalty:
        report.append(f"frequency_penalty: {_NO_FIELD}")
    if plan.logprobs or plan.top_logprobs:
        report.append(f"top_logprobs: {_NO_FIELD}")
    if plan.verbosity not in (None, "medium"):
        report.append(f"text.verbosity: {_NO_FIELD}")


def _why_not_sampled(
    name: str, value: float, traits: Traits, effort: Effort, body: Body
) -> str | None:
    """Return why a parameter of sampling is not sent; None if it is."""
    if not traits.sampling:
        return "this model does not take it"
    if effort.thinks and not (name == "top_p" and value >= 0.95):
        return "a model that thinks does not take it"
    if name == "top_p" and "temperature" in body and not traits.both_samplers:
        return "this model does not take it beside temperature"
    return None


def _put_labels(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    if plan.service_tier is not None:
        tier = _TIERS.get(plan.service_tier)
        if tier is not None and profile.service_tier:
            body["service_tier"] = tier
        elif tier is None:
            report.append(f"service_tier: '{plan.service_tier[:50]}' is not one of this API")
    if plan.end_user and profile.metadata:
        # A hash: the API has to distinguish users, and must not learn who they are.
        user = hashlib.sha256(plan.end_user.encode()).hexdigest()[:32]
        body["metadata"] = {"user_id": user}


def _put_extra(
    extra: Mapping[str, Any],
    traits: Traits,
    effort: Effort,
    terms: Terms,
    body: Body,
    report: list[str],
) -> None:
    for name, value in extra.items():
        if value is None or _DONE_ANYWAY.get(name) == value:
            continue
        if name == "stop":
            _put_stop(value, body, report)
        elif name == "top_k" and (effort.thinks or not traits.sampling):
            report.append("top_k: this model does not take it")
        elif name in body or name not in terms.profile.extra_fields:
            report.append(f"{name}: {_CANNOT}")
        elif _has_beta(terms.profile.extra_fields[name], terms.betas):
            body[name] = value
        else:
            beta = terms.profile.extra_fields[name]
            report.append(f"{name}: it needs a beta ({beta}-…) among the betas of the provider")


def _put_stop(value: object, body: Body, report: list[str]) -> None:
    given = value if isinstance(value, list) else [value]
    kept = [text for text in given if isinstance(text, str) and text.strip()]
    if kept:
        body["stop_sequences"] = kept
    if len(kept) < len(given):
        report.append("stop: what is not text, or is only white space, is left out")


def _has_beta(needed: str, betas: tuple[str, ...]) -> bool:
    return not needed or any(beta.startswith(needed) for beta in betas)
