"""A model that answers what a probe asks: small, deterministic, and a little disobedient.

It is a function from a chat-completions body to a `Script`, so it stands behind a real
HTTP upstream. It knows a handful of questions and fills any JSON Schema. What the gateway
promises to enforce, it ignores on purpose: it calls tools under `tool_choice: none` and calls
two where only one is wanted. Tokens are words.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from antiphon.testing import Call, Script
from tests.conformance.judges import Json

__all__ = ["MODEL", "answer"]

MODEL: Final = "tiny-1"

_NO_LIMIT: Final = 2**31
_THOUGHT: Final = "They ask, so I answer."
_ESSAY: Final = " ".join(["The sea is wide and old."] * 40)
_ASKS_FOR_BOTH: Final = re.compile(r"\bboth\b", re.IGNORECASE)
_SUM: Final = re.compile(r"(\d+) *([*+]) *(\d+)")
_NAME: Final = re.compile(r"\bname is (\w+)")
_CONTENT: Final = re.compile(r"content exactly:\n(.*)", re.DOTALL)
_REPEAT: Final = re.compile(r"(?:Repeat this text exactly|Say exactly)[^:]*: (.*)", re.DOTALL)


def answer(body: Json) -> Script:
    """Return the answer of this model to a request."""
    messages: list[Json] = body["messages"]
    question = _text([m for m in messages if m["role"] == "user"][-1:])
    thought = _THOUGHT if body.get("reasoning_effort") not in (None, "none") else ""
    calls = _calls(body, question)
    said = "" if calls else _cut_at_stop(_say(body, messages, question), body.get("stop"))
    return _cap(Script(text=said, reasoning=thought, calls=calls, model=MODEL), body)


def _calls(body: Json, question: str) -> list[Call]:
    tools = [tool["function"] for tool in body.get("tools") or ()]
    if not tools or body["messages"][-1]["role"] == "tool":
        return []
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        tools = [tool for tool in tools if tool["name"] == choice["function"]["name"]]
    elif not _ASKS_FOR_BOTH.search(question):
        tools = tools[:1]
    return [
        Call(tool["name"], json.dumps(_fill(tool.get("parameters") or {}, question)), f"call_{i}")
        for i, tool in enumerate(tools)
    ]


def _say(body: Json, messages: list[Json], question: str) -> str:
    form = body.get("response_format") or {"type": "text"}
    if form["type"] == "json_schema":
        return json.dumps(_fill(form["json_schema"]["schema"], question))
    if form["type"] == "json_object":
        return '{"name": "Ada", "age": 36}'
    if messages[-1]["role"] == "tool":
        return f"The tool says: {_text(messages[-1:])}"
    if match := _REPEAT.search(question):
        return match[1]
    if match := _SUM.search(question):
        left, right = int(match[1]), int(match[3])
        return str(left * right if match[2] == "*" else left + right)
    if "my name" in question and (names := _NAME.findall(_text(messages))):
        return str(names[-1])
    if any(part.get("type") == "image_url" for part in _parts(messages)):
        return "Square."
    return _ESSAY if re.search(r"essay|at length|Count from", question) else "Hello there."


def _cut_at_stop(text: str, stop: str | list[str] | None) -> str:
    for one in [stop] if isinstance(stop, str) else stop or ():
        text = text.partition(one)[0]
    return text


def _fill(schema: Json, question: str, name: str = "") -> Any:  # Any: what the schema describes
    """Return a value that the schema allows, with what the question offers."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties") or {}
            return {name: _fill(field, question, name) for name, field in fields.items()}
        case "array":
            return [_fill(schema.get("items") or {}, question)]
        case "integer" | "number":
            numbers = re.findall(r"\d+", question)
            return int(numbers[0]) if numbers else 36
        case "boolean":
            return True
        case _ if name == "content" and (match := _CONTENT.search(question)):
            return match[1]
        case _:
            names = re.findall(r"(?<=[a-z] )[A-Z]\w+", question)
            return names[0] if names else "Ada"


def _cap(script: Script, body: Json) -> Script:
    """Return the script cut off at the caller's limit, with usage as a backend counts it."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or _NO_LIMIT
    thought, said = script.reasoning.split()[:limit], str(script.text).split(" ")
    room = limit - len(thought)
    asked = len(_text(body["messages"]).split())
    spent = (
        len(thought) + min(len(said), room) + sum(len(c.arguments.split()) for c in script.calls)
    )
    capped = msgspec.structs.replace(
        script,
        reasoning=" ".join(thought),
        text=" ".join(said[:room]),
        usage={
            "prompt_tokens": asked,
            "completion_tokens": spent,
            "total_tokens": asked + spent,
            "prompt_tokens_details": {"cached_tokens": asked // 2},
            "completion_tokens_details": {"reasoning_tokens": len(thought)},
        },
    )
    is_cut = len(said) > room and not script.calls
    return msgspec.structs.replace(capped, finish_reason="length") if is_cut else capped


def _text(messages: list[Json]) -> str:
    """Return the text of these messages."""
    return "\n".join(part.get("text") or "" for part in _parts(messages))


def _parts(messages: list[Json]) -> list[Json]:
    parts: list[Json] = []
    for message in messages:
        content = message.get("content")
        parts += content if isinstance(content, list) else [{"type": "text", "text": content}]
    return parts
