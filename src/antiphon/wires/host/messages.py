"""The messages of the bridge protocol, version 1. docs/reference/bridge.md explains them.

One side asks, the other answers. The asker is a chat application at `antiphon host`, or the
gateway at an editor whose models it offers. Each message is a JSON object on a line of its own,
and `type` says which. Fields that are not known are ignored; a `type` that is not known is an
error of that message alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from antiphon.models.prices import Price
from antiphon.wires.host.parts import Message, ResponsePart

__all__ = [
    "VERSION",
    "Answer",
    "AskSettings",
    "Cancel",
    "Count",
    "Counted",
    "Done",
    "ErrorCode",
    "Failed",
    "Fault",
    "Hello",
    "ListModels",
    "Log",
    "Measure",
    "Measured",
    "ModelEntry",
    "Models",
    "ModelsChanged",
    "Options",
    "Parts",
    "Question",
    "RequestId",
    "Respond",
    "Sums",
    "Tool",
    "ToolMode",
    "UsageChanged",
    "UsageFigures",
    "Welcome",
]

VERSION: Final = 1

RequestId = int | str
"""Chosen by the asker; unique among its requests that have not ended."""

ToolMode = Literal["auto", "required", "none"]

ErrorCode = Literal[
    # the asker's mistake
    "invalid_message",
    "unknown_type",
    "line_too_long",
    "duplicate_id",
    "too_many_requests",
    "unsupported_version",
    "not_greeted",
    "bad_request",
    "unsupported_content",
    "context_too_long",
    "auth_failed",
    "no_consent",
    "not_found",
    "rate_limited",
    "quota_exceeded",
    # the peer's fault
    "unreachable",
    "timed_out",
    "server_failed",
    "invalid_answer",
    "stream_cut",
    "response_failed",
    "blocked",
    "malformed_call",
    "changed_call",
    "damaged_text",
    "empty_answer",
    # neither
    "cancelled",
    "internal",
]


class Tool(msgspec.Struct, frozen=True):
    """A function that the asker can run."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one answer.

    `tool_name` requires the call of this one tool. `session` names the conversation that the
    messages are of. `model_options` are parameters of the request, such as `temperature`.
    """

    tools: Sequence[Tool] = ()
    tool_mode: ToolMode = "auto"
    tool_name: str | None = None
    model_options: Mapping[str, Any] = {}
    system_prompt: str = ""
    session: str | None = None


class AskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the asker wants of `antiphon host`; an editor that answers ignores it.

    A value of None is the default of the command line.
    """

    base_url: str | None = None
    api_key: str | None = None
    shows_thinking: bool = False
    call_prefix: str = ""
    usage_part: bool = False
    """Whether an answer ends with its usage as a part, of the type `usage`."""
    state_part: bool = False
    """Whether an answer ends with the place to continue from, as a part `stateful_marker`."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"


# Asked.


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message. `token` is what an editor that answers wants to see."""

    version: int
    name: str = ""
    settings: AskSettings = AskSettings()
    token: str | None = None


class ListModels(msgspec.Struct, frozen=True, kw_only=True, tag="models"):
    """Which models are there? With `refresh`, the server is asked now."""

    id: RequestId
    refresh: bool = False


class Count(msgspec.Struct, frozen=True, kw_only=True, tag="count"):
    """How many tokens has each of these texts and messages?"""

    id: RequestId
    model: str
    contents: Sequence[str | Message]


class Measure(msgspec.Struct, frozen=True, kw_only=True, tag="measure"):
    """How many input tokens would the server count for this request?"""

    id: RequestId
    model: str
    messages: Sequence[Message]
    options: Options = Options()


class Respond(msgspec.Struct, frozen=True, kw_only=True, tag="respond"):
    """Answer this conversation."""

    id: RequestId
    model: str
    messages: Sequence[Message]
    options: Options = Options()


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag="cancel"):
    """Stop the request of this id. It ends with the error `cancelled`, unless it has ended."""

    id: RequestId


Question = Hello | ListModels | Count | Measure | Respond | Cancel


# Answered.


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The answer to `hello`."""

    version: int
    name: str
    software: str
    max_line_bytes: int
    max_requests: int


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model. None: not known."""

    id: str
    name: str
    family: str
    version: str = ""
    context_window: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    image_input: bool | None = None
    tool_calling: bool | None = None
    reasoning: bool | None = None
    reasoning_levels: tuple[str, ...] = ()
    price: Price | None = None


class Models(msgspec.Struct, frozen=True, kw_only=True, tag="models"):
    """The models, in the server's order."""

    id: RequestId
    models: Sequence[ModelEntry]


class Counted(msgspec.Struct, frozen=True, kw_only=True, tag="counted"):
    """The tokens of each content, in the order of the question."""

    id: RequestId
    tokens: Sequence[int]


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """What the server counted."""

    id: RequestId
    input_tokens: int
    is_estimate: bool = False


class Parts(msgspec.Struct, frozen=True, kw_only=True, tag="parts"):
    """The next parts of an answer."""

    id: RequestId
    parts: Sequence[ResponsePart]


class UsageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of an answer. Cached tokens are part of the input, reasoning of the output."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    is_estimate: bool = False


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The answer is whole. `incomplete_reason` says why the model was stopped early, if it was."""

    id: RequestId
    response_id: str | None = None
    status: Literal["completed", "incomplete"] = "completed"
    incomplete_reason: str | None = None
    refusal: str = ""
    usage: UsageFigures | None = None
    degraded: Sequence[str] = ()
    """What the server could not honour of the request."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong: `message` is a sentence for the user, `action` what the user can do."""

    code: ErrorCode
    message: str
    action: str = ""
    status: int = 0
    """The HTTP status of the server, if it answered with one."""
    retry_after: float | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """A request failed; its parts stay valid. Without an id: a line was not understood."""

    id: RequestId | None = None
    error: Fault


class Sums(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the turns of a conversation."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    turns: int = 0
    estimated_turns: int = 0
    cost: float | None = None
    """In US dollars. None if the price of a turn is not known."""


class UsageChanged(msgspec.Struct, frozen=True, kw_only=True, tag="usage"):
    """A turn has ended. `line` describes it for a person."""

    session: str | None
    model: str
    status: str
    usage: UsageFigures
    max_input: int | None = None
    totals: Sums
    cost: float | None = None
    line: str = ""


class Log(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """A line for the log. It holds no key and no content of a conversation."""

    level: Literal["debug", "info", "warning", "error"]
    message: str


class ModelsChanged(msgspec.Struct, frozen=True, kw_only=True, tag="models_changed"):
    """The list of models is another one now; ask again."""


Answer = (
    Welcome
    | Models
    | Counted
    | Measured
    | Parts
    | Done
    | Failed
    | UsageChanged
    | Log
    | ModelsChanged
)
