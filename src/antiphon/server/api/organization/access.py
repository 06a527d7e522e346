"""Which project's figures may a caller see, and who makes a change?

`server.roles` decides who may call a route at all. A viewer sees the figures of its own project: a
request that names no project is about that one, and one that names another is refused. The name of
the actor goes into the audit log with every change.
"""

from __future__ import annotations

from typing import Any

from antiphon.accounts.principal import LOCAL
from antiphon.server.app import Call
from antiphon.server.roles import NotAllowed
from antiphon.store.base import AuditRecord

__all__ = ["audit_of", "visible_projects"]


def visible_projects(call: Call, asked: tuple[str, ...], param: str) -> tuple[str, ...]:
    """Return the projects whose figures to show, where none stands for all. Raise NotAllowed."""
    principal, own = call.principal, call.owner
    if principal == LOCAL or principal.role == "admin":
        return asked
    if any(project != own for project in asked):
        raise NotAllowed(f"{param} names a project that this key cannot see", param=param)
    return (own,)


def audit_of(
    call: Call,
    action: str,
    subject: str,
    project: str | None = None,
    body: dict[str, Any] | None = None,  # Any: an object of JSON
) -> AuditRecord:
    """Return the record of a change that this caller makes."""
    principal = call.principal
    person = f"user:{principal.user}" if principal.user else principal.owner
    actor = f"key:{principal.key_id}" if principal.key_id else person
    return AuditRecord(
        at=call.app.engine.now(),
        actor=actor,
        action=action,
        subject=subject,
        project=project,
        body=body or {},
    )
