"""Which test proves which requirement, and is every requirement proved?

Tests name what they prove: `@pytest.mark.requirement("REQ-001.1", "22-C2")`, on a function, on a
class, on one parameter set, or as `pytestmark` for a file. Markers are read from the source, not
from a test run, so a test that is skipped somewhere counts everywhere, and the page comes out the
same on every machine. `faults` and `strangers` say what is wrong; `page` is what
docs/topics/requirements.md must hold.

    python -m tests.requirements            prints the page
    python -m tests.requirements --write    writes it
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.seeds import SEEDS, Requirement, Section, Seed

__all__ = [
    "PAGE",
    "ROOT",
    "Marker",
    "Proof",
    "faults",
    "main",
    "page",
    "read_markers",
    "scan",
    "strangers",
]

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = Path("docs/topics/requirements.md")
_FROM_PAGE: Final = "../../"
_HEAD: Final = "| id | what it asks for | proved by | how it reads today |\n|---|---|---|---|"
_INTRODUCTION: Final = """\
# Requirements, and the tests that prove them

antiphon began with five documents, its seeds. This page lists what they ask for, in our words,
and for each demand the tests that prove it. Where the documents contradict each other, or where
the protocol and the models have changed since, the last column states how a demand reads today and
why. "with" names other rows whose tests are the proof. "Not shown" is what nothing here proves.

This page is generated from the markers on the tests: `python -m tests.requirements --write`. A
test fails when a requirement has no test, when a marker names none, and when this page is old."""


class Proof(msgspec.Struct, frozen=True, order=True):
    """A test: its file, seen from the root, and its name; without a name, the whole file."""

    path: str
    name: str


class Marker(msgspec.Struct, frozen=True):
    """One id that one test claims to prove."""

    id: str
    proof: Proof


# Reading.


def scan(tests: Path) -> tuple[list[Marker], list[str]]:
    """Return the markers of all test files below a folder, and what is wrong with them."""
    markers: list[Marker] = []
    problems: list[str] = []
    for path in sorted(tests.rglob("*.py")):
        name = path.relative_to(tests.parent).as_posix()
        found, wrong = read_markers(path.read_text("utf-8"), name)
        markers += found
        problems += wrong
    return markers, problems


def read_markers(source: str, path: str) -> tuple[list[Marker], list[str]]:
    """Return the markers of one file, and a line for each that cannot be counted."""
    if "requirement" not in source:
        return [], []  # saves parsing most files
    module = ast.parse(source)
    placed = list(_placed(module.body, ""))
    markers: list[Marker] = []
    problems: list[str] = []
    for name, call in placed:
        ids = [_text(argument) for argument in call.args]
        if not ids or None in ids or call.keywords:
            problems.append(f"{path}:{call.lineno}: a marker takes ids, written out as strings")
        markers += [Marker(one, Proof(path, name)) for one in ids if one is not None]
    seen = {id(call) for _, call in placed}
    problems += [
        f"{path}:{call.lineno}: this marker is on no test"
        for call in _marker_calls(module)
        if id(call) not in seen
    ]
    return markers, problems


def _placed(body: Sequence[ast.stmt], owner: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield each marker that is on something, with the name of the test it is on."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                yield from _named(node.decorator_list, f"{owner}{node.name}")
            case ast.ClassDef() if node.name.startswith("Test"):
                yield from _named(node.decorator_list, f"{owner}{node.name}")
                yield from _placed(node.body, f"{owner}{node.name}.")
            case ast.Assign(targets=[ast.Name(id="pytestmark")]):
                yield from _named([node.value], owner.removesuffix("."))


def _named(nodes: Iterable[ast.expr], name: str) -> Iterator[tuple[str, ast.Call]]:
    for node in nodes:
        for call in _marker_calls(node):
            yield name, call


def _marker_calls(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Attribute(attr="requirement", value=ast.Attribute(attr="mark"))):
                yield inner


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
    return None


# Judging.


def faults(seeds: Sequence[Seed], markers: Sequence[Marker]) -> list[str]:
    """Return a line for each requirement that nothing proves, or that is not well said."""
    requirements = [one for seed in seeds for one in seed.requirements]
    known = {one.id: one for one in requirements}
    proved = {marker.id for marker in markers}
    lines = [f"{one.id} is listed twice" for one in requirements if known[one.id] is not one]
    for one in known.values():
        lines += _faults_of(one, known, proved)
    return lines


def strangers(seeds: Sequence[Seed], markers: Sequence[Marker]) -> list[str]:
    """Return a line for each marker that names no requirement."""
    known = {one.id for seed in seeds for one in seed.requirements}
    return [
        f"{marker.proof.path}: {marker.proof.name or 'pytestmark'} proves {marker.id!r}, "
        "which is no requirement"
        for marker in markers
        if marker.id not in known
    ]


def _faults_of(
    one: Requirement, known: Mapping[str, Requirement], proved: Collection[str]
) -> Iterator[str]:
    is_proved = one.id in proved
    if one.reason_without_test and (is_proved or one.see):
        yield f"{one.id} says why it has no test, and has one"
    if not (is_proved or one.see or one.reason_without_test or one.not_shown):
        yield f"{one.id} has no test"
    for other in one.see:
        if other not in known:
            yield f"{one.id} refers to {other!r}, which is no requirement"
        elif not (other in proved or known[other].see):
            yield f"{one.id} refers to {other}, which has no test"
        elif one.id in _behind(other, known):
            yield f"{one.id} refers to {other}, which refers back to it"


def _behind(start: str, known: Mapping[str, Requirement]) -> set[str]:
    """Return all requirements that this one refers to, near or far."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for other in known[waiting.pop()].see:
            if other in known and other not in found:
                found.add(other)
                waiting.append(other)
    return found


# Writing.


def page(seeds: Sequence[Seed], markers: Sequence[Marker]) -> str:
    """Return the page: a table for each section of each document."""
    proofs: dict[str, list[Proof]] = {}
    for marker in markers:
        proofs.setdefault(marker.id, []).append(marker.proof)
    parts = [_INTRODUCTION]
    for seed in seeds:
        parts.append(f"## Seed {seed.number}. {seed.title}\n\n{seed.about}")
        parts += [_section(section, proofs) for section in seed.sections]
    return "\n\n".join(parts) + "\n"


def _section(section: Section, proofs: Mapping[str, list[Proof]]) -> str:
    rows = [_row(one, proofs.get(one.id, [])) for one in section.requirements]
    return "\n".join([f"### {section.title}", "", _HEAD, *rows])


def _row(one: Requirement, proofs: Sequence[Proof]) -> str:
    shown = [_link(proof) for proof in sorted(set(proofs))]
    if one.see:
        shown.append("with " + ", ".join(f"`{other}`" for other in one.see))
    if one.reason_without_test:
        shown.append(f"no test: {one.reason_without_test}")
    if one.not_shown:
        shown.append(f"**not shown:** {one.not_shown}")
    cells = (f"`{one.id}`", one.what, ", ".join(shown) or "no test yet", one.reads or "as asked")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _link(proof: Proof) -> str:
    shown = proof.name or proof.path.rpartition("/")[2]
    return f"[`{shown}`]({_FROM_PAGE}{proof.path})"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Print the page, or write it; tell what is wrong on stderr."""
    markers, problems = scan(root / "tests")
    text = page(SEEDS, markers)
    if "--write" in arguments:
        (root / PAGE).write_text(text, "utf-8")
    else:
        print(text, end="")
    problems += strangers(SEEDS, markers) + faults(SEEDS, markers)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
