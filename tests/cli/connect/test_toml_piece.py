"""Keys and a table of ours in TOML of others."""

from __future__ import annotations

import tomllib

import msgspec
import pytest
from hypothesis import assume, given

from antiphon.cli.connect.piece import CannotMerge
from antiphon.cli.connect.toml_piece import TomlPiece, toml_string
from tests.cli.connect.settings_texts import TOML_TEXTS

_PIECE = TomlPiece(
    client="codex",
    keys={"model": "m", "model_provider": "antiphon"},
    table=("model_providers", "antiphon"),
    fields={"name": "antiphon", "base_url": "http://x/v1"},
    gone=("env_key",),
)
_TABLE = {"model_providers": {"antiphon": dict(_PIECE.fields)}}


@given(TOML_TEXTS)
def test_what_goes_in_comes_out_without_a_trace(text: str) -> None:
    settings = _parse(text)
    assume(settings is not None)
    merged = _PIECE.merge(text)
    assert _PIECE.merge(merged) == merged
    assert _PIECE.take_out(merged) == text
    assert tomllib.loads(merged)["model"] == "m"


def _parse(text: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def test_it_goes_above_the_first_table_and_its_comments() -> None:
    text = '# mine\nmodel = "old" # best\na = 1\n\n# servers\n[s]\nb = 2\n'
    assert _PIECE.merge(text) == (
        "# mine\n"
        '#antiphon# model = "old" # best\n'
        "a = 1\n"
        "\n"
        "# >>> antiphon (written by `antiphon connect codex --write`; --undo takes it back)\n"
        'model = "m"\n'
        'model_provider = "antiphon"\n'
        "\n"
        "[model_providers.antiphon]\n"
        'name = "antiphon"\n'
        'base_url = "http://x/v1"\n'
        "# <<< antiphon\n"
        "# servers\n"
        "[s]\n"
        "b = 2\n"
    )


def test_an_empty_file_holds_what_would_be_pasted() -> None:
    assert _PIECE.merge("") == _PIECE.paste()
    assert tomllib.loads(_PIECE.paste()) == {**_PIECE.keys, **_TABLE}
    assert _PIECE.is_blank(_PIECE.take_out(_PIECE.paste()))


def test_a_program_that_edits_the_file_loses_nothing() -> None:
    # Codex puts a new key behind the last, and a table before the last comment; it loses the
    # comment above a table that it touches.
    text = "a = 1\n"
    edited = (
        _PIECE.merge(text)
        .replace('model = "m"', 'model = "other"')
        .replace('= "antiphon"\n\n', '= "antiphon"\neffort = "high"\n\n', 1)
        .replace("# <<< antiphon\n", 'env_key = "K"\n\n[mcp.x]\nname = "x"\nmodel = "y"\n')
    )
    clean = _PIECE.take_out(edited)
    assert tomllib.loads(clean) == {
        "a": 1,
        "effort": "high",
        "mcp": {"x": {"name": "x", "model": "y"}},
    }
    assert _PIECE.take_out(_PIECE.merge(clean)) == clean


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "added",
    [
        "supports_websockets = true\n",
        "# why\nargs = [\n  'a',\n]\n",
        'supports_websockets = true\n\n[model_providers.antiphon.http_headers]\nmodel = "y"\n',
    ],
)
def test_what_is_added_to_our_table_stays_in_it_and_goes_with_it(added: str, newline: str) -> None:
    text = "a = 1\n\n# about x\n[mcp.x]\nb = 2\n".replace("\n", newline)
    added = added.replace("\n", newline)
    edited = _PIECE.merge(text).replace("# <<<", f"{added}# <<<")
    assert _PIECE.merge(edited) == edited
    other = msgspec.structs.replace(_PIECE, keys={**_PIECE.keys, "model": "n"})
    assert other.merge(edited) == edited.replace('model = "m"', 'model = "n"')
    assert _PIECE.take_out(edited) == text


def test_a_comment_above_somebody_elses_table_stays_there() -> None:
    text = "# about x\n[mcp.x]\nb = 2\n"
    without_end = _PIECE.merge(text).replace("# <<< antiphon\n", "wire = 1\n")
    assert _PIECE.take_out(without_end) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = ", "it is not TOML"),
        ("[model_providers.antiphon]\nname = 'mine'", r"it has a table \[model_providers.antiphon"),
        ("model_providers = 1", "its model_providers is not a table"),
        ("model_providers = {}", "one of model, model_provider, model_providers has a form"),
        ("model.x = 1", "a form that cannot be extended"),
        ("[model]\nx = 1", "a form that cannot be extended"),
        ("# <<< antiphon", "the mark"),
    ],
)
def test_a_file_that_cannot_take_it_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(CannotMerge, match=complaint):
        _PIECE.merge(text)


@pytest.mark.parametrize("text", ['a"b\\c', "\x7f\x00", "é\u2028", "line\nline"])
def test_any_text_can_be_a_value(text: str) -> None:
    assert tomllib.loads(f"a = {toml_string(text)}") == {"a": text}
