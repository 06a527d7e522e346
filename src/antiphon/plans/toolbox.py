"""What may be called in a turn, and under which name does the model know it?

Models behind a chat API know functions alone, in one flat list, with names of letters, digits,
`_` and `-`. Callers have more: custom tools, namespaces, shells, patches, a search for further
tools; and they offer tools in the middle of a conversation too, in `additional_tools` items
and in what a search found. A toolbox gathers all that can be called and gives each tool an
alias: its own name where that will do, else one that is made of it and always the same.

Which tools there are is decided here, and which are meant by tool_choice in `tool_choice`; how a
tool looks as a function is the chat wire's business (`wires.lower`). Rule: nothing is dropped
in silence.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from antiphon.plans.aliases import free_alias, is_plain
from antiphon.plans.hosted_functions import HostedFunction
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.families import FAMILIES, Kind
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.response import MOST_NOTES
from antiphon.protocol.thread import Thread
from antiphon.protocol.tool_list import Derived, ToolList
from antiphon.protocol.tools import Tool, check_shape
from antiphon.protocol.unknown import MOST_HINTS, nearest_name

__all__ = ["DeclaredTool", "Offer", "Toolbox", "gather_tools"]

_MAX_OFFERS: Final = 2048
_PROGRAMS: Final = "programmatic_tool_calling"
_PROGRAM: Final = "programmatic"
_FOR_PROGRAMS: Final = frozenset({"code_interpreter", "mcp", "shell"})
"""The kinds of tools run here that programs may call; the API has no others."""
_NOT_FOR_PROGRAMS: Final = "programs cannot call this kind of tool"
_NO_PROGRAMS: Final = "only a program may call it, and no programs run here"
_CARRIERS: Final = frozenset({"additional_tools", "tool_search_output"})

_COMMON: Final = frozenset(
    {"type", "name", "description", "defer_loading", "allowed_callers", "cache_control"}
)
_FIELDS: Final[dict[str, frozenset[str]]] = {
    "function": _COMMON | {"parameters", "strict"},
    "custom": _COMMON | {"format"},
    "namespace": frozenset({"type", "name", "description", "tools"}),
    "shell": frozenset({"type", "environment", "allowed_callers"}),
    "local_shell": frozenset({"type"}),
    "apply_patch": frozenset({"type", "allowed_callers"}),
    "computer": frozenset({"type", "allowed_callers"}),
    "tool_search": frozenset({"type", "description", "execution", "parameters"}),
}


class Offer(msgspec.Struct, frozen=True):
    """A tool that can be called. `where` is its place in the request, for reports."""

    kind: Kind
    name: str
    namespace: str | None
    alias: str
    tool: Tool
    where: str
    about: str = ""
    """The description of the namespace."""


class DeclaredTool(NamedTuple):
    """A tool that is run here, as the caller wrote it, and its place in the request."""

    tool: Tool
    where: str


class _Found(NamedTuple):
    """A tool as it was found, before it is known whether it can be offered."""

    kind: Kind
    namespace: str | None
    name: str
    tool: Tool
    where: str
    about: str
    is_loaded: bool

    @property
    def identity(self) -> tuple[str, str | None, str]:
        return self.kind, self.namespace, self.name


class _Rest:
    """What is found beside the tools that the caller runs."""

    def __init__(
        self,
        upstream_kinds: frozenset[str],
        hosted_kinds: frozenset[str],
        *,
        runs_programs: bool = False,
    ) -> None:
        self.runs_programs = runs_programs
        self.upstream: list[Tool] = []
        self.hosted: list[DeclaredTool] = []
        self.report: list[str] = []
        self._upstream_kinds = upstream_kinds
        self._hosted_kinds = hosted_kinds

    def passes_on(self, kind: str) -> bool:
        """Return whether the upstream knows tools of this kind itself."""
        return kind in self._upstream_kinds

    def take(self, tool: Any, kind: object, where: str, why: str, *, is_alone: bool) -> None:
        """Take a tool that the caller does not run; report `why`, if no one else runs it.

        Only one that stands alone, outside any namespace, is passed on.
        """
        name = kind if is_alone and isinstance(kind, str) else ""
        if name in self._upstream_kinds:
            self.upstream.append(tool)
        elif name in self._hosted_kinds and not _is_local_shell(tool):
            self._take_hosted(tool, name, where)
        else:
            self.report.append(f"{where} ({kind}): {why}")

    def _take_hosted(self, tool: Tool, kind: str, where: str) -> None:
        """Take a tool that is run here, if the model or a program may call it."""
        is_for_programs = kind in _FOR_PROGRAMS and _allows(tool, _PROGRAM)
        if _allows(tool, _PROGRAM) and not is_for_programs:
            self.report.append(f"{where}.allowed_callers: {_NOT_FOR_PROGRAMS}")
        if _allows(tool, "direct") or (is_for_programs and self.runs_programs):
            self.hosted.append(DeclaredTool(tool, where))
        elif is_for_programs:
            self.report.append(f"{where} ({kind}): {_NO_PROGRAMS}")


class Toolbox:
    """The tools of one turn, in the order in which the model is shown them."""

    def __init__(
        self,
        offers: Sequence[Offer] = (),
        deferred: Sequence[str] = (),
        upstream: Sequence[Tool] = (),
        hosted: Sequence[DeclaredTool] = (),
        functions: Mapping[str, HostedFunction] | None = None,
        hidden: Sequence[Offer] = (),
        programmatic: Sequence[Offer] = (),
    ) -> None:
        self.offers = tuple(offers)
        """What the model can call: the tools that the caller runs, then hosted functions."""
        self.deferred = tuple(deferred)
        """What a search may find: names of tools and namespaces that are not offered yet."""
        self.upstream = tuple(upstream)
        """What the upstream runs itself, as the caller wrote it."""
        self.declared = tuple(hosted)
        """What is run here, with its place in the request."""
        self.hosted = tuple(declared.tool for declared in hosted)
        """What is run here, as the caller wrote it."""
        self.functions: Mapping[str, HostedFunction] = functions or {}
        """What the model is shown for that, by alias; see `hosted_offers`."""
        self.hidden = tuple(hidden)
        """What a search that is run here may find, and `load_hidden` then offers."""
        self.programmatic = tuple(programmatic)
        """The functions of the caller's that programs may call; some of them are no offers."""
        self.kinds = frozenset(tool["type"] for tool in (*self.upstream, *self.hosted))
        """The kinds of tools that the caller does not run; tool_choice means them by their kind."""
        self.derived = Derived()
        self._by_alias = {offer.alias: offer for offer in self.offers}
        self.aliases = frozenset(self._by_alias)
        self._by_identity = {
            (offer.kind, offer.namespace, offer.name): offer for offer in self.offers
        }
        self._by_function = {
            (function.namespace, function.name): alias for alias, function in self.functions.items()
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Toolbox):
            return NotImplemented
        return self._parts == other._parts

    @property
    def _parts(self) -> tuple[object, ...]:
        parts = self.offers, self.deferred, self.upstream, self.hosted, self.functions
        return *parts, self.hidden, self.programmatic

    __hash__ = None  # type: ignore[assignment]  # offers hold JSON objects

    @property
    def names(self) -> tuple[Hashable, ...]:
        """What each tool and each hosted function is, and its alias: all that aliases depend on."""
        offers = ((one.kind, one.namespace, one.name, one.alias) for one in self.offers)
        return *offers, *self._by_function.items()

    def called(self, alias: str) -> Offer | None:
        """Return the tool that a model calls by this name.

        Models also call a tool by the name it has without its namespace: if there is only one
        of that name, that is the one.
        """
        known = self._by_alias.get(alias)
        if known is not None:
            return known
        same = [offer for offer in self.offers if offer.name == alias]
        return same[0] if len(same) == 1 else None

    def find(self, kind: Kind, namespace: str | None, name: str) -> Offer | None:
        """Return a tool by what the caller knows it as."""
        return self._by_identity.get((kind, namespace, name))

    def alias_of(self, kind: Kind, namespace: str | None, name: str) -> str:
        """Return what the model knows a tool as, also one that is no longer offered."""
        known = self.find(kind, namespace, name)
        if known is not None:
            return known.alias
        if kind == "tool_search" and (None, name) in self._by_function:
            return self._by_function[None, name]  # a search that is run here
        return free_alias(kind, namespace, name, self._by_alias)

    @property
    def serves_programs(self) -> bool:
        """Whether programs may call a tool that is run here."""
        return any(
            tool["type"] in _FOR_PROGRAMS and _allows(tool, _PROGRAM) for tool in self.hosted
        )

    def may_call(self, caller: Literal["direct", "programmatic"], function: HostedFunction) -> bool:
        """Return whether the model (`direct`) or a program may call a hosted function."""
        tools = [tool for tool in self.hosted if _declares(tool, function)]
        return any(_allows(tool, caller) for tool in tools) if tools else caller == "direct"

    def hosted_alias(self, namespace: str | None, name: str) -> str:
        """Return a name for calls that a server ran itself.

        No tool here has it, but the hosted function that the call was made to, or the computer
        of the caller.
        """
        known = self._by_function.get((namespace, name))
        if name == "computer" and (offer := self.find("computer", None, name)) is not None:
            known = offer.alias
        return known or free_alias("hosted", namespace, name, self._by_alias)


