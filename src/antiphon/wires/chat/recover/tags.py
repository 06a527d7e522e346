"""Is what stands between these tags a call?

    <tool_call>{json}</tool_call>                              Hermes, Qwen; any …call(s) tag
    <tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>…   GLM
    <function=name>{json}</function>                           Llama
    <function=name><parameter=k>v</parameter></function>       Qwen3-Coder
    <invoke name="name"><parameter name="k">v</parameter></invoke>
    <|python_tag|>{json}; {json}                               Llama
    <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{json}   Kimi
    <｜tool▁call▁begin｜>function<｜tool▁sep｜>name, then fenced JSON        DeepSeek
    [TOOL_CALLS]name[ARGS]{json}, [TOOL_CALLS][{json}]         Mistral

Tags around these are skipped, and so is an end tag right after a call. End tags may come late or
never, so a call is reported when its arguments are complete.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from antiphon.wires.chat.recover.json_calls import NAME, SPACE, read_calls, read_parens, read_value
from antiphon.wires.chat.recover.pending_text import Found, Held, NotACall, Steps
from antiphon.wires.chat.recover.values import Names, object_text, write_object

__all__ = ["Tag", "is_end_tag", "read_tag", "read_tagged", "read_wrapped"]

_MAX_WORD: Final = 48
_MAX_ATTRIBUTES: Final = 256
_MAX_NAME: Final = 256
_MAX_PARAMETERS: Final = 1024
_MAX_NESTED: Final = 4

_WORD: Final = re.compile(r"[\w:.|｜▁-]*")
_ATTRIBUTES: Final = re.compile(r"[^<>\n]*")
_ATTRIBUTE: Final = re.compile(r"""\b([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_BETWEEN: Final = re.compile(r"[\s,;]*")
_TICKS: Final = re.compile(r"`*")
_INFO: Final = re.compile(r"[\w-]*")

_AROUND: Final = re.compile(
    r"\w*(?:tool|function)_?calls?|tools?|\|(?:python_tag|start_action)\||\|(?:tool_calls?(?:_section)?(?:_begin|_start)?)\|"
)
_AFTER: Final = re.compile(
    r"\w*(?:tool|function)s?(?:_?calls?)?|invoke|s|\|?/?tool_calls?(?:_section)?(?:_end)?\|?"
)
_ENDS: Final = frozenset(
    {
        *(
            "|/tool_call|",
            "|end_action|",
            "|tool_call_end|",
            "|tool_calls_end|",
            "|tool_calls_section_end|",
        ),
        *("|im_end|", "|eot_id|", "|eom_id|", "|end_of_sentence|"),
    }
)
_NAMED: Final = frozenset({"function", "invoke", "tool"})
_PARAMETERS: Final = frozenset({"parameter", "param", "arg"})


class Tag(NamedTuple):
    """A tag: its word in a normal form and as written, and its attributes."""

    word: str
    raw: str
    is_end: bool
    attributes: dict[str, str]


def read_tag(held: Held) -> Steps[Tag]:
    """Return the tag that begins here. Given up at the first character no such tag has."""
    yield from held.step("<")
    is_end = (yield from held.peek()) == "/"
    held.at += is_end
    raw = yield from held.run(_WORD, _MAX_WORD)
    if raw == "|" and (yield from held.peek()) == "/":  # Phi ends its calls by <|/tool_call|>
        held.at += 1
        raw += "/" + (yield from held.run(_WORD, _MAX_WORD))
    word = _one_spelling(raw)
    char = yield from held.step("> =") if raw else held.step("")
    attributes: dict[str, str] = {}
    if char != ">":
        if is_end or word not in _NAMED | _PARAMETERS:
            raise NotACall
        said = yield from held.run(_ATTRIBUTES, _MAX_ATTRIBUTES)
        yield from held.step(">")
        attributes = {"name": said.strip(" \"'")} if char == "=" else _read_attributes(said)
    return Tag(word, raw, is_end, attributes)


def is_end_tag(tag: Tag) -> bool:
    """Return whether the tag only ends a call, or the turn."""
    return tag.word in _ENDS or (tag.is_end and _AFTER.fullmatch(tag.word) is not None)


def read_tagged(held: Held, names: Names, nested: int = 0) -> Steps[None]:
    """Keep the call in the tag that begins here; after a call, keep an end tag."""
    try:
        tag = yield from read_tag(held)
    except NotACall:
        if not (held.is_after_call and held.is_ended and held.waits):
            raise
        # The text ends within a tag, and what else could follow a call?
        held.keep()
        return
    if is_end_tag(tag):
        if not held.is_after_call:
            raise NotACall
        held.keep()
    elif tag.is_end or nested > _MAX_NESTED:
        raise NotACall
    elif tag.word in _NAMED and "name" in tag.attributes:
        held.keep((yield from _read_function(held, names, tag)))
    elif _AROUND.fullmatch(tag.word):
        yield from read_wrapped(held, names, nested)
    else:
        raise NotACall


def read_wrapped(held: Held, names: Names, nested: int = 0) -> Steps[None]:
    """Keep the calls that follow an opening tag."""
    char = yield from held.skip(SPACE)
    if char == "<":
        yield from read_tagged(held, names, nested + 1)
    elif char == "`":
        yield from _read_ticks(held)
        held.keep(*(yield from read_calls(held, names, is_tagged=True)))
        yield from _skip_ticks(held)
    elif char and char in "{[":
        yield from _read_many(held, names)
    else:
        held.keep((yield from _read_named(held, names)))


def _read_many(held: Held, names: Names) -> Steps[None]:
    """Keep calls as JSON, one after the other; a brace too many is passed over."""
    char = "{"
    while char and char in "{[}":
        if char == "}":
            held.at += 1
            held.keep()
        else:
            held.keep(*(yield from read_calls(held, names, is_tagged=True)))
        char = yield from held.skip(_BETWEEN)


def _read_named(held: Held, names: Names) -> Steps[Found]:
    """Return a call that begins with its name, bare."""
    said = yield from held.run(NAME, _MAX_NAME)
    name = names.find_numbered(said)
    if name is None and (yield from held.peek()) == "(":
        return (yield from read_parens(held, names, said))
    if name is None and said != "function":
        raise NotACall
    char = yield from held.skip(SPACE)
    if char == "<":
        return (yield from _read_after_name(held, names, name))
    if name is None:
        raise NotACall
    if char == "(":
        return (yield from read_parens(held, names, name))
    if char == "[":
        yield from _skip_call_id(held)
    return Found(name, (yield from _read_object(held)))


def _read_after_name(held: Held, names: Names, name: str | None) -> Steps[Found]:
    """Return the call whose bare name a tag follows."""
    tag = yield from read_tag(held)
    if tag.word == "|tool_sep|":
        char = yield from held.skip(SPACE)
        if char and char not in "{`":
            name = names.find_numbered((yield from held.run(NAME, _MAX_NAME)))
    if name is None:
        raise NotACall
    if tag.word in ("|tool_sep|", "|tool_call_argument_begin|"):
        return Found(name, (yield from _read_object(held)))
    if is_end_tag(tag):
        return Found(name, "{}")
    return _found(name, (yield from _read_pairs(held, names, name, tag)))


def _read_pairs(held: Held, names: Names, name: str, tag: Tag) -> Steps[dict[str, Any]]:
    """Return arguments as GLM writes them; the first tag was read."""
    fields: dict[str, Any] = {}
    while tag.word == "arg_key" and len(fields) < _MAX_PARAMETERS:
        key = (yield from held.until(f"</{tag.raw}>")).strip()
        yield from held.skip(SPACE)
        value = yield from read_tag(held)
        if value.word != "arg_value":
            raise NotACall
        text = yield from held.until(f"</{value.raw}>")
        fields[key] = names.value(name, key, text)
        if not (yield from held.skip(SPACE)) and not held.is_cut:
            return fields
        tag = yield from read_tag(held)
    if not is_end_tag(tag):
        raise NotACall
    return fields


def _read_function(held: Held, names: Names, tag: Tag) -> Steps[Found]:
    """Return the call of a tag that has its name."""
    name = names.find_numbered(tag.attributes["name"])
    if name is None:
        raise NotACall
    if (yield from held.skip(SPACE)) != "<":
        return Found(name, (yield from _read_object(held)))
    fields: dict[str, Any] = {}
    while len(fields) < _MAX_PARAMETERS:
        inner = yield from read_tag(held)
        if is_end_tag(inner):
            return _found(name, fields)
        if inner.is_end or inner.word not in _PARAMETERS or "name" not in inner.attributes:
            raise NotACall
        key = inner.attributes["name"]
        text = _unwrap((yield from held.until(f"</{inner.raw}>")))
        is_text = inner.attributes.get("string") == "true"
        fields[key] = text if is_text else names.value(name, key, text)
        if not (yield from held.skip(SPACE)) and not held.is_cut:
            return _found(name, fields)
    raise NotACall


def _found(name: str, fields: dict[str, Any]) -> Found:
    try:
        return Found(name, write_object(fields))
    except ValueError:
        # Too deep, or half a character.
        raise NotACall from None


def _read_object(held: Held) -> Steps[str]:
    """Return the JSON object that follows, fenced or not."""
    char = yield from held.skip(SPACE)
    is_fenced = char == "`"
    if is_fenced:
        char = yield from _read_ticks(held)
    if char != "{":
        raise NotACall
    arguments = object_text((yield from read_value(held)))
    if arguments is None:
        raise NotACall
    if is_fenced:
        yield from _skip_ticks(held)
    return arguments


def _read_ticks(held: Held) -> Steps[str]:
    """Pass over the line that opens a code block; return the character that follows."""
    if len((yield from held.run(_TICKS))) < 3:
        raise NotACall
    yield from held.run(_INFO, _MAX_WORD)
    return (yield from held.skip(SPACE))


def _skip_ticks(held: Held) -> Steps[None]:
    """Keep the end of a code block, if it is there."""
    if (yield from held.skip(SPACE)) == "`":
        yield from held.run(_TICKS)
        held.keep()


def _skip_call_id(held: Held) -> Steps[None]:
    """Pass over `[CALL_ID]…[ARGS]` or `[ARGS]`."""
    mark = yield from held.until("]")
    if mark == "[CALL_ID":
        yield from held.run(NAME, _MAX_NAME)
        mark = yield from held.until("]")
    if mark != "[ARGS":
        raise NotACall


def _one_spelling(raw: str) -> str:
    """Return the word of a tag in small letters, without a prefix, with plain bars."""
    word = raw.replace("｜", "|").replace("▁", "_").removeprefix("|DSML|")
    return word.rpartition(":")[2].lower()


def _read_attributes(said: str) -> dict[str, str]:
    return {match[1]: match[2] or match[3] or "" for match in _ATTRIBUTE.finditer(said)}


def _unwrap(text: str) -> str:
    """Return the text without the line breaks that set it off from its tags."""
    return text.removeprefix("\n").removesuffix("\n")
