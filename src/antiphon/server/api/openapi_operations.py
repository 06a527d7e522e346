"""How a path is described: what an operation takes, and what it answers."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["PAGE", "REF", "answer_of", "body_of", "form_of", "in_path", "list_of", "operation"]

REF: Final = "#/components/schemas/"


def in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


PAGE: Final = [
    {"name": "after", "in": "query", "schema": {"type": "string"}},
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    },
    {
        "name": "order",
        "in": "query",
        "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    },
]


def operation(summary: str, gives: str | None = None, takes: str | None = None) -> dict[str, Any]:
    """Return the entry of one method: the schema of its answer and of its request."""
    found = answer_of("The answer", gives) if gives else {"200": {"description": "The answer"}}
    operation = {
        "summary": summary,
        "responses": found | answer_of("What is wrong", "Error", "default"),
    }
    return operation | (body_of({"$ref": f"{REF}{takes}"}) if takes else {})


def body_of(schema: dict[str, Any], *, is_required: bool = True) -> dict[str, Any]:
    shape = schema if "$ref" in schema else {"type": "object"} | schema
    content = {"application/json": {"schema": shape}}
    return {"requestBody": {"required": is_required, "content": content}}


def answer_of(description: str, name: str, status: str = "200") -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"{REF}{name}"}}}
    return {status: {"description": description, "content": content}}


def list_of(summary: str, name: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of a method that lists objects of this schema."""
    schema = {
        "type": "object",
        "required": ["object", "data", "first_id", "last_id", "has_more"],
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": f"{REF}{name}"}},
            "first_id": {"type": ["string", "null"]},
            "last_id": {"type": ["string", "null"]},
            "has_more": {"type": "boolean"},
        },
    }
    listing = operation(summary)
    listing["responses"]["200"]["content"] = {"application/json": {"schema": schema}}
    return listing | {"parameters": parameters}


def form_of(required: list[str], **fields: Any) -> dict[str, Any]:
    """Return the body of a request that is a form."""
    schema = {"type": "object", "required": required, "properties": fields}
    return {
        "requestBody": {
            "required": True,
            "content": {"multipart/form-data": {"schema": schema}},
        }
    }
