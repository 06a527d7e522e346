"""Tools that Anthropic's servers run, as the hosted items of the Responses API.

    | block of a call                                         | item                            |
    |---------------------------------------------------------|---------------------------------|
    | server_tool_use web_search                              | web_search_call, a search       |
    | server_tool_use web_fetch                               | web_search_call, an opened page |
    | server_tool_use code_execution, bash_…, text_editor_…   | code_interpreter_call           |
    | mcp_tool_use                                            | mcp_call                        |
    | any other, and a result whose call is not open          | ItemPassed, `anthropic:<type>`  |

An item opens when its call is whole and closes with its result. The provider needs all blocks
back, in their order, so each item carries some of them in the field `anthropic:blocks`: the items
in a row have all of them in a row. Calls may overlap. Items close in the order in which they
opened, and each takes the blocks that have come until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.protocol.deltas import Delta, ItemClosed, ItemOpened, ItemProgressed
from antiphon.protocol.items import Item
from antiphon.wires.messages.blocks import OpaqueBlock
from antiphon.wires.messages.events import Body
from antiphon.wires.messages.history import BLOCKS

__all__ = ["INCLUDES", "ServerTools"]

INCLUDES: Final = frozenset({"web_search_call.action.sources", "code_interpreter_call.outputs"})
"""What the items hold that a caller may ask to be included."""

_RUNNING: Final = "in_progress"


class _Form(NamedTuple):
    """How calls of a tool become items: what was asked, which step follows, what came back."""

    ask: Callable[[Body], Item]
    steps: Callable[[Item], Sequence[tuple[str, dict[str, Any]]]]
    answer: Callable[[Body], dict[str, Any]]


class _Run:
    """A call that has not been reported as done."""

    def __init__(self, key: str, form: _Form, item: Item) -> None:
        self.key = key
        self.form = form
        self.item = item
        self.is_answered = False


class ServerTools:
    """The calls of one answer that its provider runs."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        """Those that are open, by the ids of their blocks, in the order in which they opened."""
        self._blocks: list[Body] = []
        """What the next item that closes carries."""
        self._count = 0

    def make(self, fields: Body) -> OpaqueBlock | None:
        """Return the block if it belongs to a call that becomes an item, else None."""
        form, name = _form_of(fields), fields.get("id")
        if form is not None and isinstance(name, str) and name not in self._runs:
            return _UseBlock(fields, self, form)
        run = self._runs.get(str(fields.get("tool_use_id")))
        return None if run is None or run.is_answered else _ResultBlock(fields, self, run)

    def begin(self, block: Body, form: _Form) -> Sequence[Delta]:
        """Take the block of a call; return how its item opens."""
        self._count += 1
        run = _Run(str(self._count), form, {**form.ask(block), "status": _RUNNING})
        self._runs[block["id"]] = run
        self._blocks.append(block)
        steps = (ItemProgressed(run.key, name, fields) for name, fields in form.steps(run.item))
        return [ItemOpened(run.key, run.item), *steps]

    def finish(self, block: Body, run: _Run) -> Sequence[Delta]:
        """Take the block of a result; return the ends of the items that nothing waits for."""
        self._blocks.append(block)
        run.is_answered = True
        answered = run.form.answer(block)
        action = {**run.item.get("action", {}), **answered.pop("action", {})}
        run.item = {**run.item, "status": "completed", **answered}
        if action:
            run.item["action"] = action
        closed: list[Delta] = []
        while self._runs and next(iter(self._runs.values())).is_answered:
            closed.append(self._close_first())
        return closed

    def end(self) -> Sequence[Delta]:
        """Return the ends of all items: something else begins, or the answer ends."""
        return [self._close_first() for _ in range(len(self._runs))]

    def _close_first(self) -> Delta:
        run = self._runs.pop(next(iter(self._runs)))
        blocks, self._blocks = self._blocks, []
        status = run.item["status"] if run.is_answered else "incomplete"
        return ItemClosed(run.key, {**run.item, "status": status, BLOCKS: blocks})


class _UseBlock(OpaqueBlock):
    """A call of a tool that the provider runs."""

    def __init__(self, fields: Body, tools: ServerTools, form: _Form) -> None:
        super().__init__(fields)
        self._tools = tools
        self._form = form

    def close(self) -> Sequence[Delta]:
        """Return how the item of the call opens."""
        return self._tools.begin(self.whole(), self._form)


class _ResultBlock(OpaqueBlock):
    """The result of a call that is open."""

    def __init__(self, fields: Body, tools: ServerTools, run: _Run) -> None:
        super().__init__(fields)
        self._tools = tools
        self._run = run

    def close(self) -> Sequence[Delta]:
        """Return the end of the item of the call."""
        return self._tools.finish(self.whole(), self._run)


# What each tool is asked, and what it returns.


def _search(block: Body) -> Item:
    action = {"type": "search", "query": _input(block, "query")}
    return {"type": "web_search_call", "action": action}


def _found(block: Body) -> dict[str, Any]:
    content = block.get("content")
    pages = content if isinstance(content, list) else []
    sources = [_source(page) for page in pages if isinstance(page, dict)]
    return _failure(block) or {"action": {"sources": sources}}


def _source(page: Body) -> Body:
    url, title = page.get("url"), page.get("title")
    source = {"type": "url", "url": url if isinstance(url, str) else ""}
    return {**source, "title": title} if isinstance(title, str) else source


def _fetch(block: Body) -> Item:
    action = {"type": "open_page", "url": _input(block, "url")}
    return {"type": "web_search_call", "action": action}


def _failure(block: Body) -> dict[str, Any]:
    return {"status": "failed"} if _error_of(block) else {}


def _run_code(block: Body) -> Item:
    given = block.get("input")
    fields = given if isinstance(given, dict) else {}
    alone = next(iter(fields.values())) if len(fields) == 1 else None
    code = alone if isinstance(alone, str) else msgspec.json.encode(fields).decode()
    return {"type": "code_interpreter_call", "code": code, "container_id": "", "outputs": None}


def _printed(block: Body) -> dict[str, Any]:
    error = _error_of(block)
    if error:
        return {"status": "failed", "outputs": [{"type": "logs", "logs": error}]}
    content = block.get("content")
    fields = content if isinstance(content, dict) else {}
    logs = "".join(str(fields.get(name) or "") for name in ("stdout", "content", "stderr"))
    return {"outputs": [{"type": "logs", "logs": logs}] if logs else []}


def _call_mcp(block: Body) -> Item:
    arguments = msgspec.json.encode(block.get("input") or {}).decode()
    label, name = str(block.get("server_name") or "mcp"), str(block.get("name") or "")
    return {"type": "mcp_call", "server_label": label, "name": name, "arguments": arguments}


def _returned(block: Body) -> dict[str, Any]:
    content = block.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    text = "\n".join(one for one in texts if isinstance(one, str))
    return {"status": "failed", "error": text} if block.get("is_error") else {"output": text}


def _input(block: Body, name: str) -> str:
    given = block.get("input")
    value = given.get(name) if isinstance(given, dict) else None
    return value if isinstance(value, str) else ""


def _error_of(block: Body) -> str:
    """Return why the call failed; empty if it did not."""
    content = block.get("content")
    if not isinstance(content, dict) or not str(content.get("type")).endswith("_error"):
        return ""
    return str(content.get("error_code") or "error")


def _searching(item: Item) -> Sequence[tuple[str, dict[str, Any]]]:
    return [("response.web_search_call.searching", {})]


def _interpreting(item: Item) -> Sequence[tuple[str, dict[str, Any]]]:
    name = "response.code_interpreter_call"
    return [(f"{name}_code.done", {"code": item["code"]}), (f"{name}.interpreting", {})]


def _calling(item: Item) -> Sequence[tuple[str, dict[str, Any]]]:
    return [("response.mcp_call_arguments.done", {"arguments": item["arguments"]})]


_CODE: Final = _Form(_run_code, _interpreting, _printed)
_MCP: Final = _Form(_call_mcp, _calling, _returned)
_FORMS: Final = {
    "web_search": _Form(_search, _searching, _found),
    "web_fetch": _Form(_fetch, _searching, _failure),
    "code_execution": _CODE,
    "bash_code_execution": _CODE,
    "text_editor_code_execution": _CODE,
}


def _form_of(fields: Body) -> _Form | None:
    match fields.get("type"):
        case "mcp_tool_use":
            return _MCP
        case "server_tool_use":
            return _FORMS.get(str(fields.get("name")))
    return None
