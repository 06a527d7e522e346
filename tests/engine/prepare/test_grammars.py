"""Grammars of custom tools: what keeps to one, what does not, and what is no grammar."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest

from antiphon.engine.prepare import grammars
from antiphon.engine.prepare.grammars import (
    HOW_TO,
    MAX_DEFINITION,
    MAX_TEXT,
    GrammarCheck,
    can_check,
    grammar_check,
)
from antiphon.protocol.errors import InvalidRequest

PATCH = r"""
start: begin change+ end
begin: "=== Begin" LF
end: "=== End" LF?
change: create | remove | edit
create: "=== New file: " NAME LF ("+" LINE LF)+
remove: "=== Old file: " NAME LF
edit: "=== Edit file: " NAME LF part+
part: "@@" [" " NAME] LF (("+" | "-" | " ") LINE LF)+
NAME: /[^\n]+/
LINE: /[^\n]*/
LF: "\n"
"""
SUMS = r"""
start: sum
sum: sum ("+" | "-") product | product
product: product ("*" | "/") atom | atom
atom: NUMBER | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""
QUERY = r"""
start: "SELECT "i columns " FROM "i NAME [" WHERE "i test] ";"
columns: "*" | NAME ("," " "? NAME)*
test: NAME " " ("=" | "<" | ">") " " (INT | ESCAPED_STRING)
NAME: /[a-z_]+/
%import common (INT, ESCAPED_STRING)
"""
TABLE = r"""
start: row ("\n" row)*
row: cell ("," cell)*
cell: /[^",\n]*/ | /"([^"]|"")*"/
"""
PAIRS = r"""
start: pair+
pair: KEY "=" VALUE "\n"
KEY: "a".."z"+   // letters alone
VALUE: /[^\n]*/
"""
A_PATCH = "=== Begin\n=== Edit file: a.py\n@@ def f\n-old\n+new\n same\n=== End\n"


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (PATCH, A_PATCH),
        (PATCH, "=== Begin\n=== New file: é.txt\n+\n+日本\n=== Old file: b\n=== End"),
        (SUMS, "1 + 2*(3.5 - 4)/5e3"),
        (QUERY, 'select a, b FROM t WHERE a = "x\\"y";'),
        (QUERY, "SELECT * FROM t;"),
        (TABLE, 'a,b\n"c ""d"", e",\n'),
        (PAIRS, "a=1\nbc=\n"),
    ],
)
def test_what_the_grammar_produces_has_no_problem(definition: str, text: str) -> None:
    assert GrammarCheck("lark", definition).problem(text) is None


@pytest.mark.parametrize(
    ("definition", "text", "problem"),
    [
        (PATCH, "", "The text ends too early, at line 1, column 1: expected '=== Begin\\n=== '."),
        (
            PATCH,
            "=== Begin\n=== Move file: a\n",
            "Line 2, column 5: 'Move file: a' cannot stand there; "
            "expected 'Edit file: ', 'New file: ' or 'Old file: '.",
        ),
        (
            PATCH,
            A_PATCH.replace("-old", "old"),
            "Line 4, column 1: 'old' cannot stand there; expected ' ', '+' or '-'.",
        ),
        (
            PATCH,
            A_PATCH + "\n",
            "Line 8, column 1: '\\n' cannot stand there; the text should end there.",
        ),
        (
            PATCH,
            "=== Begin\n=== New file: é\n+日本\n-x\n=== End",
            "Line 4, column 1: '-x' cannot stand there; expected '+' or '=== '.",
        ),
        (SUMS, "1 +", "The text ends too early, at line 1, column 4: something else is expected."),
        (PAIRS, "a=1\nb", "The text ends too early, at line 2, column 2: something else is"),
    ],
)
def test_a_problem_says_where_it_is_and_what_could_stand_there(
    definition: str, text: str, problem: str
) -> None:
    found = GrammarCheck("lark", definition).problem(text)
    assert found is not None
    assert found.startswith(problem.removesuffix("."))


def test_a_text_may_be_longer_than_what_is_shown_of_it() -> None:
    found = GrammarCheck("regex", "a+").problem("b" * 500)
    assert found is not None
    assert len(found) < 200


