"""/v1/antiphon: who am I here, how can I log in, which hosted tools are there?

`login` is open: it is asked before anybody is known, and names only what the issuers publish
themselves. Of tools, only administrators see the terms, which name servers.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from antiphon.accounts.principal import LOCAL
from antiphon.protocol.gateway import MeObject, ToolObject, ToolServer
from antiphon.server.api.objects import answer_object
from antiphon.server.app import Call, Route
from antiphon.tools.terms import ToolTerms

__all__ = ["ROUTES"]


async def me(call: Call) -> web.StreamResponse:
    """Return who asks, and in which role."""
    who = call.principal
    return answer_object(
        call,
        MeObject(
            role="local" if who == LOCAL else who.role,
            project_id=who.owner,
            api_key_id=who.key_id,
            user_id=who.user,
            models=None if who.models is None else list(who.models),
            never_store=who.never_store,
        ),
    )


async def login(call: Call) -> web.StreamResponse:
    """Return the identity providers that a person can log in with."""
    return answer_object(call, await call.app.login.find())


async def tools(call: Call) -> web.StreamResponse:
    """Return the hosted tools: which are configured, and to administrators on which terms."""
    shows_terms = call.principal == LOCAL or call.principal.role == "admin"
    found = {one.type: one for one in call.app.tool_terms}
    kinds = call.app.engine.setup.tools.registry.kinds
    for kind in sorted(kinds):
        if not kind.startswith(tuple(found)):  # a dated name of one that is there
            found[kind] = ToolTerms(kind, is_configured=True, terms="")
    data = [_as_object(one, kinds, shows_terms=shows_terms) for one in found.values()]
    page = {"object": "list", "data": data, "has_more": False}
    return call.json(msgspec.json.encode({**page, "first_id": None, "last_id": None}))


def _as_object(one: ToolTerms, kinds: frozenset[str], *, shows_terms: bool) -> ToolObject:
    return ToolObject(
        type=one.type,
        configured=one.is_configured and one.type in kinds,
        terms=one.terms if shows_terms else None,
        servers=[
            ToolServer(label=server.label, terms=server.terms if shows_terms else None)
            for server in one.servers
        ],
        details=list(one.details) if shows_terms else None,
    )


ROUTES: Final = [
    Route("GET", "/v1/antiphon/me", me),
    Route("GET", "/v1/antiphon/login", login, is_open=True),
    Route("GET", "/v1/antiphon/tools", tools),
]
