"""What did the model mean to put into a call, whatever it wrapped it in?

A custom tool takes plain text, but the model was shown a function with one argument, `input`,
and models write what they like:

    | what came                          | the input                                     |
    |------------------------------------|-----------------------------------------------|
    | an object with `input` in it       | that string; no custom tool has other fields  |
    | an object with one string in it    | that string                                   |
    | a JSON string                      | the string, or what it wraps if it wraps again|
    | anything else                      | the text as it is                             |

The arguments of a function may come as a string that holds them.
"""

from __future__ import annotations

from antiphon.protocol.codec import decode_json

__all__ = ["is_object", "unwrap_arguments", "unwrap_input"]


def unwrap_input(text: str) -> str:
    """Return the input of a custom tool from the arguments of the function it was shown as."""
    value = decode_json(text)
    if isinstance(value, str):
        return unwrap_input(value) if isinstance(decode_json(value), dict) else value
    if not isinstance(value, dict):
        return text
    strings = [entry for entry in value.values() if isinstance(entry, str)]
    given = value.get("input", strings[0] if len(value) == len(strings) == 1 else None)
    return given if isinstance(given, str) else text


def unwrap_arguments(text: str) -> str:
    """Return the arguments without the string around them, if there is one and it holds JSON."""
    if not text.lstrip().startswith('"'):
        return text
    value = decode_json(text)
    if isinstance(value, str) and isinstance(decode_json(value), dict):
        return value
    return text


def is_object(text: str) -> bool:
    """Return whether this is a JSON object, which is all that arguments may be."""
    return isinstance(decode_json(text), dict)
