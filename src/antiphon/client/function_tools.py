"""A tool from a Python function: its signature is the schema, its docstring the description.

    @function_tool
    def weather(city: str, days: int = 1) -> str:
        \"""Return the weather of a city.

        Args:
            city: Where.
            days: How many days ahead.
        \"""

A parameter may be of any type that JSON can hold: text, numbers, lists, dicts, `Literal`, enums,
`Optional`, dataclasses, TypedDicts, msgspec Structs, dates. What the model gives is checked and
converted before the function is called. What cannot be expressed is a BadTool that names the
parameter.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints, overload

import msgspec

from antiphon.client.docstrings import read_docstring
from antiphon.client.errors import BadTool
from antiphon.client.items import fit_arguments
from antiphon.protocol.tools import Tool

__all__ = ["FunctionTool", "function_tool"]

_REFERENCE: Final = "#/$defs/{name}"
_NO_NAME: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class FunctionTool(Mapping[str, Any]):
    """A tool and the function behind it.

    As a mapping it is the tool's definition, so it may stand in `tools=[…]`. Called, it calls the
    function as it is; `run` calls it with what a model gave.
    """

    def __init__(
        self, function: Callable[..., Any], definition: Tool, arguments: type[msgspec.Struct]
    ) -> None:
        self.function: Final = function
        self.definition: Final = definition
        self._arguments = arguments
        functools.update_wrapper(self, function, updated=())

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return str(self.definition["name"])

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Return what the function returns, which may be awaitable. Raise InvalidArguments."""
        given = fit_arguments(dict(arguments), self._arguments)
        named = {name: getattr(given, name) for name in given.__struct_fields__}
        return self.function(**{n: v for n, v in named.items() if v is not msgspec.UNSET})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getitem__(self, key: str) -> Any:
        return self.definition[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.definition)

    def __len__(self) -> int:
        return len(self.definition)

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"


@overload
def function_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
) -> FunctionTool: ...


