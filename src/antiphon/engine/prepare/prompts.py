"""What does a prompt template say? Templates come from the settings; a request names one.

`{{name}}` in a template stands for a variable of the request, which must be a text. The result is
the instructions of the turn; instructions of the request itself come after it. Nothing is left
open: an unknown template is 404, a missing or unknown variable 400.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.protocol.request import CreateResponse

__all__ = ["PromptTemplate", "apply_prompt"]

_VARIABLE: Final = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")


class PromptTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template of instructions. Configurable under `[prompts.NAME]`."""

    instructions: str
    version: str = "1"
    """What a request may ask for; another version is not found."""


def apply_prompt(request: CreateResponse, templates: Mapping[str, PromptTemplate]) -> None:
    """Put the instructions of the template that the request names into the request."""
    given = request.prompt
    if given is None:
        return
    name, version = given.get("id"), given.get("version")
    found = templates.get(name) if isinstance(name, str) else None
    if found is None or version not in (None, found.version):
        which = f"'{name}'" if version is None else f"'{name}', version '{version}',"
        raise NotFound(
            f"Prompt with id {which} not found.", code="prompt_not_found", param="prompt"
        )
    text = _fill(found.instructions, _variables(given.get("variables")))
    own = request.instructions
    request.instructions = f"{text}\n\n{own}" if own else text


def _variables(given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _invalid("prompt.variables", "must be an object")
    return {str(name): _text_of(str(name), value) for name, value in given.items()}


def _text_of(name: str, value: Any) -> str:  # any JSON value
    if isinstance(value, dict) and value.get("type") == "input_text":
        value = value.get("text")
    if not isinstance(value, str):
        raise _invalid(f"prompt.variables.{name}", "must be a text; images and files are not taken")
    return value


def _fill(template: str, variables: Mapping[str, str]) -> str:
    wanted = set(_VARIABLE.findall(template))
    for name in sorted(wanted ^ variables.keys()):
        why = "is missing" if name in wanted else "is no variable of this template"
        raise _invalid(f"prompt.variables.{name}", why)
    return _VARIABLE.sub(lambda match: variables[match.group(1)], template)


def _invalid(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param} {why}", code="invalid_value", param=param)