def test_an_end_is_among_what_is_expected() -> None:
    assert GrammarCheck("regex", "a(bc)?").problem("ax") == (
        "Line 1, column 2: 'x' cannot stand there; expected 'bc' or the end."
    )
    many = GrammarCheck("regex", "a[b-z]?").problem("a?")
    assert many == (
        "Line 1, column 2: '?' cannot stand there; something else is expected, or the end."
    )


def test_a_grammar_that_nothing_belongs_to_refuses_everything() -> None:
    check = GrammarCheck("lark", 'start: x\nx: x "a"')
    assert check.problem("") == (
        "The text ends too early, at line 1, column 1: nothing can follow."
    )
    assert check.problem("a") is not None


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{4}-\d{2}$", "2026-11", "2026-1"),
        (r"(?i)yes|no", "YES", "maybe"),
        (r"[^\n]*", "a b é", "a\n"),
        ("", "", "x"),
    ],
)
def test_a_pattern_is_the_whole_text(pattern: str, good: str, bad: str) -> None:
    check = GrammarCheck("regex", pattern)
    assert check.problem(good) is None
    assert check.problem(bad) is not None


def test_half_a_surrogate_pair_belongs_to_no_grammar() -> None:
    assert GrammarCheck("regex", "(?s:.*)").problem("a\ud83d") is not None


def deep(rules: int) -> str:
    chain = "\n".join(f'r{at}: "x" r{at + 1}?' for at in range(rules))
    return f'start: r0\n{chain}\nr{rules}: "z"'


@pytest.mark.parametrize(
    ("syntax", "definition", "why"),
    [
        ("regex", "(?=a)b", "look-around"),
        ("regex", r"\bword", "lookarounds"),
        ("regex", "a*?b", "lazy"),
        ("lark", "start: /a+?/", "lazy"),
        ("regex", "(", "unclosed group"),
        ("regex", "a?b?" * 600, "repetitions"),
        ("regex", "((a{1,9}){1,9}){1,9}", "counts in counts"),
        ("regex", "[{](?P<a[>b)((a{1,9}){1,9}){1,9}", "counts in counts"),
        ("regex", "(?x)# [\n((a{1,9}){1,9}){1,9}", "flag 'x'"),
        ("lark", "start: /a # [\n b/x", "flag 'x'"),
        ("lark", 'start: A{9}\nA: B{9}\nB: (/a{1,9}/ | "b"){9}', "counts in counts"),
        ("lark", "start: A\nA: /.*a.{20}/ & /.*b.{19}/ & ~/.*c.{30}/", "'&' cannot stand here"),
        ("regex", "a" * (MAX_DEFINITION + 1), "longer"),
        ("regex", "\ud83d", "surrogate"),
        ("lark", 'begin: "a"', "'start'"),
        ("lark", "start: x\nx: y", 'line 2, column 4: unknown name: "y"'),
        ("lark", "start: A\nA: B\nB: A", "circular"),
        ("lark", "start: 'a'", "line 1, column 8"),
        ("lark", "start: A\n%declare A", "'%declare' is not supported"),
        ("lark", 'start: %json {"type": "object"}', "'%json'"),
        ("lark", 'start[lazy]: "a"', "option"),
        ("lark", "start: <|end|>", "'<'"),
        ("lark", deep(100), "nested too deep"),
        ("lark", "start: A\n" + "\n".join(f'A{n}: "a"' for n in range(2001)), "2000 rules"),
        ("lark", "start: A A A\nA: B B B B\nB: " + "C? " * 100 + '\nC: "c"', "repetitions"),
    ],
)
def test_what_is_no_grammar_is_the_callers_mistake(syntax: str, definition: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        grammar_check({"syntax": syntax, "definition": definition}, "tools[2].format")
    assert caught.value.code == "invalid_grammar"
    assert caught.value.param == "tools[2].format.definition"
    assert why in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("format", "param"),
    [
        ({"syntax": "ebnf", "definition": "x"}, "tools[0].format.syntax"),
        ({"syntax": "lark"}, "tools[0].format.definition"),
        ({"syntax": "regex", "definition": 7}, "tools[0].format.definition"),
    ],
)
def test_a_format_of_the_wrong_shape_is_named(format: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        grammar_check(format, "tools[0].format")
    assert caught.value.param == param


def test_the_deepest_grammar_that_is_taken_compiles_on_the_smallest_stack() -> None:
    shapes: list[Callable[[int], str]] = [
        deep,
        lambda n: "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(n)) + f'\nr{n}: "z"',
        lambda n: "start: R0\n" + "\n".join(f"R{i}: R{i + 1}" for i in range(n)) + f'\nR{n}: "z"',
        lambda n: (
            "start: r0\n"
            + "\n".join(f"r{i}: {'(' * 28}r{i + 1}{')' * 28}" for i in range(n))
            + f'\nr{n}: "z"'
        ),
    ]
    refused: list[int] = []

    def climb() -> None:
        for shape in shapes:
            for count in range(2, 200, 2):
                try:
                    GrammarCheck("lark", shape(count))
                except InvalidRequest:
                    refused.append(count)
                    break

    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=climb)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(refused) == len(shapes)


