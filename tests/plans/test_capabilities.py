"""What can be relied on when any of several backends may answer."""

from __future__ import annotations

from antiphon.plans.capabilities import Capabilities, common_capabilities

ABLE = Capabilities(
    tool_kinds=frozenset({"web_search", "file_search"}),
    enforces=frozenset({"format", "arguments"}),
    counts=True,
    continues=True,
)
OTHER = Capabilities(
    tool_kinds=frozenset({"web_search"}), enforces=frozenset({"format"}), counts=True
)


def test_a_backend_alone_can_do_what_it_can() -> None:
    assert common_capabilities([ABLE]) is ABLE


def test_of_several_backends_only_what_all_can_do_counts() -> None:
    common = Capabilities(
        tool_kinds=frozenset({"web_search"}), enforces=frozenset({"format"}), counts=True
    )
    assert common_capabilities([ABLE, OTHER]) == common_capabilities([OTHER, ABLE]) == common
    assert common_capabilities([ABLE, OTHER, Capabilities()]) == Capabilities()
