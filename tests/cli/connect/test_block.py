"""Marked blocks: they go in, and out again without a trace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.connect.block import drop_block, marked, put_block, switch_off
from antiphon.cli.connect.piece import CannotMerge, lines_of

_TEXT = st.lists(st.sampled_from(["a=1", "# b", "", " c", "\x0b\u2028"])).flatmap(
    lambda lines: st.builds(
        lambda newline, has_end: newline.join(lines) + newline * has_end,
        st.sampled_from(["\n", "\r\n"]),
        st.booleans(),
    )
)


def _nothing(lines: list[str]) -> list[str]:
    return []


@given(_TEXT, st.data())
def test_a_block_leaves_no_trace(text: str, data: st.DataObject) -> None:
    lines = lines_of(text)
    at = data.draw(st.integers(0, len(lines)))
    off = data.draw(st.sets(st.integers(0, max(len(lines) - 1, 0))))
    put = put_block(switch_off(text, off), at, marked(["x = 1"], "codex"))
    assert drop_block(put, _nothing) == text


def test_what_others_put_between_the_marks_is_kept() -> None:
    put = put_block("a\n", 1, marked(["ours"], "codex")).replace("ours\n", "ours\ntheirs\n")
    assert drop_block(put, lambda lines: [line for line in lines if line != "ours\n"]) == (
        "a\ntheirs\n"
    )


def test_what_others_put_between_the_marks_takes_the_end_of_the_text() -> None:
    put = put_block("a", 1, marked(["ours"], "codex")).replace("ours\n", "theirs\n")
    assert drop_block(put, lambda lines: lines) == "a\ntheirs"


@pytest.mark.parametrize("lost", [0, -1])
def test_a_mark_without_the_other_is_refused(lost: int) -> None:
    lines = marked(["ours"], "codex")
    del lines[lost]
    with pytest.raises(CannotMerge, match="the mark"):
        drop_block("\n".join(lines), _nothing)


def test_an_unmarked_text_is_left_alone() -> None:
    assert drop_block("a\n#b", _nothing) == "a\n#b"
