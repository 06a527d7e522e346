"""The pages about clients say what the suite of clients has shown, and nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.clients.conftest import Recorder
from tests.clients.index import CLIENTS, versions
from tests.clients.install import ROOT, locked_version
from tests.clients.pages import main as write_pages
from tests.clients.pages import pages, stale
from tests.clients.results import (
    RECORD,
    Key,
    Outcome,
    Record,
    Turn,
    claimed,
    doubts,
    main,
    merged,
    read,
    read_turns,
    write,
)

HELLO: Key = ("codex", "says hello", "http")
VERSIONS = {"codex": "1.0", "llm": "2.0"}


def record(*turns: Turn, version: str = "1.0", date: str = "2026-01-01") -> dict[str, Record]:
    return {"codex": Record(version, date, turns)}


# What is in the repository.


def test_what_is_on_record_was_run_and_passed_with_the_pinned_versions() -> None:
    """If it fails: scripts/test tests/clients --client-results docs/clients/results.json."""
    assert doubts(read(ROOT / RECORD), claimed(), versions()) == []


def test_the_pages_are_made_from_the_record() -> None:
    """If it fails: python -m tests.clients.pages --write."""
    assert stale() == []


def test_every_client_with_a_suite_is_in_the_table() -> None:
    assert {client for client, _, _ in claimed()} <= {client.name for client in CLIENTS}


def test_no_lock_file_names_a_registry() -> None:
    locks = {client.lock for client in CLIENTS if client.lock}
    assert [lock for lock in locks if '"resolved"' in (ROOT / lock).read_text("utf-8")] == []


# Reading what tests claim.

MARK = "@pytest.mark.turn"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"{MARK}('codex', 'says hello', transport='http')\ndef test_it(): ...", [HELLO]),
        (f"{MARK}('llm', 'runs')\nasync def test_it(): ...", [("llm", "runs", "-")]),
        (f"x = [pytest.param(1, marks={MARK[1:]}('llm', 'runs'))]", [("llm", "runs", "-")]),
        ("@pytest.mark.slow\ndef test_it(): ...", []),
    ],
)
def test_turns_are_read_wherever_they_stand(source: str, found: list[Key]) -> None:
    assert read_turns(source) == found


@pytest.mark.parametrize("given", ["('llm')", "('llm', what)", "('a', 'b', over='http')"])
def test_a_turn_that_cannot_be_read_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_turns(f"{MARK}{given}\ndef test_it(): ...")


# Recording.


def test_a_turn_that_was_not_run_this_time_stays_as_it_was() -> None:
    old = record(Turn("says hello", "http", "passed"))
    again: Key = ("codex", "says it again", "http")
    now = merged(old, {again: "passed"}, VERSIONS, [HELLO, again], "2026-02-02")
    assert now["codex"].date == "2026-02-02"
    assert [turn.what for turn in now["codex"].turns] == ["says hello", "says it again"]


def test_a_turn_that_no_test_claims_leaves_the_record() -> None:
    old = record(Turn("says hello", "http", "passed"))
    assert merged(old, {}, VERSIONS, [], "2026-02-02") == {}


def test_what_was_run_with_another_version_is_forgotten() -> None:
    old = record(Turn("says hello", "http", "passed"), version="0.9")
    assert merged(old, {}, VERSIONS, [HELLO], "2026-02-02") == {}


def test_the_date_stays_if_nothing_else_has_changed() -> None:
    old = record(Turn("says hello", "http", "passed"))
    assert merged(old, {HELLO: "passed"}, VERSIONS, [HELLO], "2026-02-02") == old


def test_a_client_that_nobody_pinned_is_not_recorded() -> None:
    with pytest.raises(LookupError, match="stranger"):
        merged({}, {("stranger", "runs", "-"): "passed"}, VERSIONS, [], "2026-02-02")


@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        (["passed"], "passed"),
        (["passed", "failed"], "failed"),
        (["failed", "passed"], "failed"),
        (["passed", "skipped"], "skipped"),
        (["failed", "skipped"], "failed"),
    ],
)
def test_a_turn_has_passed_when_all_of_its_tests_have(
    tmp_path: Path, outcomes: list[Outcome], kept: Outcome
) -> None:
    recorder = Recorder(tmp_path / "results.json")
    for outcome in outcomes:
        properties = [("turn", list(HELLO)), ("other", "thing")]
        recorder.pytest_runtest_logreport(
            pytest.TestReport(
                "x", ("x", 1, "x"), {}, outcome, None, "call", user_properties=properties
            )
        )
    assert recorder.ran == {HELLO: kept}


# Judging.


@pytest.mark.parametrize(
    ("turn", "version", "doubt"),
    [
        (Turn("says hello", "http", "failed"), "1.0", "codex: 'says hello' (http) failed"),
        (Turn("says hello", "http", "passed"), "0.9", "codex 0.9 is on record; 1.0 is pinned"),
        (Turn("sings", "http", "passed"), "1.0", "codex: no test claims 'sings' (http)"),
        (Turn("sings", "http", "passed"), "1.0", "codex: 'says hello' (http) is not on record"),
    ],
)
def test_a_record_that_is_not_so_is_doubted(turn: Turn, version: str, doubt: str) -> None:
    assert doubt in doubts(record(turn, version=version), [HELLO], VERSIONS)


def test_a_record_that_is_so_is_not_doubted() -> None:
    assert doubts(record(Turn("says hello", "http", "passed")), [HELLO], VERSIONS) == []


@pytest.mark.parametrize(
    ("ran", "code"),
    [
        ([Turn("says hello", "http", "passed")], 0),
        ([Turn("says hello", "http", "passed"), Turn("sings", "-", "failed")], 0),
        ([Turn("says hello", "http", "skipped")], 0),
        ([Turn("says hello", "http", "failed")], 1),
        ([Turn("sings", "-", "passed")], 1),
    ],
)
def test_a_run_must_confirm_what_is_claimed(tmp_path: Path, ran: list[Turn], code: int) -> None:
    write(tmp_path / RECORD, record(Turn("says hello", "http", "passed")))
    write(tmp_path / "run.json", record(*ran, date="2026-02-02"))
    assert main([str(tmp_path / "run.json")], tmp_path) == code


def test_a_run_of_nothing_confirms_nothing(tmp_path: Path) -> None:
    assert main([str(tmp_path / "none.json")], tmp_path) == 1


# The pages.


def test_a_page_shows_what_passed_and_what_did_not() -> None:
    turns = (
        Turn("says hello", "http", "passed"),
        Turn("says hello", "websocket", "passed"),
        Turn("a | b", "-", "passed"),
        Turn("sings", "http", "skipped"),
    )
    shown = {path.name: text for path, text in pages(record(*turns)).items()}
    assert "| says hello | HTTP, WebSocket |\n| a \\| b |  |\n" in shown["codex.md"]
    assert "## What did not pass\n\n- sings over HTTP: skipped" in shown["codex.md"]
    row = "| [Codex CLI](codex.md) | `@openai/codex` 1.0 | Responses | 3 | 2026-01-01 |"
    assert row in shown["README.md"]
    assert "| Zed | not tested; see `antiphon connect zed` | | | |" in shown["README.md"]


def test_a_page_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    write(tmp_path / RECORD, record(Turn("says hello", "http", "passed")))
    write_pages(["--write"], tmp_path)
    assert stale(tmp_path) == []
    (tmp_path / RECORD.parent / "codex.md").write_text("It does everything.")
    (tmp_path / RECORD.parent / "rumour.md").write_text("It does more.")
    assert stale(tmp_path) == ["codex.md", "rumour.md"]


def test_a_package_that_a_lock_file_does_not_name_is_an_error(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("one==1.0 \\\n    --hash=x\ntwo==2.0 ; python_version > '3'\n")
    assert [locked_version(lock, name) for name in ("one", "two")] == ["1.0", "2.0"]
    with pytest.raises(LookupError):
        locked_version(lock, "three")


def test_the_record_survives_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "record.json"
    whole = record(Turn("says hello", "http", "passed"))
    write(path, whole)
    assert read(path) == whole
    assert msgspec.json.decode(path.read_bytes())["codex"]["version"] == "1.0"