@overload
def function_tool(
    *, name: str | None = None, description: str | None = None, strict: bool = False
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def function_tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Return the tool that a function is. Raise BadTool for what has no form in JSON Schema.

    `strict` asks the server to hold the model to the schema; then the model gives every
    parameter, also those that have a default. Without a function, as in
    `@function_tool(strict=True)`, return the decorator.
    """
    if function is None:
        return lambda given: _make(given, name, description, strict)
    return _make(function, name, description, strict)


def _make(
    function: Callable[..., Any], name: str | None, description: str | None, strict: bool
) -> FunctionTool:
    if isinstance(function, FunctionTool):
        function = function.function
    called = name or _name_of(function)
    parameters = _parameters(function, called)
    described = read_docstring(_docstring(function))
    arguments = _arguments_struct(called, parameters)
    schema = _schema(called, parameters, arguments, described.parameters)
    definition: Tool = {"type": "function", "name": called}
    if text := description or described.text:
        definition["description"] = text
    definition["parameters"] = _make_strict(called, schema) if strict else schema
    definition["strict"] = strict
    return FunctionTool(function, definition, arguments)


class _Parameter(msgspec.Struct, frozen=True):
    name: str
    hint: Any
    default: Any
    """`inspect.Parameter.empty` if there is none."""

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def kind(self) -> Any:
        """The type of the values. One that is None by default may be None."""
        return Union[self.hint, None] if self.default is None else self.hint  # noqa: UP007


def _without_partial(function: Callable[..., Any]) -> Any:  # Any: a routine, a class, an object
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _name_of(function: Callable[..., Any]) -> str:
    function = _without_partial(function)
    called = getattr(function, "__name__", None) or type(function).__name__
    if not called.isidentifier():
        raise BadTool(called, "it has no name that a model could call it by; give name=")
    return called


def _parameters(function: Callable[..., Any], called: str) -> list[_Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise BadTool(called, "it has no signature that can be read; give the schema") from None
    hints = _hints(function, called)
    found = []
    for parameter in signature.parameters.values():
        if parameter.kind in _NO_NAME or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise BadTool(called, f"{parameter} cannot be given by one name, as a model gives it")
        if parameter.name not in hints:
            raise BadTool(called, f"its parameter {parameter.name} has no type hint")
        found.append(_Parameter(parameter.name, hints[parameter.name], parameter.default))
        _check_hint(called, found[-1])
    return found


def _hints(function: Callable[..., Any], called: str) -> dict[str, Any]:
    plain = _without_partial(inspect.unwrap(function))
    if not inspect.isroutine(plain) and not inspect.isclass(plain):
        plain = type(plain).__call__
    try:
        return get_type_hints(plain, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise BadTool(called, f"its type hints cannot be read: {error}") from None


def _check_hint(called: str, parameter: _Parameter) -> None:
    try:
        msgspec.json.schema(parameter.hint)
    except (TypeError, ValueError) as error:
        shown = getattr(parameter.hint, "__name__", None) or str(parameter.hint)
        why = str(error).partition(" - type")[0]
        why = "" if why.startswith("Generating") else f": {why.replace('`', '')}"
        raise BadTool(
            called,
            f"its parameter {parameter.name} is of a type that JSON has no form of ({shown}){why}",
        ) from None


def _arguments_struct(called: str, parameters: list[_Parameter]) -> type[msgspec.Struct]:
    """Return a type that reads the arguments; what the model leaves out is UNSET."""
    try:
        fields: list[Any] = [
            (one.name, one.kind)
            if one.is_required
            else (one.name, Union[one.kind, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007
            for one in parameters
        ]
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadTool(called, f"its parameters cannot be read from JSON: {error}") from None


def _schema(
    called: str,
    parameters: list[_Parameter],
    arguments: type[msgspec.Struct],
    described: Mapping[str, str],
) -> dict[str, Any]:
    try:
        (top,), definitions = msgspec.json.schema_components([arguments], ref_template=_REFERENCE)
    except (TypeError, ValueError) as error:
        raise BadTool(called, f"its parameters have no form in JSON Schema: {error}") from None
    schema: dict[str, Any] = definitions.pop(top["$ref"].rpartition("/")[2])
    schema.pop("title", None)
    for one in parameters:
        field = schema["properties"][one.name]
        if text := _annotation(one.hint) or described.get(one.name):
            field.setdefault("description", text)
        if not one.is_required:
            _put_default(field, one.default)
    return schema | ({"$defs": definitions} if definitions else {})


def _annotation(hint: Any) -> str:
    """Return the text of `Annotated[int, "how many"]`."""
    if get_origin(hint) is not Annotated:
        return ""
    return next((note for note in get_args(hint)[1:] if isinstance(note, str)), "")


def _put_default(field: dict[str, Any], default: Any) -> None:
    try:
        field["default"] = msgspec.to_builtins(default)
    except (TypeError, ValueError):
        return  # it is the function's own: the model does not need to know it


def _docstring(function: Callable[..., Any]) -> str | None:
    plain = _without_partial(function)
    if not inspect.isroutine(plain) and not inspect.isclass(plain):
        return inspect.getdoc(type(plain).__call__) or inspect.getdoc(type(plain))
    return inspect.getdoc(plain)


def _make_strict(tool: str, node: Any) -> Any:  # Any: a schema, or a part of one
    """Return the schema for a strict function. Raise BadTool for what cannot be strict.

    There an object lists all its properties as required and allows no others, without defaults.
    A value that may be missing is one that may be null, as in the type `int | None`.
    """
    if isinstance(node, list):
        return [_make_strict(tool, one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: value for key, value in node.items() if key != "default"}
    for key in ("items", "anyOf", "allOf", "oneOf", "prefixItems"):
        if key in made:
            made[key] = _make_strict(tool, made[key])
    for key in ("properties", "$defs"):
        if key in made:
            made[key] = {name: _make_strict(tool, inner) for name, inner in made[key].items()}
    if made.get("type") == "object":
        _close(tool, made)
    return made


def _close(tool: str, schema: dict[str, Any]) -> None:
    """Require all properties of an object and forbid others."""
    if "properties" not in schema and schema.get("additionalProperties") is not False:
        raise BadTool(tool, "a dict with any keys cannot be strict; name its keys in a type")
    schema["required"] = list(schema.get("properties", {}))
    schema["additionalProperties"] = False
