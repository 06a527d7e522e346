"""Lines of ours in files of lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.connect.lines import NestedYamlPiece, SettingsPiece, YamlPiece
from antiphon.cli.connect.piece import CannotMerge
from tests.cli.connect.settings_texts import newlines, read_entries

_ENV = SettingsPiece("openai-python", ("BASE=u", "KEY=unused"), names=("BASE", "KEY"))
_KEYS = SettingsPiece("aider", ("base: u", "model: m"), names=("base", "model"), sign=":")
_YAML = YamlPiece("llm", ('- model_id: "antiphon/m"', "  model_name: m"), '- model_id: "antiphon/')
_NESTED = NestedYamlPiece(
    "continue",
    ("- name: antiphon/m", "  model: m"),
    begins="- name: antiphon/",
    under="models",
    head=("name: n",),
)
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


@given(_text(st.sampled_from(["a: 1", "model: old", "# c", "", "read:\n- model: x\n  base: y"])))
def test_keys_go_in_and_come_out_without_a_trace(text: str) -> None:
    merged = _KEYS.merge(text)
    assert _KEYS.merge(merged) == merged
    assert _KEYS.take_out(merged) == text
    assert [line for line in merged.splitlines() if line.startswith("model")] == ["model: m"]
    assert merged.count("  base: y") == text.count("  base: y")


@given(
    _text(st.sampled_from(["a: 1", "# c", "", "rules:\n- x"])),
    st.sampled_from(["", "models:\n- name: b\n  model: c\n", "models: # all\n\n    - name: b\n"]),
)
def test_entries_under_a_key_go_in_and_come_out_without_a_trace(text: str, models: str) -> None:
    text = newlines(models, "\r\n" if "\r\n" in text else "\n") + text
    merged = _NESTED.merge(text)
    assert _NESTED.merge(merged) == merged
    assert _NESTED.take_out(merged) == text
    ours = [line for line in merged.splitlines() if line.strip() == "- name: antiphon/m"]
    assert len(ours) == 1
    assert len([line for line in merged.splitlines() if line.startswith("models:")]) == 1


def test_entries_of_ours_have_the_indent_of_the_list() -> None:
    merged = _NESTED.merge("models:\n    - name: b\n")
    assert "\n    - name: antiphon/m\n      model: m\n" in merged
    assert merged.endswith("    - name: b\n")


def test_a_key_of_ours_stays_where_entries_of_the_user_follow() -> None:
    edited = _NESTED.paste() + "  - name: mine\n"
    assert _NESTED.take_out(edited) == "models:\n  - name: mine\n"
    assert _NESTED.is_blank(_NESTED.take_out(_NESTED.paste()))


@pytest.mark.parametrize("models", ["models: []", "models:\n  a: 1", "models:", "models: &x\n- a"])
def test_a_key_without_a_plain_list_is_refused(models: str) -> None:
    with pytest.raises(CannotMerge, match="line 2 does not begin a plain list"):
        _NESTED.merge(f"a: 1\n{models}\n")


def test_only_the_variables_that_we_set_are_switched_off() -> None:
    piece = SettingsPiece("openai-python", ("BASE=u", "# KEY must be set"), names=("BASE", "KEY"))
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


@pytest.mark.parametrize("text", ["a: 1\nmodel: |\n  m", "a: 1\nmodel:\n- m", "a: 1\nbase: 'u"])
def test_a_key_whose_value_goes_on_is_refused(text: str) -> None:
    with pytest.raises(CannotMerge, match="line 2 sets a value of several lines"):
        _KEYS.merge(text)


@pytest.mark.parametrize("text", ["{a: 1}", "a: 1\n...\n", "a: 1\n? b\n: c"])
def test_yaml_without_plain_keys_is_refused(text: str) -> None:
    with pytest.raises(CannotMerge, match="is not a setting"):
        _KEYS.merge(text)


@pytest.mark.parametrize(
    "text", ["[{model_id: a}]", "  - model_id: a", "models:\n  - a", "- a\n...\n", "- a\nb: c"]
)
def test_yaml_that_is_no_plain_list_is_refused(text: str) -> None:
    with pytest.raises(CannotMerge, match="is not part of a plain list"):
        _YAML.merge(text)
