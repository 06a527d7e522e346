"""The description of the admin API, made from its types."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.gateway import HealthObject, LedgerCheckObject
from antiphon.protocol.organization import (
    AdminKeyObject,
    BudgetObject,
    ChargeObject,
    CreateAdminKey,
    CreateProject,
    CreateServiceAccount,
    CreateServiceAccountKey,
    NewKeyObject,
    ProjectKeyObject,
    ProjectObject,
    PutBudget,
    RateLimitObject,
    RequestObject,
    RotateKey,
    ServiceAccountObject,
    SpendLimitObject,
    UpdateKey,
    UpdateProject,
    UpdateRateLimit,
    UpdateServiceAccount,
    UpdateSpendLimit,
)
from antiphon.server.api.openapi_operations import PAGE, in_path, list_of, operation

__all__ = ["ORGANIZATION_SCHEMAS", "ORGANIZATION_TYPES", "organization_paths"]

ORGANIZATION_TYPES: Final[tuple[type[msgspec.Struct], ...]] = (
    *(ProjectObject, CreateProject, UpdateProject),
    *(ProjectKeyObject, UpdateKey, RotateKey, NewKeyObject),
    *(ServiceAccountObject, CreateServiceAccount, CreateServiceAccountKey, UpdateServiceAccount),
    *(AdminKeyObject, CreateAdminKey),
    *(RateLimitObject, UpdateRateLimit, SpendLimitObject, UpdateSpendLimit),
    *(BudgetObject, PutBudget, ChargeObject, RequestObject),
    *(HealthObject, LedgerCheckObject),
)
_BUCKET: Final = {
    "type": "object",
    "required": ["object", "start_time", "end_time", "results"],
    "properties": {
        "object": {"const": "bucket"},
        "start_time": {"type": "integer"},
        "end_time": {"type": "integer"},
        "results": {"type": "array", "items": {"type": "object", "required": ["object"]}},
    },
}
ORGANIZATION_SCHEMAS: Final[dict[str, Any]] = {
    "BucketPage": {
        "type": "object",
        "required": ["object", "data", "has_more", "next_page"],
        "properties": {
            "object": {"const": "page"},
            "data": {"type": "array", "items": _BUCKET},
            "has_more": {"type": "boolean"},
            "next_page": {"type": ["string", "null"]},
        },
    },
    "AuditLogPage": {
        "type": "object",
        "required": ["object", "data", "first_id", "last_id", "has_more"],
        "properties": {
            "object": {"const": "list"},
            "data": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "type", "effective_at", "actor"],
                },
            },
            "has_more": {"type": "boolean"},
        },
    },
}
_ROOT: Final = "/v1/organization"
_PROJECT: Final = f"{_ROOT}/projects/{{id}}"
_ID: Final = [in_path("id")]
_BOTH: Final = [in_path("id"), in_path("item")]


def organization_paths() -> dict[str, Any]:
    """Return the paths of the admin API."""
    return _figures() | _projects() | _keys() | _accounts() | _limits() | _budgets() | _rest()


def _in_query(name: str, kind: str = "string", *, is_required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": is_required, "schema": {"type": kind}}


def _list_in_query(name: str) -> dict[str, Any]:
    schema = {"type": "array", "items": {"type": "string"}}
    return {"name": f"{name}[]", "in": "query", "schema": schema}


_TIMES: Final = [
    _in_query("start_time", "integer", is_required=True),
    _in_query("end_time", "integer"),
    _in_query("bucket_width"),
    _in_query("limit", "integer"),
    _in_query("page"),
    *(_list_in_query(name) for name in ("group_by", "project_ids", "api_key_ids")),
    *(_list_in_query(name) for name in ("antiphon.conversation", "antiphon.run")),
]


def _figures() -> dict[str, Any]:
    more = [_list_in_query("user_ids"), _list_in_query("models")]
    kinds = {
        "completions": "Tokens of models",
        "embeddings": "Tokens of embeddings",
        "images": "Images that were made",
        "web_search_calls": "Searches of the web",
    }
    usage = {
        f"{_ROOT}/usage/{name}": {
            "get": operation(summary, "BucketPage") | {"parameters": [*_TIMES, *more]}
        }
        for name, summary in kinds.items()
    }
    chosen = ("project_id", "response_id", "conversation_id", "run_id")
    charges = [*(_in_query(name) for name in chosen), *PAGE[:2]]
    lists = ("project_ids", "api_key_ids", "user_ids", "models", "conversation_ids", "run_ids")
    requests = [
        *(_list_in_query(name) for name in (*lists, "response_ids")),
        _in_query("status"),
        *(_in_query(name, "integer") for name in ("start_time", "end_time")),
        _in_query("stream", "boolean"),
        *PAGE[:2],
    ]
    return usage | {
        f"{_ROOT}/costs": {
            "get": operation("Costs by day", "BucketPage")
            | {"parameters": [*_TIMES, _list_in_query("line_items")]}
        },
        f"{_ROOT}/antiphon/health": {
            "get": operation("How the gateway, its upstreams and its store are", "HealthObject")
        },
        f"{_ROOT}/antiphon/ledger/check": {
            "post": operation("Prove the sums of the ledger", "LedgerCheckObject")
        },
        f"{_ROOT}/antiphon/charges": {
            "get": list_of("List charges, newest first", "ChargeObject", charges)
        },
        f"{_ROOT}/antiphon/requests": {
            "get": list_of("List or follow requests, newest first", "RequestObject", requests)
        },
    }


def _projects() -> dict[str, Any]:
    pages = [*PAGE[:2], _in_query("include_archived", "boolean")]
    return {
        f"{_ROOT}/projects": {
            "get": list_of("List projects", "ProjectObject", pages),
            "post": operation("Make a project", "ProjectObject", takes="CreateProject"),
        },
        _PROJECT: {
            "parameters": _ID,
            "get": operation("Retrieve a project", "ProjectObject"),
            "post": operation("Change a project", "ProjectObject", takes="UpdateProject"),
        },
        f"{_PROJECT}/archive": {
            "parameters": _ID,
            "post": operation("Archive a project; its keys are refused", "ProjectObject"),
        },
    }


def _keys() -> dict[str, Any]:
    one, admin = f"{_PROJECT}/api_keys/{{item}}", f"{_ROOT}/admin_api_keys"
    return {
        f"{_PROJECT}/api_keys": {
            "parameters": _ID,
            "get": list_of("List the keys of a project", "ProjectKeyObject", PAGE),
        },
        one: {
            "parameters": _BOTH,
            "get": operation("Retrieve a key", "ProjectKeyObject"),
            "post": operation("Change a key", "ProjectKeyObject", takes="UpdateKey"),
            "delete": operation("Revoke a key", "DeletedObject"),
        },
        f"{one}/antiphon/rotate": {
            "parameters": _BOTH,
            "post": operation("Give a key a new secret", "ProjectKeyObject", takes="RotateKey"),
        },
        admin: {
            "get": list_of("List the keys of administrators", "AdminKeyObject", PAGE),
            "post": operation(
                "Make a key of an administrator", "AdminKeyObject", takes="CreateAdminKey"
            ),
        },
        f"{admin}/{{id}}": {
            "parameters": _ID,
            "get": operation("Retrieve a key of an administrator", "AdminKeyObject"),
            "delete": operation("Revoke a key of an administrator", "DeletedObject"),
        },
    }


def _accounts() -> dict[str, Any]:
    every = f"{_PROJECT}/service_accounts"
    account = "ServiceAccountObject"
    return {
        every: {
            "parameters": _ID,
            "get": list_of("List service accounts", account, PAGE),
            "post": operation(
                "Make a service account with a key", account, takes="CreateServiceAccount"
            ),
        },
        f"{every}/{{item}}": {
            "parameters": _BOTH,
            "get": operation("Retrieve a service account", account),
            "post": operation("Rename a service account", account, takes="UpdateServiceAccount"),
            "delete": operation("Revoke all its keys", "DeletedObject"),
        },
        f"{every}/{{item}}/api_keys": {
            "parameters": _BOTH,
            "post": operation(
                "Give it one more key", "NewKeyObject", takes="CreateServiceAccountKey"
            ),
        },
    }


def _limits() -> dict[str, Any]:
    return {
        f"{_PROJECT}/rate_limits": {
            "parameters": _ID,
            "get": list_of("List the rate limits of a project", "RateLimitObject", PAGE),
        },
        f"{_PROJECT}/rate_limits/{{item}}": {
            "parameters": _BOTH,
            "post": operation("Set a rate limit", "RateLimitObject", takes="UpdateRateLimit"),
            "delete": operation("Delete a rate limit", "DeletedObject"),
        },
        f"{_ROOT}/spend_limit": _spend_limit(),
        f"{_PROJECT}/spend_limit": {"parameters": _ID} | _spend_limit(),
    }


def _spend_limit() -> dict[str, Any]:
    return {
        "get": operation("Retrieve the spend limit", "SpendLimitObject"),
        "post": operation("Set the spend limit", "SpendLimitObject", takes="UpdateSpendLimit"),
        "delete": operation("Delete the spend limit"),
    }


def _budgets() -> dict[str, Any]:
    every = f"{_ROOT}/antiphon/budgets"
    pages = [*PAGE, _in_query("scope"), _in_query("project_id")]
    return {
        every: {
            "get": list_of("List budgets", "BudgetObject", pages),
            "post": operation("Set a budget", "BudgetObject", takes="PutBudget"),
        },
        f"{every}/{{id}}": {
            "parameters": _ID,
            "get": operation("Retrieve a budget", "BudgetObject"),
            "delete": operation("Delete a budget", "DeletedObject"),
        },
    }


def _rest() -> dict[str, Any]:
    alerts = {
        "get": operation("An empty list: alerts are not kept"),
        "post": operation("Refused: the gateway sends no e-mail"),
    }
    missing = {method: operation("404") for method in ("get", "post", "delete")}
    return {
        f"{_ROOT}/spend_alerts": alerts,
        f"{_ROOT}/spend_alerts/{{id}}": {"parameters": _ID} | missing,
        f"{_PROJECT}/spend_alerts": {"parameters": _ID} | alerts,
        f"{_PROJECT}/spend_alerts/{{item}}": {"parameters": _BOTH} | missing,
        f"{_ROOT}/audit_logs": {
            "get": operation("List the audit log, newest first", "AuditLogPage")
        },
    }
