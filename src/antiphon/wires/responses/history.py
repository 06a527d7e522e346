"""A conversation as the input of a Responses server.

Items keep their order, and most are passed as they are. Left out are ids, because a server looks
for them in its own store; only kinds that its API wants an id of keep theirs. Calls of kinds that
the server does not know become function calls. Every call has an output, and every output a call:
servers refuse the whole request otherwise.

Reasoning goes back as the server's own cipher if this account made it, or as text where the
profile says so. What cannot be sent is reported. An item is written the same way in every turn,
so that the input of a turn is the beginning of that of the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.plans.plan import NO_TOOLS
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.families import answers, call_family, output_family
from antiphon.protocol.hosted import HOSTED_CALL, is_hosted, lower_hosted
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.native_state import native_of, note_dropped, state_of, without_state
from antiphon.protocol.pieces import encode_long
from antiphon.protocol.thread import Thread
from antiphon.wires.lower import Lowering
from antiphon.wires.responses.answer_prose import WIRE
from antiphon.wires.responses.parts import PartWriter, without_vendor_fields
from antiphon.wires.responses.profiles import Profile

__all__ = ["write_input"]

_MAX_CALL_ID: Final = 64
_NO_OUTPUT: Final = "(no output was provided for this call)"
# Labels that mean nothing to a model.
_LABELS: Final = frozenset({"id", "status", "created_by"})
# Tools that these items offer are in the toolbox.
_CARRIERS: Final = frozenset({"additional_tools"})
_HOSTED_BY: Final = {
    "web_search_call": ("web_search", "web_search_preview"),
    "file_search_call": ("file_search",),
    "code_interpreter_call": ("code_interpreter",),
    "image_generation_call": ("image_generation",),
    "mcp_call": ("mcp",),
    "mcp_list_tools": ("mcp",),
    "mcp_approval_request": ("mcp",),
    "mcp_approval_response": ("mcp",),
    "computer_call": ("computer", "computer_use_preview"),
    "computer_call_output": ("computer", "computer_use_preview"),
}


def write_input(
    items: Sequence[Item],
    toolbox: Toolbox,
    profile: Profile,
    hosted: frozenset[str],
    account: str,
) -> tuple[list[Item | msgspec.Raw], list[str]]:
    """Return the items as the server takes them, and a report of what could not be sent.

    A long thread remembers what is settled of it, as JSON, and only the rest is written.
    """
    terms = (profile, hosted, account, toolbox.names)
    is_kept = isinstance(items, Thread) and items.is_long
    known: _Settled | None = items.recall(write_input) if isinstance(items, Thread) else None
    past = known if is_kept and known is not None and known.terms == terms else _Settled(terms)
    writer = _InputWriter(items, toolbox, profile, hosted, account, past)
    written = writer.write()
    if isinstance(items, Thread) and is_kept and writer.settled is not past:
        items.learn(write_input, writer.settled)
    return [*past.items, *written], writer.report()


class _Settled(NamedTuple):
    """The items before `place`, which later ones cannot change, and what was noted of them.

    The place is before a message of the caller, and all calls before it have their outputs there.
    `terms` is everything else that they depend on.
    """

    terms: Hashable
    place: int = 0
    items: tuple[msgspec.Raw, ...] = ()
    lowering: Lowering = Lowering(NO_TOOLS)
    notes: tuple[str, ...] = ()
    dropped: tuple[int, ...] = ()
    unsent: tuple[int, ...] = ()
    marks: int = 0
    calls: frozenset[str | None] = frozenset()
    """The ids of the calls, and of their outputs."""


class _InputWriter:
    def __init__(
        self,
        items: Sequence[Item],
        toolbox: Toolbox,
        profile: Profile,
        hosted: frozenset[str],
        account: str,
        past: _Settled,
    ) -> None:
        self.settled = past
        """What is settled when everything is written."""
        self._items = items
        self._toolbox = toolbox
        self._profile = profile
        self._hosted = hosted
        self._account = account
        self._lowering = past.lowering.fork(toolbox)
        self._notes = [*past.notes]
        self._parts = PartWriter(profile, self._notes, past.marks)
        self._dropped = [*past.dropped]
        self._unsent = [*past.unsent]
        self._calls: set[str | None] = {*past.calls}
        self._outputs: set[str | None] = {*past.calls}
        self._boundary = self._pair(past.place)

    def write(self) -> list[Item]:
        """Return the input after what was settled before."""
        past, written = self.settled, list[Item]()
        for place in range(past.place, len(self._items)):
            item = self._items[place]
            if place == self._boundary:
                self._settle(place, written)
            found = list(self._write(place, item))
            state = state_of(item)
            if found and state is not None and state.attach == "previous" and written:
                # It came after the item that it belongs before.
                written[-1:-1] = found
            else:
                written += found
        return written

    def _pair(self, begin: int) -> int:
        """Take note of all calls and outputs; return the last place before which each has one.

        It is not in the tail of a thread.
        """
        boundary, lonely = begin, set[str | None]()
        end = self._items.lasting if isinstance(self._items, Thread) else len(self._items)
        for place in range(begin, len(self._items)):
            item = self._items[place]
            if item_type(item) == "message":
                if item.get("role") != "assistant" and not lonely and place < end:
                    boundary = place
                continue
            for mine, others, call_id in self._ids_of(item):
                mine.add(call_id)
                (lonely.discard if call_id in others else lonely.add)(call_id)
        return boundary

    def _ids_of(self, item: Item) -> Iterator[tuple[set[str | None], set[str | None], str | None]]:
        """Yield where the id of a call or an output belongs, where its other half does, and it."""
        if call_family(item) is not None:
            yield self._calls, self._outputs, answers(item)
        if output_family(item) is not None:
            yield self._outputs, self._calls, answers(item)
        if is_hosted(item) and not self._is_taken(item):
            lowered = lower_hosted(item, self._toolbox.hosted_alias)
            if lowered["type"] == "function_call":
                yield self._calls, self._outputs, lowered["call_id"]
            elif lowered["type"] == "function_call_output":
                yield self._outputs, self._calls, lowered["call_id"]

    def _settle(self, place: int, written: Sequence[Item]) -> None:
        past = self.settled
        if place == past.place:
            return
        before = (self._items[at] for at in range(past.place, place))
        calls = {call_id for item in before for _, _, call_id in self._ids_of(item)}
        self.settled = _Settled(
            past.terms,
            place,
            (*past.items, *(msgspec.Raw(encode_long(item)) for item in written)),
            self._lowering.fork(NO_TOOLS),
            tuple(self._notes),
            tuple(self._dropped),
            tuple(self._unsent),
            self._parts.marks,
            past.calls | calls,
        )

    def report(self) -> list[str]:
        """Return what could not be sent."""
        return [*self._notes, *note_dropped(self._dropped), *_note_unsent(self._unsent)]

    def _write(self, place: int, item: Item) -> Iterator[Item]:
        kind = item_type(item)
        if kind == "message":
            yield self._message(place, item)
        elif kind == "reasoning":
            yield from self._reasoning(place, item)
        elif is_hosted(item):
            yield from self._hosted_item(place, item)
        elif call_family(item) is not None:
            yield from self._call(place, item)
        elif output_family(item) is not None:
            yield from self._output(place, item)
        elif kind not in _CARRIERS:
            self._notes.append(f"input[{place}] ({kind}): this server does not take it")

    def _message(self, place: int, item: Item) -> Item:
        role = item.get("role")
        where = f"input[{place}].content"
        message: Item = {
            "type": "message",
            "role": role,
            "content": self._parts.write(item.get("content"), where, is_ours=role == "assistant"),
        }
        if role == "assistant" and isinstance(item.get("phase"), str) and self._profile.verbosity:
            message["phase"] = item["phase"]
        return message

    def _reasoning(self, place: int, item: Item) -> Iterator[Item]:
        state = native_of(item, WIRE, self._account)
        if state is None and state_of(item) is not None:
            self._dropped.append(place)
        if self._profile.reasoning == "text":
            texts = [*_texts(item, "content"), *(_texts(item, "summary"))][:1]
            content = [{"type": "reasoning_text", "text": text} for text in texts]
            if content:
                yield {"type": "reasoning", "summary": [], "content": content}
            return
        if state is not None:
            summary = [
                {"type": "summary_text", "text": text} for text in _parts_of(item, "summary")
            ]
            cipher = state.data.decode()
            yield {"type": "reasoning", "summary": summary, "encrypted_content": cipher}
        elif state_of(item) is None and (_texts(item, "summary") or _texts(item, "content")):
            self._unsent.append(place)

    def _call(self, place: int, item: Item) -> Iterator[Item]:
        family = call_family(item)
        assert family is not None
        namespace = item.get("namespace")
        is_passed = family.kind in self._profile.kinds and (
            namespace is None or "namespace" in self._profile.kinds
        )
        lowered = self._lowering.lower(item)
        written = _labelled(item if is_passed else lowered)
        if is_passed and namespace is None and family.kind in ("function", "custom"):
            written["name"] = self._toolbox.alias_of(family.kind, None, item["name"])
        call = self._with_call_id(written, item)
        yield call
        if answers(item) not in self._outputs:
            self._notes.append(f"input[{place}] ({family.call}): its output is missing")
            yield self._empty_output(call, family.output if is_passed else None)

    def _empty_output(self, call: Item, kind: str | None = None) -> Item:
        output: Item = {"type": kind or "function_call_output", "call_id": call["call_id"]}
        match kind:
            case "shell_call_output":
                outcome = {"type": "exit", "exit_code": 1}
                said = {"stdout": "", "stderr": _NO_OUTPUT, "outcome": outcome}
                return output | {"output": [said]}
            case "apply_patch_call_output":
                return output | {"status": "failed", "output": _NO_OUTPUT}
        return output | {"output": _NO_OUTPUT}

    def _output(self, place: int, item: Item) -> Iterator[Item]:
        family = output_family(item)
        assert family is not None
        is_passed = family.kind in self._profile.kinds
        lowered = self._lowering.lower(item)
        written = _labelled(item if is_passed else lowered)
        if family.kind == "apply_patch" and is_passed:
            written["status"] = item.get("status") or "completed"
        if written["type"] in ("function_call_output", "custom_tool_call_output"):
            written["output"] = self._parts.write_output(
                written.get("output"), f"input[{place}].output"
            )
        if answers(item) in self._calls or family.kind == "tool_search":
            yield self._with_call_id(written, item)
        else:
            yield self._orphan(place, family.output, written)

    def _orphan(self, place: int, kind: str, output: Item) -> Item:
        self._notes.append(f"input[{place}] ({kind}): its call is missing; sent as text")
        said = output.get("output")
        parts = said if isinstance(said, list) else [{"type": "input_text", "text": str(said)}]
        label = f"Output of a tool call ({output.get('call_id')}):"
        content = [{"type": "input_text", "text": label}, *parts]
        return {"type": "message", "role": "user", "content": content}

    def _hosted_item(self, place: int, item: Item) -> Iterator[Item]:
        if self._is_taken(item):
            yield without_vendor_fields(without_state(item))
            return
        lowered = self._lowering.lower(item)
        if lowered["type"] != "function_call_output":
            call = {name: lowered[name] for name in ("call_id", "name", "arguments")}
            yield self._with_call_id({"type": "function_call", **call}, lowered)
        if lowered["type"] != "function_call":
            yield self._hosted_output(place, item, lowered)
        elif lowered["call_id"] not in self._outputs:
            self._notes.append(f"input[{place}] ({item_type(item)}): its output is missing")
            yield self._empty_output(self._with_call_id(lowered, lowered))

    def _hosted_output(self, place: int, item: Item, lowered: Item) -> Item:
        """Return a result in words; what only its provider can read is left out."""
        opaque = [name for name in lowered if name == "content" or ":" in name]
        self._notes += [f"input[{place}].{name}: sent in words" for name in opaque if lowered[name]]
        call_id = lowered["call_id"]
        said = self._parts.write_output(lowered["output"], f"input[{place}].output")
        output: Item = {"type": "function_call_output", "call_id": call_id, "output": said}
        if lowered["type"] == HOSTED_CALL or call_id in self._calls:
            return self._with_call_id(output, lowered)
        return self._orphan(place, item_type(item), output)

    def _is_taken(self, item: Item) -> bool:
        """Return whether the server has run it itself, and takes it as it is."""
        return bool(self._hosted.intersection(_HOSTED_BY.get(item_type(item), ())))

    def _with_call_id(self, written: Item, item: Item) -> Item:
        call_id = written.get("call_id") or answers(item) or ""
        return {**written, "call_id": _short(call_id)}


def _note_unsent(places: Sequence[int]) -> list[str]:
    if not places:
        return []
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return [f"input[{places[0]}] (reasoning): this server does not take it back{more}"]


def _labelled(item: Item) -> Item:
    """Return the item without labels, a new object."""
    return {name: value for name, value in without_state(item).items() if name not in _LABELS}


def _short(call_id: str) -> str:
    """Return an id that servers take: longer ones get another that is always the same."""
    if len(call_id) <= _MAX_CALL_ID:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:40]}"


def _texts(item: Item, field: str) -> list[str]:
    """Return the text of the field in one piece, if it has any."""
    text = "".join(_parts_of(item, field))
    return [text] if text else []


def _parts_of(item: Item, field: str) -> list[str]:
    parts: Any = item.get(field)
    texts = [part.get("text") for part in parts or () if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str) and text]
