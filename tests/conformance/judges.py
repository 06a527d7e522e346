"""Independent models of the protocol, none of them ours, and what each says about a body.

    | judge   | whose words                                             | dialect        |
    |---------|---------------------------------------------------------|----------------|
    | package | the Pydantic models of `openresponses-types` 2026-04-24 | open-responses |
    | sdk     | the types of the official `openai` package              | openai         |
    | schema  | the JSON Schemas of the Open Responses OpenAPI file     | open-responses |

All of them judge JSON text and convert nothing: a number in quotes is a mistake. The OpenAPI
file is no part of this repository; where it does not lie beside it, its judge is left out.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import openresponses_types
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # ships no types
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent as SdkEvent
from pydantic import BaseModel, ValidationError
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from antiphon.protocol.codec import Dialect

__all__ = [
    "OPEN_EVENT_TYPES",
    "SDK_EVENT_TYPES",
    "SPEC",
    "Json",
    "event_problems",
    "response_problems",
]

Json = dict[str, Any]  # a JSON object: Any is what JSON holds

SPEC: Final = Path(__file__).parents[3] / "shared" / "spec" / "openresponses-openapi.json"
_SPEC_URI: Final = "urn:open-responses"
_EVENT_SUFFIX: Final = "StreamingEvent"


def response_problems(body: Json, dialect: Dialect) -> list[str]:
    """Return what the judges of this dialect object to in a response."""
    if dialect == "openai":
        return _ask_model("sdk", SdkResponse, _with_listed_code(body))
    found = _ask_model("package", openresponses_types.ResponseResource, body)
    return found + _ask_schema("ResponseResource", body)


def event_problems(event: Json, dialect: Dialect) -> list[str]:
    """Return what the judges of this dialect object to in an event."""
    name = event.get("type")
    if dialect == "openai":
        sdk_model = _sdk_events().get(str(name))
        if sdk_model is None:
            return [f"sdk: there is no event {name!r}"]
        response = event.get("response")
        if response is not None:
            event = event | {"response": _with_listed_code(response)}
        return _ask_model("sdk", sdk_model, event)
    open_model = _open_events().get(str(name))
    if open_model is None:
        return [f"package: there is no event {name!r}"]
    return _ask_model("package", open_model, event) + _ask_schema(open_model.__name__, event)


def _with_listed_code(body: Json) -> Json:
    """Return a response whose error code is one that the SDK lists.

    The SDK's list of codes is closed, without even OpenAI's own `context_length_exceeded`. Ours
    says more than `server_error`; nothing in the SDK looks at it (docs/topics/conformance.md).
    """
    error = body.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        return body
    return body | {"error": error | {"code": "server_error"}}


def _ask_model(judge: str, model: type[BaseModel], body: Json) -> list[str]:
    try:
        model.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        return [
            f"{judge}: {'.'.join(map(str, miss['loc']))}: {miss['msg']}"
            for miss in error.errors(include_url=False)
        ]
    return []


def _ask_schema(name: str, body: Json) -> list[str]:
    validate = _schemas()
    return [] if validate is None else validate(name, body)


@cache
def _schemas() -> Callable[[str, Json], list[str]] | None:
    """Return a function that holds a body against a named schema, or None without the file."""
    if not SPEC.exists():
        return None
    document = json.loads(SPEC.read_text("utf-8"))
    resource = DRAFT202012.create_resource(document)
    registry: Registry[Any] = Registry().with_resource(_SPEC_URI, resource)
    validators = {
        name: Draft202012Validator(
            {"$ref": f"{_SPEC_URI}#/components/schemas/{name}"}, registry=registry
        )
        for name in document["components"]["schemas"]
    }

    def validate(name: str, body: Json) -> list[str]:
        return [
            f"schema: {miss.json_path}: {miss.message[:300]}"
            for miss in validators[name].iter_errors(body)
        ]

    return validate


@cache
def _open_events() -> dict[str, type[BaseModel]]:
    """Return the package's event classes by the `type` they stand for."""
    classes: list[Any] = [  # the package does not say what its members are
        cls
        for name, cls in inspect.getmembers(openresponses_types, inspect.isclass)
        if name.endswith(_EVENT_SUFFIX)
    ]
    return {next(iter(cls.model_fields["type"].annotation)).value: cls for cls in classes}


@cache
def _sdk_events() -> dict[str, type[BaseModel]]:
    """Return the SDK's event classes by the `type` they stand for."""
    union, *_ = get_args(SdkEvent)
    return {_literal(cls): cls for cls in get_args(union)}


def _literal(cls: type[BaseModel]) -> str:
    annotation = cls.model_fields["type"].annotation
    assert get_origin(annotation) is Literal
    return str(get_args(annotation)[0])


OPEN_EVENT_TYPES: Final = frozenset(_open_events())
SDK_EVENT_TYPES: Final = frozenset(_sdk_events())