def test_too_much_work_is_a_problem_and_not_a_pass() -> None:
    ambiguous = 'start: a\na: a a | "x"'
    assert GrammarCheck("lark", ambiguous).problem("x" * 20) is None
    hurried = GrammarCheck("lark", ambiguous, seconds=-1.0)
    assert "too much work" in str(hurried.problem("x" * 20))


def test_a_row_of_the_parser_that_gets_too_long_is_a_problem() -> None:
    wide = "start: " + '"a"? ' * 600
    check = GrammarCheck("lark", wide, seconds=60.0)
    assert "too much work" in str(check.problem("a" * 600))


@pytest.mark.parametrize(
    ("syntax", "definition", "good"),
    [
        ("regex", "([0-9a-f]{2}(-[0-9a-f]{4}){3};){1,9}", "00-1234-abcd-0000;"),
        ("regex", "(.{1,200}\\n){1,300}", "a\n"),
        ("regex", r"(\p{L}{1,30000}){0,30000}", "é"),
        ("lark", 'start: (a{9}){9}\na: (/b{0,9}/ "c"){9}', "c" * 729),
    ],
)
def test_counts_in_counts_are_taken_where_they_are_few(
    syntax: Literal["lark", "regex"], definition: str, good: str
) -> None:
    assert GrammarCheck(syntax, definition).problem(good) is None


def test_what_must_follow_is_told_without_writing_all_of_it_out() -> None:
    problem = str(GrammarCheck("regex", "(a{30000}){30000}").problem("aa"))
    assert f"expected '{'a' * 40}'" in problem


def test_nothing_is_expected_in_particular_when_the_time_is_up() -> None:
    check = GrammarCheck("regex", "abc")
    assert "something else" in grammars._told(check._matcher(0), b"x", 0, until=-1.0)


def test_a_check_that_was_too_much_work_leaves_nothing_behind() -> None:
    check = GrammarCheck("lark", 'start: a\na: a a | "x"', seconds=-1.0)
    before = check._fresh
    assert "too much work" in str(check.problem("x" * 20))
    assert check._matcher(0) is not None
    assert check._fresh is not before


def test_a_text_above_the_limit_is_not_looked_at() -> None:
    check = GrammarCheck("regex", "(?s:.*)")
    assert check.problem("x" * MAX_TEXT) is None
    assert "longer" in str(check.problem("x" * (MAX_TEXT + 1)))


def test_the_same_definition_is_compiled_once() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": PATCH}
    assert grammar_check(form, "tools[0].format") is grammar_check(form, "tools[5].format")


def test_many_long_texts_leave_no_growing_automaton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "_MAX_SEEN", 100)
    check = GrammarCheck("regex", "(a|b)*a(a|b){3}")
    first = check._fresh
    assert check.problem("ab" * 20 + "abbb") is None
    assert check._fresh is first
    assert check.problem("ab" * 40 + "abbb") is None
    assert check._fresh is not first


def test_threads_may_share_one_check() -> None:
    check = GrammarCheck("lark", PATCH)
    found: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(check.problem(A_PATCH))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [None] * 8


def test_without_the_extra_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_check()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not can_check()
    assert grammar_check({"syntax": "regex", "definition": "("}, "tools[0].format") is None
    assert "[grammar]" in HOW_TO
