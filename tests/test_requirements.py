"""Every requirement is proved, every marker means one, and the page says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.requirements import (
    PAGE,
    ROOT,
    Marker,
    Proof,
    faults,
    main,
    page,
    read_markers,
    scan,
    strangers,
)
from tests.seeds import SEEDS, Requirement, Section, Seed

TEST = Proof("tests/test_x.py", "test_it")


@pytest.fixture(scope="module")
def markers() -> list[Marker]:
    found, problems = scan(ROOT / "tests")
    assert problems == []
    return found


@pytest.mark.requirement("REQ-008.1")
def test_every_requirement_has_a_test_or_a_reason_why_not(markers: list[Marker]) -> None:
    assert faults(SEEDS, markers) == []


@pytest.mark.requirement("REQ-008.1")
def test_every_marker_names_a_requirement(markers: list[Marker]) -> None:
    assert strangers(SEEDS, markers) == []


def test_the_page_is_what_the_markers_say(markers: list[Marker]) -> None:
    written = (ROOT / PAGE).read_text("utf-8")
    assert written == page(SEEDS, markers), "run python -m tests.requirements --write"


# What the checks find.


def seed(*requirements: Requirement) -> tuple[Seed, ...]:
    return (Seed("999", "A document", "About something.", (Section("A part", requirements),)),)


@pytest.mark.parametrize(
    ("requirements", "fault"),
    [
        ([Requirement("A", "")], "A has no test"),
        ([Requirement("P", ""), Requirement("P", "")], "P is listed twice"),
        (
            [Requirement("P", "", reason_without_test="a schedule")],
            "P says why it has no test, and has one",
        ),
        (
            [Requirement("P", ""), Requirement("A", "", see=("P",), reason_without_test="none")],
            "A says why it has no test, and has one",
        ),
        ([Requirement("A", "", see=("B",))], "A refers to 'B', which is no requirement"),
        (
            [Requirement("A", "", see=("B",)), Requirement("B", "", reason_without_test="none")],
            "A refers to B, which has no test",
        ),
        (
            [Requirement("A", "", see=("B",)), Requirement("B", "", not_shown="all of it")],
            "A refers to B, which has no test",
        ),
        (
            [
                Requirement("A", "", see=("B",)),
                Requirement("B", "", see=("C", "P")),
                Requirement("C", "", see=("B",)),
                Requirement("P", ""),
            ],
            "C refers to B, which refers back to it",
        ),
        ([Requirement("A", "", see=("B",)), Requirement("B", "")], "B has no test"),
    ],
)
def test_a_requirement_that_is_not_proved_is_a_fault(
    requirements: list[Requirement], fault: str
) -> None:
    assert fault in faults(seed(*requirements), [Marker("P", TEST)])


def test_a_test_a_reason_or_another_requirement_is_proof_enough() -> None:
    good = seed(
        Requirement("P", ""),
        Requirement("A", "", see=("P",)),
        Requirement("B", "", see=("A", "P")),
        Requirement("C", "", reason_without_test="a schedule"),
        Requirement("D", "", not_shown="all of it"),
    )
    assert faults(good, [Marker("P", TEST)]) == []


def test_what_nothing_shows_stands_beside_the_proof() -> None:
    half = Requirement("P", "Both halves", not_shown="The other half.")
    written = page(seed(half), [Marker("P", TEST)])
    assert (
        "[`test_it`](../../tests/test_x.py), **not shown:** The other half. | as asked" in written
    )


def test_a_marker_without_a_requirement_is_told_with_its_test() -> None:
    (line,) = strangers(seed(Requirement("A", "")), [Marker("A", TEST), Marker("a", TEST)])
    assert line == "tests/test_x.py: test_it proves 'a', which is no requirement"


def names(source: str) -> list[tuple[str, str]]:
    markers, problems = read_markers(source, "tests/test_x.py")
    assert problems == []
    return [(marker.id, marker.proof.name) for marker in markers]


MARK = "pytest.mark.requirement"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"@{MARK}('A', 'B')\ndef test_it(): ...", [("A", "test_it"), ("B", "test_it")]),
        (f"@other\n@{MARK}('A')\nasync def test_it(): ...", [("A", "test_it")]),
        (f"@{MARK}('A')\nclass TestIt:\n  def test_x(self): ...", [("A", "TestIt")]),
        (f"class TestIt:\n  @{MARK}('A')\n  def test_x(self): ...", [("A", "TestIt.test_x")]),
        (f"class TestIt:\n  pytestmark = [{MARK}('A')]", [("A", "TestIt")]),
        (f"pytestmark = [pytest.mark.slow, {MARK}('A')]", [("A", "")]),
        (
            "@pytest.mark.parametrize('x', [pytest.param(1, marks=" + MARK + "('A'))])\n"
            "def test_it(x): ...",
            [("A", "test_it")],
        ),
        ("@pytest.mark.slow\ndef test_it(): ...", []),
    ],
)
def test_markers_are_read_wherever_they_may_stand(
    source: str, found: list[tuple[str, str]]
) -> None:
    assert names(source) == found


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (f"@{MARK}('A')\ndef helper(): ...", "tests/test_x.py:1: this marker is on no test"),
        (f"proves = {MARK}('A')", "tests/test_x.py:1: this marker is on no test"),
        (
            f"ID = 'A'\n@{MARK}(ID)\ndef test_it(): ...",
            "tests/test_x.py:2: a marker takes ids, written out as strings",
        ),
        (
            f"@{MARK}()\ndef test_it(): ...",
            "tests/test_x.py:1: a marker takes ids, written out as strings",
        ),
    ],
)
def test_a_marker_that_cannot_be_counted_is_told(source: str, problem: str) -> None:
    assert read_markers(source, "tests/test_x.py")[1] == [problem]


def test_a_row_shows_its_tests_what_it_refers_to_and_how_it_reads() -> None:
    shown = page(
        seed(
            Requirement("A", "a | b", "in other words"),
            Requirement("B", "b", see=("A",)),
            Requirement("C", "c", reason_without_test="a schedule"),
        ),
        [Marker("A", TEST), Marker("A", TEST), Marker("A", Proof("tests/a/test_y.py", ""))],
    )
    assert shown.splitlines()[-3:] == [
        "| `A` | a \\| b | [`test_y.py`](../../tests/a/test_y.py), "
        "[`test_it`](../../tests/test_x.py) | in other words |",
        "| `B` | b | with `A` | as asked |",
        "| `C` | c | no test: a schedule | as asked |",
    ]


# Faults planted in a copy of everything.


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    only_tests = shutil.ignore_patterns("__pycache__", "streams")
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=only_tests)
    (tmp_path / PAGE).parent.mkdir(parents=True)
    return tmp_path


def test_a_slip_in_a_marker_is_found_on_both_sides(copy: Path) -> None:
    for path in (copy / "tests").rglob("test_*.py"):
        path.write_text(path.read_text("utf-8").replace('"22-C1"', '"22-C11"'), "utf-8")
    found, _ = scan(copy / "tests")

    assert "22-C1 has no test" in faults(SEEDS, found)
    assert any("'22-C11'" in line for line in strangers(SEEDS, found))


def test_a_test_that_was_taken_away_makes_the_page_old(copy: Path) -> None:
    main(["--write"], copy)
    before = (copy / PAGE).read_text("utf-8")
    (copy / "tests/protocol/test_sse.py").unlink()
    main(["--write"], copy)

    assert "tests/protocol/test_sse.py" in before
    assert "tests/protocol/test_sse.py" not in (copy / PAGE).read_text("utf-8")


def test_what_is_wrong_goes_to_stderr_and_is_an_error(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "tests/test_odd.py").write_text("@pytest.mark.requirement('X')\ndef test_x(): ...\n")

    assert main([], copy) == 1
    said = capsys.readouterr()
    assert said.out == page(SEEDS, scan(copy / "tests")[0])
    assert "tests/test_odd.py: test_x proves 'X', which is no requirement" in said.err
