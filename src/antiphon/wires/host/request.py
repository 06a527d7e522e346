"""A plan as a `respond` of the bridge protocol, for an editor that answers.

Pure: a plan goes in, a body and a report come out. The report names every field of the request
that cannot be honoured, under its name in the Responses API. Sampling goes into `model_options`
under the names of chat completions, which the providers of editors read; an editor does not state
which of them a model honours. The format of a text is an order in the instructions: nothing there
enforces it, so that it is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.response import MOST_NOTES
from antiphon.protocol.unknown import MOST_HINTS, explain_unknown
from antiphon.wires.host.history import write_history
from antiphon.wires.host.messages import Options, Tool
from antiphon.wires.host.parts import DataPart, Message, ToolResultPart
from antiphon.wires.lower import functions_of

__all__ = [
    "CAPABILITIES",
    "countable",
    "encode_request",
    "respond_line",
    "write_request",
]

CAPABILITIES: Final = Capabilities(parts=frozenset({"image"}), counts=True)
"""What an editor does by itself: it enforces neither a format nor arguments."""

_ORDER: Final = "Answer only with JSON that matches this JSON Schema: "
_ORDER_OBJECT: Final = "Answer only with a JSON object."
_CANNOT: Final = "this backend cannot send it"
_NO_SETTING: Final = "an editor has no such setting"
_ANY_TIER: Final = frozenset({"auto", "default"})
_PASSED: Final = frozenset({"stop", "seed", "top_k", "min_p", "logit_bias"})
"""Fields beyond the Responses API that are passed on as options of the model."""
_KNOWN: Final = _PASSED | {"n"}


def encode_request(plan: Plan, account: str) -> tuple[bytes, list[str]]:
    """Return the request as JSON without type and id, and what it cannot express of the plan."""
    messages, options, report = write_request(plan, account)
    # One by one: encoding all of them in one step would hold up every other thread.
    written = b",".join(map(msgspec.json.encode, messages))
    model = msgspec.json.encode(plan.model)
    rest = msgspec.json.encode(options)
    return b'"model":%b,"messages":[%b],"options":%b}' % (model, written, rest), report


def respond_line(request_id: int, body: bytes) -> bytes:
    """Return the line that sends an encoded request under this id."""
    return b'{"type":"respond","id":%d,%b\n' % (request_id, body)


def write_request(plan: Plan, account: str) -> tuple[list[Message], Options, list[str]]:
    """Return the messages, the options, and what they cannot express of the plan."""
    messages, report = write_history(plan, account)
    orders = [plan.instructions or "", _format_order(plan.format, report)]
    system = [Message.system(order) for order in orders if order]
    tools = [_tool(one) for one in functions_of(plan)]
    if tools and plan.parallel_tool_calls is False:
        report.append("parallel_tool_calls: a model of an editor may still call several at once")
    required = plan.policy.allowed if plan.policy.mode == "required" else None
    options = Options(
        tools=tools,
        tool_mode=plan.policy.mode if tools else "auto",
        tool_name=next(iter(required)) if tools and required and len(required) == 1 else None,
        model_options=_model_options(plan, report),
    )
    return [*system, *messages], options, report


def countable(plan: Plan, account: str) -> list[Message] | None:
    """Return the messages of a request whose tokens an editor can count exactly, else None.

    It counts messages, and neither tools nor what images cost.
    """
    if functions_of(plan):
        return None
    messages, _, _ = write_request(plan, account)
    return None if any(map(_has_data, messages)) else messages


def _has_data(message: Message) -> bool:
    inner = [
        part
        for one in message.content
        for part in (one.content if isinstance(one, ToolResultPart) else (one,))
    ]
    return any(isinstance(part, DataPart) for part in inner)


def _tool(tool: Mapping[str, Any]) -> Tool:
    return Tool(tool["name"], tool.get("description") or "", tool.get("parameters"))


def _format_order(form: Mapping[str, Any] | None, report: list[str]) -> str:
    """Return the instruction that asks for a format of the text, or an empty text."""
    match (form or {}).get("type"):
        case None:
            return ""
        case "json_object":
            return _ORDER_OBJECT
        case "json_schema":
            return _ORDER + msgspec.json.encode((form or {}).get("schema")).decode()
        case kind:
            report.append(f"text.format ({kind}): {_CANNOT}")
            return ""


def _model_options(plan: Plan, report: list[str]) -> dict[str, Any]:
    given = {
        "temperature": plan.temperature,
        "top_p": plan.top_p,
        "presence_penalty": plan.presence_penalty,
        "frequency_penalty": plan.frequency_penalty,
        "max_tokens": plan.max_output_tokens,
        "reasoning_effort": plan.reasoning_effort,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if plan.logprobs or plan.top_logprobs:
        report.append("top_logprobs: an editor gives none")
    if plan.verbosity not in (None, "medium"):
        report.append(f"text.verbosity: {_NO_SETTING}")
    if plan.service_tier is not None and plan.service_tier not in _ANY_TIER:
        report.append(f"service_tier: {_NO_SETTING}")
    _put_extra(plan.extra, options, report)
    return options


def _put_extra(extra: Mapping[str, Any], options: dict[str, Any], report: list[str]) -> None:
    known = _KNOWN if len(extra) <= MOST_HINTS else None
    for name, value in extra.items():
        if value is None or name == "stream_options.include_usage" or (name == "n" and value == 1):
            continue  # every answer is one, and ends with its usage
        if name in _PASSED:
            options[name] = value
        elif len(report) <= MOST_NOTES:  # a response lists only so many
            hint = _CANNOT if known is None else explain_unknown(name, known)
            report.append(f"{name}: {hint}")
