"""Which requests belong together, and whose native state an open tool loop carries."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.protocol.request import read_request
from antiphon.routing.affinity import accounts_in, prefix_key, session_key
from antiphon.routing.choice import Session, choose_first
from tests.building import plan_with
from tests.routing.making import deployments, route_of

ROOT: Item = {"type": "message", "role": "user", "content": "hi", "id": "msg_root"}
CALL: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c", "output": "x"}


def thought(account: str) -> Item:
    return {"type": "reasoning", "summary": [], NATIVE: NativeState("w", b"x", account=account)}


def key_of(conversation: str | None = None, session: str | None = None, **body: Any) -> str | None:
    return session_key(read_request({"input": "x", **body}), [ROOT], conversation, session)


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ({"prompt_cache_key": "k", "conversation": "c", "session": "s"}, "k"),
        ({"conversation": "c", "session": "s"}, "c"),
        ({"previous_response_id": "resp_1", "session": "s"}, "msg_root"),
        ({"session": "s"}, "s"),
        ({}, "msg_root"),
        ({"store": False}, None),
    ],
)
def test_the_key_is_the_first_that_the_request_has(asked: dict[str, Any], key: str | None) -> None:
    assert key_of(**asked) == key


def test_a_prefix_is_tools_instructions_and_the_first_user_message() -> None:
    tools = [{"type": "function", "name": "f"}]
    one = plan_with(tools, items=[ROOT], instructions="x")
    longer = plan_with(tools, items=[ROOT, CALL, OUTPUT], instructions="x")
    assert prefix_key(one) == prefix_key(longer)
    others = [
        plan_with([], items=[ROOT], instructions="x"),
        plan_with(tools, items=[ROOT], instructions="y"),
        plan_with(tools, items=[{**ROOT, "content": "ho"}], instructions="x"),
        Plan(model="m", items=[]),
    ]
    assert len({prefix_key(plan) for plan in (one, *others)}) == 5


def test_only_the_open_tool_loop_ties_to_an_account() -> None:
    assert accounts_in([ROOT, thought("a"), CALL, OUTPUT]) == {"a"}
    assert accounts_in([ROOT, thought("a"), CALL, OUTPUT, ROOT]) == frozenset()
    assert accounts_in([thought("a"), ROOT, thought("b"), CALL, OUTPUT]) == {"b"}


def test_the_loop_goes_to_a_deployment_of_its_account() -> None:
    route = route_of(deployments(1, 1, 1))
    items = [ROOT, thought("b"), CALL, OUTPUT]
    for number in range(20):
        found = choose_first(route, Session(f"key {number}", accounts_in(items)))
        assert (found.candidate.account, found.reason) == ("b", "account")
