"""Independent models of the protocol, and what each of them finds wrong with a body.

    | judge    | source                                                  | dialect        |
    |----------|---------------------------------------------------------|----------------|
    | package  | the Pydantic models of `openresponses-types` 2026-04-24 | open-responses |
    | sdk      | the types of the official `openai` package              | openai         |
    | document | the JSON Schemas of the Open Responses OpenAPI document | open-responses |

All of them judge JSON text and convert nothing: a number in quotes is a mistake. The package and
the SDK are development dependencies, so they judge in every clone. The document is not part of
this repository: set `OPENRESPONSES_OPENAPI` to its path, or put it at
`.cache/openresponses-openapi.json`. Without it the package judges alone. It was generated from
the document, and `test_judges.py` shows that it finds the same mistakes.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
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
    "DOCUMENT",
    "OPEN_EVENT_TYPES",
    "SDK_EVENT_TYPES",
    "WITHOUT_DOCUMENT",
    "Json",
    "event_problems",
    "open_responses_problems",
    "response_problems",
    "sdk_problems",
]

Json = dict[str, Any]  # a JSON object: Any is what JSON holds

_VARIABLE: Final = "OPENRESPONSES_OPENAPI"
_USUAL_PLACE: Final = Path(__file__).parents[2] / ".cache" / "openresponses-openapi.json"
WITHOUT_DOCUMENT: Final = (
    f"the OpenAPI document of Open Responses is not here (set {_VARIABLE}): "
    "openresponses-types judged alone"
)
_DOCUMENT_URI: Final = "urn:open-responses"
_EVENT_SUFFIX: Final = "StreamingEvent"
# The one optional field of a body we send that the document lets be null.
_MAY_BE_NULL: Final = {(openresponses_types.types.Error, "param")}


def _find_document() -> Path | None:
    """Return where the OpenAPI document is, or None; a path that was set must exist."""
    named = os.environ.get(_VARIABLE)
    if named:
        path = Path(named)
        if not path.is_file():
            raise FileNotFoundError(f"{_VARIABLE} names {named}, which is not a file")
        return path
    return _USUAL_PLACE if _USUAL_PLACE.is_file() else None


DOCUMENT: Final = _find_document()


def response_problems(body: Json, dialect: Dialect) -> list[str]:
    """Return what the judges of this dialect find wrong with a response."""
    if dialect == "openai":
        return sdk_problems(SdkResponse, _with_listed_code(body))
    return open_responses_problems("ResponseResource", body)


def event_problems(event: Json, dialect: Dialect) -> list[str]:
    """Return what the judges of this dialect find wrong with an event."""
    name = event.get("type")
    if dialect == "openai":
        sdk_model = _sdk_events().get(str(name))
        if sdk_model is None:
            return [f"sdk: there is no event {name!r}"]
        response = event.get("response")
        if response is not None:
            event = event | {"response": _with_listed_code(response)}
        return sdk_problems(sdk_model, event)
    open_model = _open_events().get(str(name))
    if open_model is None:
        return [f"package: there is no event {name!r}"]
    return open_responses_problems(open_model.__name__, event)


def open_responses_problems(schema: str, body: Json) -> list[str]:
    """Return what the judges of Open Responses find wrong with a body of this schema."""
    return [*_package_problems(schema, body), *_document_problems(schema, body)]


def sdk_problems(model: type[BaseModel], body: Json) -> list[str]:
    """Return what a type of the official SDK finds wrong with a body."""
    checked = _validate("sdk", model, body)
    return checked if isinstance(checked, list) else []


def _with_listed_code(body: Json) -> Json:
    """Return a response whose error code is one that the SDK lists.

    The SDK's list of codes is closed and lacks OpenAI's own `context_length_exceeded`. Our codes
    are more precise than `server_error`; the SDK never reads them (docs/topics/conformance.md).
    """
    error = body.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        return body
    return body | {"error": error | {"code": "server_error"}}


def _validate(judge: str, model: type[BaseModel], body: Json) -> BaseModel | list[str]:
    try:
        return model.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        return [
            f"{judge}: {'.'.join(map(str, miss['loc']))}: {miss['msg']}"
            for miss in error.errors(include_url=False)
        ]


def _package_problems(schema: str, body: Json) -> list[str]:
    checked = _validate("package", getattr(openresponses_types, schema), body)
    return checked if isinstance(checked, list) else list(_needless_nulls(checked, ()))


def _needless_nulls(value: object, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the optional fields that are null.

    The package writes "may be absent" as `X | None = None` and so accepts null, which the
    document does not.
    """
    if isinstance(value, list):
        for index, member in enumerate(value):
            yield from _needless_nulls(member, (*path, str(index)))
    if not isinstance(value, BaseModel):
        return
    for name, field in type(value).model_fields.items():
        inner = getattr(value, name)
        if inner is not None:
            yield from _needless_nulls(inner, (*path, name))
        elif (
            name in value.model_fields_set
            and not field.is_required()
            and (type(value), name) not in _MAY_BE_NULL
        ):
            yield f"package: {'.'.join((*path, name))}: may be absent, but not null"


def _document_problems(schema: str, body: Json) -> list[str]:
    if DOCUMENT is None:
        return []
    return [
        f"document: {miss.json_path}: {miss.message[:300]}"
        for miss in _validators(DOCUMENT)[schema].iter_errors(body)
    ]


@cache
def _validators(document: Path) -> dict[str, Draft202012Validator]:
    """Return a validator for each schema of the OpenAPI document."""
    content = json.loads(document.read_text("utf-8"))
    resource = DRAFT202012.create_resource(content)
    registry: Registry[Any] = Registry().with_resource(_DOCUMENT_URI, resource)
    return {
        name: Draft202012Validator(
            {"$ref": f"{_DOCUMENT_URI}#/components/schemas/{name}"}, registry=registry
        )
        for name in content["components"]["schemas"]
    }


@cache
def _open_events() -> dict[str, type[BaseModel]]:
    """Return the package's event classes by the `type` they stand for."""
    classes: list[Any] = [  # the package does not type its members
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
