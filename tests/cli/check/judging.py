"""Runs `antiphon check` on servers whose streams are written down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from click.testing import CliRunner

from antiphon.cli import main
from tests.cli.canned import Canned, Json, canned_server

__all__ = ["DAMAGES", "check", "check_canned", "replaced", "rules_of", "stream_of"]

DAMAGES: Final[tuple[object, ...]] = (None, 7, "x", [], {}, True, [None], {"type": []})
"""JSON values that are wrong nearly everywhere."""


def check(runner: CliRunner, base_url: str, wire_api: str, *arguments: str) -> tuple[int, Json]:
    """Return the exit code and the report."""
    result = runner.invoke(main, ["check", base_url, "--wire-api", wire_api, "--json", *arguments])
    assert result.stdout, result.output
    return result.exit_code, msgspec.json.decode(result.stdout)


def check_canned(runner: CliRunner, wire_api: str, case: str, *answers: Canned) -> tuple[int, Json]:
    """Return the exit code and the result of a case; its steps get these answers, in order.

    The list of models, and the request that asks for the API, are answered too.
    """
    waiting = list(answers)

    def answer(method: str, path: str, body: Json) -> Canned:
        if not body and case != "models":
            refusal = b'{"error": {"message": "no", "type": "t", "param": null, "code": null}}'
            return Canned(400, refusal)
        if method == "GET" and not body:
            return answers[0]
        return waiting.pop(0)

    with canned_server(answer) as base_url:
        code, report = check(runner, base_url, wire_api, "--model", "m", "--only", case)
    [result] = report["results"]
    return code, result


def rules_of(result: Json) -> set[str]:
    """Return the rules that were broken."""
    return {finding["rule"] for finding in result["findings"]}


def stream_of(frames: Iterable[bytes]) -> Canned:
    """Return the frames as a stream."""
    return Canned(200, b"".join(frames), {"Content-Type": "text/event-stream"})


def replaced(value: Any, damage: object) -> Iterable[Any]:
    """Yield copies of a JSON value in each of which one inner value is replaced."""
    places: list[tuple[Any, Any]] = []
    match value:
        case dict():
            places = list(value.items())
        case list():
            places = list(enumerate(value))
    for key, inner in places:
        for changed in [damage, *replaced(inner, damage)]:
            copy = value.copy()
            copy[key] = changed
            yield copy
