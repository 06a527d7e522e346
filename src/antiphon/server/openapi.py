"""The description of this API, made from the types that read and write it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from antiphon import __version__
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Response

__all__ = ["describe"]

_REF: Final = "#/components/schemas/"


@cache
def describe() -> dict[str, Any]:
    """Return the OpenAPI document."""
    _, schemas = msgspec.json.schema_components(
        [CreateResponse, Response], ref_template=f"{_REF}{{name}}"
    )
    for schema in schemas.values():
        schema.get("properties", {}).pop("$extra", None)
        schema.pop("additionalProperties", None)
    return {
        "openapi": "3.1.0",
        "info": {"title": "antiphon", "version": __version__, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "components": {
            "schemas": schemas | {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "paths": _paths(),
    }


_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def _paths() -> dict[str, Any]:
    response = _answer("The response", f"{_REF}Response")
    create: dict[str, Any] = {
        "summary": "Create a response, as JSON or as a stream of events",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"{_REF}CreateResponse"}}},
        },
        "responses": _answer("The response", f"{_REF}Response")
        | _answer("What is wrong", f"{_REF}Error", "default"),
    }
    create["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    one = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    page = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("after", "limit", "order")
    ]
    return {
        "/v1/responses": {"post": create},
        "/v1/responses/{id}": {
            "parameters": one,
            "get": _operation("Retrieve a response", response),
            "delete": _operation("Delete a response"),
        },
        "/v1/responses/{id}/input_items": {
            "parameters": one + page,
            "get": _operation("List the items a response was given"),
        },
        "/v1/models": {"get": _operation("List the models")},
        "/v1/models/{id}": {"parameters": one, "get": _operation("Retrieve a model")},
        "/healthz": {"get": _operation("Is the process alive")},
        "/readyz": {"get": _operation("Can a turn be run now")},
        "/metrics": {"get": _operation("Counts for Prometheus")},
    }


def _operation(summary: str, answers: dict[str, Any] | None = None) -> dict[str, Any]:
    found = answers or {"200": {"description": "The answer"}}
    return {
        "summary": summary,
        "responses": found | _answer("What is wrong", f"{_REF}Error", "default"),
    }


def _answer(description: str, ref: str, status: str = "200") -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": ref}}}
    return {status: {"description": description, "content": content}}
