"""Does a call of an MCP tool need the caller's approval?

`require_approval` of the tool decides: absent or null means always. A filter without names
matches every tool; a tool that only one of the two filters matches follows that one; a tool
that both match is a contradiction. A tool that none matches needs approval, unless only the
filter `always` is given. `read_only` is a claim of the server: it counts for `never` only where
the operator trusts the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.protocol.errors import InvalidRequest, invalid

__all__ = ["ApprovalRule", "ToolFilter", "read_filter", "read_rule"]


class ToolFilter(msgspec.Struct, frozen=True):
    """Which tools are meant: by name, and by whether the server calls them read-only."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def matches(self, name: str, *, is_read_only: bool) -> bool:
        """Return whether this tool is meant."""
        if self.names is not None and name not in self.names:
            return False
        return self.read_only is None or self.read_only == is_read_only


class ApprovalRule(msgspec.Struct, frozen=True):
    """`require_approval` of one tool. Without any filter, every call needs approval."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def needs_approval(self, name: str, *, is_read_only: bool, trusts_read_only: bool) -> bool:
        """Return whether a call of this tool needs approval. If both filters match, it does.

        `is_read_only` is what the server claims.
        """
        if _applies(self.always, name, is_read_only=is_read_only):
            return True
        if _applies(self.never, name, is_read_only=is_read_only):
            return self.uses_read_only and not trusts_read_only
        return self.always is None or self.never is not None

    @property
    def uses_read_only(self) -> bool:
        """Whether a claim of the server could save an approval."""
        return self.never is not None and self.never.read_only is not None


def read_rule(value: object, where: str) -> ApprovalRule:
    """Return what `require_approval` means. Raise InvalidRequest if it has no meaning."""
    param = f"{where}.require_approval"
    if value is None or value == "always":
        return ApprovalRule()
    if value == "never":
        return ApprovalRule(never=ToolFilter())
    if not isinstance(value, dict) or not {"always", "never"}.issuperset(value):
        raise invalid(param, "must be always, never, or an object with these two as filters")
    always, never = (_filter_of(value, name, param) for name in ("always", "never"))
    _refuse_contradiction(always, never, where)
    return ApprovalRule(always, never)


def read_filter(value: object, param: str) -> ToolFilter:
    """Return a filter of the form [names] or {tool_names, read_only}."""
    if isinstance(value, list):
        return ToolFilter(_names(value, param))
    if not isinstance(value, dict) or not {"tool_names", "read_only"}.issuperset(value):
        raise invalid(param, "must be a list of names, or an object of tool_names and read_only")
    names, read_only = value.get("tool_names"), value.get("read_only")
    if read_only is not None and not isinstance(read_only, bool):
        raise invalid(f"{param}.read_only", "must be true or false", "invalid_type")
    return ToolFilter(None if names is None else _names(names, f"{param}.tool_names"), read_only)


def _filter_of(value: Mapping[str, Any], name: str, param: str) -> ToolFilter | None:
    given = value.get(name)
    if given is None:
        return None
    if not isinstance(given, dict):
        raise invalid(f"{param}.{name}", "must be an object of tool_names and read_only")
    return read_filter(given, f"{param}.{name}")


def _names(value: object, param: str) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise invalid(param, "must be a list of names of tools", "invalid_type")
    return frozenset(value)


def _refuse_contradiction(always: ToolFilter | None, never: ToolFilter | None, where: str) -> None:
    """Refuse, before any server is asked, filters that certainly contradict each other."""
    if always is None or never is None or None not in (always.read_only, never.read_only):
        return
    if always.read_only is not None or never.read_only is not None:
        return  # which tools these match is known only when the server has listed them
    both = always.names if never.names is None else never.names
    if always.names is not None and never.names is not None:
        both = always.names & never.names
    if both is None or both:
        named = f"'{min(both)}'" if both else "every tool"
        raise InvalidRequest(
            f"{where}.require_approval has {named} under always and under never",
            code="invalid_value",
            param=f"{where}.require_approval",
        )


def _applies(rule: ToolFilter | None, name: str, *, is_read_only: bool) -> bool:
    return rule is not None and rule.matches(name, is_read_only=is_read_only)
