"""Is the text what `text.format` asked for?

Schemas come from callers: they are compiled without fetching anything, and their patterns run
on an engine that takes linear time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import jsonschema_rs
import msgspec

from antiphon.protocol.errors import InvalidRequest

__all__ = ["FormatCheck"]


class FormatCheck:
    """Checks one answer. `is_binding`: a miss is a failure, not a remark."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        self._validator: jsonschema_rs.Validator | None = None
        self.is_binding = form["type"] == "json_object" or bool(form.get("strict"))
        if form["type"] == "json_schema":
            self._validator = _compile(form["schema"])

    def problem(self, text: str) -> str | None:
        """Return what is wrong with the text, or None."""
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            return f"text.format: the answer is not JSON ({error})"
        if self._validator is None:
            return None if isinstance(value, dict) else "text.format: the answer is no JSON object"
        for miss in self._validator.iter_errors(value):
            path = "".join(f"[{step!r}]" for step in miss.instance_path) or "its top"
            return f"text.format: the answer does not match the schema at {path}"
        return None


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refuse_fetch,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidRequest(
            f"text.format.schema is not a usable JSON Schema: {str(error).splitlines()[0]}",
            code="invalid_schema",
            param="text.format.schema",
        ) from None


def _refuse_fetch(uri: str) -> NoReturn:
    raise ValueError(f"a schema may not refer to {uri!r}: nothing is fetched")
