"""The organization on the wire: what requests of the admin API hold, and the objects of answers.

The shapes are those of OpenAI's SDK (`client.admin.organization`). What OpenAI has no field for is
under `antiphon`. A request with a field that is not listed here is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

__all__ = [
    "AdminKeyObject",
    "BudgetObject",
    "ChargeObject",
    "CreateAdminKey",
    "CreateProject",
    "CreateServiceAccount",
    "CreateServiceAccountKey",
    "KeyExtras",
    "NewKeyObject",
    "ProjectExtras",
    "ProjectKeyObject",
    "ProjectObject",
    "PutBudget",
    "RateLimitExtras",
    "RateLimitObject",
    "RotateKey",
    "ServiceAccountObject",
    "SpendLimitObject",
    "UpdateKey",
    "UpdateProject",
    "UpdateRateLimit",
    "UpdateServiceAccount",
    "UpdateSpendLimit",
]

# A `$` alone would let a line end follow. Control characters would change a terminal that lists
# names, and PostgreSQL cannot keep all of them.
_END = r"$(?!\n)"
_PRINTED = rf"^[^\x00-\x1f\x7f-\x9f]*{_END}"
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern=_PRINTED)]
ProjectId = Annotated[str, msgspec.Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}{_END}")]
Seconds = Annotated[int, msgspec.Meta(ge=1, le=10 * 366 * 86_400)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
Cents = Annotated[int, msgspec.Meta(ge=1, le=10**11)]
Percent = Annotated[int, msgspec.Meta(ge=1, le=100)]


class ProjectExtras(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a project has beyond OpenAI's. `id` is for a new one: without it, it is made."""

    id: ProjectId | None = None
    never_store: bool | None = None


class CreateProject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/organization/projects."""

    name: Name
    antiphon: ProjectExtras | None = None


class UpdateProject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/organization/projects/{id}."""

    name: Name | None = None
    antiphon: ProjectExtras | None = None


class ProjectObject(msgspec.Struct, frozen=True, kw_only=True):
    """A project."""

    id: str
    object: Literal["organization.project"] = "organization.project"
    name: str
    created_at: int
    archived_at: int | None
    status: Literal["active", "archived"]
    antiphon: ProjectExtras


