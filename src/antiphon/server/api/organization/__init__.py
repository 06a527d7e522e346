"""/v1/organization: the admin API, in the shapes of OpenAI's. One file per resource."""

from __future__ import annotations

from typing import Final

from antiphon.server.api.organization import (
    admin_keys,
    audit_logs,
    budgets,
    charges,
    costs,
    health,
    project_keys,
    projects,
    rate_limits,
    requests,
    service_accounts,
    spend_alerts,
    spend_limits,
    usage,
)

__all__ = ["ROUTES"]

_RESOURCES: Final = (
    *(usage, costs, charges, requests, projects, project_keys, service_accounts, rate_limits),
    *(spend_limits, spend_alerts, budgets, admin_keys, audit_logs, health),
)
ROUTES: Final = [route for resource in _RESOURCES for route in resource.ROUTES]