_NO_TOOLS: Final = Toolbox()


def gather_tools(
    tools: Sequence[Tool],
    items: Sequence[Item] = (),
    upstream: frozenset[str] = frozenset(),
    hosted: frozenset[str] = frozenset(),
) -> tuple[Toolbox, list[str]]:
    """Return what can be called, and a report of what cannot be honoured.

    `upstream` and `hosted` are the kinds of tools that the upstream runs, and that are run here.
    Raise InvalidRequest if two tools of the request are one and the same. What comes later in
    the conversation takes the place of what was offered under the same name before.
    """
    carriers = _carriers(items)
    if carriers or not isinstance(tools, ToolList):
        return _gather(tools, carriers, upstream, hosted)
    toolbox, report = tools.derived.get(
        (gather_tools, upstream, hosted), lambda: _gather(tools, (), upstream, hosted)
    )
    return toolbox, report.copy()


def _gather(
    tools: Sequence[Tool],
    carriers: Sequence[tuple[int, Item]],
    upstream: frozenset[str],
    hosted: frozenset[str],
) -> tuple[Toolbox, list[str]]:
    if not tools and not carriers:
        return _NO_TOOLS, []
    rest = _Rest(upstream, hosted, runs_programs=_runs_programs(tools, upstream, hosted))
    report = rest.report
    found: dict[tuple[str, str | None, str], _Found] = {}
    for entry in _walk(tools, "tools", rest, is_loaded=False):
        if entry.identity in found:
            raise InvalidRequest(
                f"two tools are named '{entry.name}'", code="duplicate_tool", param="tools"
            )
        found[entry.identity] = entry
    for entry in _carried(carriers, rest):
        before = found.get(entry.identity)
        is_loaded = entry.is_loaded or (before is not None and before.is_loaded)
        found[entry.identity] = entry._replace(is_loaded=is_loaded)
    _refuse_too_many(found)
    shown, deferred = list(found.values()), []
    searches_here = any(one.tool["type"] == "tool_search" for one in rest.hosted)
    if searches_here or any(entry.kind == "tool_search" for entry in shown):
        deferred = [entry for entry in shown if _is_deferred(entry)]
        shown = [entry for entry in shown if not _is_deferred(entry)]
    if not any(tool["type"] == "tool_search" for tool in rest.upstream):
        report += [
            f"{entry.where}.defer_loading: nothing here could load it later"
            for entry in shown
            if _is_deferred(entry)
        ]
    names = dict.fromkeys(entry.namespace or entry.name for entry in deferred)
    findable = deferred if searches_here else []
    offers = list(_offer([*shown, *findable]))
    hidden = offers[len(shown) :]
    offers = offers[: len(shown)]
    programmatic = [one for one in offers if rest.runs_programs and _is_for_programs(one)]
    offers = [one for one in offers if one not in programmatic or _allows(one.tool, "direct")]
    toolbox = Toolbox(
        offers,
        list(names),
        rest.upstream,
        rest.hosted,
        hidden=hidden,
        programmatic=programmatic,
    )
    return toolbox, report


