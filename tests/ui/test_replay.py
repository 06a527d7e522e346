"""The replay's states: the same at a place however it was reached. Needs Node.js, no browser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.install import ROOT, node

_SOURCE = (ROOT / "src/antiphon/ui/js/replay.js").read_text()
_DRIVER = Path(__file__).parent / "replay.mjs"


def play(folder: Path, source: str, seed: int) -> subprocess.CompletedProcess[str]:
    module = folder / "replay.mjs"
    module.write_text(source)
    command = [str(node()), str(_DRIVER), str(module), str(seed)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_state_is_the_same_however_it_was_reached(tmp_path: Path, seed: int) -> None:
    done = play(tmp_path, _SOURCE, seed)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("pieces: { ...one.pieces } }", "pieces: one.pieces }"),
        ("this.kept.push(copy(state))", "this.kept.push(state)"),
        ("Math.floor(wanted / CHECKPOINT)", "Math.ceil(wanted / CHECKPOINT)"),
        ('(pieces[field] || "") + event.delta', "event.delta"),
        ("state.items[index]?.pieces || {}", "{}"),
        ("if (event.response?.status)", "if (!state.status)"),
        (".first <= number) low = middle", ".first < number) low = middle"),
    ],
)
def test_a_planted_bug_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    assert _SOURCE.count(right) == 1
    planted = [play(tmp_path, _SOURCE.replace(right, wrong), seed) for seed in (1, 2)]
    assert any(done.returncode != 0 for done in planted), wrong
