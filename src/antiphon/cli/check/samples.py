"""What the cases of every API ask for, in words and values."""

from __future__ import annotations

from typing import Final

from antiphon.cli.check.case import Json

__all__ = [
    "BIRD_JSON",
    "BIRD_SCHEMA",
    "CITY_JSON",
    "CITY_SCHEMA",
    "HELLO",
    "NO_MODEL",
    "NUMBERS",
    "RED_SQUARE",
    "TOOL_ABOUT",
    "TOOL_NAME",
    "TWO_CITIES",
    "WEATHER",
]

HELLO: Final = "Say hello."
NUMBERS: Final = (
    "Repeat these words: one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty twenty-one twenty-two"
)
NO_MODEL: Final = "there-is-no-such-model"

TOOL_NAME: Final = "get_weather"
TOOL_ABOUT: Final = "Tell the weather in a city."
CITY_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CITY_JSON: Final = '{"city": "Paris"}'
WEATHER: Final = "How is the weather in Paris?"
TWO_CITIES: Final = "How is the weather in Paris and in Oslo? Ask for both at once."

BIRD_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {"bird": {"type": "string"}, "legs": {"type": "integer"}},
    "required": ["bird", "legs"],
    "additionalProperties": False,
}
BIRD_JSON: Final = '{"bird": "heron", "legs": 2}'

RED_SQUARE: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEU"
    "lEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII="
)
"""A PNG image of 8 by 8 pixels, in base64."""
