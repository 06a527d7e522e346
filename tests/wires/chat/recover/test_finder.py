"""Calls that a server left in the text: which are found, which are not, and what is held."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from types import FrameType
from typing import Any

import pytest

from antiphon.protocol.deltas import CallClosed, CallGrew, CallOpened, TextGrew
from antiphon.wires.chat.recover.finder import FIRST_KEY, CallFinder

NAMES = frozenset({"shell", "get_weather", "read_file"})
LS = '{"command": "ls"}'
SHELL = ("shell", {"command": "ls"})
JSON = '{"name": "shell", "arguments": {"command": "ls"}}'
WEATHER = '{"name": "get_weather", "arguments": {"city": "Köln", "days": 2}}'
CITY = ("get_weather", {"city": "Köln", "days": 2})

Calls = list[tuple[str, Any]]


def find(*pieces: str, names: Collection[str] = NAMES, **end: bool) -> tuple[str, Calls]:
    """Return the text and the calls that the pieces come to."""
    finder = CallFinder(names)
    deltas = [delta for piece in pieces for delta in finder.feed(piece)]
    deltas += finder.release(**end)
    text, open_key = "", None
    calls: Calls = []
    for delta in deltas:
        match delta:
            case TextGrew(text=more):
                assert more and open_key is None
                text += more
            case CallOpened(key=key, name=name):
                assert open_key is None and key == FIRST_KEY + len(calls)
                open_key = key
                calls.append((name, None))
            case CallGrew(key=key, arguments=arguments):
                assert key == open_key
                calls[-1] = (calls[-1][0], json.loads(arguments))
            case CallClosed(key=key):
                assert key == open_key
                open_key = None
    return text, calls


def assert_found(text: str, said: str, calls: Calls, **settings: Any) -> None:
    assert find(text, **settings) == (said, calls)
    assert find(*text, **settings) == (said, calls)
    for cut in range(1, len(text)):
        assert find(text[:cut], text[cut:], **settings) == (said, calls), text[:cut]


FORMS = {
    "fenced json": f"```json\n{JSON}\n```",
    "fenced json, on lines": "```json\n" + json.dumps(json.loads(JSON), indent=2) + "\n```\n",
    "fenced, plain": f"```\n{JSON}\n```",
    "fenced, tool_call": f"```tool_call\n{JSON}\n```",
    "fenced, python": f"```python\n{JSON}\n```",
    "fenced, in capitals": f"```JSON\n{JSON}\n```",
    "fenced, four marks": f"````json\n{JSON}\n````",
    "fenced, on one line": f"```json {JSON}```",
    "fenced, no end": f"```json\n{JSON}",
    "fenced list": f"```json\n[{JSON}]\n```",
    "fenced tags": f"```xml\n<tool_call>\n{JSON}\n</tool_call>\n```",
    "fenced tool_code": '```tool_code\nshell(command="ls")\n```',
    "fenced, a brace too many": f"```json\n{JSON}}}\n```",
    "fenced tool_call, a brace short": f"```tool_call\n{JSON[:-1]}\n```",
    "hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "hermes, no end": f"<tool_call>\n{JSON}",
    "hermes, a brace short": f"<tool_call>\n{JSON[:-1]}\n</tool_call>",
    "hermes, a brace short at the end": f"<tool_call>\n{JSON[:-1]}",
    "hermes, a brace too many": f"<tool_call>\n{JSON}}}\n</tool_call>",
    "hermes, fenced inside": f"<tool_call>\n```json\n{JSON}\n```\n</tool_call>",
    "hermes, wrong end": f"<tool_call>{JSON}</function_call>",
    "list in tags": f"<tool_calls>[{JSON}]</tool_calls>",
    "function_call": f"<function_call>{JSON}</function_call>",
    "qwen3-coder": "<tool_call>\n<function=shell>\n<parameter=command>\nls\n</parameter>\n"
    "</function>\n</tool_call>",
    "qwen3-coder, bare": "<function=shell>\n<parameter=command>\nls\n</parameter>\n</function>",
    "qwen3-coder, no end": "<function=shell><parameter=command>ls</parameter>\n",
    "llama function": f"<function=shell>{LS}</function>",
    "llama function, quoted": f'<function="shell">{LS}</function>',
    "llama python tag": f"<|python_tag|>{JSON}<|eom_id|>",
    "llama python tag, call": '<|python_tag|>shell.call(command="ls")',
    "glm": "<tool_call>shell\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
    "glm, no end": "<tool_call>shell<arg_key>command</arg_key><arg_value>ls</arg_value>",
    "glm, json": f"<tool_call>shell\n{LS}</tool_call>",
    "invoke": '<function_calls>\n<invoke name="shell">\n<parameter name="command">ls</parameter>\n'
    "</invoke>\n</function_calls>",
    "invoke, prefixed": '<x:function_calls><x:invoke name="shell">'
    '<x:parameter name="command">ls</x:parameter></x:invoke></x:function_calls>',
    "minimax": '<minimax:tool_call>\n<invoke name="shell">\n<parameter name="command">ls'
    "</parameter>\n</invoke>\n</minimax:tool_call>",
    "dsml": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="shell">\n'
    '<｜DSML｜parameter name="command" string="true">ls</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "mistral list": f"[TOOL_CALLS][{JSON}]",
    "mistral list, spaced": f"[TOOL_CALLS] [{JSON}]</s>",
    "mistral args": f"[TOOL_CALLS]shell[ARGS]{LS}",
    "mistral id": f"[TOOL_CALLS]shell[CALL_ID]a1b2[ARGS]{LS}",
    "mistral name": f"[TOOL_CALLS]shell{LS}",
    "deepseek v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>shell\n"
    f"```json\n{LS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "deepseek v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>shell<｜tool▁sep｜>"
    f"{LS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek, plain bars": f"<|tool_calls_begin|><|tool_call_begin|>shell<|tool_sep|>{LS}",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.shell:0"
    f"<|tool_call_argument_begin|>{LS}<|tool_call_end|><|tool_calls_section_end|>",
    "lfm2": '<|tool_call_start|>[shell(command="ls")]<|tool_call_end|>',
    "granite": f"<|tool_call|>[{JSON}]",
    "phi": f"<|tool_call|>[{JSON}]<|/tool_call|>",
    "nemotron": f"<TOOLCALL>[{JSON}]</TOOLCALL>",
    "qwen2.5-coder, tools": f"<tools>\n{JSON}\n</tools>",
    "command": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "shell", '
    f'"parameters": {LS}}}]<|END_ACTION|>',
    "gemma, printed": '```tool_code\nprint(shell(command="ls") )\n```',
    "fenced json, a brace short": f"```json\n{JSON[:-1]}\n```",
    "bare, a brace short at the end": JSON[:-1],
    "bare": JSON,
    "bare, with the end of a turn": f"{JSON}<|im_end|>",
    "bare list": f"[{JSON}]",
    "bare, parameters": '{"name": "shell", "parameters": {"command": "ls"}}',
    "bare, args": '{"name": "shell", "args": {"command": "ls"}}',
    "bare, input": '{"name": "shell", "input": {"command": "ls"}}',
    "bare, arguments first": f'{{"arguments": {LS}, "name": "shell"}}',
    "bare, tool": f'{{"tool": "shell", "arguments": {LS}}}',
    "bare, function is the name": f'{{"function": "shell", "arguments": {LS}}}',
    "bare, function inside": f'{{"type": "function", "function": {JSON}}}',
    "bare, tool_calls": f'{{"tool_calls": [{{"id": "c1", "function": {JSON}}}]}}',
    "bare, a message": f'{{"role": "assistant", "content": null, "tool_calls": [{JSON}]}}',
    "bare, more fields": f'{{"id": "c1", "name": "shell", "why": "x", "arguments": {LS}}}',
    "bare, a string in the JSON": json.dumps({"name": "shell", "arguments": LS}),
    "bare, single quotes": "{'name': 'shell', 'arguments': {'command': 'ls'}}",
    "bare, a comma too many": '{"name": "shell", "arguments": {"command": "ls",}}',
    "glm, python": '<tool_call>shell(command="ls")</tool_call>',
    "pythonic, three quotes": '[shell(command="""ls""")]',
    "pythonic": '[shell(command="ls")]',
    "pythonic, single quotes": "[shell(command='ls')]",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_each_form_is_found_alone_and_after_prose_however_it_is_cut(form: str) -> None:
    assert_found(form, "", [SHELL])
    assert_found(f"Let me look.\n\n{form}\n", "Let me look.", [SHELL])


MARKED = [name for name in FORMS if "no end" not in name and "at the end" not in name]
MARKED = [name for name in MARKED if not name.startswith(("bare", "pythonic"))]


@pytest.mark.parametrize("name", MARKED)
def test_text_may_follow_a_call_that_has_marks_around_it(name: str) -> None:
    text = f"First.\n\n{FORMS[name].rstrip()}\nThen."
    assert_found(text, "First.\n\n\nThen.", [SHELL])


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{JSON}\n</tool_call>\n<tool_call>\n{WEATHER}\n</tool_call>",
        f"<tool_call>\n{JSON}\n{WEATHER}\n</tool_call>",
        f"<tool_calls><tool_call>{JSON}</tool_call><tool_call>{WEATHER}</tool_call></tool_calls>",
        f"<tool_call>{JSON}<tool_call>{WEATHER}",
        f"```json\n{JSON}\n```\n\n```json\n{WEATHER}\n```",
        f"```json\n{JSON}\n{WEATHER}\n```",
        f"```json\n[{JSON},\n {WEATHER}]\n```",
        f"```\n<tool_call>{JSON}</tool_call>\n<tool_call>{WEATHER}</tool_call>\n```",
        f"[{JSON}, {WEATHER}]",
        f"{JSON}\n{WEATHER}",
        f"<tool_call>{JSON}</tool_call> {WEATHER}",
        f"<|python_tag|>{JSON}<|eom_id|>{WEATHER}",
        f"<|python_tag|>{JSON}; {WEATHER}",
        f"[TOOL_CALLS][{JSON}, {WEATHER}]",
        f'[TOOL_CALLS]shell[ARGS]{LS}[TOOL_CALLS]get_weather[ARGS]{{"city":"Köln","days":2}}',
        '[shell(command="ls"), get_weather(city="Köln", days=2)]',
        '<function_calls><invoke name="shell"><parameter name="command">ls</parameter></invoke>\n'
        '<invoke name="get_weather"><parameter name="city">Köln</parameter>'
        '<parameter name="days">2</parameter></invoke></function_calls>',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.shell:0"
        f"<|tool_call_argument_begin|>{LS}<|tool_call_end|><|tool_call_begin|>"
        'functions.get_weather:1<|tool_call_argument_begin|>{"city":"Köln","days":2}'
        "<|tool_call_end|><|tool_calls_section_end|>",
    ],
)
def test_several_calls_are_found(text: str) -> None:
    assert_found(text, "", [SHELL, CITY])


NO_CALLS = [
    "",
    "Plain prose, 1 < 2 and a[0] = {b}.",
    "  \n indented \n\n",
    "[1] a note\n[a link](https://a.example/)\n{x}\n",
    "```bash\nls <dir>\n```\nDone.",
    f"```bash\ncat <<E\n<tool_call>{JSON}</tool_call>\nE\n```\n",
    f"The form is `<tool_call>{JSON}</tool_call>`.",
    "Use ```json``` marks, or ```bash ls``` inline.\n",
    '```json\n{"city": "Bonn"}\n```\n',
    f"```json\n{JSON}\nand more\n```\n",
    f"```json\n// like this\n{JSON}\n```\n",
    "```\nno calls\n```",
    "```json\n```",
    "```",
    "``",
    "<tool_call>",
    "<tool_call></tool_call>",
    "</tool_call>",
    "<tool_call> is a tag",
    "<tool_call>\nI think so.\n</tool_call>",
    '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "shell", "arguments": 5}</tool_call>',
    '<tool_call>{"name": "shell", "arguments": "ls"}</tool_call>',
    '<tool_call>{"name": "shell", "arguments": {"a": 1]}</tool_call>',
    "<tool_call>rm<arg_key>a</arg_key><arg_value>b</arg_value></tool_call>",
    "<tool_call>shell<arg_key>a</arg_key><b>c</b></tool_call>",
    "<function=rm>{}</function>",
    "<function=shell>ls</function>",
    "<function=shell><b>ls</b></function>",
    '<invoke name="rm"></invoke>',
    "<function>shell</function>",
    "<|python_tag|>print(1)",
    "<|python_tag|>shell(eval())",
    "<|im_end|>",
    "<a><b/></a> <a href='x'> <!-- -->",
    "<function=shell><parameter=a",
    "<function=shell><parameter=a>b",
    "<tool_call>function<|tool_sep|>rm\n{}",
    "<tool_call>function",
    "<tool_call>function {}</tool_call>",
    "<tool_call>shell ls</tool_call>",
    "<tool_call>shell\n{'a': b}</tool_call>",
    "<tool_call>`{}`",
    '{"name": "shell", "arguments": "\\',
    '{"name": 5, "arguments": {}}',
    '{"type": 5, "name": "shell", "arguments": {}}',
    '{"type": tool, "name": "shell", "arguments": {}}',
    '{"name": "shell", "arguments": {"a": 1e999,}}',
    "<function=shell><parameter=a>\ud800</parameter></function>",
    "<tool_call>shell<arg_key>a</arg_key>",
    "[TOOL_CALLS]",
    "[TOOL_CALLS]rm[ARGS]{}",
    "[TOOL_CALLS]shell[OTHER]{}",
    "a [TOOL] b [shell(command='ls')]",
    "[shell(command=ls)]",
    "[shell('ls')]",
    "[shell]",
    "[]",
    "{}",
    "{",
    "[",
    '{"a": 1}',
    '{"name": "Bob", "arguments": {}}',
    '{"name": ["shell"], "arguments": {}}',
    '{"name": "shell"}',
    '{"type": "object", "name": "shell", "arguments": {}}',
    '{"tool_calls": []}',
    f"{JSON} and so on",
    f"Say {JSON}",
    '{"name": "shell", "description": "runs", "parameters": {"a": 1}}',
    '{"name": "shell", "parameters": {"type": "object", "properties": {}}}',
    '{"function": {"function": {"function": {"function": {"function": {"function": {}}}}}}}',
    '{"name": "shell", "arguments": ' + "[" * 200,
]


@pytest.mark.parametrize("text", NO_CALLS)
def test_what_is_no_call_goes_out_unchanged_however_it_is_cut(text: str) -> None:
    assert_found(text, text, [])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_tool_that_was_not_offered_is_never_called(form: str) -> None:
    assert_found(form, form, [], names={"other"})


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_call_that_is_cut_short_is_text_or_whole(form: str) -> None:
    for cut in range(len(form)):
        text, calls = find(form[:cut], is_cut=True)
        if calls:
            assert calls == [SHELL] and form.startswith(text)
        else:
            assert text == form[:cut]


def test_json_right_behind_a_call_is_one_too() -> None:
    text = f"I see. <tool_call>{JSON}</tool_call> {WEATHER}"
    assert_found(text, "I see.", [SHELL, CITY])


def test_quotes_in_three_quotes_do_not_end_them() -> None:
    text = '[shell(command="""echo "a" "b)]" c""")]'
    assert_found(text, "", [("shell", {"command": 'echo "a" "b)]" c'})])


def test_tags_around_tags_have_a_limit_and_the_call_inside_is_found() -> None:
    assert_found("<tool_call>" * 7 + JSON, "<tool_call>" * 6, [SHELL])


def test_parameters_are_not_told_before_their_end_if_the_model_was_cut_off() -> None:
    text = "<function=shell><parameter=command>ls</parameter>"
    assert find(text, is_cut=True) == (text, [])
    assert find(text, is_cut=False) == ("", [SHELL])


# Names and arguments.


@pytest.mark.parametrize(
    ("written", "names", "meant"),
    [
        ("shell", {"shell", "Shell"}, "shell"),
        ("Shell", {"shell"}, "shell"),
        ("read-file", {"read_file"}, "read_file"),
        ("Read.File", {"read_file"}, "read_file"),
        ("read_file", {"read-file"}, "read-file"),
        ("SHELL", {"shell", "Shell"}, None),
        ("read.file", {"read_file", "read-file"}, None),
        ("shell2", {"shell"}, None),
        ("functions.shell", {"shell"}, "shell"),
    ],
)
def test_a_name_is_the_offered_one_or_the_only_one_written_alike(
    written: str, names: set[str], meant: str | None
) -> None:
    text = json.dumps({"name": written, "arguments": {}})
    assert find(text, names=names) == (("", [(meant, {})]) if meant else (text, []))


def arguments_of(text: str) -> str:
    (_, grown, _) = CallFinder(NAMES).feed(f"<tool_call>{text}</tool_call>")
    assert isinstance(grown, CallGrew)
    return grown.arguments


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('"arguments": {"n": 1.0, "m": 1e2,  "big": 12345678901234567890}', None),
        (r'"arguments": "{\"n\": 1.50}"', '{"n": 1.50}'),
        ('"arguments": null', "{}"),
        ('"arguments": ""', "{}"),
        ('"input": "*** Begin"', '{"input":"*** Begin"}'),
        ('"arguments": {"a": "two\nlines"}', '{"a":"two\\nlines"}'),
        ('"arguments": {"a": True, "b": None}', '{"a":true,"b":null}'),
        ('"id": "c1"', "{}"),
    ],
)
def test_arguments_are_passed_on_as_written_if_they_are_json(
    written: str, arguments: str | None
) -> None:
    wanted = arguments or written.partition(": ")[2]
    assert arguments_of(f'{{"name": "shell", {written}}}') == wanted


def test_parameters_without_quotes_are_what_the_schema_says() -> None:
    text = "<function=shell>" + "".join(
        f"<parameter={key}>\n{value}\n</parameter>"
        for key, value in {
            "a": "1",
            "b": "1",
            "c": "null",
            "d": "null",
            "e": '{"x": 1}',
            "f": "{'x': 1}",
            "g": "[broken",
            "h": "no",
            "i": "{}",
        }.items()
    )
    schema = {
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer"},
            "c": {"type": ["string", "null"]},
            "d": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "e": {"type": "object"},
            "f": {"type": "object"},
            "g": {"type": "array"},
            "h": {"type": "integer"},
            "i": True,
        }
    }
    said, calls = find(text + "</function>", names={"shell": schema})
    fields = {"a": "1", "b": 1, "c": None, "d": "null", "e": {"x": 1}, "f": {"x": 1}}
    assert calls == [("shell", fields | {"g": "[broken", "h": "no", "i": {}})]
    assert said == ""


def test_without_a_schema_what_looks_like_json_is_json() -> None:
    text = "<function=shell>" + "".join(
        f"<parameter=p{n}>{value}</parameter>"
        for n, value in enumerate(["ls -l", "2", "true", "[1]", "-x", " s "])
    )
    assert find(text)[1] == [
        ("shell", {"p0": "ls -l", "p1": 2, "p2": True, "p3": [1], "p4": "-x", "p5": " s "})
    ]


# What is held, and for how long.


def fed(*pieces: str, names: Collection[str] = NAMES) -> list[str]:
    """Return the text that each piece sets free."""
    finder = CallFinder(names)
    return [
        "".join(delta.text for delta in finder.feed(piece) if isinstance(delta, TextGrew))
        for piece in pieces
    ]


def test_prose_goes_out_at_once_but_for_the_white_space_at_its_end() -> None:
    assert fed("One", " two ", "three.\n", "\n", "4 < ", "5") == [
        *("One", " two", " three.", "", "\n\n4 <", " 5")
    ]


def test_code_in_another_language_goes_out_at_the_letter_that_tells() -> None:
    assert fed("```", "j", "a", "va\n", "x") == ["", "", "```ja", "va", "\nx"]
    assert fed("```py\n", "imp") == ["", "```py\nimp"]


def test_json_goes_out_at_the_first_key_or_the_name_that_tells() -> None:
    assert fed('{"', "cit", 'y"', ": 1}") == ["", "", '{"city"', ": 1}"]
    assert fed('{"name"', ': "Bo', 'b"', "}") == ["", "", '{"name": "Bob"', "}"]
    assert fed("```json\n[", "1", ",") == ["", "```json\n[1", ","]


@pytest.mark.parametrize("key", ["content", "id", "role"])
def test_the_content_of_an_answer_in_json_is_not_waited_for(key: str) -> None:
    opening = f'{{"index": 1, "{key}": "'
    assert fed(opening, "x" * 256, "x", "y") == ["", "", opening + "x" * 257, "y"]
    assert fed(opening, "\\n", "y") == ["", opening + "\\n", "y"]


def test_a_message_with_calls_in_it_is_calls() -> None:
    message = '{"role": "assistant", "content": "Let me see.", "tool_calls": [' + JSON + "]}"
    assert_found(message, "", [SHELL])
    assert_found(message.replace('"Let me see."', "null"), "", [SHELL])


def test_brackets_that_cannot_begin_a_call_are_not_held() -> None:
    assert fed("<<", "=", "[[", "1", "\n{{", "x") == ["<", "<=", "[", "[1", "\n{{", "x"]


def test_a_call_with_marks_is_told_when_it_is_whole() -> None:
    finder = CallFinder(NAMES)
    assert finder.feed(f"Hi <tool_call>{JSON[:-1]}") == [TextGrew("Hi")]
    assert finder.feed("}") == [
        *(CallOpened(FIRST_KEY, "shell"), CallGrew(FIRST_KEY, LS), CallClosed(FIRST_KEY))
    ]
    assert finder.feed("\n</tool_call>\n") == []
    assert finder.release() == []


def test_what_is_held_has_a_limit() -> None:
    finder = CallFinder(NAMES, max_held=100)
    text = '{"name": "shell", "arguments": {"a": "' + "x" * 200
    said = [delta.text for n in text for delta in finder.feed(n) if isinstance(delta, TextGrew)]
    assert len(said[0]) == 100
    assert "".join(said) == text
    whole = CallFinder(NAMES, max_held=100)
    assert whole.feed(text + '"}}') == [TextGrew(text + '"}}')]


def test_the_number_of_calls_has_a_limit() -> None:
    text, calls = find(f"<tool_call>{JSON}</tool_call>" * 1025)
    assert len(calls) == 1024
    assert text == f"</tool_call><tool_call>{JSON}</tool_call>"


def test_white_space_is_not_held_for_ever() -> None:
    assert fed("a", " " * 5000) == ["a", " " * 5000]


def test_text_may_go_on_after_a_release() -> None:
    finder = CallFinder(NAMES)
    assert finder.feed("a\n") == [TextGrew("a")]
    assert finder.release() == [TextGrew("\n")]
    assert finder.feed(JSON) == []
    assert len(finder.release()) == 3


def test_what_is_held_is_text_if_the_server_finds_its_calls() -> None:
    finder = CallFinder(NAMES)
    assert finder.feed(f"a\n{JSON}") == [TextGrew("a")]
    assert finder.give_up() == [TextGrew(f"\n{JSON}")]
    assert finder.give_up() == []


# How much work it is.


class Counted(str):
    """A text that counts the characters which slices and sums of it copy."""

    copied = 0

    def __getitem__(self, place: Any) -> str:
        return self._count(super().__getitem__(place))

    def __add__(self, other: str) -> str:
        return self._count(super().__add__(other))

    def __radd__(self, other: str) -> str:
        return self._count(str(other) + str(self))

    @staticmethod
    def _count(text: str) -> str:
        Counted.copied += len(text)
        return Counted(text)


def work(text: str, size: int) -> int:
    """Return how many functions are called for a text, and how many characters are copied."""
    pieces = [Counted(text[n : n + size]) for n in range(0, len(text), size)]
    finder = CallFinder(NAMES)
    total = 0

    def count(frame: FrameType, event: str, value: object) -> None:
        nonlocal total
        total += 1 + (len(value) if event == "return" and isinstance(value, str) else 0)

    Counted.copied = 0
    sys.setprofile(count)
    try:
        for piece in pieces:
            finder.feed(piece)
        finder.release()
    finally:
        sys.setprofile(None)
    return total + Counted.copied


LONG = {
    "a string": ('{"name": "shell", "arguments": {"command": "', "abcd", '"}}'),
    "many fields": ('{"name": "shell", "arguments": {"a": 1', ',"b":2', "}}"),
    "fields beside": ('{"name": "shell", ', '"b":2,', '"arguments": {}}'),
    "fenced": ('```json\n{"name": "shell", "arguments": {"command": "', "\\n", '"}}\n```'),
    "parameter": ("<function=shell><parameter=a>", "x > y", "</parameter></function>"),
    "pythonic": ("[shell(a=[", "1, ", "])]"),
    "tags that are none": ("", "<a><b>", ""),
    "brackets that are none": ("", "[x] {", ""),
    "braces on one line": ("x", "{", ""),
    "calls": ("", f"<tool_call>{JSON}</tool_call> ", ""),
    "cut tags": ("", "<tool_call>", ""),
    "ticks": ("", "` `` ", ""),
    "code": ("```bash\n", "`` \n", ""),
    "white space": ("", " \n", ""),
}


@pytest.mark.parametrize("size", [4, 1 << 20], ids=["small pieces", "one piece"])
@pytest.mark.parametrize("parts", LONG.values(), ids=LONG.keys())
def test_the_work_grows_with_the_text_and_no_faster(parts: tuple[str, str, str], size: int) -> None:
    start, middle, end = parts
    short = work(start + middle * (4_000 // len(middle)) + end, size)
    long = work(start + middle * (32_000 // len(middle)) + end, size)
    assert long < 10 * short


def test_a_megabyte_in_small_pieces_is_one_call() -> None:
    command = "ab\\n" * ((1 << 18) - 40)
    text = '{"name": "shell", "arguments": {"command": "' + command + '"}}'
    finder = CallFinder(NAMES)
    assert not any(finder.feed(text[n : n + 64]) for n in range(0, len(text), 64))
    _, grown, _ = finder.release()
    assert isinstance(grown, CallGrew)
    assert grown.arguments == '{"command": "' + command + '"}'
