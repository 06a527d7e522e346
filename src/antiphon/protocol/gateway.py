"""The gateway about itself on the wire: who asks, what is configured, how it is.

These routes are our own; OpenAI's API has nothing like them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "BreakerObject",
    "HealthObject",
    "LedgerCheckObject",
    "LedgerFigures",
    "LedgerProblemObject",
    "LoginIssuer",
    "LoginObject",
    "MeObject",
    "StoreFigures",
    "ToolObject",
    "ToolServer",
    "UpstreamObject",
]


class MeObject(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/antiphon/me: who the credential of this request stands for."""

    object: Literal["antiphon.me"] = "antiphon.me"
    role: Literal["local", "user", "viewer", "admin", "metrics"]
    project_id: str
    api_key_id: str | None
    user_id: str | None
    models: list[str] | None
    never_store: bool


class LoginIssuer(msgspec.Struct, frozen=True, kw_only=True):
    """An identity provider that a page may send a person to."""

    issuer: str
    client_id: str
    scopes: list[str]
    token: Literal["access_token", "id_token"]
    authorization_endpoint: str
    token_endpoint: str


class LoginObject(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/antiphon/login: how a person can log in. `unavailable` are issuers out of reach."""

    object: Literal["antiphon.login"] = "antiphon.login"
    issuers: list[LoginIssuer]
    unavailable: list[str]


class ToolServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that requests may name."""

    label: str
    terms: str | None


class ToolObject(msgspec.Struct, frozen=True, kw_only=True):
    """A type of hosted tools. What only administrators see is null for others."""

    object: Literal["antiphon.tool"] = "antiphon.tool"
    type: str
    configured: bool
    terms: str | None
    servers: list[ToolServer]
    details: list[str] | None


class BreakerObject(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that gets no requests for a while, because it failed."""

    deployment: str
    seconds_left: float


class UpstreamObject(msgspec.Struct, frozen=True, kw_only=True):
    """A provider: whether it can serve, and how its calls went since the gateway started."""

    provider: str
    problem: str | None
    in_flight: int
    breakers: list[BreakerObject]
    calls: dict[str, int]
    """By how they ended."""
    p50_ms: float | None
    p95_ms: float | None


class StoreFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the store keeps up. Times are upper edges of buckets."""

    problem: str | None
    commits: int
    commit_p50_ms: float | None
    commit_p99_ms: float | None
    waiting: int


class LedgerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Charges that are held by this gateway now."""

    open_charges: int
    held_usd: float


class HealthObject(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/organization/antiphon/health."""

    object: Literal["organization.antiphon.health"] = "organization.antiphon.health"
    version: str
    python: str
    is_ready: bool
    is_draining: bool
    started_at: int
    workers: int
    """Processes of this gateway."""
    nodes: int | None
    """Processes that use the store now, of all gateways; null if the store does not answer."""
    turns: int
    background_turns: int
    upstreams: list[UpstreamObject]
    store: StoreFigures
    ledger: LedgerFigures


class LedgerProblemObject(msgspec.Struct, frozen=True, kw_only=True):
    """What the books contradict: the rule, what it is about, and what was found."""

    rule: str
    subject: str
    message: str


class LedgerCheckObject(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/organization/antiphon/ledger/check."""

    object: Literal["organization.antiphon.ledger_check"] = "organization.antiphon.ledger_check"
    is_right: bool
    problems: list[LedgerProblemObject]
    problem_count: int
    checked_at: int
    seconds: float