# What there is.


def _carried(carriers: Iterable[tuple[int, Item]], rest: _Rest) -> Iterator[_Found]:
    """Yield the tools that these items of the conversation carry."""
    for index, item in carriers:
        is_loaded = item_type(item) != "additional_tools"
        tools = item["tools"]
        if is_loaded:  # a search finds tools of MCP servers too: these are declared elsewhere
            tools = [tool for tool in tools if not (isinstance(tool, dict) and _is_mcp(tool))]
        yield from _walk(tools, f"input[{index}].tools", rest, is_loaded=is_loaded)


def _is_mcp(tool: Tool) -> bool:
    return tool.get("type") == "mcp"


def _carriers(items: Sequence[Item]) -> list[tuple[int, Item]]:
    if not isinstance(items, Thread):
        return [(index, item) for index, item in enumerate(items) if _carries(item)]
    if _CARRIERS.isdisjoint(items.types):
        return []  # as in most conversations
    begin, places = items.recall(_carriers) or (0, ())
    # All at once: one by one, thousands of them would be copied each time.
    places += tuple(index for index in range(begin, items.lasting) if _carries(items[index]))
    items.learn(_carriers, (items.lasting, places))
    tail = (index for index in range(items.lasting, len(items)) if _carries(items[index]))
    return [(index, items[index]) for index in (*places, *tail)]


