"""Lines of ours in files of lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.connect.lines import EnvPiece, YamlPiece
from antiphon.cli.connect.piece import CannotMerge
from tests.cli.connect.settings_texts import newlines, read_entries

_ENV = EnvPiece("openai-python", ("BASE=u", "KEY=unused"), names=("BASE", "KEY"))
_YAML = YamlPiece("llm", ('- model_id: "antiphon/m"', "  model_name: m"), '- model_id: "antiphon/')
_ENV_LINES = st.sampled_from(["A=1", "export BASE=old", " KEY = 'k'", "# c", "", "BASED=1"])
_YAML_LINES = st.sampled_from(
    ["- model_id: a\n  model_name: b", "# c", "", "- model_id: c", "-\n  model_id: d"]
)


def _text(lines: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda parts, newline, end: newlines("\n".join(parts) + end, newline),
        st.lists(lines),
        st.sampled_from(["\n", "\r\n"]),
        st.sampled_from(["", "\n"]),
    )


@given(_text(_ENV_LINES))
def test_variables_go_in_and_come_out_without_a_trace(text: str) -> None:
    merged = _ENV.merge(text)
    assert _ENV.merge(merged) == merged
    assert _ENV.take_out(merged) == text
    said = [line for line in merged.split("\n") if line.strip(" ").startswith(("BASE=", "export"))]
    assert [line.strip() for line in said] == ["BASE=u"]


@given(_text(_YAML_LINES))
def test_an_entry_goes_in_and_comes_out_without_a_trace(text: str) -> None:
    merged = _YAML.merge(text)
    assert _YAML.merge(merged) == merged
    assert _YAML.take_out(merged) == text
    ours = {"model_id": "antiphon/m", "model_name": "m"}
    assert read_entries(merged) == [*read_entries(text), ours]


def test_only_the_variables_that_we_set_are_switched_off() -> None:
    piece = EnvPiece("openai-python", ("BASE=u", "# KEY must be set"), names=("BASE", "KEY"))
    merged = piece.merge("KEY=k\nBASE=b\n")
    assert merged.startswith("KEY=k\n#antiphon# BASE=b\n# >>> antiphon")
    assert piece.take_out(merged) == "KEY=k\nBASE=b\n"


def test_variables_that_were_put_between_ours_stay() -> None:
    edited = _ENV.paste().replace("KEY=unused", "KEY=mine\nMORE=1")
    assert _ENV.take_out(edited) == "MORE=1\n"


def test_entries_that_were_put_between_ours_stay() -> None:
    edited = _YAML.paste().replace("# <<<", "- model_id: mine\n  model_name: x\n# <<<")
    assert _YAML.take_out(edited) == "- model_id: mine\n  model_name: x\n"


def test_nothing_is_blank() -> None:
    assert _ENV.is_blank(_ENV.take_out(_ENV.paste()))
    assert _YAML.is_blank(_YAML.take_out(_YAML.paste()))


def test_a_value_of_several_lines_is_refused() -> None:
    with pytest.raises(CannotMerge, match="line 2 sets a value of several lines"):
        _ENV.merge('A=1\nBASE="two\nlines"')


@pytest.mark.parametrize(
    "text", ["[{model_id: a}]", "  - model_id: a", "models:\n  - a", "- a\n...\n", "- a\nb: c"]
)
def test_yaml_that_is_no_plain_list_is_refused(text: str) -> None:
    with pytest.raises(CannotMerge, match="is not part of a plain list"):
        _YAML.merge(text)
