"""What models take, by their names and by what their servers state."""

from __future__ import annotations

import pytest

from antiphon.wires.messages.profiles import ANTHROPIC
from antiphon.wires.messages.traits import OPEN, Stated, read_traits, traits_of
from antiphon.wires.messages.wire import MessagesWire


@pytest.mark.parametrize(
    ("model", "adaptive", "budget", "sampling"),
    [
        ("claude-3-5-sonnet-20241022", False, False, True),
        ("claude-3-7-sonnet-20250219", False, True, True),
        ("claude-sonnet-4-20250514", False, True, True),
        ("claude-sonnet-4-5-20250929", False, True, True),
        ("anthropic/claude-haiku-4.5", False, True, True),
        ("claude-opus-4-6", True, True, True),
        ("claude-opus-4-7", True, False, False),
        ("claude-sonnet-5", True, False, False),
        ("claude-mythos-1", True, False, False),
        ("us.anthropic.claude-opus-5-1-v1:0", True, False, False),
    ],
)
def test_thinking_and_sampling_by_name(
    model: str, adaptive: bool, budget: bool, sampling: bool
) -> None:
    traits = traits_of(model)

    assert (traits.adaptive, traits.budget, traits.sampling) == (adaptive, budget, sampling)
    assert traits.summarises


@pytest.mark.parametrize(
    ("model", "efforts"),
    [
        ("claude-sonnet-4-5", ()),
        ("claude-opus-4-5", ("low", "medium", "high")),
        ("claude-opus-4-6", ("low", "medium", "high", "max")),
        ("claude-opus-4-7", ("low", "medium", "high", "xhigh", "max")),
    ],
)
def test_levels_of_effort_by_name(model: str, efforts: tuple[str, ...]) -> None:
    assert traits_of(model).efforts == efforts


def test_a_name_that_is_not_claudes_is_of_an_open_server() -> None:
    assert traits_of("my-model") == OPEN


def test_only_the_newest_models_take_a_system_message_inside() -> None:
    assert not traits_of("claude-opus-4-8").mid_system
    assert traits_of("claude-opus-5").mid_system


def test_forced_choices_are_refused_by_two_lines() -> None:
    taken = [traits_of(f"claude-{line}-5").forced_choice for line in ("opus", "fable", "mythos")]

    assert taken == [True, False, False]


def test_what_a_server_states_overrides_the_table() -> None:
    entry = {
        "max_tokens": 7,
        "capabilities": {
            "thinking": {
                "types": {"adaptive": {"supported": False}, "enabled": {"supported": True}}
            },
            "effort": {"low": {"supported": True}, "high": {"supported": False}},
        },
    }

    traits = traits_of("claude-opus-5", read_traits(entry))

    assert (traits.max_tokens, traits.limit) == (7, 7)
    assert (traits.adaptive, traits.budget, traits.efforts) == (False, True, ("low",))
    assert traits.json_schema


def test_an_entry_that_states_nothing_changes_nothing() -> None:
    assert read_traits({"id": "m"}) == Stated()


def test_an_answer_leaves_room_in_the_window_of_an_open_server() -> None:
    traits = traits_of("qwen", read_traits({"id": "qwen"}, 8192))

    assert (traits.max_tokens, traits.limit) == (4096, None)


@pytest.mark.parametrize(
    ("model", "continues"),
    [
        ("claude-3-5-sonnet-20241022", True),
        ("claude-3-haiku-20240307", True),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", True),
        ("claude-opus-4-20250514", True),
        ("claude-opus-4-1", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-haiku-4.5", True),
        ("claude-opus-4-6", False),
        ("claude-sonnet-4-10", False),
        ("claude-opus-5", False),
        ("claude-fable-5-1", False),
        ("llama", False),
    ],
)
def test_only_older_models_go_on_with_an_answer(model: str, continues: bool) -> None:
    assert MessagesWire(ANTHROPIC).capabilities.continues_with(model) is continues
    assert not MessagesWire().capabilities.continues_with(model)