def _carries(item: Item) -> bool:
    return item_type(item) in _CARRIERS and isinstance(item.get("tools"), list)


def _walk(tools: Sequence[Any], where: str, rest: _Rest, *, is_loaded: bool) -> Iterator[_Found]:
    for index, tool in enumerate(tools):
        place = f"{where}[{index}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == "namespace" and _is_named(tool) and isinstance(tool.get("tools") or [], list):
            _report_fields(tool, place, rest.report)
            for number, inner in enumerate(tool.get("tools") or ()):
                yield from _take(inner, tool, f"{place}.tools[{number}]", rest, is_loaded=is_loaded)
        else:
            yield from _take(tool, None, place, rest, is_loaded=is_loaded)


def _take(
    tool: Any, space: Tool | None, where: str, rest: _Rest, *, is_loaded: bool
) -> Iterator[_Found]:
    """Yield the tool if the caller runs it. `space` is the namespace that holds it."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    namespace, about = (None, "") if space is None else (space["name"], space.get("description"))
    why = _why_not(tool, kind, namespace, where, runs_programs=rest.runs_programs)
    if why is not None or (kind == "computer" and rest.passes_on(kind)):
        rest.take(tool, kind, where, why or "", is_alone=namespace is None)
        return
    is_for_programs = rest.runs_programs and _allows(tool, _PROGRAM)
    _report_fields(tool, where, rest.report, {"output_schema"} if is_for_programs else ())
    name = tool["name"] if kind in ("function", "custom") else str(kind)
    about = about if isinstance(about, str) else ""
    yield _Found(kind, namespace, name, tool, where, about, is_loaded)  # type: ignore[arg-type]  # it is in FAMILIES


def _why_not(
    tool: Any, kind: object, namespace: str | None, where: str, *, runs_programs: bool
) -> str | None:
    is_known = isinstance(kind, str) and kind in FAMILIES
    if not is_known or (namespace is not None and kind not in ("function", "custom")):
        return "it cannot be run here"
    try:
        check_shape(tool, where)  # those that items carry were never checked
    except InvalidRequest as error:
        return error.message
    if not _allows(tool, "direct") and (kind != "shell" or _is_local_shell(tool)):
        if kind != "function":
            return "programs can call functions only"
        if not runs_programs:
            return _NO_PROGRAMS
    if kind == "tool_search" and tool.get("execution") != "client":
        return "there is no search here; the tools it would find are all shown at once"
    if kind == "shell" and not _is_local_shell(tool):
        return "there is no container here to run it in"
    return None


def _runs_programs(tools: Sequence[Tool], upstream: frozenset[str], hosted: frozenset[str]) -> bool:
    """Return whether this gateway runs programs in this turn."""
    if _PROGRAMS not in hosted - upstream:
        return False
    return any(isinstance(tool, dict) and tool.get("type") == _PROGRAMS for tool in tools)


def _allows(tool: Tool, caller: str) -> bool:
    """Return whether a tool may be called by the model (`direct`) or by a program."""
    callers = tool.get("allowed_callers")
    if not isinstance(callers, list) or not callers:
        return caller == "direct"
    return caller in callers


def _declares(tool: Tool, function: HostedFunction) -> bool:
    if tool["type"] != function.kind:
        return False
    return function.kind != "mcp" or tool.get("server_label") == function.namespace


def _is_local_shell(tool: Tool) -> bool:
    """Return whether a tool is a shell of the caller's machine."""
    if tool.get("type") != "shell":
        return False
    environment = tool.get("environment")
    return not isinstance(environment, dict) or environment.get("type", "local") == "local"


