"""Was this call approved, exactly as it was asked for, and never before?

The id of an approval request is also its seal: it holds a keyed digest of owner, server, tool and
arguments, and one of the tool's definition. So it is known without any stored row, after a restart
and in any process that shares the store, that an approved call is the one that was asked for, and
that its tool has not changed since. `store: false` makes no difference.

That a call is approved only once is the store's part: it gives an id away once
(`tools.base.Approvals`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item, item_type

__all__ = [
    "KEY_BYTES",
    "ApprovalIds",
    "Approved",
    "answered_before",
    "find_approved",
    "refuse_lost_approvals",
]

KEY_BYTES: Final = 32
_REQUEST: Final = "mcp_approval_request"
_RESPONSE: Final = "mcp_approval_response"
_NONCE: Final = 16
_CALL: Final = 20
_PIN: Final = 12
_ID: Final = re.compile(rf"mcpr_.*?([0-9a-f]{{{_NONCE}}})([0-9a-f]{{{_CALL}}})([0-9a-f]{{{_PIN}}})")
_MAX_RESPONSES: Final = 64
# What a model may produce beside requests for approval, before these are answered.
_BESIDE: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", _REQUEST})


class Approved(msgspec.Struct, frozen=True):
    """An answer to a request for approval, and the call that it is about."""

    approval_id: str
    label: str
    name: str
    arguments: str
    approve: bool


class ApprovalIds:
    """Makes and checks the ids of requests for approval. `mark` is that of all ids here."""

    def __init__(self, key: bytes, mark: str = "") -> None:
        self._key = key
        self._mark = mark

    def make(self, owner: str, label: str, name: str, arguments: str, digest: bytes) -> str:
        """Return the id of a request to call a tool, whose definition has this digest."""
        nonce = os.urandom(_NONCE // 2).hex()
        call = self._mac("call", owner, nonce, label, name, arguments)[:_CALL]
        pin = self._mac("definition", owner, nonce, digest.hex())[:_PIN]
        return f"mcpr_{self._mark}{nonce}{call}{pin}"

    def is_for(self, approval_id: str, owner: str, label: str, name: str, arguments: str) -> bool:
        """Return whether the id was made for this owner and exactly this call."""
        found = _ID.fullmatch(approval_id)
        if found is None:
            return False
        expected = self._mac("call", owner, found[1], label, name, arguments)[:_CALL]
        return hmac.compare_digest(expected, found[2])

    def is_pinned_to(self, approval_id: str, owner: str, digest: bytes) -> bool:
        """Return whether the tool had this definition when the id was made."""
        found = _ID.fullmatch(approval_id)
        if found is None:
            return False
        expected = self._mac("definition", owner, found[1], digest.hex())[:_PIN]
        return hmac.compare_digest(expected, found[3])

    def _mac(self, *parts: str) -> str:
        return hmac.digest(self._key, msgspec.json.encode(parts), hashlib.sha256).hex()


def find_approved(
    ids: ApprovalIds, owner: str, items: Sequence[Item], own: Sequence[Item]
) -> list[Approved]:
    """Return the answers in this request that nothing has followed yet.

    `items` is the whole context, `own` its end, which this request brought. Raise InvalidRequest
    for an answer to a request that does not exist, was changed, or was answered before.
    """
    answers = _new_answers(own)
    if not answers:
        return []
    if len(answers) > _MAX_RESPONSES:
        raise _invalid(f"input has more than {_MAX_RESPONSES} answers to requests for approval")
    requests = {item.get("id"): item for item in items if item_type(item) == _REQUEST}
    used = {item.get("approval_request_id") for item in items if item_type(item) == "mcp_call"}
    found: dict[str, Approved] = {}
    for answer in answers:
        one = _read(ids, owner, answer, requests)
        if one.approval_id in found or one.approval_id in used:
            raise answered_before(one.approval_id)
        found[one.approval_id] = one
    return list(found.values())


def refuse_lost_approvals(own: Sequence[Item]) -> None:
    """Refuse approvals in a request without any MCP server: their calls would never run."""
    for answer in _new_answers(own):
        if answer.get("approve") is True:
            raise InvalidRequest(
                f"The approval request '{str(answer.get('approval_request_id'))[:100]}' is for a "
                "tool of an MCP server, and this request has none in its tools: declare it again.",
                code="invalid_approval",
                param="tools",
            )


def _read(ids: ApprovalIds, owner: str, answer: Item, requests: dict[object, Item]) -> Approved:
    approval_id, approve = answer.get("approval_request_id"), answer.get("approve")
    if not isinstance(approval_id, str) or not isinstance(approve, bool):
        raise _invalid("mcp_approval_response needs approval_request_id and approve")
    request = requests.get(approval_id, {})
    label, name, arguments = (request.get(key) for key in ("server_label", "name", "arguments"))
    if not (isinstance(label, str) and isinstance(name, str) and isinstance(arguments, str)):
        raise _invalid(f"No approval request found with id '{approval_id[:100]}'.")
    if not ids.is_for(approval_id, owner, label, name, arguments):
        raise _invalid(
            f"The approval request '{approval_id[:100]}' is not one of this gateway for this call: "
            "its server, tool and arguments must be as they were when it was made."
        )
    return Approved(approval_id, label, name, arguments, approve)


def _new_answers(own: Sequence[Item]) -> list[Item]:
    """Return the answers after the last output of a model; those before it are history."""
    found: list[Item] = []
    for item in reversed(own):
        if item_type(item) == _RESPONSE:
            found.append(item)
        elif _is_output(item):
            break
    return found[::-1]


def _is_output(item: Item) -> bool:
    kind = item_type(item)
    if kind == "message":
        return item.get("role") == "assistant"
    return kind == "reasoning" or (kind.endswith("_call") and kind not in _BESIDE)


def answered_before(approval_id: str) -> InvalidRequest:
    """Return the error for an approval that was used."""
    return _invalid(f"The approval request '{approval_id}' was answered before.")


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_approval", param="input")
