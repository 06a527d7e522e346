"""Planted bugs: each of them would let a call run that must not, and a scenario notices it."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.engine.run.hosted_setup import TurnApprovals
from antiphon.tools.mcp import approval, approvals, declared, definitions, runner
from antiphon.tools.mcp.settings import McpServer
from tests.asking import ask
from tests.tools.mcp.gateways import answer_of, approve, kinds, mcp_gateway, model, tool
from tests.tools.mcp.hostile import Hostile, result
from tests.tools.mcp.hostile import tool as listed


async def _scenario() -> None:
    """Walk through everything that must not run, then through what must."""
    harmless = result({"tools": [listed(description="harmless"), listed("other")]})
    hostile = Hostile(listing=harmless)
    async with (
        hostile.serve(),
        mcp_gateway(model(("x__echo", {"q": 1})), {"x": McpServer(url=hostile.url)}) as gateway,
    ):

        async def answer(*items: Any, status: int = 200, **body: Any) -> dict[str, Any]:
            given = {"tools": [tool("x")], "input": list(items) or "go"} | body
            got = await ask(gateway, **given)
            assert got.status == status, got.body
            found: dict[str, Any] = got.json
            return found

        user = {"role": "user", "content": "go"}
        first = await answer()
        assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
        asked = answer_of(first, "mcp_approval_request")
        for change in ({"arguments": '{"q": 2}'}, {"name": "other"}):
            await answer(user, asked | change, approve(asked), status=400)
        await answer(user, asked, approve(asked), status=400, tools=[tool("x", allowed_tools=[])])
        await answer(user, asked, approve(asked), approve(asked), status=400)
        hostile.listing = result({"tools": [listed(description="another"), listed("other")]})
        changed = await answer(approve(asked), previous_response_id=first["id"])
        assert kinds(changed) == ["message"]
        assert hostile.calls == []
        hostile.listing = harmless
        good = await answer(approve(asked), previous_response_id=first["id"])
        assert kinds(good) == ["mcp_call", "message"]
        assert answer_of(good, "mcp_call")["approval_request_id"] == asked["id"]
        await answer(approve(asked), previous_response_id=first["id"], status=400)
        await answer(approve(asked), previous_response_id=good["id"], status=400)
        replayed = [user, *first["output"], approve(asked), *good["output"]]
        last = await answer(*replayed, {"role": "user", "content": "thanks"})
        assert kinds(last) == ["mcp_approval_request"]
        denied = approve(answer_of(last, "mcp_approval_request"), yes=False)
        await answer(denied, previous_response_id=last["id"])
        await answer(denied | {"approve": True}, previous_response_id=last["id"], status=400)
        assert [call["arguments"] for call in hostile.calls] == [{"q": 1}]


async def test_without_a_bug_the_scenario_holds() -> None:
    await _scenario()


async def _true(*_: object, **__: object) -> bool:
    return True


def _yes(*_: object, **__: object) -> bool:
    return True


def _no(*_: object, **__: object) -> bool:
    return False


def _no_answers(own: Any) -> list[Any]:
    return []


def _all_answers(own: Any) -> list[Any]:
    return [item for item in own if item.get("type") == "mcp_approval_response"]


async def _nothing(*_: object, **__: object) -> None:
    return None


_PLANTS: dict[str, tuple[Any, str, Any]] = {
    "any call fits an approval": (approvals.ApprovalIds, "is_for", _yes),
    "no call fits an approval": (approvals.ApprovalIds, "is_for", _no),
    "any definition fits an approval": (approvals.ApprovalIds, "is_pinned_to", _yes),
    "no definition fits an approval": (approvals.ApprovalIds, "is_pinned_to", _no),
    "an approval is given away twice": (TurnApprovals, "claim", _true),
    "an unused approval is not given back": (TurnApprovals, "release", _nothing),
    "no call needs approval": (approval.ApprovalRule, "needs_approval", _no),
    "approvals are not looked for": (approvals, "_new_answers", _no_answers),
    "history counts as answers": (approvals, "_new_answers", _all_answers),
    "any tool is allowed by its name": (declared.DeclaredServer, "allows_name", _yes),
    "definitions have one digest": (definitions.Definition, "digest", b"same"),
    "tools of the request are not compared": (runner, "_check_declared", lambda *_: None),
}


@pytest.mark.parametrize("plant", _PLANTS)
async def test_a_planted_bug_is_found(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, bug = _PLANTS[plant]
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(AssertionError):
        await _scenario()