def _is_for_programs(offer: Offer) -> bool:
    return offer.kind == "function" and _allows(offer.tool, _PROGRAM)


def _is_named(tool: Tool) -> bool:
    return isinstance(tool.get("name"), str) and bool(tool["name"])


def _report_fields(tool: Tool, where: str, report: list[str], honoured: Iterable[str] = ()) -> None:
    known = _FIELDS[tool["type"]].union(honoured)
    if not known.issuperset(tool):
        unknown = (name for name, value in tool.items() if value and name not in known)
        for name in islice(unknown, MOST_NOTES + 1):  # a response lists only so many
            near = nearest_name(name, known) if len(report) < MOST_HINTS else None
            hint = f": unknown parameter; did you mean {near}?" if near else ""
            report.append(f"{where}.{name}{hint}")


def _is_deferred(entry: _Found) -> bool:
    return entry.tool.get("defer_loading") is True and not entry.is_loaded


def _refuse_too_many(found: dict[tuple[str, str | None, str], _Found]) -> None:
    if len(found) > _MAX_OFFERS:
        raise InvalidRequest(
            f"there are {len(found)} tools; at most {_MAX_OFFERS} are taken",
            code="invalid_value",
            param="tools",
        )


# Under which name.


def _offer(found: Sequence[_Found]) -> Iterator[Offer]:
    """Yield the tools with their aliases. A name that will do as it is always stays."""
    kept: dict[str, _Found] = {}
    for entry in found:
        if _keeps_name(entry):
            kept.setdefault(entry.name, entry)
    taken = set(kept)
    for entry in found:
        alias = entry.name
        if kept.get(alias) is not entry:
            alias = free_alias(entry.kind, entry.namespace, entry.name, taken)
            taken.add(alias)
        yield Offer(
            entry.kind, entry.name, entry.namespace, alias, entry.tool, entry.where, entry.about
        )


def _keeps_name(entry: _Found) -> bool:
    return entry.namespace is None and is_plain(entry.name)
