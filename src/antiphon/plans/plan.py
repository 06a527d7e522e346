"""What a model is asked: everything that was decided, and nothing about where it came from.

Both wings make one: the engine from a request and its history, the client from a request that
goes to a chat server. A wire writes it in the language of its server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.plans.assess import Assessment
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.items import Item
from antiphon.protocol.request import CreateResponse, ReasoningRequest
from antiphon.protocol.tools import ToolPolicy

__all__ = ["NO_TOOLS", "Plan", "make_plan"]

NO_TOOLS: Final = Toolbox()
BETAS: Final = "anthropic-beta"
"""The name of the hint with the betas of Anthropic's API that the caller wants to use."""
_HINTS: Final = ("prompt_cache_key", "safety_identifier", "user", "max_tool_calls")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that was decided about one call of the model, frozen.

    `items` is the whole context in order: history first, then what is new. Other turns may share
    the items, so they must not be changed. None means that the caller left it to the model.
    `toolbox` holds the caller's own tools: how a model is shown them is decided by the wire. All of
    them stay visible to the model, also those that `policy` forbids.
    """

    model: str
    items: Sequence[Item]
    stream: bool = True
    instructions: str | None = None
    toolbox: Toolbox = NO_TOOLS
    shows_tools: bool = True
    """Whether the model is shown the tools; in the history they have their names in any case."""
    policy: ToolPolicy = ToolPolicy()
    parallel_tool_calls: bool | None = None
    format: Mapping[str, Any] | None = None
    """`text.format` when it is not plain text: json_schema or json_object, as on the wire.

    Or a grammar, in the words of a custom tool's `format`: the text must be of its language.
    """
    must_emulate: bool = False
    """Whether `policy` is to be enforced without trust: the model did not obey it before."""
    verbosity: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    include: tuple[str, ...] = ()
    """What the caller wants to see of tools that a server runs, as `include` names it."""
    hints: Mapping[str, Any] = {}
    """Request fields that change nothing for most servers, such as `prompt_cache_key`."""
    logprobs: bool = False
    top_logprobs: int | None = None
    service_tier: str | None = None
    end_user: str | None = None
    """Who the caller asks for, as the caller names them. It may be personal: send it as a hash."""
    prefix: str | None = None
    """The beginning of the answer, which the model goes on with; only for a backend that can."""
    is_large: bool = False
    """Whether the items are so many, or so long, that an event loop should not work on them."""
    extra: Mapping[str, Any] = {}
    """Request fields that are not of the protocol. Pass on or report as degraded."""


def make_plan(
    request: CreateResponse,
    assessment: Assessment,
    items: Sequence[Item],
    model: str,
    *,
    is_large: bool = False,
) -> Plan:
    """Return what the model is asked. `items` is the whole context, `model` its name there."""
    text = request.text
    form = text.format if text else None
    reasoning = request.reasoning
    include = request.include or ()
    # A door has put betas there: they are a tuple, which no body can hold.
    has_betas = isinstance(request.extra.get(BETAS), tuple)
    return Plan(
        model=model,
        items=items,
        # What runs in the background is followed, cancelled and cut off in mid-answer too.
        stream=bool(request.stream or request.background),
        instructions=request.instructions or None,
        toolbox=assessment.toolbox,
        policy=assessment.policy,
        parallel_tool_calls=request.parallel_tool_calls,
        format=form if form and form.get("type") != "text" else None,
        verbosity=text.verbosity if text else None,
        temperature=request.temperature,
        top_p=request.top_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        max_output_tokens=request.max_output_tokens,
        reasoning_effort=reasoning.effort if reasoning else None,
        reasoning_summary=_summary(reasoning) if reasoning else None,
        include=tuple(include),
        hints=_hints(request, assessment.toolbox, has_betas=has_betas),
        logprobs="message.output_text.logprobs" in include or bool(request.top_logprobs),
        top_logprobs=request.top_logprobs,
        service_tier=request.service_tier,
        end_user=_end_user(request),
        is_large=is_large,
        extra=_without_betas(request.extra) if has_betas else request.extra,
    )


def _hints(request: CreateResponse, toolbox: Toolbox, *, has_betas: bool) -> dict[str, Any]:
    """Return the hints. The limit on hosted calls is kept here if no upstream runs any."""
    hints = {name: value for name in _HINTS if (value := getattr(request, name)) is not None}
    if toolbox.hosted and not toolbox.upstream:
        hints.pop("max_tool_calls", None)
    return {**hints, BETAS: request.extra[BETAS]} if has_betas else hints


def _without_betas(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in extra.items() if name != BETAS}


def _end_user(request: CreateResponse) -> str | None:
    """Return the end user. The Messages door keeps the name that its API has in the metadata."""
    named = (request.metadata or {}).get("user_id")
    return request.safety_identifier or request.user or named


def _summary(reasoning: ReasoningRequest) -> str | None:
    return reasoning.summary or reasoning.generate_summary
