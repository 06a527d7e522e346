"""What of a request can be done, by the caller, by the upstream and here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.plans.assess import Assessment, assess
from antiphon.plans.capabilities import Capabilities
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import read_request
from antiphon.protocol.tool_list import ToolList
from antiphon.protocol.tools import ToolPolicy
from tests.building import assessed

_FUNCTION = {"type": "function", "name": "f"}
_SEARCH = {"type": "web_search"}


@pytest.mark.requirement("003-flow-4", "003-tools")
def test_tools_nobody_can_run_are_reported() -> None:
    checked = assessed(read_request({"input": "x", "tools": [{"type": "web_search"}, _FUNCTION]}))

    assert [offer.tool for offer in checked.toolbox.offers] == [_FUNCTION]
    assert checked.degraded == ["tools[0] (web_search): it cannot be run here"]


def test_what_a_function_asks_for_beyond_its_schema_is_reported() -> None:
    tool = {**_FUNCTION, "defer_loading": True, "output_schema": None}

    assert assessed(read_request({"input": "x", "tools": [tool]})).degraded == [
        "tools[0].defer_loading: nothing here could load it later"
    ]


@pytest.mark.requirement("003-tools")
@pytest.mark.parametrize(
    "body",
    [
        {"tools": [_SEARCH], "tool_choice": "required"},
        {"tools": [_SEARCH], "tool_choice": {"type": "web_search"}},
        {"tools": [_FUNCTION], "tool_choice": {"type": "function", "name": "g"}},
    ],
)
def test_forcing_what_nobody_can_run_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        assessed(read_request({"input": "x"} | body))
    assert caught.value.param == "tool_choice"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        assessed(read_request({"input": "x", "tools": [_FUNCTION, _FUNCTION]}))
    assert caught.value.code == "duplicate_tool"


def test_a_choice_among_tools_is_narrowed_to_those_that_can_be_run() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [_FUNCTION, _SEARCH]}

    checked = assessed(
        read_request({"input": "x", "tools": [_FUNCTION, _SEARCH], "tool_choice": choice})
    )

    assert checked.policy == ToolPolicy("auto", frozenset({"f"}))
    assert "tool_choice (web_search): it cannot be run here" in checked.degraded


@pytest.mark.requirement("003-ignored-1")
def test_what_is_asked_of_the_answer_and_never_given_is_reported() -> None:
    body = {
        "input": "x",
        "include": ["message.output_text.logprobs", "file_search_call.results"],
        "stream_options": {"include_obfuscation": True},
    }

    assert assessed(read_request(body)).degraded == [
        "include (file_search_call.results)",
        "stream_options.include_obfuscation",
    ]


_COMPACTION = {"type": "compaction", "compact_threshold": 1000}


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ({"include": ["reasoning.encrypted_content"]}, "include (reasoning.encrypted_content)"),
        ({"context_management": [_COMPACTION]}, "context_management"),
    ],
)
def test_what_needs_sealing_is_reported_where_nothing_is_sealed(
    body: dict[str, Any], note: str
) -> None:
    request = read_request({"input": "x"} | body)
    assert assessed(request, can_seal=True).degraded == []
    assert assessed(request).degraded == [note]
    assert assessed(request, how_to_seal="try this").degraded == [f"{note}: try this"]


@pytest.mark.parametrize("entry", [{"type": "other"}, {"type": "compaction"}])
def test_context_management_that_cannot_be_done_is_reported(entry: dict[str, Any]) -> None:
    request = read_request({"input": "x", "context_management": [entry, _COMPACTION]})
    (note,) = assessed(request, can_seal=True).degraded
    assert note.startswith("context_management[0]")


def test_a_request_that_only_compacts_calls_no_tool() -> None:
    trigger = {"type": "compaction_trigger"}
    body = {"input": [trigger], "tools": [_FUNCTION], "tool_choice": "required"}
    assert assessed(read_request(body)).policy == ToolPolicy("none")


def test_tools_of_the_whole_context_count() -> None:
    carrier = {"type": "additional_tools", "role": "developer", "tools": [_FUNCTION, _SEARCH]}
    request = read_request({"input": "x", "tool_choice": {"type": "function", "name": "f"}})

    checked = assessed(request, [carrier, *request.items])

    assert [offer.where for offer in checked.toolbox.offers] == ["input[0].tools[0]"]
    assert checked.policy == ToolPolicy("required", frozenset({"f"}))
    assert checked.degraded == ["input[0].tools[1] (web_search): it cannot be run here"]


def test_a_choice_holds_for_the_names_that_the_model_knows() -> None:
    space = {"type": "namespace", "name": "a.b", "tools": [_FUNCTION]}
    choice = {"type": "namespace", "name": "a.b"}
    request = read_request({"input": "x", "tools": [space], "tool_choice": choice})
    assert assessed(request).policy == ToolPolicy("required", frozenset({"a_b__f"}))


def test_a_request_that_generates_nothing_calls_no_tool() -> None:
    body = {"input": "x", "tools": [_FUNCTION], "generate": False}
    assert assessed(read_request(body)).policy == ToolPolicy("none")


# What others run.

_SEARCHES = Capabilities(tool_kinds=frozenset({"web_search", "tool_search", "shell"}))


def _assess(
    *tools: dict[str, Any], registry: frozenset[str] = frozenset(), **body: Any
) -> Assessment:
    request = read_request({"input": "x", "tools": list(tools), **body})
    return assess(request, request.items, _SEARCHES, registry)


def test_a_tool_that_the_upstream_runs_is_passed_through_as_it_is() -> None:
    search = {**_SEARCH, "user_location": {"type": "approximate"}, "new": 1}
    found = _assess(search, _FUNCTION)

    assert found.toolbox.upstream == (search,)
    assert [offer.tool for offer in found.toolbox.offers] == [_FUNCTION]
    assert found.degraded == []


def test_a_tool_of_a_kind_in_the_registry_is_run_here() -> None:
    registry = frozenset({"file_search", "web_search"})
    found = _assess({"type": "file_search"}, _SEARCH, registry=registry)

    assert found.toolbox.hosted == ({"type": "file_search"},)
    assert found.toolbox.upstream == (_SEARCH,)  # the upstream's own comes first
    assert found.degraded == []


def test_what_the_caller_can_run_is_left_to_the_caller() -> None:
    contained = {"type": "shell", "environment": {"type": "container_auto"}}
    found = _assess({"type": "shell"}, {"type": "tool_search", "execution": "client"}, contained)

    assert [offer.kind for offer in found.toolbox.offers] == ["shell", "tool_search"]
    assert found.toolbox.upstream == (contained,)


def test_an_upstream_that_searches_for_tools_can_load_those_that_wait() -> None:
    found = _assess({"type": "tool_search"}, {**_FUNCTION, "defer_loading": True})
    assert found.toolbox.upstream == ({"type": "tool_search"},)
    assert found.degraded == []


def test_a_tool_of_another_kind_or_in_a_namespace_is_left_out_by_name() -> None:
    space = {"type": "namespace", "name": "n", "tools": [_SEARCH]}
    found = _assess({"type": "file_search"}, space)

    assert found.toolbox.upstream == ()
    assert found.degraded == [
        "tools[0] (file_search): it cannot be run here",
        "tools[1].tools[0] (web_search): it cannot be run here",
    ]


@pytest.mark.parametrize("choice", ["required", {"type": "web_search"}])
def test_a_tool_that_the_upstream_runs_can_be_forced(choice: object) -> None:
    policy = _assess(_SEARCH, tool_choice=choice).policy
    allowed = None if choice == "required" else frozenset({"web_search"})
    assert policy == ToolPolicy("required", allowed)


def test_tools_that_are_remembered_are_assessed_for_each_backend_by_itself() -> None:
    request = read_request({"input": "x"})
    request = msgspec.structs.replace(request, tools=ToolList([_SEARCH, _FUNCTION], nodes=1))
    plain, able = Capabilities(), _SEARCHES

    found = [assess(request, (), each).toolbox for each in (plain, able, plain)]
    assert [toolbox.upstream for toolbox in found] == [(), (_SEARCH,), ()]
    assert found[0] is found[2]
