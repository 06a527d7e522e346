"""The referee: good streams pass, and each rule is broken by a stream of its own."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from antiphon.protocol.codec import read_event
from antiphon.protocol.events import (
    AnnotationEvent,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    Event,
    ImageCompleted,
    ImageGenerating,
    ImageInProgress,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    PartialImage,
    ReasoningTextDelta,
    ReasoningTextDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    UnknownEvent,
)
from antiphon.protocol.items import Item, Part
from antiphon.protocol.machines.referee import RULES, Referee, judge_stream
from antiphon.protocol.response import Failure, IncompleteDetails, Response, Usage

PLACE: dict[str, Any] = {"sequence_number": 0, "item_id": "m", "output_index": 0}
IN_TEXT: dict[str, Any] = PLACE | {"content_index": 0}
NOTE = {"type": "url_citation", "url": "https://a.example/"}
IMAGE_STEPS = (ImageInProgress, ImageGenerating, ImageCompleted)
TEXTS = ("delta", "done")
SEARCH = ("in_progress", "searching", "completed")
RUN = ("in_progress", "delta", "done", "interpreting", "completed")
MCP = ("in_progress", "delta", "done")


def change(event: Event, **fields: Any) -> Event:
    """Return the event with other values in these fields."""
    changed: Event = msgspec.structs.replace(event, **fields)
    return changed


def number(events: list[Event]) -> list[Event]:
    """Return the events counted from 0."""
    return [
        UnknownEvent(event.type, event.fields | {"sequence_number": n})
        if isinstance(event, UnknownEvent)
        else change(event, sequence_number=n)
        for n, event in enumerate(events)
    ]


def begin() -> list[Event]:
    """The two events that begin most streams."""
    return [
        ResponseCreated(sequence_number=0, response=Response(id="r")),
        ResponseInProgress(sequence_number=0, response=Response(id="r")),
    ]


def completed(body: list[Event], **fields: Any) -> Event:
    """The terminal event of a stream whose items are those done in the body."""
    response = Response(id="r", status="completed", completed_at=2, usage=Usage())
    return ResponseCompleted(sequence_number=0, response=ended(response, body, fields))


def incomplete(body: list[Event], **fields: Any) -> Event:
    """The terminal event of a stream that was stopped early."""
    response = Response(id="r", status="incomplete", usage=Usage())
    response.incomplete_details = IncompleteDetails("max_output_tokens")
    return ResponseIncomplete(sequence_number=0, response=ended(response, body, fields))


def queued() -> list[Event]:
    """The two events that begin a stream in the background."""
    response = Response(id="r", status="queued")
    return [
        ResponseCreated(sequence_number=0, response=response),
        ResponseQueued(sequence_number=0, response=response),
    ]


def cancelled(body: list[Event], **fields: Any) -> Event:
    """The terminal event of a stream that somebody cancelled."""
    return incomplete(body, **({"status": "cancelled", "incomplete_details": None} | fields))


def failed(body: list[Event], **fields: Any) -> Event:
    """The terminal event of a stream that broke."""
    response = Response(id="r", status="failed", usage=Usage(), error=Failure("code", "why"))
    return ResponseFailed(sequence_number=0, response=ended(response, body, fields))


def ended(response: Response, body: list[Event], fields: dict[str, Any]) -> Response:
    done = [event.item for event in body if isinstance(event, OutputItemDone)]
    return msgspec.structs.replace(response, output=copy.deepcopy(done), **fields)


def whole(*bodies: list[Event]) -> list[Event]:
    """A completed stream with these items in it."""
    body = [event for events in bodies for event in events]
    return number([*begin(), *body, completed(body)])


def text_part(text: str, notes: list[dict[str, Any]] | None = None) -> Part:
    return {"type": "output_text", "text": text, "annotations": notes or []}


def message_item(content: list[Part], status: str = "completed", item_id: str = "m") -> Item:
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def text_events(*pieces: str, at: int = 0, item: str = "m", index: int = 0) -> list[Event]:
    """All events of one text part."""
    place: dict[str, Any] = {
        "sequence_number": 0,
        "item_id": item,
        "output_index": index,
        "content_index": at,
    }
    text = "".join(pieces)
    return [
        ContentPartAdded(part=text_part(""), **place),
        *(OutputTextDelta(delta=piece, **place) for piece in pieces),
        OutputTextDone(text=text, **place),
        ContentPartDone(part=text_part(text), **place),
    ]


def item_events(
    begun: Item, body: list[Event], done: Item, index: int = 0, last_index: int | None = None
) -> list[Event]:
    """An item from added to done, with these events inside."""
    last = index if last_index is None else last_index
    return [
        OutputItemAdded(sequence_number=0, output_index=index, item=begun),
        *body,
        OutputItemDone(sequence_number=0, output_index=last, item=done),
    ]


def message(index: int = 0, item_id: str = "m", status: str = "completed") -> list[Event]:
    """A message that says "hello"."""
    return item_events(
        message_item([], "in_progress", item_id),
        text_events("hel", "lo", item=item_id, index=index),
        message_item([text_part("hello")], status, item_id),
        index,
    )


def message_with(body: list[Event], *content: Part) -> list[Event]:
    """A message made of these events, done with this content."""
    return item_events(message_item([], "in_progress"), body, message_item(list(content)))


def call_item(name: str, arguments: str, status: str = "completed", call_id: str = "") -> Item:
    return {
        "id": f"fc_{name}",
        "type": "function_call",
        "status": status,
        "call_id": call_id or f"call_{name}",
        "name": name,
        "arguments": arguments,
    }


def call(
    name: str = "f", index: int = 0, call_id: str = "", status: str = "completed"
) -> list[Event]:
    """A call with arguments in two pieces."""
    place: dict[str, Any] = {
        "sequence_number": 0,
        "item_id": f"fc_{name}",
        "output_index": index,
    }
    body: list[Event] = [
        ArgumentsDelta(delta='{"a":', **place),
        ArgumentsDelta(delta="1}", **place),
        ArgumentsDone(arguments='{"a":1}', **place),
    ]
    begun = call_item(name, "", "in_progress", call_id)
    return item_events(begun, body, call_item(name, '{"a":1}', status, call_id), index)


def reasoning(index: int = 0) -> list[Event]:
    """Reasoning with a summary and raw text."""
    place: dict[str, Any] = {"sequence_number": 0, "item_id": "rs", "output_index": index}
    raw, short = {"type": "reasoning_text", "text": "ab"}, {"type": "summary_text", "text": "s"}
    body: list[Event] = [
        ContentPartAdded(content_index=0, part=raw | {"text": ""}, **place),
        ReasoningTextDelta(content_index=0, delta="ab", **place),
        ReasoningTextDone(content_index=0, text="ab", **place),
        ContentPartDone(content_index=0, part=raw, **place),
        SummaryPartAdded(summary_index=0, part=short | {"text": ""}, **place),
        SummaryTextDelta(summary_index=0, delta="s", **place),
        SummaryTextDone(summary_index=0, text="s", **place),
        SummaryPartDone(summary_index=0, part=short, **place),
    ]
    begun: Item = {"id": "rs", "type": "reasoning", "summary": []}
    return item_events(begun, body, begun | {"summary": [short], "content": [raw]}, index)


def refusal() -> list[Event]:
    """A message that declines."""
    part = {"type": "refusal", "refusal": "no"}
    body: list[Event] = [
        ContentPartAdded(part=part | {"refusal": ""}, **IN_TEXT),
        RefusalDelta(delta="no", **IN_TEXT),
        RefusalDone(refusal="no", **IN_TEXT),
        ContentPartDone(part=part, **IN_TEXT),
    ]
    return message_with(body, part)


def annotated(*indexes: int) -> list[Event]:
    """A message whose text has notes with these indexes."""
    opened, *rest = text_events("hi")
    notes = [AnnotationEvent(annotation_index=n, annotation=NOTE, **IN_TEXT) for n in indexes]
    part = text_part("hi", [NOTE] * len(indexes))
    body = [opened, *notes, *rest[:-1], ContentPartDone(part=part, **IN_TEXT)]
    return message_with(body, part)


_Step = ImageInProgress | ImageGenerating | ImageCompleted


def image(*steps: type[_Step], status: str = "completed", result: str | None = "AA") -> list[Event]:
    """An image with these events between its opening and its end."""
    item: Item = {"id": "m", "type": "image_generation_call", "status": "in_progress"}
    progress: list[Event] = [step(item_id="m", output_index=0, sequence_number=0) for step in steps]
    done = item | {"status": status, "result": result}
    return item_events(item | {"result": None}, progress, done)


def hosted(
    kind: str, *names: str, fields: Item | None = None, text: str = "x", **done: Any
) -> list[Event]:
    """A hosted item with these events inside: stages, or `delta` and `done` of its text."""
    field = {"code_interpreter_call": "code", "mcp_call": "arguments"}.get(kind, "")
    opened: Item = {"id": "m", "type": kind, "status": "in_progress", **(fields or {})}
    body: list[Event] = []
    for name in names:
        event = f"response.{kind}_{field}.{name}" if name in TEXTS else f"response.{kind}.{name}"
        more = {"delta": {"delta": text}, "done": {field: text}}.get(name, {})
        body.append(read_event({"type": event, **more, **PLACE}))
    end = {"status": "completed", **({field: text} if field else {}), **done}
    return item_events(opened | ({field: ""} if field else {}), body, opened | end)


def listed(*names: str, **done: Any) -> list[Event]:
    """The tools of an MCP server, an item without a status."""
    opened: Item = {"id": "m", "type": "mcp_list_tools", "server_label": "s", "tools": []}
    body = [read_event({"type": f"response.mcp_list_tools.{name}", **PLACE}) for name in names]
    return item_events(opened, body, opened | done)


def shell(*steps: tuple[str, int, str], commands: tuple[str, ...] = ("ls",)) -> list[Event]:
    """A shell call in a container, with these events of its commands."""
    opened: Item = {
        "id": "m",
        "type": "shell_call",
        "status": "in_progress",
        "call_id": "c",
        "action": {"commands": []},
        "environment": {"type": "container_reference", "container_id": "x"},
    }
    body: list[Event] = [
        UnknownEvent(
            f"response.shell_call_command.{step}",
            {"output_index": 0, "command_index": index, _SAID.get(step, "command"): text},
        )
        for step, index, text in steps
    ]
    done = {"status": "completed", "action": {"commands": list(commands)}}
    return item_events(opened, body, opened | done)


def shell_with_commands() -> list[Event]:
    """A shell call that opens with its commands."""
    opened, *rest = shell(*LS)
    assert isinstance(opened, OutputItemAdded)
    return [change(opened, item=opened.item | {"action": {"commands": ["ls"]}}), *rest]


def printed(*steps: Item, output: list[Item]) -> list[Event]:
    """The output of a shell call, with these events inside: deltas, and outputs that are done."""
    opened: Item = {"id": "m", "type": "shell_call_output", "status": "in_progress", "output": []}
    name = "response.shell_call_output_content"
    body: list[Event] = [
        UnknownEvent(f"{name}.{'done' if 'output' in step else 'delta'}", {**PLACE, **step})
        for step in steps
    ]
    return item_events(opened, body, opened | {"status": "completed", "output": output})


_SAID = {"delta": "delta"}
LS = (("added", 0, ""), ("delta", 0, "l"), ("delta", 0, "s"), ("done", 0, "ls"))
RAN: Item = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
SAID: Item = {"command_index": 0, "delta": {"stdout": "a"}}
DONE: Item = {"command_index": 0, "output": [RAN]}


def previewed(*indexes: int) -> list[Event]:
    """An image with previews of these indexes."""
    opened, first, second, *rest = image(*IMAGE_STEPS)
    shown: list[Event] = [
        PartialImage(partial_image_index=n, partial_image_b64="AA", **PLACE) for n in indexes
    ]
    return [opened, first, second, *shown, *rest]


def at(events: list[Event], item_id: str) -> list[Event]:
    """The events as if they were about this item."""
    return [change(event, item_id=item_id) for event in events]


def requested(**done: Any) -> list[Event]:
    """A request for an approval."""
    item: Item = {"id": "m", "type": "mcp_approval_request", "name": "n", "arguments": "{}"}
    return item_events(item, [], item | done)


def custom_call() -> list[Event]:
    """A call with free-form input."""
    begun: Item = {
        "id": "m",
        "type": "custom_tool_call",
        "call_id": "c",
        "name": "sh",
        "input": "",
    }
    body: list[Event] = [
        CustomInputDelta(delta="ls", **PLACE),
        CustomInputDone(input="ls", **PLACE),
    ]
    return item_events(begun, body, begun | {"input": "ls", "status": "completed"})


def passed(index: int = 0) -> list[Event]:
    """An item of unknown type, handed on whole."""
    item: Item = {"id": "x", "type": "acme:search", "status": "completed", "hits": [1]}
    return item_events(item, [], copy.deepcopy(item), index)


def side_by_side() -> list[Event]:
    """Two calls that are open together and end in order."""
    (open_f, *body_f), (open_g, *body_g) = call("f"), call("g", 1)
    return [open_f, open_g, body_g[0], *body_f, *body_g[1:]]


GOOD: dict[str, list[Event]] = {
    "a shell": whole(shell(*LS)),
    "a shell without commands": whole(shell(commands=())),
    "what a shell printed": whole(printed(SAID, DONE, output=[RAN])),
    "nothing said": whole(),
    "a message": whole(message()),
    "two text parts": whole(
        message_with(text_events("a") + text_events("b", at=1), text_part("a"), text_part("b"))
    ),
    "a refusal": whole(refusal()),
    "annotations": whole(annotated(0, 1)),
    "reasoning, message, call": whole(reasoning(), message(1), call("f", 2)),
    "calls side by side": whole(side_by_side()),
    "a custom call": whole(custom_call()),
    "an unknown item": whole(passed(), message(1)),
    "a web search": whole(hosted("web_search_call", *SEARCH)),
    "a file search that failed": whole(
        hosted("file_search_call", "in_progress", status="failed", results=None)
    ),
    "an interpreter": whole(hosted("code_interpreter_call", *RUN, outputs=[])),
    "a call of an MCP server": whole(hosted("mcp_call", *MCP, "completed", output="found")),
    "one that failed": whole(hosted("mcp_call", *MCP, "failed", status="failed", error="no")),
    "one whose end was lost": whole(hosted("mcp_call", *MCP, "completed", status="incomplete")),
    "tools of an MCP server": whole(listed("in_progress", "completed", tools=[{"name": "n"}])),
    "tools that cannot be listed": whole(listed("in_progress", "failed", error="no")),
    "previews": whole(previewed(0, 1)),
    "a request for an approval": whole(requested()),
    "an unknown event of an item": whole(
        [passed()[0], UnknownEvent("acme:hit", {"item_id": "x", "output_index": 0}), passed()[1]]
    ),
    "an unknown event": number(
        [*begin(), UnknownEvent("acme:ping", {}), *message(), completed(message())]
    ),
    "a queue": number(
        [
            begin()[0],
            ResponseQueued(sequence_number=0, response=Response(id="r", status="queued")),
            begin()[1],
            completed([]),
        ]
    ),
    "queued from the first": number([*queued(), begin()[1], *message(), completed(message())]),
    "cancelled in the queue": number([*queued(), cancelled([])]),
    "cancelled": number(
        [*begin(), *message(status="incomplete"), cancelled(message(status="incomplete"))]
    ),
    "no in_progress": number([begin()[0], completed([])]),
    "cut short": number(
        [*begin(), *message(status="incomplete"), incomplete(message(status="incomplete"))]
    ),
    "broken": number(
        [
            *begin(),
            *call("f", status="incomplete"),
            *call("g", 1, status="incomplete"),
            ErrorEvent(sequence_number=0, message="why"),
            failed([*call("f", status="incomplete"), *call("g", 1, status="incomplete")]),
        ]
    ),
}


def without(events: list[Event], *positions: int) -> list[Event]:
    return [event for n, event in enumerate(events) if n not in positions]


def with_change(events: list[Event], position: int, **fields: Any) -> list[Event]:
    """The events with one of them changed."""
    position %= len(events)
    return [change(e, **fields) if n == position else e for n, e in enumerate(events)]


def with_item(events: list[Event], position: int, **fields: Any) -> list[Event]:
    """The events with the item of one of them changed."""
    event = events[position]
    assert isinstance(event, OutputItemAdded | OutputItemDone)
    return with_change(events, position, item=event.item | fields)


def with_end(body: list[Event], **fields: Any) -> list[Event]:
    """A stream whose terminal response has other values in these fields."""
    return number([*begin(), *body, completed(body, **fields)])


PART = text_events("hel", "lo")
HELLO = text_part("hello")
OPEN_CALL, *REST_OF_CALL = call("f")
FIRST, SECOND = call("f"), call("g", 1)

BROKEN: list[tuple[str, list[Event]]] = [
    ("first", number(without(whole(message()), 0))),
    ("first", number([UnknownEvent("acme:ping", {}), *without(whole(), 0)])),
    ("lifecycle", number([*begin(), begin()[1], completed([])])),
    ("lifecycle", number([begin()[0], *begin(), completed([])])),
    ("lifecycle", number([begin()[0], *message(), begin()[1], completed(message())])),
    ("sequence", with_change(whole(message()), 3, sequence_number=7)),
    (
        "sequence",
        [*whole()[:2], UnknownEvent("acme:ping", {}), change(completed([]), sequence_number=3)],
    ),
    ("sequence", [change(event, sequence_number=n + 1) for n, event in enumerate(whole())]),
    ("response_id", with_end(message(), id="other")),
    ("begin_state", with_change(whole(), 1, response=Response(id="r", status="queued"))),
    ("begin_state", with_change(whole(), 0, response=Response(id="r", output=[{"type": "x"}]))),
    ("queued_next", number([queued()[0], begin()[1], completed([])])),
    ("queued_next", number([queued()[0], *message(), completed(message())])),
    ("queued_next", number([queued()[0], cancelled([])])),
    ("item_index", whole(message(1))),
    ("item_index", whole(message(), call("f", 0))),
    ("item_index", whole(message(), call("f", 2))),
    ("item_id", whole(message(), message(1))),
    ("item_begin", whole(with_item(message(), 0, role="user"))),
    ("item_begin", whole(with_item(message(), 0, status="completed"))),
    ("item_begin", whole(with_item(message(), 0, content=[HELLO]))),
    ("item_begin", whole(with_item(call(), 0, name=""))),
    ("item_begin", whole(with_item(call(), 0, arguments="{}"))),
    ("item_begin", whole(with_item(reasoning(), 0, content=[HELLO]))),
    ("call_id", whole(call("f", call_id="same"), call("g", 1, call_id="same"))),
    ("item_open", whole(message(), text_events("late"))),
    ("item_open", whole(with_change(message(), 2, item_id="other"))),
    (
        "item_open",
        number([*begin(), *message(), message()[-1], completed(message())]),
    ),
    ("item_same", whole(with_item(message(), -1, id="other"))),
    ("item_same", whole(with_item(call(), -1, call_id="other"))),
    ("item_same", whole(with_item(passed(), -1, type="acme:other"))),
    ("item_end", whole(with_item(message(), -1, status="in_progress"))),
    ("item_equal", whole(with_item(message(), -1, content=[]))),
    ("item_equal", whole(with_item(message(), -1, content=[HELLO, HELLO]))),
    ("item_equal", whole(with_item(call(), -1, arguments="{}"))),
    ("item_equal", whole(with_item(reasoning(), -1, summary=[]))),
    ("item_equal", whole(with_item(custom_call(), -1, input="rm"))),
    ("prose_alone", whole([OPEN_CALL, *message(1)[:-1], *REST_OF_CALL, message(1)[-1]])),
    ("prose_alone", whole([message()[0], *call("f", 1)[:-1], *message()[1:], call("f", 1)[-1]])),
    (
        "close_order",
        number([*begin(), FIRST[0], *SECOND, *FIRST[1:], completed(FIRST + SECOND)]),
    ),
    ("part_index", whole(message_with(with_change(PART, 0, content_index=1), HELLO))),
    ("part_begin", whole(message_with(with_change(PART, 0, part=HELLO), HELLO))),
    (
        "part_open",
        whole(
            message_with(
                [
                    *PART,
                    OutputTextDelta(
                        delta="", sequence_number=0, item_id="m", output_index=0, content_index=1
                    ),
                ],
                HELLO,
            )
        ),
    ),
    ("part_open", whole(message_with([OutputTextDelta(delta="x", **IN_TEXT), *PART], HELLO))),
    (
        "part_kind",
        whole(message_with([*PART[:1], RefusalDelta(delta="", **IN_TEXT), *PART[1:]], HELLO)),
    ),
    ("part_order", whole(message_with([*PART, OutputTextDelta(delta="", **IN_TEXT)], HELLO))),
    ("part_order", whole(message_with(without(PART, 3)))),
    ("part_order", whole(message_with([*PART, PART[-1]], HELLO))),
    ("part_order", whole(without(call(), 3))),
    (
        "part_equal",
        whole(message_with(with_change(PART, -1, part=text_part("bye")), text_part("bye"))),
    ),
    (
        "part_equal",
        whole(
            message_with(
                with_change(PART, -1, part=text_part("hello", [NOTE])), text_part("hello", [NOTE])
            )
        ),
    ),
    ("text_equal", whole(message_with(without(PART, 1), HELLO))),
    ("text_equal", whole(without(call(), 1))),
    ("hosted_order", whole(image())),
    ("hosted_order", whole(image(ImageInProgress, ImageGenerating))),
    (
        "hosted_order",
        whole(image(ImageGenerating, ImageInProgress, ImageGenerating, ImageCompleted)),
    ),
    ("hosted_order", whole(image(*IMAGE_STEPS, ImageCompleted))),
    ("hosted_order", whole(hosted("web_search_call"))),
    ("hosted_order", whole(hosted("web_search_call", "searching", "in_progress", *SEARCH[1:]))),
    ("hosted_order", whole(hosted("web_search_call", "in_progress", *SEARCH))),
    ("hosted_order", whole(hosted("file_search_call", "in_progress", "searching"))),
    ("hosted_order", whole(hosted("mcp_call", *MCP))),
    ("hosted_order", whole(hosted("mcp_call", *MCP, "completed", "completed"))),
    ("hosted_order", whole(hosted("mcp_call", *MCP, "failed"))),
    ("hosted_order", whole(hosted("mcp_call", *MCP, status="failed"))),
    ("hosted_order", whole(hosted("mcp_call", *MCP, "failed", status="incomplete"))),
    ("hosted_order", whole(hosted("mcp_call", "done", "in_progress", "completed", text=""))),
    (
        "hosted_order",
        whole(
            hosted(
                "code_interpreter_call", "in_progress", "interpreting", "done", "completed", text=""
            )
        ),
    ),
    ("hosted_order", whole(listed("in_progress"))),
    ("hosted_order", whole(listed("in_progress", error="no"))),
    ("hosted_order", whole([passed()[0], *at(image(*IMAGE_STEPS)[1:2], "x"), passed()[1]])),
    ("item_begin", whole(shell_with_commands())),
    ("shell_equal", whole(shell())),
    ("shell_equal", whole(shell(*LS, commands=("pwd",)))),
    ("shell_equal", whole(shell(*LS, commands=()))),
    ("shell_equal", whole(shell(*LS[:2], ("done", 0, "ls")))),
    ("shell_equal", whole(shell(*LS[1:]))),
    ("shell_equal", whole(shell(LS[0], *LS))),
    ("shell_equal", whole(shell(*[(step, 1, text) for step, _, text in LS]))),
    ("shell_equal", whole(printed(DONE, output=[RAN]))),
    ("shell_equal", whole(printed(SAID, SAID, DONE, output=[RAN]))),
    ("shell_equal", whole(printed(SAID, DONE, output=[RAN, RAN]))),
    ("shell_equal", whole(printed(SAID, DONE | {"command_index": 1}, output=[RAN]))),
    ("shell_equal", whole(printed(output=[RAN]))),
    ("shell_equal", whole([shell()[0], *printed(SAID, output=[])[1:2], shell(commands=())[1]])),
    ("preview_index", whole(previewed(0, 0))),
    ("preview_index", whole(previewed(1))),
    ("text_equal", whole(hosted("mcp_call", "in_progress", "done", "completed"))),
    ("part_order", whole(hosted("code_interpreter_call", "in_progress", "delta", status="failed"))),
    ("item_equal", whole(hosted("code_interpreter_call", *RUN, code="y"))),
    ("item_equal", whole(requested(arguments='{"all":true}'))),
    ("item_begin", whole(with_item(hosted("web_search_call", *SEARCH), 0, status="searching"))),
    ("item_begin", whole(with_item(hosted("mcp_call", *MCP, "completed"), 0, output="x"))),
    ("item_begin", whole(with_item(reasoning(), 0, encrypted_content="sealed"))),
    ("item_end", whole(hosted("web_search_call", *SEARCH[:2], status="searching"))),
    (
        "item_open",
        whole([passed()[0], UnknownEvent("a", {"item_id": "y", "output_index": 0}), passed()[1]]),
    ),
    ("part_open", whole([passed()[0], *at(hosted("mcp_call", *MCP)[2:3], "x"), passed()[1]])),
    ("item_begin", whole(with_item(image(*IMAGE_STEPS), 0, result="AA"))),
    ("item_end", whole(image(*IMAGE_STEPS, result=None))),
    ("annotation_index", whole(annotated(0, 2))),
    ("annotation_index", whole(annotated(1))),
    ("items_done", number([*begin(), message()[0], completed([])])),
    ("incomplete_item", whole(message(status="incomplete"))),
    (
        "incomplete_item",
        number(
            [
                *begin(),
                *call("f", status="incomplete"),
                *message(1),
                incomplete([*call("f", status="incomplete"), *message(1)]),
            ]
        ),
    ),
    (
        "incomplete_item",
        number(
            [
                *begin(),
                *call("f", status="incomplete"),
                *message(1),
                cancelled([*call("f", status="incomplete"), *message(1)]),
            ]
        ),
    ),
    ("terminal_state", with_end(message(), status="incomplete")),
    ("terminal_state", with_end(message(), status="cancelled")),
    ("terminal_state", number([*begin(), failed([], status="cancelled")])),
    ("terminal_state", number([*begin(), cancelled([], status="incomplete")])),
    (
        "terminal_state",
        number([*begin(), cancelled([], incomplete_details=IncompleteDetails("cancelled"))]),
    ),
    ("terminal_state", with_end(message(), completed_at=None)),
    ("terminal_state", with_end(message(), error=Failure(None, "why"))),
    ("terminal_state", number([*begin(), incomplete([], incomplete_details=None)])),
    ("terminal_state", number([*begin(), failed([], completed_at=1)])),
    ("terminal_usage", with_end(message(), usage=None)),
    ("terminal_output", with_change(whole(message()), -1, response=whole()[-1].response)),  # type: ignore[union-attr] # a terminal event
    ("terminal_once", number([*whole(message()), completed(message())])),
    ("terminal_once", number([*whole(), UnknownEvent("acme:ping", {})])),
    ("terminal_missing", whole(message())[:-1]),
    ("terminal_missing", []),
    ("error_failed", number([*begin(), ErrorEvent(sequence_number=0, message=""), completed([])])),
    (
        "error_equal",
        number([*begin(), ErrorEvent(sequence_number=0, message="a", detail="b"), failed([])]),
    ),
]


@pytest.mark.parametrize("events", GOOD.values(), ids=GOOD.keys())
def test_a_good_stream_breaks_no_rule(events: list[Event]) -> None:
    assert judge_stream(events) == []


@pytest.mark.parametrize(("rule", "events"), BROKEN, ids=[rule for rule, _ in BROKEN])
def test_a_bad_stream_breaks_exactly_its_rule(rule: str, events: list[Event]) -> None:
    assert {violation.rule for violation in judge_stream(events)} == {rule}


def test_every_rule_has_a_stream_that_breaks_it() -> None:
    assert {rule for rule, _ in BROKEN} == set(RULES)


@pytest.mark.parametrize("events", [image(*IMAGE_STEPS), image(ImageInProgress, status="failed")])
def test_an_image_may_be_made_or_fail(events: list[Event]) -> None:
    assert judge_stream(whole(events)) == []


def test_a_violation_names_its_event() -> None:
    event = whole(message(1))[2]
    assert [violation.event for violation in judge_stream(whole(message(1)))] == [event]


def test_an_item_changed_after_it_was_told_is_seen() -> None:
    events = whole(message())
    done, end = events[-2:]
    assert isinstance(done, OutputItemDone)
    assert isinstance(end, ResponseCompleted)
    end.response.output[0] = done.item
    referee = Referee()
    for event in events[:-1]:
        referee.judge(event)
    done.item["status"] = "incomplete"
    assert [violation.rule for violation in referee.judge(end)] == ["terminal_output"]


def test_the_index_of_parts_starts_again_in_each_item() -> None:
    second = item_events(
        message_item([], "in_progress", "n"),
        text_events("x", at=1, item="n", index=1),
        message_item([text_part("x")], item_id="n"),
        1,
    )
    found = {violation.rule for violation in judge_stream(whole(message(), second))}
    assert "part_index" in found


def test_an_error_as_the_last_event_breaks_two_rules() -> None:
    events = number([*begin(), ErrorEvent(sequence_number=0, message="")])
    found = [violation.rule for violation in judge_stream(events)]
    assert found == ["terminal_missing", "error_failed"]
