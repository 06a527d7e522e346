"""How is a model made to call a tool when its server does not enforce it?

A server that holds its model to a JSON Schema can be asked for a call in the form of an answer:
an object with the name of one of the tools and its arguments. The model can write nothing else,
and its answer is reported as the call. The tools are then described in the instructions.

The one custom tool that must be called, and has a grammar, is asked for in the same way where
the server takes grammars: the answer is the input itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallClosed, CallGrew, CallOpened, Delta, Stopped, TextGrew
from antiphon.protocol.tools import Tool, ToolPolicy
from antiphon.wires.chat.grammars.gbnf import lark_to_gbnf, regex_to_gbnf
from antiphon.wires.chat.profiles import Profile
from antiphon.wires.lower import functions_of

__all__ = ["Emulation", "emulate", "grammar_field"]

_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_KEY: Final = 0


class Emulation:
    """A plan to ask instead, and how its answer is read: as a call of one of the tools."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return what the deltas of the answer stand for."""
        raise NotImplementedError

    def release(self) -> list[Delta]:
        """Return what was held back when the answer breaks off."""
        return []


def emulate(plan: Plan, profile: Profile) -> Emulation | None:
    """Return how a required call is enforced without the server's help, if it has to be."""
    if plan.policy.mode != "required" or not plan.toolbox.offers:
        return None
    allowed = [tool for tool in functions_of(plan) if plan.policy.allows(tool["name"])]
    if len(allowed) == 1:
        form = _grammar_of(plan, allowed[0]["name"])
        if form is not None and grammar_field(form, profile) is not None:
            return _Input(plan, allowed[0], form)
    if not profile.json_schema or (profile.enforces_required and not plan.must_emulate):
        return None
    return _Call(plan, allowed)


def grammar_field(form: dict[str, Any], profile: Profile) -> dict[str, Any] | None:
    """Return the fields that hold a server's model to a grammar, or None if it has none."""
    syntax, definition = form["syntax"], form["definition"]
    if profile.grammar == "structured_outputs":
        name = "regex" if syntax == "regex" else "grammar"
        return {"structured_outputs": {name: definition}}
    if profile.grammar == "gbnf":
        gbnf = regex_to_gbnf(definition) if syntax == "regex" else lark_to_gbnf(definition)
        return None if gbnf is None else {"grammar": gbnf}
    return None


class _Call(Emulation):
    """The answer is `{"name": …, "arguments": {…}}`."""

    def __init__(self, plan: Plan, tools: Sequence[Tool]) -> None:
        rows = "\n".join(_row(tool) for tool in tools)
        order = (
            "Call one of these tools now. Answer only with JSON: the tool's name, and its "
            f"arguments by its schema.\n{rows}"
        )
        super().__init__(_without_tools(plan, order, _json_schema(_schema(tools))))
        self._names = frozenset(tool["name"] for tool in tools)
        self._held: list[TextGrew] = []

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return the call once it is whole; what is no text passes."""
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextGrew):
                self._held.append(delta)
                continue
            if isinstance(delta, Stopped):
                out += self._tell()
            out.append(delta)
        return out

    def release(self) -> list[Delta]:
        """Return the text of a call that was cut short."""
        held, self._held = self._held, []
        return list(held)

    def _tell(self) -> list[Delta]:
        try:
            call = msgspec.json.decode("".join(piece.text for piece in self._held), type=_Written)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return self.release()
        if call.name not in self._names:
            return self.release()
        self._held = []
        arguments = bytes(call.arguments).decode()
        return [CallOpened(_KEY, call.name), CallGrew(_KEY, arguments), CallClosed(_KEY)]


class _Written(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


class _Input(Emulation):
    """The answer is the input of a custom tool, under its grammar."""

    def __init__(self, plan: Plan, tool: Tool, form: dict[str, Any]) -> None:
        order = (
            f"Call the tool {tool['name']} now. Answer only with its input, as plain text.\n"
            f"{tool.get('description') or ''}"
        )
        super().__init__(_without_tools(plan, order.rstrip(), form))
        self._name = tool["name"]
        self._is_open = False
        self._is_called = False

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return the text as the one argument of the tool."""
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextGrew):
                out += self._open()
                out.append(CallGrew(_KEY, msgspec.json.encode(delta.text).decode()[1:-1]))
                continue
            if isinstance(delta, CallOpened):
                self._is_called = True
            if isinstance(delta, Stopped) and delta.reason == "stop" and not self._is_called:
                out += [*self._open(), CallGrew(_KEY, '"}'), CallClosed(_KEY)]
            out.append(delta)
        return out

    def _open(self) -> list[Delta]:
        if self._is_open:
            return []
        self._is_open = True
        return [CallOpened(_KEY, self._name), CallGrew(_KEY, '{"input":"')]


def _grammar_of(plan: Plan, alias: str) -> dict[str, Any] | None:
    offer = plan.toolbox.called(alias)
    form = offer.tool.get("format") if offer is not None and offer.kind == "custom" else None
    return form if form and form.get("type") == "grammar" else None


def _without_tools(plan: Plan, order: str, form: dict[str, Any]) -> Plan:
    return msgspec.structs.replace(
        plan,
        instructions=f"{plan.instructions}\n\n{order}" if plan.instructions else order,
        shows_tools=False,
        policy=ToolPolicy(),
        parallel_tool_calls=None,
        format=form,
        must_emulate=False,
    )


def _row(tool: Tool) -> str:
    parameters = msgspec.json.encode(tool.get("parameters") or _NO_PARAMETERS).decode()
    return f"- {tool['name']}: {tool.get('description') or ''}\n  schema: {parameters}"


def _json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "call", "schema": schema, "strict": True}


def _schema(tools: Sequence[Tool]) -> dict[str, Any]:
    """Return the schema of a call of one of the tools.

    Parameters that refer to their own parts are put where those can still be found.
    """
    shapes = [tool.get("parameters") or _NO_PARAMETERS for tool in tools]
    apart = {
        f"tool_{index}": _moved(shape, f"#/$defs/tool_{index}")
        for index, shape in enumerate(shapes)
        if _refers(shape)
    }
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool["name"]},
                "arguments": {"$ref": f"#/$defs/tool_{index}"}
                if f"tool_{index}" in apart
                else shapes[index],
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for index, tool in enumerate(tools)
    ]
    whole: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return whole | {"$defs": apart} if apart else whole


def _refers(schema: object) -> bool:
    if isinstance(schema, dict):
        return "$ref" in schema or any(_refers(value) for value in schema.values())
    return isinstance(schema, list) and any(_refers(value) for value in schema)


def _moved(schema: Any, place: str) -> Any:  # any JSON value; a schema where it is an object
    if isinstance(schema, list):
        return [_moved(entry, place) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, place) for key, value in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = place + reference[1:]
    return moved
