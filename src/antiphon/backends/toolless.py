"""How does a model that knows no tools call one?

Small models have no words for tools: their chat templates drop them. What they can do is write
JSON under a schema, so a call is made in two steps: which tool is decided first, then the
model writes its arguments and can write nothing else. The input of a custom tool with a
grammar is written under that.

Whether to call at all is beyond a small model (asked, it is right two times in three, and not
the same two times), so `auto` goes by a rule: a tool is called when the last message uses a
word of its name, or two of its description. After a tool's result the model answers in words,
because nothing else would ever end its turn. Everything here is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

import msgspec

from antiphon.plans.plan import NO_TOOLS, Plan
from antiphon.protocol.families import is_output
from antiphon.protocol.items import Item, item_type, last_user_text, text_of
from antiphon.protocol.tools import Tool, ToolPolicy
from antiphon.wires.chat.emulation import Emulation, emulate
from antiphon.wires.chat.profiles import Profile
from antiphon.wires.lower import lower_items, lower_tools

__all__ = [
    "candidates",
    "in_functions",
    "plan_answer",
    "plan_arguments",
    "plan_choice",
    "plan_words",
    "unenforced",
]

_ENOUGH: Final = 2
_NAME_WEIGHT: Final = 2
_MAX_DESCRIPTION: Final = 300
_DEFAULT_INSTRUCTIONS: Final = "You are a helpful assistant."

_SMALL_WORDS: Final = """
a about all an and any are as at be by call can current do does for from function get give has
have help how i if in into is it its like list me my new now of on one or out set show so tell
that the their this to tool use user was what when where which who will with you your
"""
_STOP_WORDS: Final = frozenset(_SMALL_WORDS.split())

# What constrained decoding does not hold the model to, tried out keyword by keyword: these
# nowhere, bounds only on integers, patterns only when anchored, and all but these formats.
_NOT_ENFORCED: Final = frozenset(
    {
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxProperties",
        "minProperties",
        "multipleOf",
        "not",
        "patternProperties",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_FORMATS: Final = frozenset({"date", "time", "date-time", "uuid"})
# What a result may show; that this model cannot see it is then reported.
_SHOWN: Final = frozenset({"input_image", "image_url", "input_file"})
_NAMED_SCHEMAS: Final = frozenset({"properties", "$defs", "definitions"})


def in_functions(plan: Plan) -> Plan:
    """Return the plan with its history told in functions, and without tools."""
    items = lower_items(plan.items, plan.toolbox)
    return msgspec.structs.replace(plan, items=items, toolbox=NO_TOOLS)


def candidates(plan: Plan) -> list[Tool]:
    """Return the tools one of which is to be called; none if the answer is to be in words."""
    allowed = [tool for tool in lower_tools(plan.toolbox) if plan.policy.allows(tool["name"])]
    if plan.policy.mode == "required":
        return _best(allowed, plan) or allowed
    if plan.items and is_output(plan.items[-1]):
        return []
    return _best(allowed, plan)


def plan_answer(
    plan: Plan, tools: Sequence[Tool], profile: Profile
) -> tuple[Plan, Emulation | None]:
    """Return what to ask for a call of the first tool, or for words if there is none.

    A tool with a grammar is asked for its input; then it is also said how to read the answer.
    """
    if not tools:
        return plan_words(in_functions(plan)), None
    only = ToolPolicy("required", frozenset({tools[0]["name"]}))
    emulation = emulate(msgspec.structs.replace(plan, policy=only, must_emulate=False), profile)
    if emulation is None:
        return plan_arguments(in_functions(plan), tools[0]), None
    return plan_words(in_functions(emulation.plan)), emulation


def plan_choice(plan: Plan, tools: Sequence[Tool]) -> Plan:
    """Return a plan whose answer is the name of one of the tools, as a JSON string."""
    rows = "\n".join(f"{tool['name']}: {_description(tool)}" for tool in tools)
    return msgspec.structs.replace(
        plan_words(plan),
        items=[{"role": "user", "content": last_user_text(plan.items)}],
        instructions=f"Say which tool the user's message needs.\n{rows}",
        format=_json_schema({"enum": [tool["name"] for tool in tools]}),
        max_output_tokens=None,
    )


def plan_arguments(plan: Plan, tool: Tool) -> Plan:
    """Return a plan whose answer is the arguments of the tool, as JSON."""
    schema = _closed(tool.get("parameters") or {"type": "object", "properties": {}})
    order = (
        f"Call the tool {tool['name']}: {_description(tool)} Answer only with its arguments as "
        f"JSON, taken from the user's message. Schema: {msgspec.json.encode(schema).decode()}"
    )
    said = f"{plan.instructions}\n\n{order}" if plan.instructions else order
    return msgspec.structs.replace(plan_words(plan), instructions=said, format=_json_schema(schema))


def plan_words(plan: Plan) -> Plan:
    """Return the plan without tools: earlier calls and their results are told in words."""
    return msgspec.structs.replace(
        plan,
        items=[said for item in plan.items for said in _in_words(item)],
        instructions=plan.instructions or (None if _has_system(plan) else _DEFAULT_INSTRUCTIONS),
        shows_tools=False,
        policy=ToolPolicy(),
        parallel_tool_calls=None,
    )


def unenforced(schema: object) -> list[str]:
    """Return the keywords in a schema that the model is not held to, each once."""
    return sorted(set(_loose(schema)))


def _best(tools: Sequence[Tool], plan: Plan) -> list[Tool]:
    """Return the tools that the last message names most clearly, if it names any."""
    said = _words(last_user_text(plan.items))
    scores = [_score(tool, said) for tool in tools]
    best = max(scores, default=0)
    if best < _ENOUGH:
        return []
    return [tool for tool, score in zip(tools, scores, strict=True) if score == best]


def _score(tool: Tool, said: set[str]) -> int:
    named = _words(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", tool["name"]))
    return _NAME_WEIGHT * len(said & named) + len(said & _words(_description(tool)) - named)


def _words(text: str) -> set[str]:
    """Return the words that mean something, without their plural."""
    words = re.findall(r"[^\W_]+", text.lower())
    return {word.removesuffix("s") for word in words if word not in _STOP_WORDS}


def _description(tool: Tool) -> str:
    """Return the first sentence of what a tool says it does, with its full stop."""
    text = " ".join((tool.get("description") or "").split())[:_MAX_DESCRIPTION]
    sentence = re.split(r"(?<=[.!?]) ", text, maxsplit=1)[0]
    return sentence if not sentence or sentence[-1] in ".!?" else f"{sentence}."


def _has_system(plan: Plan) -> bool:
    return any(item.get("role") in ("system", "developer") for item in plan.items)


def _in_words(item: Item) -> list[Item]:
    """Return a call and its result as messages; any other item as it is."""
    match item_type(item):
        case "function_call":
            return [_called(item)]
        case "function_call_output":
            return [_result(item)]
        case "hosted_call":
            return [_called(item), _result(item)]
        case _:
            return [item]


def _called(item: Item) -> Item:
    text = f"I call {item.get('name')} with {item.get('arguments')}."
    return {"type": "message", "role": "assistant", "content": text}


def _result(item: Item) -> Item:
    output = item.get("output")
    text = f"Result: {text_of(output)}\nUse this result to answer my question."
    shown = [part for part in output if part.get("type") in _SHOWN] if _is_list(output) else []
    content = [{"type": "input_text", "text": text}, *shown] if shown else text
    return {"type": "message", "role": "user", "content": content}


def _is_list(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(part, dict) for part in value)


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}


def _closed(schema: Any) -> Any:  # any JSON value; a schema where it is an object
    """Return the schema with its objects closed: the model would invent members for ever."""
    if isinstance(schema, list):
        return [_closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        inner.setdefault("additionalProperties", False)
    return inner


def _loose(schema: object) -> Iterator[str]:
    if isinstance(schema, list):
        for entry in schema:
            yield from _loose(entry)
    if not isinstance(schema, dict):
        return
    yield from _loose_here(schema)
    for key, value in schema.items():
        if key in _NAMED_SCHEMAS and isinstance(value, dict):
            yield from _loose(list(value.values()))
        elif key not in ("enum", "const", "default", "examples"):
            yield from _loose(value)


def _loose_here(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from _NOT_ENFORCED & schema.keys()
    if schema.get("type") != "integer":
        yield from _BOUNDS & schema.keys()
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not re.fullmatch(r"\^((?!\(\?).)*\$", pattern, re.DOTALL):
        yield "pattern"
    if "format" in schema and schema["format"] not in _FORMATS:
        yield "format"
