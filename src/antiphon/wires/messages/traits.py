"""What does a model behind the Messages API take? As its server states it, or by its name.

`GET /v1/models` states most of it (`read_traits`). Where it does not, the table below knows from
which version on the lines of Claude have a trait. A model whose name is not Claude's is taken for
one of an open server (llama.cpp, vLLM, Ollama): it takes what the API has long had.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from antiphon.models.table import find_facts

__all__ = ["EFFORTS", "OPEN", "Stated", "Traits", "read_traits", "traits_of"]

_Version = tuple[int, int]

# An answer of more tokens than the rest of its window has is refused by some open servers.
_MOST_ASSUMED: Final = 32_000
EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_EVER: Final = (0, 0)
_NEVER: Final = (99, 0)
_NAME: Final = re.compile(
    r"claude-(?P<line>[a-z]+)-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)"
)
_OLD_NAME: Final = re.compile(
    r"claude-(?P<major>\d)(?:[-.](?P<minor>\d))?-(?P<line>[a-z]+)(?![a-z])"
)


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What one model takes. The defaults are those of an open server."""

    max_tokens: int | None = None
    """How long an answer may be, as far as it is known."""
    limit: int | None = None
    """The same if the server states it: more would be refused."""
    summarises: bool = False
    """Whether it shows a summary of what it thought, not the thought itself."""
    adaptive: bool = False
    """Whether it decides itself how much to think (`thinking.type` "adaptive")."""
    budget: bool = True
    """Whether it takes a budget to think (`thinking.type` "enabled")."""
    disabled: bool = True
    between_tools: bool = False
    efforts: tuple[str, ...] = ()
    """The levels of `output_config.effort`, least first."""
    sampling: bool = True
    both_samplers: bool = True
    """Whether temperature and top_p may be set together."""
    forced_choice: bool = True
    """Whether tool_choice may force a call."""
    json_schema: bool = False
    """Whether it is bound to schemas: of the answer, and of strict tools."""
    mid_system: bool = False
    """Whether a system message may stand inside the conversation."""


OPEN: Final = Traits()


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """What a server states of a model. None: not stated."""

    max_tokens: int | None = None
    limit: int | None = None
    adaptive: bool | None = None
    budget: bool | None = None
    disabled: bool | None = None
    between_tools: bool | None = None
    efforts: tuple[str, ...] | None = None
    json_schema: bool | None = None


class _Since(msgspec.Struct, frozen=True):
    """From which version on a line has a trait. Lines that are not named have `others`."""

    opus: _Version
    sonnet: _Version
    haiku: _Version = (5, 0)
    others: _Version = _EVER


_ADAPTIVE: Final = _Since((4, 6), (4, 6))
_FIXED: Final = _Since((4, 7), (5, 0), (5, 0))
"""Since when neither a budget nor sampling parameters are taken."""
_EFFORT: Final = _Since((4, 5), (4, 6))
_XHIGH: Final = _Since((4, 7), (5, 0))
_MAX: Final = _Since((4, 6), (4, 6))
_UNFORCED: Final = _Since(_NEVER, _NEVER, _NEVER)
_SCHEMA: Final = _Since((4, 1), (4, 5), (4, 5))
_THINKS: Final = _Since((4, 0), (3, 7), (4, 5))
_ONE_SAMPLER: Final = _Since((4, 1), (4, 5), (4, 5))
_MID_SYSTEM: Final = _Since((4, 9), (5, 0))


def traits_of(model: str, stated: Stated | None = None) -> Traits:
    """Return what the model takes: as its server states it, else by its name."""
    by_name = _by_name(model)
    if stated is None:
        return by_name
    fields = msgspec.structs.asdict(stated)
    return msgspec.structs.replace(
        by_name, **{name: value for name, value in fields.items() if value is not None}
    )


def read_traits(entry: Mapping[str, Any], window: int | None = None) -> Stated:
    """Return what an entry of `GET /v1/models` states.

    `window` is how long prompt and answer may be together, if the entry states it.
    """
    found = _object(entry, "capabilities")
    thinking = _object(found, "thinking")
    types, effort = _object(thinking, "types"), _object(found, "effort")
    levels = tuple(level for level in EFFORTS if _is_supported(effort, level))
    most = _count(entry, "max_tokens")
    return Stated(
        max_tokens=most or (window and min(window // 2, _MOST_ASSUMED)),
        limit=most,
        adaptive=_is_supported(types, "adaptive"),
        budget=_is_supported(types, "enabled"),
        disabled=_is_supported(types, "disabled"),
        between_tools=_is_supported(types, "between_tools"),
        efforts=levels if effort else None,
        json_schema=_is_supported(found, "structured_outputs"),
    )


@lru_cache(maxsize=1024)
def _by_name(model: str) -> Traits:
    found = _NAME.search(model) or _OLD_NAME.search(model)
    most = find_facts(model).max_output_tokens
    if found is None:
        return msgspec.structs.replace(OPEN, max_tokens=most)
    line, version = found["line"], (int(found["major"]), int(found["minor"] or 0))

    def has(since: _Since) -> bool:
        first: _Version = getattr(since, line) if line in _LINES else since.others
        return version >= first

    levels = {"low": _EFFORT, "medium": _EFFORT, "high": _EFFORT, "xhigh": _XHIGH, "max": _MAX}
    return Traits(
        max_tokens=most,
        summarises=True,
        adaptive=has(_ADAPTIVE),
        budget=has(_THINKS) and not has(_FIXED),
        efforts=tuple(level for level in EFFORTS if has(levels[level])),
        sampling=not has(_FIXED),
        both_samplers=not has(_ONE_SAMPLER),
        forced_choice=not has(_UNFORCED),
        json_schema=has(_SCHEMA),
        mid_system=has(_MID_SYSTEM),
    )


_LINES: Final = frozenset({"opus", "sonnet", "haiku"})


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _count(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    return value if type(value) is int and value > 0 else None


def _is_supported(fields: Mapping[str, Any], name: str) -> bool | None:
    value = _object(fields, name).get("supported")
    return value if isinstance(value, bool) else None