class KeyExtras(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a key has beyond OpenAI's. In an answer, `previous_until` is the end of the overlap.

    Budgets of runs are decimal numbers of dollars as texts; null removes them.
    """

    role: Literal["user", "viewer"] | msgspec.UnsetType = msgspec.UNSET
    models: list[Name] | msgspec.UnsetType | None = msgspec.UNSET
    never_store: bool | msgspec.UnsetType = msgspec.UNSET
    name: Name | msgspec.UnsetType = msgspec.UNSET
    run_budget_usd: str | msgspec.UnsetType | None = msgspec.UNSET
    max_run_budget_usd: str | msgspec.UnsetType | None = msgspec.UNSET


class CreateServiceAccount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/service_accounts."""

    name: Name
    expires_in_seconds: Seconds | None = None
    create_service_account_only: bool | None = None
    antiphon: KeyExtras | None = None


class CreateServiceAccountKey(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The body of POST …/service_accounts/{id}/api_keys."""

    name: Name | None = None
    expires_in_seconds: Seconds | None = None
    antiphon: KeyExtras | None = None


class UpdateServiceAccount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/service_accounts/{id}."""

    name: Name


class UpdateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/api_keys/{id}."""

    expires_in_seconds: Seconds | None = None
    antiphon: KeyExtras | None = None


class RotateKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/api_keys/{id}/antiphon/rotate."""

    overlap_seconds: Annotated[int, msgspec.Meta(ge=0, le=90 * 86_400)] = 86_400


class CreateAdminKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/organization/admin_api_keys."""

    name: Name
    expires_in_seconds: Seconds | None = None


class NewKeyObject(msgspec.Struct, frozen=True, kw_only=True):
    """A new key of a service account, with its value, which is shown once."""

    id: str
    object: Literal["organization.project.service_account.api_key"] = (
        "organization.project.service_account.api_key"
    )
    name: str
    created_at: int
    expires_at: int | None
    value: str


class ServiceAccountObject(msgspec.Struct, frozen=True, kw_only=True):
    """A service account: the keys of a project that were given to one program."""

    id: str
    object: Literal["organization.project.service_account"] = "organization.project.service_account"
    name: str
    role: Literal["member"] = "member"
    created_at: int
    api_key: NewKeyObject | msgspec.UnsetType = msgspec.UNSET


class ProjectKeyObject(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a project. `value` is there when it has a new secret only."""

    id: str
    object: Literal["organization.project.api_key"] = "organization.project.api_key"
    name: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    redacted_value: str
    owner: dict[str, Any]  # Any: an object of JSON
    owner_project_access: Literal["active", "inactive"] = "active"
    value: str | msgspec.UnsetType = msgspec.UNSET
    antiphon: dict[str, Any]  # Any: an object of JSON


class AdminKeyObject(msgspec.Struct, frozen=True, kw_only=True):
    """A key of an administrator."""

    id: str
    object: Literal["organization.admin_api_key"] = "organization.admin_api_key"
    name: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    redacted_value: str
    owner: dict[str, Any]  # Any: an object of JSON
    value: str | msgspec.UnsetType = msgspec.UNSET


class RateLimitExtras(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rate limit has beyond OpenAI's. `id` is its name in refusals."""

    id: str | msgspec.UnsetType = msgspec.UNSET
    max_concurrent_requests: Count | None = None


class UpdateRateLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/rate_limits/{id}. What is left out stays; null removes a limit."""

    max_requests_per_1_minute: Count | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens_per_1_minute: Count | msgspec.UnsetType | None = msgspec.UNSET
    antiphon: RateLimitExtras | None = None


class RateLimitObject(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit of a project, for a model or, with `*`, for all of them together."""

    id: str
    object: Literal["project.rate_limit"] = "project.rate_limit"
    model: str
    max_requests_per_1_minute: int | None
    max_tokens_per_1_minute: int | None
    antiphon: RateLimitExtras


class UpdateSpendLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/spend_limit. The amount is in cents."""

    currency: Literal["USD"]
    interval: Literal["month"]
    threshold_amount: Cents


class SpendLimitObject(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be spent in a month. Under `antiphon`: its id, and exact amounts."""

    object: Literal["organization.spend_limit", "project.spend_limit"]
    currency: Literal["USD"] = "USD"
    interval: Literal["month"] = "month"
    threshold_amount: int
    enforcement: dict[str, str]
    antiphon: dict[str, str]


class PutBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/organization/antiphon/budgets.

    One of the same scope, unit and period is replaced. `limit` is a decimal number of dollars as
    a text, or a whole number of tokens.
    """

    scope: Literal["organization", "project", "key", "user", "conversation", "run"]
    scope_id: Name | None = None
    project_id: str | None = None
    unit: Literal["usd", "tokens"]
    limit: str | int
    period: Literal["day", "week", "month", "total"] = "month"
    soft: Annotated[list[Percent], msgspec.Meta(max_length=10)] = []
    allows_unpriced: bool = False


class BudgetObject(msgspec.Struct, frozen=True, kw_only=True):
    """A budget as it stands. Amounts are texts of dollars, or numbers of tokens."""

    id: str
    object: Literal["organization.antiphon.budget"] = "organization.antiphon.budget"
    scope: str
    scope_id: str | None
    project_id: str | None
    unit: Literal["usd", "tokens"]
    period: str
    limit: str | int
    spent: str | int
    held: str | int
    remaining: str | int
    period_start: int
    soft: list[int]
    allows_unpriced: bool
    created_at: int


class RequestObject(msgspec.Struct, frozen=True, kw_only=True):
    """The charges of one response, seen together. An amount that is not known is null."""

    id: str
    """Of the response, also if that is not stored."""
    object: Literal["organization.antiphon.request"] = "organization.antiphon.request"
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled", "released"]
    project_id: str
    api_key_id: str | None
    user_id: str | None
    conversation_id: str | None
    run_id: str | None
    model: str
    served_model: str
    provider: str
    created_at: float
    ended_at: float | None
    first_ms: int | None
    total_ms: int | None
    charges: int
    unpriced_charges: int
    basis: str | None
    used: dict[str, Any]  # Any: an object of JSON


class ChargeObject(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an upstream. An amount that is not known is null."""

    id: str
    object: Literal["organization.antiphon.charge"] = "organization.antiphon.charge"
    state: Literal["held", "settled", "released"]
    response_id: str
    number: int
    kind: str
    project_id: str
    api_key_id: str | None
    user_id: str | None
    conversation_id: str | None
    run_id: str | None
    model: str
    served_model: str
    provider: str
    created_at: float
    settled_at: float | None
    basis: str | None
    outcome: str | None
    held: dict[str, Any]  # Any: an object of JSON
    used: dict[str, Any] | None  # Any: an object of JSON
    first_ms: int | None
    total_ms: int | None
    line_items: list[dict[str, Any]]  # Any: objects of JSON
