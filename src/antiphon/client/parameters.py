"""Which keywords does a call take, and where does each go?

One table holds all of them: the names of the Responses API pass unchanged, names known from chat
completions are mapped, a few are sent to chat servers only, a few are ours and never go on the
wire, and the rest is refused by name with what to do instead. None means "not given", and so does
the empty name of a thread. Nothing else is dropped in silence, and two names for one field must
agree. The server judges values, except those that are rewritten.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

import msgspec

from antiphon.client.errors import BadCall, UnsupportedParameter
from antiphon.client.settings import WireApi
from antiphon.wires.chat.flat import flat_choice

__all__ = [
    "PARAMETERS",
    "REFUSED",
    "Parameter",
    "Params",
    "place_parameters",
    "refuse_chat_only",
    "refuse_unknown",
]

Group = Literal["input", "same", "mapped", "chat", "ours"]

_LOGPROBS: Final = "message.output_text.logprobs"
_THREADS: Final = frozenset(
    {"previous_response_id", "parent_id", "conversation", "conversation_id"}
)
_HINT: Final = "a field that only your server knows goes into extra_body"


class Parameter(msgspec.Struct, frozen=True):
    """One keyword. `field` is its place in the body, empty if it never goes on the wire."""

    name: str
    group: Group
    field: str
    note: str = ""


class Params(TypedDict, total=False):
    """Every keyword of `create` and `stream`, for `**params: Unpack[Params]`."""

    input: str | Sequence[Mapping[str, Any]] | None
    messages: Sequence[Mapping[str, Any]] | None
    prompt: str | Mapping[str, Any] | None
    model: str | None
    instructions: str | None
    previous_response_id: str | None
    conversation: str | Mapping[str, Any] | None
    include: Sequence[str] | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    max_tool_calls: int | None
    metadata: Mapping[str, str] | None
    text: Mapping[str, Any] | None
    reasoning: Mapping[str, Any] | None
    temperature: float | None
    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    top_logprobs: int | None
    max_output_tokens: int | None
    truncation: str | None
    service_tier: str | None
    store: bool | None
    background: bool | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    prompt_cache_options: Mapping[str, Any] | None
    context_management: Sequence[Mapping[str, Any]] | None
    moderation: Mapping[str, Any] | None
    image: Mapping[str, Any] | None
    access_programs: Sequence[Any] | None
    stream_options: Mapping[str, Any] | None
    user: str | None
    max_tokens: int | None
    max_completion_tokens: int | None
    response_format: Mapping[str, Any] | None
    reasoning_effort: str | None
    verbosity: str | None
    logprobs: bool | None
    conversation_id: str | None
    parent_id: str | None
    stop: str | Sequence[str] | None
    seed: int | None
    logit_bias: Mapping[str, float] | Mapping[int, float] | None
    n: Literal[1] | None
    session: str | None
    stateful: bool | None
    extra_body: Mapping[str, Any] | None


# The parameters that are not placed under their own name, or need a note: group, field and note.
_SPECIAL: Final[Mapping[str, tuple[Group, str, str]]] = {
    "input": ("input", "input", "a string, or Responses items"),
    "messages": ("input", "input", "the whole conversation, as chat messages or items"),
    "prompt": (
        "input",
        "input",
        "a string: one user message; a stored template goes to `prompt`",
    ),
    "tools": ("same", "tools", "the nested shape of chat completions is made flat"),
    "tool_choice": ("same", "tool_choice", "the nested shape of chat completions is made flat"),
    "max_tokens": ("mapped", "max_output_tokens", ""),
    "max_completion_tokens": ("mapped", "max_output_tokens", ""),
    "response_format": ("mapped", "text.format", "the nested json_schema is made flat"),
    "reasoning_effort": ("mapped", "reasoning.effort", ""),
    "verbosity": ("mapped", "text.verbosity", ""),
    "logprobs": ("mapped", "include", f"true adds `{_LOGPROBS}`"),
    "conversation_id": ("mapped", "conversation", ""),
    "parent_id": ("mapped", "previous_response_id", ""),
    "stop": ("chat", "stop", "up to four texts that end the answer"),
    "seed": ("chat", "seed", "the server tries to sample the same way again"),
    "logit_bias": ("chat", "logit_bias", "weights of tokens, by token id"),
    "n": ("ours", "", "only 1: one request gives one response"),
    "session": ("ours", "", "the conversation that the client keeps under this name"),
    "stateful": ("ours", "", "false: neither look the session up nor remember it"),
    "extra_body": ("ours", "", "fields that this version does not know, merged last"),
}
PARAMETERS: Final[tuple[Parameter, ...]] = tuple(
    Parameter(name, *_SPECIAL.get(name, ("same", name, ""))) for name in Params.__annotations__
)

REFUSED: Final[dict[str, str]] = {
    "functions": "give tools instead",
    "function_call": "give tool_choice instead",
    "best_of": "one request gives one response; send it as often as you want answers",
    "suffix": "not supported; describe in instructions what follows",
    "echo": "the input is not repeated; input_items() lists it",
    "modalities": "images come from the image_generation tool, or by extra_body from a chat server",
    "audio": "there is no audio output",
    "prediction": "there are no predicted outputs; leave it out",
    "web_search_options": 'give tools=[{"type": "web_search"}] instead',
    "system": "give instructions instead",
    "top_k": "a server that has it takes it in extra_body",
    "min_p": "a server that has it takes it in extra_body",
    "repetition_penalty": "a server that has it takes it in extra_body",
    "stream": "stream() streams and create() does not; leave it out",
}

# What to do instead where the server is not a chat server.
_WITHOUT_CHAT: Final = {
    "stop": "there are no stop sequences; bound the answer with max_output_tokens, or cut it",
    "seed": "sampling cannot be seeded; temperature=0 comes closest",
    "logit_bias": "tokens cannot be weighted; give instructions instead",
}
_ONE_RESPONSE: Final = "one request gives one response; send it as often as you want answers"

_BY_NAME: Final = {parameter.name: parameter for parameter in PARAMETERS}
# What the body has a parameter for: extra_body is no way around its checks.
_FIELDS: Final = frozenset(
    parameter.name for parameter in PARAMETERS if parameter.group in ("same", "input")
) | {"stream"}


def refuse_unknown(params: Mapping[str, Any]) -> None:
    """Raise for the first keyword that no call takes, and say what to do instead."""
    for name, value in params.items():
        if value is None or name in _BY_NAME:
            continue
        if name == "stream":
            raise BadCall(REFUSED[name], param=name)
        if name in REFUSED:
            raise UnsupportedParameter(name, REFUSED[name])
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        close = difflib.get_close_matches(snake, _BY_NAME, n=1)
        raise UnsupportedParameter(
            name, f"did you mean {close[0]}? Else {_HINT}" if close else _HINT
        )


def refuse_chat_only(given: Mapping[str, Any], way: str) -> None:
    """Raise for the first keyword that only chat servers take. `way` is how to ask one."""
    for name, instead in _WITHOUT_CHAT.items():
        if name in given:
            raise UnsupportedParameter(
                name,
                f"{instead}. A chat server takes it: {way}. "
                "An antiphon gateway takes it in extra_body",
            )


def place_parameters(params: Mapping[str, Any], wire: WireApi = "responses") -> dict[str, Any]:
    """Return the body that the keywords make, without the input. Nothing given is changed."""
    refuse_unknown(params)
    if params.get("n") not in (None, 1):
        raise UnsupportedParameter("n", _ONE_RESPONSE)
    given = {name: value for name, value in params.items() if _is_given(name, value)}
    body = {
        row.field: given[row.name]
        for row in PARAMETERS
        if row.group == "same" and row.name in given
    }
    writers = dict.fromkeys(body)
    for row in PARAMETERS:
        if row.group == "mapped" and row.name in given:
            _place(body, row, given[row.name], writers)
    if "tool_choice" in body:
        body["tool_choice"] = flat_choice(body["tool_choice"])
    _refuse_chat_options(body)
    if wire == "chat":
        body |= {name: given[name] for name in _WITHOUT_CHAT if name in given}
    else:
        refuse_chat_only(given, 'wire_api="chat"')
    _add_extra(body, given.get("extra_body", {}))
    return body


def _is_given(name: str, value: Any) -> bool:
    """Say whether a keyword has a value. A program's first turn has a thread of no name."""
    if name in _THREADS and isinstance(value, Mapping):
        value = value.get("id", value or None)
    return value is not None and not (name in _THREADS and value == "")


