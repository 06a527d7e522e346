"""What is learned from a server's counts: shares of what was counted, factors for what is new."""

from __future__ import annotations

import pytest

from antiphon.host.calibration import Calibration, Counted

A, B, C = (Counted(name, (1000.0, 0.0)) for name in "abc")
MARKS = Counted("marks", (0.0, 500.0))


def calibration() -> Calibration:
    return Calibration([0.3, 0.3])


def test_nothing_is_changed_before_anything_was_counted() -> None:
    learned = calibration()
    assert learned.estimate(A.vector) == 1000
    assert learned.share("a") is None
    assert learned.offset == 0
    assert not learned.is_changed


def test_a_text_that_was_counted_is_what_the_server_said() -> None:
    learned = calibration()
    learned.learn([A], 5000)
    assert learned.share("a") == pytest.approx(5000, rel=0.01)


def test_a_new_text_of_that_kind_is_estimated_by_the_same_factor() -> None:
    learned = calibration()
    learned.learn([A], 5000)
    assert learned.estimate(B.vector) == pytest.approx(5000, rel=0.02)


def test_a_kind_that_was_not_counted_keeps_leaning_high() -> None:
    learned = calibration()
    learned.learn([A], 700)
    assert learned.estimate(MARKS.vector) >= 500


def test_the_shares_of_a_request_come_to_its_figure() -> None:
    learned = calibration()
    learned.learn([A, B, MARKS], 3000)
    shares = [learned.share(name) or 0 for name in ("a", "b", "marks")]
    assert sum(shares) + learned.offset == pytest.approx(3000, abs=1)


def test_texts_that_are_known_keep_their_share_and_new_ones_get_the_rest() -> None:
    """So a conversation is counted turn by turn, each by what it added."""
    learned = calibration()
    learned.learn([A], 2000)
    first = learned.share("a")
    learned.learn([A, B], 3200)
    assert learned.share("a") == first
    assert learned.share("b") == pytest.approx(1200, rel=0.02)
    assert learned.estimate(C.vector) == pytest.approx(1200, rel=0.05)


def test_a_prompt_of_the_servers_own_is_not_taken_for_a_short_text() -> None:
    learned = calibration()
    learned.learn([Counted("hi", (1.0, 0.0))], 3000)
    assert learned.offset == pytest.approx(2999, abs=1)
    assert learned.estimate(A.vector) < 1100
    assert (learned.share("hi") or 1) < 3


def test_a_figure_that_agrees_changes_nothing() -> None:
    learned = calibration()
    learned.learn([A], 1000)
    assert not learned.is_changed
    assert learned.estimate(B.vector) == 1000


def test_known_texts_that_come_to_another_figure_are_forgotten() -> None:
    learned = calibration()
    learned.learn([A], 2000)
    learned.learn([A], 900)
    assert learned.share("a") is None
    learned.learn([A], 900)
    assert learned.share("a") == pytest.approx(900, rel=0.02)


def test_a_figure_that_may_be_off_is_not_remembered() -> None:
    """Beside a picture, of which the cost is a guess."""
    learned = calibration()
    learned.learn([A], 1500, doubt=1000)
    assert learned.share("a") is None
    assert learned.estimate(B.vector) < 1100


def test_no_figure_makes_an_estimate_vanish_or_explode() -> None:
    learned = calibration()
    learned.learn([A], 1)
    assert learned.estimate(B.vector) >= 250
    learned = calibration()
    learned.learn([A], 10**9)
    assert learned.estimate(B.vector) <= 17_000
    assert learned.share("a") is None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.host.calibration._MAX_SHARES", 3)
    learned = calibration()
    for name in "abcdef":
        learned.learn([Counted(name, (1000.0, 0.0))], 1000)
    assert [name for name in "abcdef" if learned.share(name) is not None] == ["d", "e", "f"]
