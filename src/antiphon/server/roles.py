"""Which role may call which route? The only place where that is decided.

A route belongs to the longest prefix of its path in the table. Routes that are open to all are
not asked about. The principal `LOCAL`, who needs no key on this machine, may do everything.
"""

from __future__ import annotations

from typing import Final

from antiphon.accounts.principal import LOCAL, Principal, Role
from antiphon.protocol.errors import CallerError, StorageForbidden
from antiphon.store.base.keys import ROLES

__all__ = ["NotAllowed", "check_route", "require_admin"]

_DATA: Final[frozenset[Role]] = frozenset({"user", "viewer"})
_ADMIN: Final[frozenset[Role]] = frozenset({"admin"})
_FIGURES: Final[frozenset[Role]] = frozenset({"viewer", "admin"})
_PEOPLE: Final[frozenset[Role]] = _DATA | _ADMIN
_ROLES: Final[tuple[tuple[str, frozenset[Role]], ...]] = (
    ("/metrics", frozenset({"metrics", "admin"})),
    # A viewer sees the figures of its own project there, and no others.
    ("/v1/organization/usage", _FIGURES),
    ("/v1/organization/costs", _FIGURES),
    ("/v1/organization/antiphon/charges", _FIGURES),
    ("/v1/organization/antiphon/requests", _FIGURES),
    ("/v1/organization", _ADMIN),
    # Everybody may ask who they are; what is shown of tools depends on the role.
    ("/v1/antiphon/me", frozenset(ROLES)),
    ("/v1/antiphon/tools", _PEOPLE),
    ("/", _DATA),
)
"""By prefix, the more special ones first."""
# What a POST to these stores belongs to the caller until it is deleted.
_STORING: Final = (
    "/v1/conversations",
    "/v1/files",
    "/v1/uploads",
    "/v1/vector_stores",
    "/v1/containers",
    "/v1/skills",
)
_SEARCH: Final = "/search"


class NotAllowed(CallerError):
    """The credential is good, and its role does not allow this."""

    status = 403
    code = "insufficient_permissions"


def check_route(principal: Principal, method: str, path: str) -> None:
    """Raise NotAllowed or StorageForbidden if this route is not for this principal.

    `path` is the pattern of the route.
    """
    if principal == LOCAL:
        return
    allowed = next(roles for prefix, roles in _ROLES if _is_below(path, prefix))
    if principal.role not in allowed:
        raise NotAllowed(
            f"a key with the role {principal.role} may not call {method} {path}; "
            f"it needs the role {' or '.join(sorted(allowed))}"
        )
    if principal.never_store and method == "POST" and _stores(path):
        raise StorageForbidden(
            f"{method} {path} stores something, and nothing may be stored for this key"
        )


def require_admin(principal: Principal) -> None:
    """Raise NotAllowed unless the principal manages the organization."""
    if principal != LOCAL and principal.role not in _ADMIN:
        raise NotAllowed(
            f"a key with the role {principal.role} may not manage the organization; "
            "it needs the role admin"
        )


def _is_below(path: str, prefix: str) -> bool:
    return prefix == "/" or path == prefix or path.startswith(f"{prefix}/")


def _stores(path: str) -> bool:
    return any(_is_below(path, one) for one in _STORING) and not path.endswith(_SEARCH)
