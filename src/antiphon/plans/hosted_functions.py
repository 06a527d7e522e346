"""Which functions is a model shown for the tools that are run here?

A model behind any wire knows functions. A tool that the gateway runs (`toolbox.hosted`) is shown
as one function or, for an MCP server, as many. Each gets an alias of its own that no tool of the
caller has, so that none can take the place of one. The runner of the tool states the functions
(`tools.base`), `plans.hosted_offers` puts them into the toolbox, and the loop of hosted tools
(`engine.run.hosted`) knows their calls by the alias.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["MAX_ABOUT", "HostedFunction"]

MAX_ABOUT: Final = 4096
"""Characters of a description that the model is shown; the rest is cut."""


class HostedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """One function that stands for a tool, or for a part of it.

    `kind` is the type of the tool as the caller declares it. `namespace` and `name` are those
    that its items are lowered by in later turns (`protocol.hosted`), for MCP the label of the
    server and the name of the tool, so that the model sees one name for old and new calls.
    """

    kind: str
    name: str
    namespace: str | None = None
    description: str = ""
    parameters: dict[str, Any] = {}
    """A JSON schema of an object, {} for none. It is not enforced: a runner sees any text."""
    is_deferred: bool = False
    """Whether the caller wants it to be shown only when a search has found it."""
    key: str = ""
    """What the runner knows it by; free to use, and never shown."""
