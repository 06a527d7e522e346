"""The models of an antiphon gateway in the command llm.

llm calls the hooks in this module. They read the list of models that was kept, so that `llm models`
is quick and needs no gateway; what asks the gateway is imported when a model is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import llm

from llm_antiphon.commands import add_commands
from llm_antiphon.listing import known_models
from llm_antiphon.models import AsyncGatewayModel, GatewayModel

__all__ = ["register_commands", "register_models"]


# Last, so that these win over the entries that `antiphon connect llm` writes under the same names.
@llm.hookimpl(trylast=True)
def register_models(register: Callable[..., Any]) -> None:
    """Register each model of the gateway, for programs with and without an event loop."""
    for model in known_models():
        register(GatewayModel(model), AsyncGatewayModel(model))


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `llm antiphon`."""
    add_commands(cli)
