"""For any text, cut in any way: no call is lost, none is invented, and all else is text."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.deltas import CallGrew, CallOpened, TextGrew
from antiphon.wires.chat.recover.finder import CallFinder

NAMES = frozenset({"shell", "get_weather", "read-file"})

Said = list[str | tuple[str, Any]]
"""Texts, joined between calls, and calls."""

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
words = st.text("abcdefgh_", min_size=1, max_size=6)
objects = st.dictionaries(words, values, max_size=3)
calls = st.tuples(st.sampled_from(sorted(NAMES)), objects)
# For the forms without quotes: no text that reads as another value, or has tags or line breaks.
plain_texts = st.from_regex(r"[a-z ]{0,8}[a-z.]", fullmatch=True).filter(
    lambda text: text not in ("true", "false", "null")
)
plain_calls = st.tuples(
    st.sampled_from(sorted(NAMES)), st.dictionaries(words, plain_texts, min_size=1, max_size=3)
)

# Prose is any text without the characters that forms begin with.
prose = st.text(st.characters(exclude_characters="<`[{", codec="utf-8"), max_size=30)
# Noise is made of pieces of forms.
PIECES = [
    *(
        "<",
        ">",
        "/",
        "`",
        "```",
        "```json\n",
        "```bash\n",
        "\n```\n",
        "{",
        "}",
        "[",
        "]",
        "\n",
        " ",
    ),
    *("<tool_call>", "</tool_call>", "<function=", "shell", "<parameter=a>", "</parameter>"),
    *('"name"', '"arguments"', '"shell"', ":", ",", '"', "'", "\\", "{}", "null", "(", ")", "=1"),
    *("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<arg_key>", "</arg_key>", "<arg_value>"),
    *("</arg_value>", '<invoke name="shell">', "</invoke>", "<｜tool▁call▁begin｜>", "word"),
    *('{"name": "shell", "arguments": {}}', "<|tool_call_argument_begin|>", "<｜tool▁sep｜>"),
    *('{"name": "rm", "arguments": {"a": 1}}', "}}", '{"function": ', '{"tool_calls": ['),
]
noise = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
cuts = st.lists(st.integers(min_value=0), max_size=8)


def write_json(call: tuple[str, Any], indent: int | None = None) -> str:
    return json.dumps({"name": call[0], "arguments": call[1]}, indent=indent, ensure_ascii=False)


def write_plain(call: tuple[str, Any]) -> str:
    name, fields = call
    inside = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in fields.items())
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def write_pairs(call: tuple[str, Any]) -> str:
    name, fields = call
    pairs = (f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in fields.items())
    return f"<tool_call>{name}\n{''.join(pairs)}</tool_call>"


def write_invoke(call: tuple[str, Any]) -> str:
    name, fields = call
    inside = "".join(f'<parameter name="{k}">{v}</parameter>' for k, v in fields.items())
    return f'<function_calls><invoke name="{name}">{inside}</invoke></function_calls>'


JSON_FORMS = [
    lambda call: f"<tool_call>{write_json(call)}</tool_call>",
    lambda call: f"<tool_call>\n{write_json(call, 1)}\n</tool_call>",
    lambda call: f"```json\n{write_json(call, 2)}\n```",
    lambda call: f"```\n[{write_json(call)}]\n```",
    lambda call: f"<function_call>{write_json(call)}</function_call>",
    lambda call: f"<function={call[0]}>{json.dumps(call[1])}</function>",
    lambda call: f"[TOOL_CALLS]{call[0]}[ARGS]{json.dumps(call[1])}</s>",
    lambda call: f"<|python_tag|>{write_json(call)}<|eom_id|>",
    lambda call: (
        f"<|tool_call_begin|>functions.{call[0]}:3<|tool_call_argument_begin|>"
        f"{json.dumps(call[1])}<|tool_call_end|>"
    ),
    lambda call: (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call[0]}\n```json\n"
        f"{json.dumps(call[1])}\n```<｜tool▁call▁end｜>"
    ),
]
written = st.one_of(
    st.builds(lambda call, form: (call, form(call)), calls, st.sampled_from(JSON_FORMS)),
    st.builds(
        lambda call, form: (call, form(call)),
        plain_calls,
        st.sampled_from([write_plain, write_pairs, write_invoke]),
    ),
)


def cut(text: str, places: list[int]) -> list[str]:
    marks = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *marks], [*marks, len(text)], strict=True)]


def find(pieces: list[str], names: frozenset[str] = NAMES) -> Said:
    finder = CallFinder(names, max_held=2000)
    deltas = [delta for piece in pieces for delta in finder.feed(piece)] + finder.release()
    assert not finder.is_holding
    said: Said = []
    for delta in deltas:
        if isinstance(delta, TextGrew):
            if said and isinstance(said[-1], str):
                said[-1] += delta.text
            else:
                said.append(delta.text)
        elif isinstance(delta, CallOpened):
            said.append((delta.name, None))
        elif isinstance(delta, CallGrew):
            said[-1] = (said[-1][0], json.loads(delta.arguments))
    return said


@given(prose, cuts)
def test_prose_is_said_as_it_is(text: str, places: list[int]) -> None:
    assert "".join(map(str, find(cut(text, places)))) == text


@given(prose)
def test_prose_is_held_only_where_it_is_blank(text: str) -> None:
    finder = CallFinder(NAMES)
    said = "".join(d.text for d in finder.feed(text) if isinstance(d, TextGrew))
    assert said == text.rstrip()


@given(st.lists(st.tuples(prose, written), max_size=4), prose, cuts)
def test_calls_of_any_form_are_found_between_any_prose(
    parts: list[tuple[str, tuple[tuple[str, Any], str]]], last: str, places: list[int]
) -> None:
    text = "".join(f"{before}\n{form}" for before, (_, form) in parts) + "\n" + last
    said = find(cut(text, places))
    assert [call for call in said if not isinstance(call, str)] == [call for _, (call, _) in parts]
    # The prose is whole and in order. Blank lines go with the calls that they stand between.
    texts = [before for before, _ in parts] + [last]
    assert "".join(map(str, filter(is_text, said))).split() == " ".join(texts).split()
    assert find([text]) == said


def is_text(said: object) -> bool:
    return isinstance(said, str)


@given(noise, cuts)
def test_any_cut_of_any_noise_says_the_same(text: str, places: list[int]) -> None:
    assert find(cut(text, places)) == find([text])
    assert find(list(text)) == find([text])


@given(noise | st.lists(written.map(lambda pair: pair[1])).map("\n".join), cuts)
def test_what_was_not_offered_is_never_called_and_nothing_is_lost(
    text: str, places: list[int]
) -> None:
    said = find(cut(text, places), frozenset({"other"}))
    assert said == ([text] if text else [])


@given(noise)
def test_what_is_not_said_was_a_call(text: str) -> None:
    said = find([text])
    if all(map(is_text, said)):
        assert "".join(map(str, said)) == text
    else:
        # What is said is left over from the text, in its order.
        rest = iter(text)
        assert all(char in rest for part in said if isinstance(part, str) for char in part)


@given(noise | prose, cuts)
def test_giving_up_says_all_that_is_held(text: str, places: list[int]) -> None:
    finder = CallFinder(frozenset({"other"}))
    deltas = [delta for piece in cut(text, places) for delta in finder.feed(piece)]
    deltas += finder.give_up()
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextGrew)) == text
