"""Is the text what `text.format` asked for?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.engine.prepare.schemas import NO_JSON, SchemaCheck, decode, schema_check

__all__ = ["FormatCheck"]


class FormatCheck:
    """Checks one answer. `is_binding`: a miss is a failure, not a remark."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        self._schema: SchemaCheck | None = None
        self.is_binding = form["type"] == "json_object" or bool(form.get("strict"))
        if form["type"] == "json_schema":
            self._schema = schema_check(form["schema"], "text.format.schema")

    def problem(self, text: str) -> str | None:
        """Return what is wrong with the text, or None."""
        value = decode(text)
        if value is NO_JSON:
            return "text.format: the answer is not JSON"
        if self._schema is None:
            return None if isinstance(value, dict) else "text.format: the answer is no JSON object"
        miss = self._schema.miss(value)
        if miss is None:
            return None
        return f"text.format: the answer does not match the schema at {miss.where}"

    def advice(self, text: str) -> str | None:
        """Return the instruction for a model that must try again, or None if the text is valid."""
        value = decode(text)
        problem = self.why_unchecked(text) or self.problem(text)
        if problem is None or self._schema is None or value is NO_JSON:
            return problem
        miss = self._schema.miss(value)
        return f"{problem}: {miss.why}" if miss is not None else problem

    def why_unchecked(self, text: str) -> str | None:
        """Return why a text is not held against the schema at all, or None."""
        if self._schema is not None and self._schema.is_too_deep(decode(text)):
            return "text.format: the answer is nested too deep to check it by this schema"
        return None
