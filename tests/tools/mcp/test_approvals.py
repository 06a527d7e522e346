"""Approvals are bound to one call of one owner, and answered once."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.tools.mcp.approvals import ApprovalIds, find_approved

_IDS = ApprovalIds(bytes(32), "ap-")
_DIGEST = b"digest"


def _request(**fields: Any) -> dict[str, Any]:
    made = _IDS.make("anna", "desk", "add", '{"a":1}', _DIGEST)
    item = {"type": "mcp_approval_request", "id": made, "server_label": "desk", "name": "add"}
    return {**item, "arguments": '{"a":1}', **fields}


def _answer(request: dict[str, Any], *, approve: bool = True) -> dict[str, Any]:
    return {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": approve,
    }


def _find(*items: dict[str, Any], owner: str = "anna") -> list:
    return find_approved(_IDS, owner, items, items)


def test_an_approval_names_the_call_that_was_asked_for() -> None:
    request = _request()
    (found,) = _find(request, _answer(request))
    assert (found.label, found.name, found.arguments) == ("desk", "add", '{"a":1}')
    assert found.approve and len(request["id"]) == len("mcpr_ap-") + 48
    assert not _find(request, _answer(request, approve=False))[0].approve


@pytest.mark.parametrize(
    "change", [{"arguments": '{"a": 1}'}, {"name": "wipe"}, {"server_label": "other"}]
)
def test_a_changed_request_is_refused(change: dict[str, str]) -> None:
    request = _request() | change
    with pytest.raises(InvalidRequest, match="as they were when it was made"):
        _find(request, _answer(request))


def test_a_foreign_or_invented_id_is_refused() -> None:
    request = _request()
    with pytest.raises(InvalidRequest, match="not one of this gateway"):
        _find(request, _answer(request), owner="bert")
    invented = _request(id="mcpr_ap-" + "0" * 48)
    with pytest.raises(InvalidRequest, match="not one of this gateway"):
        _find(invented, _answer(invented))
    other = ApprovalIds(bytes(31) + b"1", "ap-")
    with pytest.raises(InvalidRequest, match="not one of this gateway"):
        find_approved(other, "anna", [request, _answer(request)], [_answer(request)])


@pytest.mark.parametrize(
    "answer",
    [
        {"approval_request_id": "mcpr_none", "approve": True},
        {"approval_request_id": 7, "approve": True},
        {"approval_request_id": "mcpr_none", "approve": "yes"},
        {"approve": True},
    ],
)
def test_an_answer_without_its_request_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        _find({"type": "mcp_approval_response", **answer})


def test_an_answer_is_given_once() -> None:
    request = _request()
    with pytest.raises(InvalidRequest, match="answered before"):
        _find(request, _answer(request), _answer(request))
    call = {"type": "mcp_call", "approval_request_id": request["id"]}
    with pytest.raises(InvalidRequest, match="answered before"):
        _find(request, call, _answer(request))


def test_answers_before_the_last_output_are_history() -> None:
    first, second = _request(), _request()
    said = {"type": "message", "role": "assistant"}
    call = {"type": "mcp_call", "approval_request_id": first["id"]}
    user = {"type": "message", "role": "user"}
    assert _find(first, _answer(first), call, said, user) == []
    (found,) = _find(first, _answer(first), said, second, _answer(second))
    assert found.approval_id == second["id"]


def test_answers_may_stand_between_the_requests() -> None:
    first, second = _request(), _request()
    call = {"type": "function_call", "call_id": "c"}
    output = {"type": "function_call_output", "call_id": "c"}
    found = _find(first, _answer(first), second, call, output, _answer(second))
    assert [one.approval_id for one in found] == [first["id"], second["id"]]


def test_the_pin_is_the_definition_for_the_same_owner() -> None:
    made = _request()["id"]
    assert _IDS.is_pinned_to(made, "anna", _DIGEST)
    assert not _IDS.is_pinned_to(made, "anna", b"changed")
    assert not _IDS.is_pinned_to(made, "bert", _DIGEST)
    assert not _IDS.is_pinned_to("mcpr_1", "anna", _DIGEST)
    assert not _IDS.is_for("mcpr_1", "anna", "desk", "add", "{}")
