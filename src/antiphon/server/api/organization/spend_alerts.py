"""…/spend_alerts: not kept here, and the answers state it.

The gateway sends no e-mail, which is the only channel that OpenAI's alerts have. The webhook
`budget.threshold` reports the `soft` thresholds of budgets instead. So there are never alerts to
list, and creating one is refused.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.server.api.body import read_json
from antiphon.server.api.organization.lists import answer_few
from antiphon.server.api.organization.projects import find_project
from antiphon.server.app import Call, Route
from antiphon.store.base import Project

__all__ = ["ROUTES"]


async def list_alerts(call: Call) -> web.StreamResponse:
    """Return an empty list."""
    if call.path_id:
        await find_project(call, call.path_id)
    none: list[Project] = []
    return answer_few(call, none, lambda project: project)


async def refuse(call: Call) -> web.StreamResponse:
    """Raise InvalidRequest: there is no channel over which an alert could be sent."""
    body = await read_json(call)
    channel = body.get("notification_channel") if isinstance(body, dict) else None
    kind = channel.get("type") if isinstance(channel, dict) else None
    what = "e-mail is" if kind == "email" else "spend alerts are"
    raise InvalidRequest(
        f"{what} not sent by this gateway; set a budget with soft thresholds, which are reported"
        " by webhooks and in the answers (POST /v1/organization/antiphon/budgets)",
        code="unsupported_value",
        param="notification_channel.type",
    )


async def missing(call: Call) -> web.StreamResponse:
    """Raise NotFound: there are no alerts."""
    alert = call.item_id or call.path_id
    raise NotFound(f"No such spend alert: {alert}", code="spend_alert_not_found")


_ORGANIZATION: Final = "/v1/organization/spend_alerts"
_PROJECT: Final = "/v1/organization/projects/{id}/spend_alerts"
ROUTES: Final = [
    *(Route("GET", path, list_alerts) for path in (_ORGANIZATION, _PROJECT)),
    *(Route("POST", path, refuse) for path in (_ORGANIZATION, _PROJECT)),
    *(
        Route(method, path, missing)
        for path in (f"{_ORGANIZATION}/{{id}}", f"{_PROJECT}/{{item}}")
        for method in ("GET", "POST", "DELETE")
    ),
]
