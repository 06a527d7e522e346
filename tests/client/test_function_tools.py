"""Tools from functions: the schema, the description, and what a call of a model becomes."""

import asyncio
import dataclasses
import datetime
import enum
import functools
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Optional, Required, TypedDict

import jsonschema_rs
import msgspec
import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.client import FunctionTool, ToolFailed, errors, function_tool
from antiphon.client.tool_limits import ToolLimits, prepare_tools
from antiphon.client.tool_loop import run_tools
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallGrew, CallOpened, Stopped, TextGrew
from antiphon.protocol.items import text_of
from antiphon.testing import serve_gateway
from tests.client.calling import KINDS


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Place:
    """A place on earth."""

    city: str
    zip_code: int | None = None


class Options(TypedDict, total=False):
    unit: Required[str]
    digits: int


class Trip(msgspec.Struct):
    start: Place
    end: Place


def parameters(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    made: dict[str, Any] = function_tool(function, **options)["parameters"]
    return made


def test_a_signature_and_a_docstring_make_a_tool() -> None:
    def weather(city: str, days: int = 1) -> str:
        """Return the weather of a city.

        Args:
            city: Where.
            days: How many days ahead.
        """
        return f"{city} {days}"

    tool = function_tool(weather)
    assert dict(tool) == {
        "type": "function",
        "name": "weather",
        "description": "Return the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "description": "How many days ahead.", "default": 1},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": False,
    }
    assert tool("Oslo", days=3) == "Oslo 3"
    assert (tool.name, tool.__doc__) == ("weather", weather.__doc__)


@pytest.mark.parametrize(
    ("hint", "good", "value", "bad"),
    [
        (str, "a", "a", 1),
        (int, 1, 1, "1"),
        (float, 1, 1.0, "x"),
        (bool, True, True, 1),
        (Optional[int], None, None, "x"),  # noqa: UP045 the old form is tested too
        (int | str, "x", "x", []),
        (Literal["a", "b"], "a", "a", "c"),
        (Color, "red", Color.RED, "green"),
        (list[int], [1], [1], ["x"]),
        (list[Color], ["blue"], [Color.BLUE], ["x"]),
        (dict[str, float], {"a": 1}, {"a": 1.0}, {"a": "x"}),
        (tuple[int, str], [1, "a"], (1, "a"), [1]),
        (set[int], [1, 2], {1, 2}, 3),
        (Place, {"city": "Rome"}, Place("Rome"), {"town": "Rome"}),
        (list[Place], [{"city": "Rome", "zip_code": 1}], [Place("Rome", 1)], [{}]),
        (Options, {"unit": "C"}, {"unit": "C"}, {"digits": 1}),
        (
            Trip,
            {"start": {"city": "A"}, "end": {"city": "B"}},
            Trip(Place("A"), Place("B")),
            {"start": {"city": "A"}},
        ),
        (datetime.date, "2026-01-02", datetime.date(2026, 1, 2), "soon"),
        (Annotated[int, msgspec.Meta(ge=1)], 1, 1, 0),
        (Any, {"any": ["thing"]}, {"any": ["thing"]}, None),
    ],
)
def test_a_type_becomes_a_schema_and_what_a_model_gives_becomes_the_type(
    hint: Any, good: Any, value: Any, bad: Any
) -> None:
    def take(it: Any) -> Any:
        return it

    take.__annotations__["it"] = hint
    tool = function_tool(take)
    prepare_tools([tool], ToolLimits())  # it passes the checks of every tool
    check = jsonschema_rs.validator_for(tool["parameters"])
    assert check.is_valid({"it": good})
    assert tool.run({"it": good}) == value
    if bad is not None:
        assert not check.is_valid({"it": bad}) or hint is datetime.date
        with pytest.raises(errors.InvalidArguments, match="the arguments do not fit"):
            tool.run({"it": bad})


def test_types_that_are_used_twice_are_defined_once() -> None:
    def go(trip: Trip, home: Place) -> None: ...

    made = parameters(go)
    assert set(made["$defs"]) == {"Trip", "Place"}
    assert made["properties"]["home"]["$ref"] == "#/$defs/Place"
    assert made["$defs"]["Place"]["description"] == "A place on earth."


def test_what_a_model_leaves_out_has_the_functions_own_default() -> None:
    marker = object()

    def take(a: int, b: list[int] = [1, 2], c: str | None = None, d: Any = marker) -> Any:  # noqa: B006 a default like any other
        return a, b, c, d

    tool = function_tool(take)
    assert tool.run({"a": 1}) == (1, [1, 2], None, marker)
    properties = tool["parameters"]["properties"]
    assert properties["b"]["default"] == [1, 2]
    assert "default" not in properties["d"]


def test_a_missing_or_an_unknown_argument_is_the_models_mistake() -> None:
    def take(a: int) -> int:
        return a

    tool = function_tool(take)
    with pytest.raises(errors.InvalidArguments, match="missing required field a"):
        tool.run({})
    with pytest.raises(errors.InvalidArguments, match="unknown field b"):
        tool.run({"a": 1, "b": 2})


def test_a_description_may_stand_at_the_type() -> None:
    def take(
        a: Annotated[int, "How many."], b: Annotated[str, msgspec.Meta(description="B.")]
    ) -> None:
        """Take.

        :param a: Something else.
        """

    properties = parameters(take)["properties"]
    assert properties["a"]["description"] == "How many."
    assert properties["b"]["description"] == "B."


def test_name_and_description_may_be_given() -> None:
    def take() -> None:
        """Take."""

    tool = function_tool(take, name="grab", description="Grab it.")
    assert (tool["name"], tool["description"]) == ("grab", "Grab it.")
    assert tool["parameters"]["properties"] == {}


def test_a_strict_tool_requires_every_parameter() -> None:
    def take(place: Place, days: int = 1) -> None: ...

    made = parameters(take, strict=True)
    assert made["required"] == ["place", "days"]
    assert made["$defs"]["Place"]["required"] == ["city", "zip_code"]
    assert made["$defs"]["Place"]["additionalProperties"] is False
    assert "default" not in str(made)
    assert function_tool(take, strict=True)["strict"] is True


def test_a_dict_with_any_keys_cannot_be_strict() -> None:
    def take(values: dict[str, int]) -> None: ...

    with pytest.raises(errors.BadTool, match="cannot be strict"):
        function_tool(take, strict=True)


class Custom:
    pass


def bare(a) -> None: ...  # type: ignore[no-untyped-def]  # that is what is tested
def several(*a: int) -> None: ...
def named(**a: int) -> None: ...
def positional(a: int, /) -> None: ...
def custom(a: Custom) -> None: ...
def functions(a: Callable[[], int]) -> None: ...
def two_objects(a: Place | Trip) -> None: ...
def reserved(__a: int) -> None: ...
def final(a: Final[int] = 3) -> None: ...  # type: ignore[valid-type]  # that is what is tested
def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 that is what is tested


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (bare, "its parameter a has no type hint"),
        (several, r"\*a: int cannot be given by one name"),
        (named, r"\*\*a: int cannot be given by one name"),
        (positional, "a: int cannot be given by one name"),
        (custom, r"its parameter a is of a type that JSON has no form of \(Custom\)"),
        (functions, "its parameter a is of a type that JSON has no form of"),
        (two_objects, "its parameter a .* more than one dict-like type"),
        (reserved, "its parameters cannot be read from JSON"),
        (final, "its parameters cannot be read from JSON"),
        (unknown, "its type hints cannot be read: name 'Nowhere' is not defined"),
        (print, "cannot be given by one name"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_has_no_form_in_json_schema_is_refused_by_name(
    function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(errors.BadTool, match=why) as refusal:
        function_tool(function)
    assert refusal.value.tool == function.__name__


def test_methods_partials_and_callable_objects_are_functions_too() -> None:
    class Scale:
        """Scales numbers."""

        def scale(self, number: int) -> int:
            """Scale a number."""
            return number * 2

        def __call__(self, number: int) -> int:
            return number * 3

    assert function_tool(Scale().scale).run({"number": 2}) == 4
    scaled = function_tool(Scale(), name="scale")
    assert (scaled.run({"number": 2}), scaled["description"]) == (6, "Scales numbers.")

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    one_more = function_tool(functools.partial(add, b=1), name="one_more")
    assert one_more.run({"a": 2}) == 3
    assert one_more["description"] == "Add."
    assert one_more["parameters"]["required"] == ["a"]


def test_a_partial_has_the_name_of_its_function() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    assert function_tool(functools.partial(functools.partial(add, 1), b=2)).name == "add"


def test_a_function_without_a_name_is_refused_until_it_gets_one() -> None:
    with pytest.raises(errors.BadTool, match="give name="):
        function_tool(lambda: 1)
    assert function_tool(lambda: 1, name="one").run({}) == 1


def test_the_decorator_takes_options_too() -> None:
    @function_tool(name="other", strict=True)
    def take(a: int = 1) -> int:
        return a

    assert (take.name, take["strict"], take["parameters"]["required"]) == ("other", True, ["a"])
    assert take.run({"a": 2}) == 2


def test_a_whole_number_with_a_point_is_an_integer_as_json_schema_has_it() -> None:
    def take(a: int, b: list[int], c: float = 0.5, d: int | str = 1) -> Any:
        return a, b, c, d

    tool = function_tool(take)
    given = tool.run({"a": 1.0, "b": [2.0, 3], "c": 4.0, "d": 5.0})
    assert given == (1, [2, 3], 4.0, 5)
    assert [type(one) for one in given] == [int, list, float, int]
    with pytest.raises(errors.InvalidArguments, match=r"Expected int, got float - at \$.a"):
        tool.run({"a": 1.5, "b": [2.0]})


def test_a_parameter_that_is_none_by_default_may_be_given_as_null() -> None:
    # As people write it.
    def take(a: Annotated[int, "How many."] = None, b: Color = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return a, b

    assert function_tool(take).run({"a": None, "b": None}) == (None, None)
    assert function_tool(take).run({"a": 2, "b": "red"}) == (2, Color.RED)
    field = parameters(take)["properties"]["a"]
    assert field.pop("description") == "How many."
    assert field == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}


def test_a_tool_of_a_tool_is_the_same_tool() -> None:
    @function_tool
    def take(a: int) -> int:
        return a

    assert isinstance(take, FunctionTool)
    assert function_tool(take, name="other").run({"a": 1}) == 1


# With the tool loop.


def speak(plan: Plan) -> Script:
    """Call `weather` for two cities, one of them wrongly; then repeat what came of it."""
    results = [item for item in plan.items if item.get("type") == "function_call_output"]
    if results:
        yield TextGrew(" | ".join(text_of(item["output"]) for item in results))
    else:
        for key, arguments in enumerate(('{"place": {"city": "Rome"}}', '{"place": "Rome"}')):
            yield CallOpened(key, "weather")
            yield CallGrew(key, arguments)
    yield [Stopped("stop")]


@pytest.mark.parametrize("kind", KINDS)
async def test_functions_are_offered_run_and_their_arguments_converted(kind: str) -> None:
    def weather(place: Place, days: int = 2) -> str:
        """Return the weather of a place."""
        return f"{place.city}, {days} days: sun"

    backend = ScriptedBackend(speak, models=["m"])
    async with serve_gateway(backend) as gateway:
        run = await _run(kind, gateway.base_url, [weather])

    wrong = "the arguments do not fit: Expected object, got str - at $.place"
    assert run.response.output_text == f"Rome, 2 days: sun | {wrong}"
    offered = run.response.tools
    assert [tool["name"] for tool in offered] == ["weather"]
    assert offered[0]["description"] == "Return the weather of a place."


async def _run(kind: str, base_url: str, functions: Any) -> Any:
    from antiphon.client import AsyncClient, Client, run_tools_sync

    if kind == "async":
        async with AsyncClient(base_url=base_url) as client:
            return await run_tools(client, functions, model="m", input="The weather?")

    def work() -> Any:
        with Client(base_url=base_url) as client:
            return run_tools_sync(client, functions, model="m", input="The weather?")

    return await asyncio.to_thread(work)


async def test_an_async_function_may_fail_for_the_model_to_know() -> None:
    @function_tool
    async def weather(place: Place) -> str:
        raise ToolFailed(f"there is no {place.city}")

    async with serve_gateway(ScriptedBackend(speak, models=["m"])) as gateway:
        run = await _run("async", gateway.base_url, weather)
    assert run.response.output_text.startswith("there is no Rome | ")


async def test_two_functions_of_one_name_are_refused() -> None:
    def weather(place: Place) -> None: ...

    with pytest.raises(errors.BadTool, match="two functions of this name"):
        await _run("async", "http://127.0.0.1:9/v1", [weather, weather])