def _place(
    body: dict[str, Any], row: Parameter, value: Any, writers: dict[str, str | None]
) -> None:
    """Write a mapped value; `writers` knows which name wrote a field, None for its own."""
    if row.name == "logprobs":
        _ask_for_logprobs(body, value)
        return
    if row.name == "response_format":
        value = _flat_format(value)
    outer, _, inner = row.field.partition(".")
    fields, key = body, inner or outer
    if inner:
        fields = body[outer] = _object(outer, body.get(outer, {}))
    if fields.get(key) is not None and fields[key] != value:
        raise BadCall(
            f"{writers.get(row.field) or outer} and {row.name} both set {row.field}, to different "
            "values; give one of them",
            param=row.name,
        )
    fields[key] = value
    writers.setdefault(row.field, row.name)


def _ask_for_logprobs(body: dict[str, Any], is_wanted: object) -> None:
    if not isinstance(is_wanted, bool):
        raise BadCall("logprobs is true or false; how many is top_logprobs", param="logprobs")
    include = body.get("include", ())
    if isinstance(include, str):
        raise BadCall("include must be a list", param="include")
    if is_wanted and _LOGPROBS not in include:
        body["include"] = [*include, _LOGPROBS]


def _flat_format(given: Any) -> dict[str, Any]:
    """Return a response_format as text.format: there, what describes the schema stands outside."""
    form = _object("response_format", given)
    if not isinstance(form.get("type"), str):
        raise BadCall("response_format has no type", param="response_format")
    nested = form.pop("json_schema", None)
    return form if nested is None else {**form, **_object("response_format.json_schema", nested)}


def _refuse_chat_options(body: dict[str, Any]) -> None:
    options = body.get("stream_options")
    if isinstance(options, Mapping) and "include_usage" in options:
        raise UnsupportedParameter(
            "stream_options.include_usage", "usage always comes; leave it out"
        )


def _add_extra(body: dict[str, Any], given: Any) -> None:
    extra = _object("extra_body", given)
    known = sorted(_FIELDS.intersection(extra) | extra.keys() & body.keys())
    if known:
        raise BadCall(
            f"extra_body is for unknown fields; give {known[0]} as a keyword", param="extra_body"
        )
    body.update(extra)


def _object(name: str, value: Any) -> dict[str, Any]:
    """Return a copy, so that what the caller holds is never written to."""
    if not isinstance(value, Mapping):
        raise BadCall(f"{name} must be a dict", param=name)
    return dict(value)
