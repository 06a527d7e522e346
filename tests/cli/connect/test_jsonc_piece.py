"""Members of ours in JSON of others: every other byte stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.connect.jsonc import read_jsonc
from antiphon.cli.connect.jsonc_piece import Addition, JsonPiece
from antiphon.cli.connect.piece import CannotMerge
from tests.cli.connect.settings_texts import JSON_VALUES, commented, newlines

_ZED = JsonPiece((Addition(("language_models", "openai_compatible", "antiphon"), {"u": 1}),))
_OPENCODE = JsonPiece(
    (
        Addition(("provider", "antiphon"), {"u": [1, {"v": 2}]}),
        Addition(("model",), "antiphon/m", prefix="antiphon/"),
    )
)
_NAMED = {"name": "antiphon", "vendor": "c"}
_VSCODE = JsonPiece((Addition((), _NAMED | {"m": [1]}, like=_NAMED),), empty="[]", indent="\t")
_CLAUDE = JsonPiece(
    (Addition(("env", "MARK"), "1"), Addition(("env", "URL"), "u"), Addition(("model",), "m")),
    is_known_by_first=True,
)
_PIECES = st.sampled_from([_ZED, _OPENCODE, _VSCODE])
_TEXTS = st.one_of(
    st.dictionaries(
        st.sampled_from(["model", "provider", "language_models", "a"]), JSON_VALUES, max_size=3
    ),
    st.lists(JSON_VALUES, max_size=3),
).flatmap(lambda value: commented(value))


def _value(text: str) -> Any:
    node = read_jsonc(text)
    return node.value if node else None


def _merged(piece: JsonPiece, text: str) -> str | None:
    try:
        return piece.merge(text)
    except CannotMerge:
        return None


@given(_PIECES, _TEXTS, st.sampled_from(["\n", "\r\n"]))
def test_what_goes_in_comes_out_without_a_trace(
    piece: JsonPiece, given_: tuple[Any, str], newline: str
) -> None:
    text = newlines(given_[1], newline)
    merged = _merged(piece, text)
    if merged is None:
        return
    assert piece.merge(merged) == merged
    assert piece.take_out(merged, [text]) == text
    assert _value(piece.take_out(merged, ["[1]", text])) == given_[0]
    # Without knowing what was before, only objects that were empty cannot be told from ours.
    assert _pruned(_value(piece.take_out(merged))) == _pruned(given_[0])


@given(_PIECES, _TEXTS)
def test_only_what_is_added_is_added(piece: JsonPiece, given_: tuple[Any, str]) -> None:
    text = given_[1]
    merged = _merged(piece, text)
    if merged is None:
        return
    rest = iter(merged)
    assert all(char in rest for char in text)  # nothing is gone or out of order
    for addition in piece.additions:
        value = _value(merged)
        if addition.like:
            assert value[0] == addition.value
            continue
        for key in addition.path:
            value = value[key]
        assert value == addition.value or addition.prefix


def _pruned(value: Any) -> Any:
    """Return the value without the objects that we might have made."""
    if not isinstance(value, dict):
        return value
    value = dict(value)
    for name in ("provider", "language_models"):
        inner = value.get(name)
        if isinstance(inner, dict) and not {
            key: item for key, item in inner.items() if key != "openai_compatible" or item != {}
        }:
            del value[name]
    return value


def test_it_goes_in_at_the_top_in_the_style_of_the_file() -> None:
    text = '{ // mine\n    // about a\n    "a": 1,\n}\n'
    assert _ZED.merge(text) == (
        "{ // mine\n"
        '    "language_models": {\n'
        '        "openai_compatible": {\n'
        '            "antiphon": {\n'
        '                "u": 1\n'
        "            }\n"
        "        }\n"
        "    },\n"
        "    // about a\n"
        '    "a": 1,\n'
        "}\n"
    )


@pytest.mark.parametrize("text", ["", "{}", "{\n}\n", "// nothing yet", "\r\n", "{ /* c */ }"])
def test_an_empty_file_is_restored_if_it_is_known(text: str) -> None:
    merged = _OPENCODE.merge(text)
    assert _value(merged)["model"] == "antiphon/m"
    assert _OPENCODE.take_out(merged, [text]) == text


def test_an_unknown_empty_file_is_blank_afterwards() -> None:
    assert _OPENCODE.is_blank(_OPENCODE.take_out(_OPENCODE.paste()))
    assert _VSCODE.is_blank(_VSCODE.take_out(_VSCODE.paste()))
    assert not _OPENCODE.is_blank('{"a": 1}')


def test_another_value_takes_the_place_of_the_first() -> None:
    text = '{"a": 1}'
    other = JsonPiece((Addition(("language_models", "openai_compatible", "antiphon"), {"u": 2}),))
    assert other.merge(_ZED.merge(text)) == other.merge(text)
    assert _ZED.take_out(other.merge(_ZED.merge(text)), [text]) == text


def test_what_the_client_adds_to_ours_survives_another_write() -> None:
    stamped = '[{"name": "antiphon", "vendor": "c", "m": [1], "apiKey": "${input:x}"}]'
    assert _VSCODE.merge(stamped) == stamped
    older = stamped.replace("[1]", "[0]")
    assert _value(_VSCODE.merge(older)) == [_NAMED | {"m": [1], "apiKey": "${input:x}"}]


def test_a_key_of_the_user_is_left_alone() -> None:
    text = '{"model": "mine"}'
    merged = _OPENCODE.merge(text)
    assert _value(merged)["model"] == "mine"
    assert _OPENCODE.take_out(merged) == text


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        # He added a key behind ours, and one of his own beside it.
        (
            '{"language_models": {"openai_compatible": {"antiphon": {}, "b": {}}}, "c": 1}',
            '{"language_models": {"openai_compatible": { "b": {}}}, "c": 1}',
        ),
        # He moved ours to the end: the comma before it goes, the comment stays.
        (
            '{\n  "a": 1, // mine\n  "language_models": {"openai_compatible": {"antiphon": 1}}\n}',
            '{\n  "a": 1 // mine\n}',
        ),
        # The line before ours ends in a comment, and his key follows on our line.
        (
            '{ // c\n"language_models": {"openai_compatible": {"antiphon": 1}}, "a": 1}',
            '{ // c\n "a": 1}',
        ),
        # He made a note in the object that we made: it is not ours to throw away.
        (
            '{"language_models": {"openai_compatible": {"antiphon": 1}, /* note */}}',
            '{"language_models": { /* note */}}',
        ),
    ],
)
def test_edits_of_the_user_are_kept(edited: str, expected: str) -> None:
    assert _ZED.take_out(edited, ["{}"]) == expected


def test_objects_that_were_there_before_stay() -> None:
    before = '{"language_models": {}}'
    edited = _ZED.merge(before).replace('"u": 1', '"u": 1, "more": 2') + "// edited"
    assert _ZED.take_out(edited, [before]) == '{"language_models": {}}// edited'


def test_what_is_known_by_its_first_is_the_users_without_it() -> None:
    text = '{"env": {"URL": "mine"}, "model": "mine"}'
    assert _CLAUDE.take_out(text) == text


def test_values_of_the_user_come_back_where_ours_took_their_place() -> None:
    text = '{"env": {"URL": "mine", "B": "2"}, "model": "mine"}'
    merged = _CLAUDE.merge(text)
    assert _value(merged) == {"env": {"MARK": "1", "URL": "u", "B": "2"}, "model": "m"}
    assert _CLAUDE.merge(merged) == merged
    assert _CLAUDE.take_out(merged, [text]) == text
    edited = merged.replace('"2"', '"3"')
    assert _value(_CLAUDE.take_out(edited, [text])) == {"env": {"B": "3"}}


def test_nothing_of_ours_is_nothing_to_take_out() -> None:
    assert _ZED.take_out('{"a": 1 }') == '{"a": 1 }'


@pytest.mark.parametrize(
    ("piece", "text", "complaint"),
    [
        (_ZED, "{", "it is not JSON: line 1"),
        (_ZED, "[]", "it is not an object"),
        (_ZED, '{"language_models": null}', "'language_models' is not an object"),
        (_ZED, '{"language_models": {"openai_compatible": 1}}', "'openai_compatible' is not an"),
        (_VSCODE, "{}", "it holds no list"),
    ],
)
def test_a_file_of_another_shape_is_refused(piece: JsonPiece, text: str, complaint: str) -> None:
    with pytest.raises(CannotMerge, match=complaint):
        piece.merge(text)
