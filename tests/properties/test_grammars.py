"""Grammars against judges that share nothing with us.

`tests.grammar_maker` makes whole grammars, judged by Python's `re` and the `lark` package. Here
are small and nasty ones besides, whose languages are compared text by text: what the check
takes and what the grammar for llama.cpp takes must be the same.
"""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.prepare.grammars import GrammarCheck
from antiphon.protocol.errors import InvalidRequest
from antiphon.wires.chat.grammars.gbnf import lark_to_gbnf, regex_to_gbnf
from antiphon.wires.chat.grammars.lark import COMMON
from tests.gbnf_reader import Gbnf
from tests.grammar_maker import make_grammar

_ATOMS = ['"a"', '"b"', '"ab"', '"ba"', "/a+/", "/b*/", "/a?b/", "/[ab]+/", "A", "B", '"c"']
_TEXTS = [
    "".join(letters)
    for letters_in, longest in (("abc ", 4), ("éèa", 3))
    for count in range(longest + 1)
    for letters in itertools.product(letters_in, repeat=count)
]


@pytest.mark.parametrize("number", range(30))
def test_made_grammars_are_judged_as_others_judge_them(number: int) -> None:
    made = make_grammar(number)
    check = GrammarCheck(made.syntax, made.definition)
    written = (lark_to_gbnf if made.syntax == "lark" else regex_to_gbnf)(made.definition)
    assert written is not None
    gbnf = Gbnf(written)
    assert {text: check.problem(text) for text in made.good} == dict.fromkeys(made.good)
    assert [text for text in made.bad if check.problem(text) is None] == []
    assert [text for text in made.good if not gbnf.accepts(text)] == []
    assert [text for text in made.bad if gbnf.accepts(text)] == []


def nasty(dice: random.Random, depth: int, names: list[str]) -> str:
    """Return an expression in which terminals overlap as much as they can."""
    kind = dice.random()
    if depth == 0 or kind < 0.35:
        return dice.choice([*_ATOMS, *names * 3, "/é+/", '"è"', '"a".."b"'])
    inner = [nasty(dice, depth - 1, names) for _ in range(dice.randint(1, 3))]
    if kind < 0.6:
        return " ".join(inner)
    if kind < 0.75:
        return f"({' | '.join(inner)})"
    return f"({inner[0]}){dice.choice(['*', '+', '?', '~2', '~1..2', '{0,2}'])}"


def nasty_grammar(seed: int) -> str:
    dice = random.Random(seed)
    names = ["x", "y"][: dice.randint(0, 2)]
    lines = [f"start: {nasty(dice, 3, names)}"]
    lines += [f"{name}: {nasty(dice, 2, names)} | {nasty(dice, 1, names)}" for name in names]
    lines.append("A: " + dice.choice(["/a/", '"a" "b"?', "/a+/", 'B "a"']))
    lines.append("B: " + dice.choice(["/b/", "/bc?/", '"b"+', '"" | "b"']))
    if dice.random() < 0.4:
        lines.append("%ignore " + dice.choice(['" "', "/ +/", '/ +/ | "c"', '"c"', "/c b?c/"]))
    return "\n".join(lines)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_gbnf_means_what_is_checked_or_is_not_written(seed: int) -> None:
    definition = nasty_grammar(seed)
    written = lark_to_gbnf(definition)
    if written is None:
        return
    try:
        check = GrammarCheck("lark", definition)
    except InvalidRequest:
        return
    gbnf = Gbnf(written)
    differing = [text for text in _TEXTS if gbnf.accepts(text) != (check.problem(text) is None)]
    assert differing == [], f"{definition}\n{written}"


def test_enough_nasty_grammars_can_be_written() -> None:
    written = [lark_to_gbnf(nasty_grammar(seed)) for seed in range(200)]
    assert sum(one is not None for one in written) > 80


@pytest.mark.parametrize("name", COMMON)
def test_the_library_of_the_notation_is_the_one_that_is_checked(name: str) -> None:
    imported = GrammarCheck("lark", f"start: {name}\n%import common.{name}")
    written = GrammarCheck("regex", COMMON[name])
    letters = '1.eE+-aZ_"\\ \t\r\n\f/*#'
    longer = ['"\\""', '"\\a"', "/**/", "/*a*/", "/***/", "--a", "//a", "1.e1", ".1e-1", "+.1E1"]
    for count in range(3):
        for text in [*map("".join, itertools.product(letters, repeat=count)), *longer]:
            if (imported.problem(text) is None) != (written.problem(text) is None):
                pytest.fail(f"{text!r} is judged in two ways")


@pytest.mark.parametrize("name", ["d", "s"])
def test_a_class_has_the_characters_that_the_check_gives_it(name: str) -> None:
    """New versions of the library bring new versions of Unicode; then our table needs them too."""
    written = regex_to_gbnf(f"\\{name}")
    assert written is not None
    check, gbnf = GrammarCheck("regex", f"\\{name}"), Gbnf(written)
    known = [code for code in range(0x20000) if gbnf.accepts(chr(code))]
    near = {code + step for code in known for step in (-1, 0, 1)} - {-1}
    also = {code for code in range(0x20000) if chr(code).isdecimal() or chr(code).isspace()}
    for char in map(chr, near | also):
        assert gbnf.accepts(char) == (check.problem(char) is None), ascii(char)
