"""Hosted and foreign items while they are open: what the builder knows until each is done.

An item that a server ran itself goes through the stages of its type. The builder emits stages
that its source left out, so that every stream of a type looks alike:

    | type                  | opens without          | stages, in order                           |
    |-----------------------|------------------------|--------------------------------------------|
    | web_search_call       |                        | in_progress, searching, completed          |
    | file_search_call      | results                | in_progress, searching, completed          |
    | code_interpreter_call | code, outputs          | in_progress, code, interpreting, completed |
    | image_generation_call | result                 | in_progress, generating (with previews),   |
    |                       |                        | completed                                  |
    | mcp_call              | arguments, output,     | in_progress, arguments, completed or       |
    |                       | error                  | failed                                     |
    | mcp_list_tools        | tools, error           | in_progress, completed or failed           |
    | shell_call (here)     | its commands           | the commands, each added, grown, done      |
    | shell_call_output     | output                 | what each command printed, then done       |
    | any other             | nothing                | none                                       |

The last stage is emitted when the item is closed, together with the done event, so that nothing
counts as completed whose result could still be lost. An item that ends otherwise skips the stages
that it did not reach, but its text is always final first. Types that have no form here are opaque:
they open and close as they are given, and their events keep the fields that they come with.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import EVENT_CLASSES, PartialImage
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.machines.open_items import TextPieces, copy_json

__all__ = ["OpenItem", "Step", "is_hosted", "runs_shell"]

Step = tuple[str, dict[str, Any]]
"""The name of an event inside an item, and its fields but for its place."""

_RUNNING: Final = "in_progress"
_INTERNAL_ERROR: Final = -32603  # of JSON-RPC, which MCP is written in
_UNFINISHED: Final = "the response ended before the tools were listed"


class _HostedForm(msgspec.Struct, frozen=True):
    """How items of a type are emitted.

    `stages` end with the one of success. `text` is the field that grows between the first stage
    and the second, with the beginning of its events' names. `late` are fields of the final item.
    """

    stages: tuple[str, ...] = ()
    opening: Item = {}
    late: frozenset[str] = frozenset()
    text: str = ""
    text_event: str = ""
    failed: str = ""
    ends: tuple[str, ...] = ("completed", "failed", "incomplete")
    has_status: bool = True


_SEARCHING: Final = ("in_progress", "searching", "completed")
_OPAQUE: Final = _HostedForm(has_status=False)
_FORMS: Final[dict[str, _HostedForm]] = {
    "web_search_call": _HostedForm(_SEARCHING),
    "file_search_call": _HostedForm(_SEARCHING, late=frozenset({"results"})),
    "code_interpreter_call": _HostedForm(
        ("in_progress", "interpreting", "completed"),
        opening={"code": "", "outputs": None},
        text="code",
        text_event="response.code_interpreter_call_code",
    ),
    "image_generation_call": _HostedForm(
        ("in_progress", "generating", "completed"),
        opening={"result": None},
        ends=("completed", "failed"),
    ),
    "mcp_call": _HostedForm(
        ("in_progress", "completed"),
        opening={"arguments": ""},
        late=frozenset({"output", "error"}),
        text="arguments",
        text_event="response.mcp_call_arguments",
        failed="failed",
    ),
    "mcp_list_tools": _HostedForm(
        ("in_progress", "completed"),
        opening={"tools": []},
        late=frozenset({"error"}),
        failed="failed",
        has_status=False,
    ),
    "shell_call_output": _HostedForm(opening={"output": []}, ends=("completed", "incomplete")),
}
# A shell call that a server runs, in a container: one that the caller runs is a call.
_SHELL: Final = _HostedForm(ends=("completed", "incomplete"))
_COMMAND: Final = "response.shell_call_command"
_PRINTED: Final = "response.shell_call_output_content"
_UNCHANGED: Final = frozenset({"mcp_approval_request"})
_PREVIEW: Final = "response.image_generation_call.partial_image"


def is_hosted(item: Item) -> bool:
    """Return whether the item is of a type that has stages."""
    return item_type(item) in _FORMS or runs_shell(item)


def runs_shell(item: Item) -> bool:
    """Return whether the item is a call of a shell that a server runs in a container."""
    place = item.get("environment")
    is_remote = isinstance(place, dict) and place.get("type") == "container_reference"
    return is_remote and item_type(item) == "shell_call"


def _form_of(item: Item) -> _HostedForm:
    return _SHELL if runs_shell(item) else _FORMS.get(item_type(item), _OPAQUE)


class OpenItem:
    """A hosted or foreign item that is not done. It returns the steps to emit.

    `item` is the whole item as it was given, with its id.
    """

    def __init__(self, item: Item, index: int) -> None:
        self.id = str(item["id"])
        self.index = index
        self.kind = item_type(item)
        self._growing = TextPieces()
        self.final: Item | None = None
        self._given = item
        self._form = _form_of(item)
        self._reached = 0  # how many stages were emitted
        self._is_text_done = not self._form.text
        self._has_failed = False
        self._previews = 0
        self._commands = _commands_of(item) if self._form is _SHELL else []
        self._has_printed = False  # what the commands printed was emitted
        self._outputs: list[Any] = []  # of commands that have ended

    def opening(self) -> Item:
        """Return the item as it opens, a new object."""
        form = self._form
        status = {"status": _RUNNING} if form.has_status else {}
        given = {name: value for name, value in self._given.items() if name not in form.late}
        opening: Item = copy_json({**given, **form.opening, **status})
        if form is _SHELL:
            opening["action"] = _with_commands(opening, [])
        return opening

    def first_steps(self) -> list[Step]:
        """Return the steps that follow the opening at once: the commands of a shell."""
        steps: list[Step] = []
        for index, command in enumerate(self._commands):
            place = {"command_index": index}
            steps.append((f"{_COMMAND}.added", {**place, "command": ""}))
            steps.append((f"{_COMMAND}.delta", {**place, "delta": command}))
            steps.append((f"{_COMMAND}.done", {**place, "command": command}))
        return steps

    @property
    def is_whole(self) -> bool:
        """Whether the item was closed."""
        return self.final is not None

    def check_whole(self) -> bool:
        """Return whether the item was closed."""
        return self.final is not None

    def progress(self, event: str, fields: dict[str, Any]) -> list[Step]:
        """Return the steps of an event that the source reported.

        A stage that was reached before has nothing new to report. Raise BackendError for an
        event that this item cannot have now.
        """
        form, (family, _, stage) = self._form, event.rpartition(".")
        if self.final is not None:
            raise self._invalid(f"{event} came after its end")
        if form.text and family == form.text_event:
            return self._grow(event, fields)
        if event == _PREVIEW and self.kind == "image_generation_call":
            return self._show_preview(fields)
        if family == f"response.{self.kind}" and stage in (*form.stages, form.failed):
            is_last = stage in (form.stages[-1], form.failed)
            steps = [] if is_last else self._reach(form.stages.index(stage) + 1)
            return [*steps[:-1], (event, _with_extra(fields))] if steps else []
        if event in EVENT_CLASSES:
            raise self._invalid(f"{event} is no event of this type")
        self._has_printed = self._has_printed or family == _PRINTED
        if event == f"{_PRINTED}.done":
            self._outputs += copy_json(fields.get("output") or [])
        return [(event, copy_json(fields))]

    def close(self, item: Item) -> None:
        """Take the final item. Raise BackendError if it cannot be the end of this one."""
        form = self._form
        if self.final is not None or item_type(item) != self.kind:
            raise self._invalid(f"it was closed as {item_type(item)} or twice")
        final: Item = {**copy_json(form.opening), **copy_json(item), "id": self.id}
        if form.has_status:
            final.setdefault("status", "failed" if final.get("error") else "completed")
        status = final.get("status")
        if status == _RUNNING or (form.has_status and status not in form.ends):
            raise self._invalid(f"it was closed while its status is {status!r}")
        if self.kind in _UNCHANGED and final != self._given:
            raise self._invalid("it was closed as another one")
        if form.text:
            final[form.text] = self._growing.text() + self._rest_of(final[form.text])
        if self.kind == "image_generation_call":
            final["result"] = final["result"] or ""
        if self.kind == "mcp_list_tools" and not final.get("error"):
            final.pop("error", None)  # the AI SDK takes a text or no such field
        self.final = final

    def cut(self) -> Item:
        """Close the item as one that did not come to its end; return it."""
        item = self.opening()
        match self.kind:
            case "image_generation_call":  # it has no status for this but that it failed
                item |= {"status": "failed", "result": ""}
            case "mcp_list_tools":
                item["error"] = _UNFINISHED
            case _ if self._form.has_status or item.get("status") == _RUNNING:
                item["status"] = "failed" if self._has_failed else "incomplete"
        if self._form.text:
            item[self._form.text] = self._growing.text()
        if self._form is _SHELL:
            item["action"] = _with_commands(item, self._commands)
        if self._outputs:
            item["output"] = copy_json(self._outputs)
        self.final = item
        return item

    def break_off(self, why: str) -> None:
        """Close a call that ran when its process ended, where its type has words for it."""
        item = self.cut()
        is_over = self._has_failed or self._reached == len(self._form.stages)
        if self.kind == "mcp_call" and not is_over:
            error = {"type": "mcp_protocol_error", "code": _INTERNAL_ERROR, "message": why}
            item |= {"status": "failed", "error": error}

    def ending(self) -> list[Step]:
        """Return the steps that come just before the done event."""
        form, final = self._form, self.final
        assert final is not None
        steps: list[Step] = []
        if form.text:
            steps += self._grow_by(self._rest_of(final[form.text]))
            steps += self._finish_text()
        if self.kind == "shell_call_output" and not self._has_printed:
            steps += _printed(final)
        status = final.get("status") if form.has_status else "failed" * bool(final.get("error"))
        if status in ("completed", ""):
            return steps + self._reach(len(form.stages))
        if status == form.failed and not self._has_failed and self._reached < len(form.stages):
            steps += [*self._reach(1), (f"response.{self.kind}.{form.failed}", {})]
        return steps

    def recall(self, event: str, fields: dict[str, Any]) -> None:
        """Take an event that another builder emitted for this item, and be where it was."""
        form, (family, _, stage) = self._form, event.rpartition(".")
        if form.text and family == form.text_event:
            self._is_text_done = stage == "done"
            self._growing.add(fields.get("delta", ""))
        elif event == f"{_COMMAND}.done":
            self._commands.append(str(fields.get("command")))
        elif event == f"{_PRINTED}.done":
            self._has_printed = True
            self._outputs += fields.get("output") or ()
        elif event == _PREVIEW:
            self._previews += 1
        elif stage == form.failed and stage:
            self._has_failed = True
        elif stage in form.stages:
            self._reached = form.stages.index(stage) + 1

    def _reach(self, count: int) -> list[Step]:
        """Return the steps that lead to so many stages. The text is final before the second."""
        steps: list[Step] = []
        while self._reached < count:
            if self._reached == 1:
                steps += self._finish_text()
            steps.append((f"response.{self.kind}.{self._form.stages[self._reached]}", {}))
            self._reached += 1
        return steps

    def _grow(self, event: str, fields: dict[str, Any]) -> list[Step]:
        if event.endswith(".done"):
            rest = self._rest_of(fields.get(self._form.text))
            return [*self._grow_by(rest), *self._finish_text()]
        text = fields.get("delta")
        if not isinstance(text, str) or self._is_text_done:
            raise self._invalid(f"{event} has no text, or came after the last one")
        return self._grow_by(text)

    def _grow_by(self, text: str) -> list[Step]:
        steps = self._reach(1)
        if text:
            self._growing.add(text)
            steps.append((f"{self._form.text_event}.delta", {"delta": text}))
        return steps

    def _finish_text(self) -> list[Step]:
        if self._is_text_done:
            return []
        self._is_text_done = True
        text = {self._form.text: self._growing.text()}
        return [*self._reach(1), (f"{self._form.text_event}.done", text)]

    def _rest_of(self, final: object) -> str:
        """Return what the final text adds to the text so far: all of it, or None for nothing."""
        told = self._growing.text()
        whole = told if final is None else final
        is_told = whole == told if self._is_text_done else str(whole).startswith(told)
        if not isinstance(whole, str) or not is_told:
            raise self._invalid(f"its {self._form.text} is not what was streamed")
        return whole[len(told) :]

    def _show_preview(self, fields: dict[str, Any]) -> list[Step]:
        if not isinstance(fields.get("partial_image_b64"), str):
            raise self._invalid("a preview has no image")
        shown = _with_extra(fields, PartialImage.__struct_fields__)
        shown["partial_image_index"] = self._previews
        self._previews += 1
        return [*self._reach(2), (_PREVIEW, shown)]

    def _invalid(self, why: str) -> BackendError:
        return BackendError(
            f"the item {self.kind} is invalid: {why}", code="upstream_invalid_response"
        )


def _commands_of(item: Item) -> list[str]:
    action = item.get("action")
    commands = action.get("commands") if isinstance(action, dict) else None
    return list(map(str, commands)) if isinstance(commands, list) else []


def _with_commands(item: Item, commands: list[str]) -> dict[str, Any]:
    action = item.get("action")
    return {**(action if isinstance(action, dict) else {}), "commands": list(commands)}


def _printed(item: Item) -> list[Step]:
    """Return the steps of what commands have printed, one command after the other."""
    steps: list[Step] = []
    for index, output in enumerate(item.get("output") or ()):
        place = {"command_index": index}
        for stream in ("stdout", "stderr"):
            if output.get(stream):
                steps.append((f"{_PRINTED}.delta", {**place, "delta": {stream: output[stream]}}))
        steps.append((f"{_PRINTED}.done", {**place, "output": [copy_json(output)]}))
    return steps


def _with_extra(fields: dict[str, Any], known: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields that an event knows, and the others as what it has beside them."""
    given: dict[str, Any] = copy_json(fields)
    extra = {name: given.pop(name) for name in fields if name not in known}
    return {**given, "extra": extra} if extra else given
