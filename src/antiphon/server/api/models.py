"""GET /v1/models: which models can be asked for, and what is known about them.

One answer serves two kinds of clients: `data` holds objects as in OpenAI's API, `models` holds
entries for Codex. A client that sends `anthropic-version` gets Anthropic's shape instead. Facts
that no source states are left out of an object. Other fields of the upstream's entry are in it
too, but never replace what the gateway states.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.accounts.principal import check_model
from antiphon.models.facts import ModelInfo
from antiphon.protocol.errors import NotFound
from antiphon.server.api.codex import codex_entries
from antiphon.server.api.messages_models import messages_entry, messages_list
from antiphon.server.app import Call, Route

__all__ = ["ROUTES"]

_ANTHROPIC: Final = "anthropic-version"


async def list_models(call: Call) -> web.StreamResponse:
    """Return every model of every provider that the caller may ask for."""
    catalog = call.app.engine.catalog
    models = [one for one in await catalog.models() if call.principal.may_ask(one.id)]
    if _ANTHROPIC in call.request.headers:
        return call.json(msgspec.json.encode(messages_list(models)))
    body = {
        "object": "list",
        "data": [_as_object(model) for model in models],
        "models": codex_entries(models, catalog.default_model),
    }
    return call.json(msgspec.json.encode(body))


async def retrieve(call: Call) -> web.StreamResponse:
    """Return one model."""
    check_model(call.principal, call.path_id)
    for model in await call.app.engine.catalog.models():
        if model.id == call.path_id:
            write = messages_entry if _ANTHROPIC in call.request.headers else _as_object
            return call.json(msgspec.json.encode(write(model)))
    raise NotFound(
        f"The model '{call.path_id}' does not exist here.", code="model_not_found", param="model"
    )


def _as_object(model: ModelInfo) -> dict[str, Any]:
    stated = dict(model.stated or {})
    abilities = _by_word(stated.pop("capabilities", None))
    body: dict[str, Any] = {
        **stated,
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
    }
    facts = {
        "display_name": model.display_name,
        "context_length": model.context_length,
        "max_output_tokens": model.max_output_tokens,
        "input_modalities": model.modalities,
        "reasoning_levels": model.reasoning_levels,
    }
    body |= {key: value for key, value in facts.items() if value is not None}
    if model.supports_tools is not None:
        abilities["function_calling"] = model.supports_tools
    return body | ({"capabilities": abilities} if abilities else {})


def _by_word(abilities: object) -> dict[str, Any]:
    """Return the upstream's abilities as words with a value; some servers list the words alone."""
    if isinstance(abilities, list):
        return {word: True for word in abilities if isinstance(word, str)}
    return dict(abilities) if isinstance(abilities, dict) else {}


ROUTES: Final = [
    Route("GET", "/v1/models", list_models),
    Route("GET", "/v1/models/{id}", retrieve, takes_rest=True),
]
