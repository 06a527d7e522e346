"""The description of this API, made from the types that read and write it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from antiphon.protocol.events import EVENT_CLASSES
from antiphon.protocol.gateway import LoginObject, MeObject, ToolObject
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Response
from antiphon.protocol.rounds import ImportConversation, RoundList, RoundRequest, TurnObject
from antiphon.protocol.times import ResponseTimes
from antiphon.server.api.openapi_containers import CONTAINER_TYPES, container_paths
from antiphon.server.api.openapi_files import FILE_TYPES, file_paths
from antiphon.server.api.openapi_operations import (
    PAGE,
    REF,
    answer_of,
    body_of,
    in_path,
    list_of,
    operation,
)
from antiphon.server.api.openapi_organization import (
    ORGANIZATION_SCHEMAS,
    ORGANIZATION_TYPES,
    organization_paths,
)
from antiphon.version import __version__

__all__ = ["describe"]


@cache
def describe() -> dict[str, Any]:
    """Return the OpenAPI document."""
    events = EVENT_CLASSES.values()
    _, schemas = msgspec.json.schema_components(
        [
            CreateResponse,
            Response,
            ResponseTimes,
            RoundList,
            RoundRequest,
            TurnObject,
            ImportConversation,
            *FILE_TYPES,
            *CONTAINER_TYPES,
            *ORGANIZATION_TYPES,
            MeObject,
            LoginObject,
            ToolObject,
            *events,
        ],
        ref_template=f"{REF}{{name}}",
    )
    for schema in schemas.values():
        schema.get("properties", {}).pop("$extra", None)
        schema.pop("additionalProperties", None)
    schemas["ErrorEvent"] = _ERROR_EVENT
    schemas["StreamEvent"] = _any_event()
    return {
        "openapi": "3.1.0",
        "info": {"title": "antiphon", "version": __version__, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "components": {
            "schemas": schemas | _SCHEMAS | ORGANIZATION_SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "paths": _paths(),
    }


_NESTED: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["message", "type", "param", "code"],
    "properties": {
        "message": {"type": "string"},
        "type": {"type": "string"},
        "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]},
    },
}
_ERROR: Final = {"type": "object", "required": ["error"], "properties": {"error": _NESTED}}
_ERROR_EVENT: Final = {
    "type": "object",
    "description": "The stream broke; response.failed follows. The error is there twice: flat for "
    "some clients, nested for others. The nested message also names the response.",
    "required": ["type", "sequence_number", "message", "code", "param", "error"],
    "properties": {
        **_NESTED["properties"],
        "type": {"const": "error"},
        "sequence_number": {"type": "integer"},
        "error": _NESTED,
    },
}
_METADATA: Final = {
    "type": "object",
    "maxProperties": 16,
    "propertyNames": {"maxLength": 64},
    "additionalProperties": {"type": "string", "maxLength": 512},
}
_CONVERSATION: Final = {
    "type": "object",
    "required": ["id", "object", "created_at", "metadata"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "conversation"},
        "created_at": {"type": "integer"},
        "metadata": _METADATA,
    },
}
_ITEM: Final = {"type": "object", "properties": {"id": {"type": "string"}}}
_ITEMS: Final = {"type": "array", "maxItems": 20, "items": {"$ref": f"{REF}Item"}}
_ITEM_LIST: Final = {
    "type": "object",
    "required": ["object", "data", "first_id", "last_id", "has_more"],
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"$ref": f"{REF}Item"}},
        "first_id": {"type": ["string", "null"]},
        "last_id": {"type": ["string", "null"]},
        "has_more": {"type": "boolean"},
    },
}
_COMPACTION: Final = {
    "type": "object",
    "required": ["id", "object", "created_at", "output", "usage"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response.compaction"},
        "created_at": {"type": "integer"},
        "output": {"type": "array", "items": {"$ref": f"{REF}Item"}},
        "usage": {"$ref": f"{REF}Usage"},
    },
}
_TOKENS: Final = {
    "type": "object",
    "required": ["object", "input_tokens"],
    "properties": {
        "object": {"const": "response.input_tokens"},
        "input_tokens": {"type": "integer"},
        "antiphon": {"type": "object", "properties": {"usage": {"const": "estimated"}}},
    },
}
_DELETED: Final = {
    "type": "object",
    "required": ["id", "object", "deleted"],
    "properties": {
        "id": {"type": "string"},
        "object": {"enum": ["response.deleted", "conversation.deleted"]},
        "deleted": {"const": True},
    },
}
_SCHEMAS: Final = {
    "Error": _ERROR,
    "Item": _ITEM,
    "ItemList": _ITEM_LIST,
    "Conversation": _CONVERSATION,
    "Compaction": _COMPACTION,
    "InputTokens": _TOKENS,
    "Deleted": _DELETED,
}
_SOCKET: Final = """With `Upgrade: websocket`, a connection that carries one turn after another:
each text frame is a `response.create` with the fields of a request, each answer the events of
its response, one to a frame. Without the upgrade: 426."""
_STREAM: Final = """The data of one event of a stream; the name of the event is its `type`. The
events have the numbers 0, 1, 2, …, the last one is response.completed, response.incomplete or
response.failed, and `data: [DONE]` ends the stream. These are the names of the dialect `openai`; in
`open-responses` raw reasoning is `response.reasoning.*`, and an error is only nested."""
_AGAIN: Final = """With an `Idempotency-Key` the same body is run once in a day: while it runs the
same key is a 409, afterwards it gets the same answer, with `x-antiphon-replayed: 1`; another body
is a 422."""


_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


def _paths() -> dict[str, Any]:
    return {
        "/v1/responses": {"post": _create(), "get": _socket()},
        "/v1/responses/{id}": {
            "parameters": [in_path("id")],
            "get": _retrieve(),
            "delete": operation("Delete a response", "Deleted"),
        },
        "/v1/responses/{id}/cancel": {
            "parameters": [in_path("id")],
            "post": operation("Cancel a response in the background", "Response"),
        },
        "/v1/responses/{id}/input_items": {
            "parameters": [in_path("id"), *PAGE],
            "get": operation("List the items a response was given", "ItemList"),
        },
        "/v1/responses/{id}/antiphon/times": {
            "parameters": [in_path("id")],
            "get": operation("When its events were written", "ResponseTimes"),
        },
        **_tree_paths(),
        "/v1/responses/compact": {
            "post": operation("Make a context short", "Compaction", takes="CreateResponse")
        },
        "/v1/responses/input_tokens": {
            "post": operation("Count a request's tokens", "InputTokens", takes="CreateResponse")
        },
        "/v1/messages": {"post": operation("Create a message, as in Anthropic's API")},
        "/v1/messages/count_tokens": {
            "post": operation("Count a message's tokens, as in Anthropic's API")
        },
        **_conversation_paths(),
        **file_paths(),
        **container_paths(),
        **organization_paths(),
        "/v1/chat/completions": {
            "post": operation("Chat completions, as JSON or as a stream of chunks")
            | body_of({"required": ["messages"], "properties": {"messages": {"type": "array"}}})
            | {"description": _AGAIN, "parameters": [_KEY]}
        },
        "/v1/embeddings": {
            "post": operation("Embeddings, passed on to the provider of the model")
            | body_of({"required": ["model", "input"]})
        },
        "/v1/completions": {
            "post": operation("Text completions, passed on to the provider of the model")
            | body_of({"required": ["model", "prompt"]})
        },
        "/v1/models": {"get": operation("List the models")},
        "/v1/models/{id}": {
            "parameters": [in_path("id")],
            "get": operation("Retrieve a model"),
        },
        "/v1/antiphon/me": {"get": operation("Who asks, and in which role", "MeObject")},
        "/v1/antiphon/login": {"get": operation("How a person can log in", "LoginObject")},
        "/v1/antiphon/tools": {"get": list_of("Hosted tools", "ToolObject", [])},
        "/": {"get": operation("What this is, and where things are")},
        "/version": {"get": operation("The version of this gateway")},
        "/healthz": {"get": operation("Is the process alive")},
        "/health": {"get": operation("Is the process alive")},
        "/readyz": {"get": operation("Can a turn be run now")},
        "/metrics": {"get": operation("Counts for Prometheus")},
        "/openapi.json": {"get": operation("This description")},
    }


def _conversation_paths() -> dict[str, Any]:
    one = "/v1/conversations/{id}"
    return {
        "/v1/conversations": {
            "post": operation("Begin a conversation", "Conversation")
            | body_of({"properties": {"items": _ITEMS, "metadata": _METADATA}}, is_required=False)
        },
        one: {
            "parameters": [in_path("id")],
            "get": operation("Retrieve a conversation", "Conversation"),
            "post": operation("Replace its metadata", "Conversation")
            | body_of({"required": ["metadata"], "properties": {"metadata": _METADATA}}),
            "delete": operation("Delete a conversation and its items", "Deleted"),
        },
        f"{one}/items": {
            "parameters": [in_path("id")],
            "get": operation("List its items", "ItemList") | {"parameters": PAGE},
            "post": operation("Add items; 409 while a turn writes to it", "ItemList")
            | body_of({"required": ["items"], "properties": {"items": _ITEMS}}),
        },
        f"{one}/items/{{item}}": {
            "parameters": [in_path("id"), in_path("item")],
            "get": operation("Retrieve an item", "Item"),
            "delete": operation("Delete an item; 409 while a turn writes to it", "Conversation"),
        },
    }


def _tree_paths() -> dict[str, Any]:
    one, conversation = "/v1/responses/{id}/antiphon", "/v1/conversations/{id}/antiphon"
    tree = list_of("The turns and those that continue them", "TurnObject", PAGE[:2])
    export = operation("All items as lines of JSON")
    return {
        f"{one}/rounds": {
            "parameters": [in_path("id")],
            "get": operation("Which upstreams were called", "RoundList"),
        },
        f"{one}/rounds/{{item}}": {
            "parameters": [in_path("id"), in_path("item")],
            "get": operation("What an upstream was sent", "RoundRequest"),
        },
        f"{one}/tree": {"parameters": [in_path("id")], "get": tree},
        f"{conversation}/tree": {"parameters": [in_path("id")], "get": tree},
        f"{one}/export": {"parameters": [in_path("id")], "get": export},
        f"{conversation}/export": {"parameters": [in_path("id")], "get": export},
        "/v1/conversations/antiphon/import": {
            "post": operation("Make one of an export", "Conversation", takes="ImportConversation")
        },
    }


def _create() -> dict[str, Any]:
    create = operation(
        "Create a response, as JSON or as a stream of events", "Response", takes="CreateResponse"
    )
    create["description"] = _AGAIN
    create["parameters"] = [_KEY]
    return _also_as_events(create)


def _retrieve() -> dict[str, Any]:
    retrieve = operation("Retrieve a response, or its events from any of them on", "Response")
    retrieve["parameters"] = [
        {"name": "stream", "in": "query", "schema": {"type": "boolean"}},
        {"name": "starting_after", "in": "query", "schema": {"type": "integer", "minimum": 0}},
    ]
    return _also_as_events(retrieve)


def _also_as_events(operation: dict[str, Any]) -> dict[str, Any]:
    content = operation["responses"]["200"]["content"]
    content["text/event-stream"] = {"schema": {"$ref": f"{REF}StreamEvent"}}
    return operation


def _any_event() -> dict[str, Any]:
    """Return the schema of the data of one event, discriminated by its type."""
    refs = {name: f"{REF}{cls.__name__}" for name, cls in EVENT_CLASSES.items()}
    return {
        "description": _STREAM,
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": "type", "mapping": refs},
    }


def _socket() -> dict[str, Any]:
    return {
        "summary": "Open a WebSocket",
        "description": _SOCKET,
        "responses": {"101": {"description": "The connection is a WebSocket now"}}
        | answer_of("What is wrong", "Error", "default"),
    }
