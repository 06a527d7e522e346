"""What can be called in a turn, and the one name under which the model knows it."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.protocol.thread import Thread
from antiphon.protocol.tool_list import ToolList
from antiphon.protocol.tools import Tool

SEARCH: Tool = {"type": "tool_search", "execution": "client"}


def function(name: str, **fields: Any) -> Tool:
    return {"type": "function", "name": name, **fields}


def custom(name: str, **fields: Any) -> Tool:
    return {"type": "custom", "name": name, **fields}


def space(name: str, *tools: Tool, **fields: Any) -> Tool:
    return {"type": "namespace", "name": name, "tools": list(tools), **fields}


def box(*tools: Tool, items: list[Item] | None = None) -> Toolbox:
    """The toolbox of tools about which there is nothing to report."""
    toolbox, report = gather_tools(tools, items or [])
    assert report == []
    return toolbox


def aliases(*tools: Tool) -> list[str]:
    return [offer.alias for offer in box(*tools).offers]


# Names.


def test_a_name_that_will_do_stays() -> None:
    assert aliases(function("f"), custom("g-1"), {"type": "shell"}) == ["f", "g-1", "shell"]


def test_a_namespace_is_put_before_the_name() -> None:
    assert aliases(space("mcp", function("go"), custom("see"))) == ["mcp__go", "mcp__see"]


def test_a_namespace_that_ends_in_a_joint_gets_no_other() -> None:
    assert aliases(space("mcp__files__", function("go"))) == ["mcp__files__go"]


def test_characters_that_backends_refuse_are_replaced() -> None:
    assert aliases(function("a.b c"), space("x/y", function("größe"))) == ["a_b_c", "x_y__gr_e"]


def test_a_name_that_is_too_long_is_cut_and_marked() -> None:
    (alias,) = aliases(function("n" * 65))
    assert len(alias) == 64
    assert alias.startswith("nnnn")
    assert re.fullmatch(r"n+_[0-9a-f]{8}", alias)


def test_two_long_names_that_begin_alike_stay_apart() -> None:
    first, second = aliases(function("n" * 70), function("n" * 71))
    assert first != second


def test_a_function_named_like_a_tool_in_a_namespace_keeps_its_name() -> None:
    for tools in itertools.permutations([function("a__b"), space("a", function("b"))]):
        toolbox = box(*tools)
        assert toolbox.alias_of("function", None, "a__b") == "a__b"
        inner = toolbox.alias_of("function", "a", "b")
        assert re.fullmatch(r"a__b_[0-9a-f]{8}", inner)
        offer = toolbox.called(inner)
        assert offer is not None
        assert (offer.name, offer.namespace) == ("b", "a")


def test_a_custom_tool_and_a_function_of_one_name_stay_apart() -> None:
    toolbox = box(function("f"), custom("f"))
    names = [toolbox.alias_of("function", None, "f"), toolbox.alias_of("custom", None, "f")]
    assert names[0] == "f"
    assert names[1].startswith("f_")
    assert [toolbox.called(name) for name in names] == list(toolbox.offers)


def test_a_function_named_like_a_built_in_tool_stays_apart_from_it() -> None:
    toolbox = box({"type": "shell"}, function("shell"))
    assert [offer.kind for offer in toolbox.offers] == ["shell", "function"]
    assert len({offer.alias for offer in toolbox.offers}) == 2


def test_a_tool_named_like_the_alias_of_another_keeps_its_name() -> None:
    marked = box(function("a__b"), space("a", function("b"))).alias_of("function", "a", "b")
    toolbox = box(function("a__b"), space("a", function("b")), function(marked))
    assert toolbox.alias_of("function", None, marked) == marked
    other = toolbox.alias_of("function", "a", "b")
    assert other != marked
    assert other.startswith(marked[:12])


def test_aliases_are_the_same_in_every_turn_and_in_any_order() -> None:
    tools = [
        function("f"),
        function("a.b"),
        space("n", function("f"), custom("g")),
        function("x" * 80),
    ]
    expected = {(o.kind, o.namespace, o.name): o.alias for o in box(*tools).offers}
    for order in itertools.permutations(tools):
        found = {(o.kind, o.namespace, o.name): o.alias for o in box(*order).offers}
        assert found == expected


def test_aliases_do_not_change_when_further_tools_are_found() -> None:
    tools = [space("x.y", function("f")), function("g")]
    more: Item = {"type": "additional_tools", "tools": [space("x_y", function("f"))]}
    before, after = box(*tools), box(*tools, items=[more])
    assert [o.alias for o in after.offers[:2]] == [o.alias for o in before.offers]
    assert after.offers[2].alias not in {o.alias for o in before.offers}


def test_a_tool_that_is_offered_no_more_has_a_name_that_no_other_has() -> None:
    toolbox = box(function("f"), function("a__b"))
    assert toolbox.find("custom", None, "f") is None
    assert toolbox.alias_of("function", None, "old") == "old"
    assert toolbox.alias_of("function", "n", "old") == "n__old"
    for kind, namespace, name in (("custom", None, "f"), ("function", "a", "b")):
        alias = toolbox.alias_of(kind, namespace, name)  # type: ignore[arg-type]  # a kind
        assert alias not in ("f", "a__b")
        assert alias == toolbox.alias_of(kind, namespace, name)  # type: ignore[arg-type]


def test_a_model_may_leave_out_the_namespace_if_there_is_one_tool_of_that_name() -> None:
    toolbox = box(space("a", function("f"), function("g")), space("b", function("g")))
    assert toolbox.called("f") is toolbox.find("function", "a", "f")
    assert toolbox.called("g") is None
    assert toolbox.called("h") is None


def test_names_of_very_many_tools_are_found_in_time() -> None:
    tools = [space(f"s.{n}", *(function(f"f.{k}") for k in range(512))) for n in range(4)]
    assert len(set(aliases(*tools))) == 2048


# What there is.


def test_two_tools_that_are_one_and_the_same_are_refused() -> None:
    for tools in (
        [function("f"), function("f")],
        [space("a", function("f")), space("a", function("f"))],
        [{"type": "shell"}, {"type": "shell"}],
    ):
        with pytest.raises(InvalidRequest) as caught:
            gather_tools(tools)
        assert caught.value.code == "duplicate_tool"


def test_a_namespace_may_come_in_pieces() -> None:
    assert aliases(space("a", function("f")), space("a", function("g"))) == ["a__f", "a__g"]


def test_too_many_tools_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 2048"):
        gather_tools([space(str(n), *(function(f"f{k}") for k in range(1000))) for n in range(3)])


def test_tools_in_the_middle_of_a_conversation_are_offered() -> None:
    items: list[Item] = [
        {"type": "message", "role": "user", "content": "x"},
        {"type": "additional_tools", "role": "developer", "tools": [function("g"), custom("c")]},
    ]
    toolbox = box(function("f"), items=items)
    assert [offer.alias for offer in toolbox.offers] == ["f", "g", "c"]
    assert [offer.where for offer in toolbox.offers][1:] == [
        "input[1].tools[0]",
        "input[1].tools[1]",
    ]


def test_a_tool_that_is_offered_again_takes_the_place_of_the_first() -> None:
    old, new = function("f", description="old"), function("f", description="new")
    toolbox = box(old, function("g"), items=[{"type": "additional_tools", "tools": [new]}])
    assert [offer.tool for offer in toolbox.offers] == [new, function("g")]


def test_what_a_namespace_is_for_is_known_of_its_tools() -> None:
    (offer,) = box(space("a", function("f"), description="files")).offers
    assert offer.about == "files"


def test_a_computer_is_offered_unless_the_upstream_knows_it_itself() -> None:
    toolbox, report = gather_tools([{"type": "computer"}])
    assert ([offer.alias for offer in toolbox.offers], report) == (["computer"], [])
    passed, report = gather_tools([{"type": "computer"}], upstream=frozenset({"computer"}))
    assert (passed.offers, passed.upstream, report) == ((), ({"type": "computer"},), [])


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ({"type": "web_search"}, "(web_search): it cannot be run here"),
        ({"type": "computer_use_preview"}, "(computer_use_preview): it cannot be run here"),
        ({"type": "tool_search"}, "(tool_search): there is no search here"),
        ({"type": "tool_search", "execution": "server"}, "(tool_search): there is no search here"),
        (
            {"type": "shell", "environment": {"type": "container_auto"}},
            "(shell): there is no container here",
        ),
        (function("f", allowed_callers=["programmatic"]), "(function): only a program may call it"),
    ],
)
def test_what_nobody_can_run_is_reported_and_not_offered(tool: Tool, why: str) -> None:
    toolbox, (note,) = gather_tools([tool])
    assert toolbox.offers == ()
    assert note.startswith(f"tools[0] {why}")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "shell"},
        {"type": "shell", "environment": None},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "apply_patch"},
        {"type": "local_shell"},
        function("f", allowed_callers=["direct", "programmatic"]),
        function("f", allowed_callers=[]),
        function("f", strict=None, description=None, parameters=None),
        SEARCH,
    ],
)
def test_what_the_caller_runs_is_offered(tool: Tool) -> None:
    assert len(box(tool).offers) == 1


def test_only_functions_and_custom_tools_stand_in_a_namespace() -> None:
    toolbox, report = gather_tools([space("a", {"type": "shell"}, function("f"))])
    assert [offer.alias for offer in toolbox.offers] == ["a__f"]
    assert report == ["tools[0].tools[0] (shell): it cannot be run here"]


def test_fields_that_nobody_honours_are_reported() -> None:
    tools = [function("f", output_schema={"a": 1}, x=None), space("a", mood="good")]
    assert gather_tools(tools)[1] == ["tools[0].output_schema", "tools[1].mood"]


@pytest.mark.parametrize(
    "tool",
    [
        3,
        {},
        {"type": ["function"]},
        {"type": "function"},
        function(""),
        function("f", parameters="{}"),
        function("f", description=7),
        custom("c", format=["lark"]),
        custom("c", format={"type": "grammar", "syntax": "lark"}),
        custom("c", format={"type": "grammar", "syntax": "bnf", "definition": "x"}),
        {"type": "namespace", "tools": [function("f")]},
    ],
)
def test_what_is_no_tool_is_reported_where_items_carry_it(tool: Any) -> None:
    toolbox, (note,) = gather_tools([], [{"type": "tool_search_output", "tools": [tool]}])
    assert toolbox.offers == ()
    assert note.startswith("input[0].tools[0] (")


def test_a_carrier_without_a_list_of_tools_carries_none() -> None:
    items: list[Item] = [{"type": "additional_tools", "tools": None}, {"type": "additional_tools"}]
    assert gather_tools([space("a") | {"tools": None}], items) == (Toolbox(), [])


def test_a_thread_carries_what_its_items_do_and_not_what_its_siblings_do() -> None:
    def carrier(name: str) -> Item:
        return {"type": "additional_tools", "tools": [function(name), {"type": "odd"}]}

    root = Thread([carrier("a"), {"type": "message", "role": "user", "content": "x"}])
    assert gather_tools([], root) == gather_tools([], list(root))
    for name in ("b", "c"):
        thread = root.grow([carrier(name)])
        assert gather_tools([], thread) == gather_tools([], list(thread))
        assert gather_tools([], thread) == gather_tools([], list(thread))
        longer = thread.grow([carrier("d")])
        assert gather_tools([], longer) == gather_tools([], list(longer))


# Deferred tools.


def loading(*tools: Tool) -> Item:
    return {"type": "tool_search_output", "call_id": "c", "tools": list(tools)}


def test_deferred_tools_are_hidden_until_a_search_has_found_them() -> None:
    late = function("late", defer_loading=True)
    inner = space("a", function("f", defer_loading=True), function("g", defer_loading=True))
    before = box(SEARCH, late, inner)
    assert [offer.alias for offer in before.offers] == ["tool_search"]
    assert before.deferred == ("late", "a")

    after = box(SEARCH, late, inner, items=[loading(space("a", function("g", defer_loading=True)))])
    assert [offer.alias for offer in after.offers] == ["tool_search", "a__g"]
    assert after.deferred == ("late", "a")


def test_a_search_may_find_what_nobody_has_heard_of() -> None:
    toolbox = box(SEARCH, items=[loading(function("new", defer_loading=True))])
    assert [offer.alias for offer in toolbox.offers] == ["tool_search", "new"]


def test_what_was_found_stays_found_when_it_is_offered_once_more() -> None:
    late = function("late", defer_loading=True)
    again: Item = {"type": "additional_tools", "tools": [late]}
    toolbox = box(SEARCH, late, items=[again, loading(late), again])
    assert [offer.alias for offer in toolbox.offers] == ["tool_search", "late"]
    assert toolbox.deferred == ()


def test_deferred_tools_are_shown_at_once_where_nobody_searches() -> None:
    late = function("late", defer_loading=True)
    toolbox, report = gather_tools([{"type": "tool_search"}, late])
    assert [offer.alias for offer in toolbox.offers] == ["late"]
    assert report[0].startswith("tools[0] (tool_search): there is no search here")
    assert report[1] == "tools[1].defer_loading: nothing here could load it later"


# The box itself.


def test_boxes_are_equal_if_they_hold_the_same() -> None:
    assert box(function("f")) == box(function("f"))
    assert box(function("f")) != box(function("g"))
    assert Toolbox() != 3


def test_a_name_of_which_nothing_is_left_is_told_from_others() -> None:
    toolbox, _ = gather_tools([{"type": "function", "name": "日本"}])
    (offer,) = toolbox.offers
    assert re.fullmatch(r"_+[0-9a-f]{8}", offer.alias)


def test_a_namespace_whose_tools_are_no_list_is_reported() -> None:
    space = {"type": "namespace", "name": "n", "tools": {"a": 1}}
    toolbox, report = gather_tools([], [{"type": "additional_tools", "tools": [space]}])
    assert toolbox.offers == ()
    assert len(report) == 1
    assert report[0].startswith("input[0].tools[0] (namespace)")


def test_what_is_derived_from_a_kept_tool_list_is_shared() -> None:
    tools = ToolList([{"type": "function", "name": "f"}, {"type": "browser"}], nodes=1)
    first, report = gather_tools(tools)
    report.append("of this turn only")
    second, other = gather_tools(tools)
    assert first is second
    assert other == ["tools[1] (browser): it cannot be run here"]


def test_tools_in_the_conversation_leave_a_kept_tool_list_alone() -> None:
    tools = ToolList([{"type": "function", "name": "f"}], nodes=1)
    carried = {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]}
    more, _ = gather_tools(tools, [carried])
    plain, _ = gather_tools(tools)
    assert [offer.name for offer in more.offers] == ["f", "g"]
    assert [offer.name for offer in plain.offers] == ["f"]
