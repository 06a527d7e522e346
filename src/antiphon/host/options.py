"""What holds for one turn, and the call that it makes.

The messages are the input, so the options may not bring another one. Every option is in the
request or is refused by name, before anything is sent:

    model, input, messages, prompt (a text), wire_api   refused: the call itself decides them
    instructions        stand between the system prompt and the system messages
    tools               follow the tools of the application
    tool_choice         decides; a tool mode that contradicts it is refused
    session             the same as `RespondOptions.session`; two different ones are refused
    stop, seed, logit_bias   refused where the gate chooses Responses: chat servers take them
    any other           is the client's to place or to refuse

A tool mode of `required` needs tools, or a stored prompt, which may have some. A mode of
`none` needs nothing: without tools, none is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from antiphon.client.errors import BadCall, BadTool
from antiphon.client.function_tools import FunctionTool
from antiphon.client.parameters import Params, refuse_chat_only
from antiphon.client.request import plain_json
from antiphon.client.settings import WireApi
from antiphon.host.translate import Translation
from antiphon.protocol.tools import Mode, Tool

__all__ = [
    "RespondOptions",
    "ToolSpec",
    "make_params",
    "session_of",
    "system_text",
    "translate_tools",
]

_MODES: Final[tuple[Mode, ...]] = ("auto", "required", "none")
_CHAT_FOR_ALL: Final = "ProviderSettings(gate=GateConfig(responses_enabled=False))"


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as hosts describe it: LanguageModelChatTool in VS Code."""

    name: str
    description: str
    input_schema: Mapping[str, Any] | None = None


class RespondOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one turn.

    `model_options` are parameters as the client takes them: `temperature`, `max_output_tokens`,
    `reasoning`, … `session` names the conversation that the messages are of: its turns form a
    thread, so that only what is new is sent, and they are counted together.
    """

    tools: Sequence[ToolSpec | FunctionTool] = ()
    tool_mode: Mode = "auto"
    model_options: Mapping[str, Any] = {}
    system_prompt: str = ""
    session: str | None = None


def session_of(options: RespondOptions) -> str | None:
    """Return the session of a turn, wherever it was given. Raise BadCall for two different ones."""
    given = options.model_options.get("session")
    if options.session is None or given is None or given == options.session:
        return given if options.session is None else options.session
    raise BadCall(
        "RespondOptions.session and model_options['session'] differ; give one of them",
        param="session",
    )


def system_text(options: RespondOptions) -> str:
    """Return what goes before the system messages: the system prompt, then `instructions`."""
    given = options.model_options.get("instructions")
    if given is not None and not isinstance(given, str):
        raise BadCall("model_options['instructions'] must be a text", param="instructions")
    return "\n\n".join(text for text in (options.system_prompt, given) if text)


def make_params(model: str, sent: Translation, options: RespondOptions, wire: WireApi) -> Params:
    """Return the keywords of the client's call. Raise BadCall for an option it cannot hold.

    `sent` was translated with `system_text`, so its instructions are complete. The input goes
    as `messages`, because it is the whole conversation: where the call continues a thread, the
    client takes out what the server already has.
    """
    given = {
        name: plain_json(value, name)
        for name, value in options.model_options.items()
        if value is not None
    }
    _refuse_other_input(model, given)
    if wire != "chat":
        refuse_chat_only(given, _CHAT_FOR_ALL)
    params: dict[str, Any] = {**given, "model": model, "messages": sent.items}
    session = session_of(options)
    if session is not None:
        params["session"] = session
    if sent.instructions is not None:
        params["instructions"] = sent.instructions
    tools = [*translate_tools(options.tools), *_given_tools(given)]
    if tools:
        params["tools"] = tools
    choice = _tool_choice(options, given, has_tools=bool(tools))
    if choice is not None:
        params["tool_choice"] = choice
    # The client checks what the application put in, name by name.
    return cast(Params, params)


def _refuse_other_input(model: str, given: Mapping[str, Any]) -> None:
    if given.get("model", model) != model:
        raise BadCall(
            f"model_options['model'] is {given['model']!r}, but {model!r} is asked; "
            "give the model as the first argument",
            param="model",
        )
    for name in ("input", "messages", "prompt"):
        if name in given and not (name == "prompt" and isinstance(given[name], Mapping)):
            raise BadCall(
                f"model_options[{name!r}] cannot be sent: the messages are the input",
                param=name,
            )
    if "wire_api" in given:
        raise BadCall(
            "model_options['wire_api'] is not an option: the gate chooses the endpoint "
            "(ProviderSettings.gate)",
            param="wire_api",
        )


def _given_tools(given: Mapping[str, Any]) -> Sequence[Any]:
    tools = given.get("tools", ())
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise BadCall("model_options['tools'] must be a list", param="tools")
    return tools


def _tool_choice(
    options: RespondOptions, given: Mapping[str, Any], *, has_tools: bool
) -> object | None:
    """Return the tool_choice to send; None if there is nothing to choose from."""
    mode = options.tool_mode
    if mode not in _MODES:
        raise ValueError(f"the tool mode must be one of {', '.join(_MODES)}, not {mode!r}")
    choice = given.get("tool_choice")
    if choice is not None:
        if mode not in ("auto", choice):
            raise BadCall(
                f"tool_mode is {mode!r}, but model_options['tool_choice'] says otherwise; "
                "give one of them",
                param="tool_choice",
            )
        return cast(object, choice)
    if has_tools:
        return mode
    if mode == "required":
        if isinstance(given.get("prompt"), Mapping):
            return mode
        raise BadCall("tool_mode is 'required', but there are no tools", param="tool_mode")
    return None


def translate_tools(tools: Sequence[ToolSpec | FunctionTool]) -> list[Tool]:
    """Return the tools as function tools. Raise BadTool for anything that is not a tool.

    Those of a host are not `strict`, which is the default of the API: a host's
    schema rarely keeps the rules of that mode, and servers refuse one that does not.
    """
    return [_translate_tool(tool, place) for place, tool in enumerate(tools)]


def _translate_tool(tool: object, place: int) -> Tool:
    if isinstance(tool, FunctionTool):
        return dict(tool.definition)
    if not isinstance(tool, ToolSpec):
        kind = type(tool).__name__
        raise BadTool(
            f"tools[{place}]", f"it is of type {kind}; give a ToolSpec or function_tool(…)"
        )
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": _plain(tool.input_schema or {"type": "object", "properties": {}}),
        "strict": False,
    }


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of any kind of mappings as one of dicts."""
    plain: dict[str, Any] = json.loads(json.dumps(schema, default=dict))
    return plain
