"""GET /v1/models: what can be asked for."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import msgspec
from aiohttp import web

from antiphon.backends.base import ModelInfo
from antiphon.protocol.errors import NotFound
from antiphon.server.app import Call, Route

__all__ = ["ROUTES"]


async def list_models(call: Call) -> web.StreamResponse:
    """Return every model of every provider."""
    models = await call.app.engine.catalog.models()
    body = {"object": "list", "data": [_as_object(model) for model in models]}
    return call.json(msgspec.json.encode(body))


async def retrieve(call: Call) -> web.StreamResponse:
    """Return one model."""
    wanted = unquote(call.path_id)
    for model in await call.app.engine.catalog.models():
        if model.id == wanted:
            return call.json(msgspec.json.encode(_as_object(model)))
    raise NotFound(
        f"The model '{wanted}' does not exist here.", code="model_not_found", param="model"
    )


def _as_object(model: ModelInfo) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
    }
    if model.context_length is not None:
        body["context_length"] = model.context_length
    return body


ROUTES: Final = [
    Route("GET", "/v1/models", list_models),
    Route("GET", "/v1/models/{id}", retrieve),
]
