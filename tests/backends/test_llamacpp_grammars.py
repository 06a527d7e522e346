"""Grammars on the real thing: what a model writes under GBNF passes the check of the original."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from antiphon.engine.prepare.grammars import GrammarCheck
from antiphon.wires.chat.grammars.gbnf import lark_to_gbnf, regex_to_gbnf
from tests.backends.test_llamacpp import run_server
from tests.grammar_maker import make_grammar

pytestmark = pytest.mark.slow

PATCH = r"""
start: begin change~1..2 end
begin: "=== Begin" LF
end: "=== End" LF?
change: "=== Edit file: " NAME LF part
part: "@@" LF (("+" | "-" | " ") LINE LF)~1..3
NAME: /[a-z.]{1,12}/
LINE: /[^\n]{0,20}/
LF: "\n"
"""
SUMS = r"""
start: sum
sum: sum ("+" | "-") NUM | NUM
NUM: /[0-9]{1,3}/
%ignore / +/
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    yield from run_server("")


def write(upstream: str, gbnf: str, seed: int) -> dict[str, Any]:
    """Return the choice of a completion that is held to the grammar."""
    body = {
        "messages": [{"role": "user", "content": "Write a short example."}],
        "grammar": gbnf,
        "max_tokens": 80,
        "temperature": 0.9,
        "seed": seed,
    }
    request = urllib.request.Request(
        f"{upstream}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        choice: dict[str, Any] = json.load(answer)["choices"][0]
    return choice


@pytest.mark.parametrize(
    ("syntax", "definition"),
    [
        ("lark", PATCH),
        ("lark", SUMS),
        ("regex", r"[A-Z][a-z]{2,9}( [a-zéü]{1,9}){0,4}\."),
        ("regex", r"(?i)yes|no|[^\x00-\x7F]{2}"),
        *((make_grammar(number).syntax, make_grammar(number).definition) for number in range(6)),
    ],
)
def test_what_the_model_writes_passes_the_check(
    upstream: str, syntax: Literal["lark", "regex"], definition: str
) -> None:
    gbnf = (lark_to_gbnf if syntax == "lark" else regex_to_gbnf)(definition)
    assert gbnf is not None
    check = GrammarCheck(syntax, definition)
    for seed in range(1):
        choice = write(upstream, gbnf, seed)
        text = choice["message"]["content"]
        problem = check.problem(text)
        # A grammar without a bound may be cut off by the length, never be left.
        assert problem is None or choice["finish_reason"] == "length", f"{text!r}: {problem}"
        if problem is not None:
            assert "ends too early" in problem
