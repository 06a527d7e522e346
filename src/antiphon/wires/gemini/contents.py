"""A conversation as the `contents` of Gemini: user and model in turns, each call answered. Pure.

- Contents alternate and begin with the user; neighbours of one role are merged, except that an
  image never stands beside a `functionResponse`.
- All results of a model's turn are in one content, in the order of the calls. Each belongs to its
  call by the call's id, never by its position. An id is sent only if the model gave it.
- A signature is in the part that it came in. The first call of a turn without one gets the
  documented dummy, where the model demands one: in all turns, so that the bytes of earlier turns
  stay the same.
- A system message after the first content is a user text in its place: there is no such role.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.native_state import NATIVE, PAUSED, native_of, note_foreign, state_of
from antiphon.protocol.pieces import encode_long
from antiphon.protocol.thread import Thread
from antiphon.protocol.unwrap import is_object
from antiphon.wires.gemini.names import name_for
from antiphon.wires.gemini.parts import GeminiPart, PartWriter, is_binary, text_part
from antiphon.wires.gemini.profiles import Generation
from antiphon.wires.gemini.signatures import DUMMY, WIRE, SignedState, read_state, signed_texts
from antiphon.wires.settled import Own, write_turns
from antiphon.wires.turns import Call, Entry, Said, Turn

__all__ = ["PART_ITEM", "Content", "write_contents"]

Content = dict[str, Any]
"""A content in the words of Gemini: a role and parts."""

PART_ITEM: Final = "google:part"
"""The type of an item that holds a part of the model which has no other item, as it came."""
_IMAGE: Final = "image_generation_call"
_SYSTEM: Final = frozenset({"system", "developer"})
_MINTED: Final = "call_"
_NO_OUTPUT: Final = "(no output was provided for this call)"
_BEGIN: Final = "(The conversation begins with the assistant.)"


def write_contents(
    plan: Plan, generation: Generation, account: str
) -> tuple[list[str], list[Content | msgspec.Raw], list[str]]:
    """Return the leading system texts, the contents, and a report of what could not be sent."""
    items = plan.items
    if not isinstance(items, Thread):  # no thread has such an item
        items = [item for item in items if item_type(item) != PAUSED]
    signatures, aliases = _Signatures(items, account), plan.toolbox.aliases

    def make(past: _Written | None) -> _ContentWriter:
        return _ContentWriter(aliases, generation, signatures, past or _NOTHING)

    terms = (generation, account)
    writer, report = write_turns(items, plan.toolbox, make, write_contents, terms, _OWN)
    contents = writer.finish()
    foreign = note_foreign(items, WIRE, account)
    return writer.system, contents, [*report, *writer.report, *foreign]


def _find_own(item: Item) -> Item | None:
    """Return an item that is a part of a model's content in itself."""
    kind = item_type(item)
    if kind == PART_ITEM:
        return item if isinstance(item.get("part"), dict) else None
    is_image = kind == _IMAGE and isinstance(item.get("result"), str) and bool(item["result"])
    return item if is_image else None


_OWN: Final = Own(_find_own, frozenset({PART_ITEM, _IMAGE}).__contains__)


class _Written(NamedTuple):
    """What was written of a conversation so far, and found out on the way.

    Contents are bytes but for the last one, which may still grow. `first` is the role of the first.
    """

    contents: tuple[msgspec.Raw, ...] = ()
    last: Content | None = None
    first: str = ""
    system: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    unsigned: tuple[int, ...] = ()
    unused: tuple[int, ...] = ()


_NOTHING: Final = _Written()


class _Signatures:
    """The signatures in a conversation, by the place of the item that they belong to."""

    def __init__(self, items: Sequence[Item], account: str) -> None:
        self.of: dict[int, SignedState] = {}
        """Of calls and images, which follow their signature, and of texts, which precede it."""
        self.alone: dict[int, SignedState] = {}
        """Of a thought, or of an empty part that belongs to no other item."""
        for place, item in enumerate(items):
            if NATIVE not in item:
                continue  # as most are
            native = native_of(item, WIRE, account)
            state = read_state(native) if native is not None else None
            if native is None or state is None:
                continue
            if native.attach == "next":
                self.of[place + 1] = state
            elif native.attach == "previous":
                self.of[place - 1] = state
            else:
                self.alone[place] = state


class _ContentWriter:
    """Turns to contents."""

    def __init__(
        self,
        aliases: Collection[str],
        generation: Generation,
        signatures: _Signatures,
        past: _Written = _NOTHING,
    ) -> None:
        self.system = [*past.system]
        self.report = [*past.report]
        self._aliases = aliases
        self._generation = generation
        self._signatures = signatures
        self._parts = PartWriter(self.report, has_resolution=generation.part_media)
        self._past = past.contents
        self._first = past.first
        last = past.last
        self._contents = [] if last is None else [{**last, "parts": [*last["parts"]]}]
        self._unsigned = [*past.unsigned]
        self._unused = [*past.unused]

    def write(self, turns: Iterable[Said | Turn]) -> None:
        """Write turns after those before."""
        for turn in turns:
            if isinstance(turn, Said):
                self._say(turn)
            elif not turn.is_empty:
                self._act(turn)

    def pause(self) -> _Written:
        """Return what was written so far, to go on with."""
        done, last = self._contents[:-1], self._contents[-1] if self._contents else None
        return _Written(
            (*self._past, *(msgspec.Raw(encode_long(content)) for content in done)),
            last,
            self._first,
            tuple(self.system),
            tuple(self.report),
            tuple(self._unsigned),
            tuple(self._unused),
        )

    def finish(self) -> list[Content | msgspec.Raw]:
        """Return the contents, which begin with the user."""
        contents: list[Content | msgspec.Raw] = [*self._past, *self._contents]
        if self._first != "user":
            contents.insert(0, {"role": "user", "parts": [text_part(_BEGIN)]})
            self.report.append("input: it does not begin with a user; a message was put in front")
        self.report += _noted(
            self._unsigned, "function_call", "it has no signature of this model; a dummy is sent"
        )
        self.report += _noted(self._unused, "reasoning", "this model does not take it back")
        return contents

    # Who is not the model.

    def _say(self, said: Said) -> None:
        item, where = said.item, f"input[{said.index}]"
        if item.get("type") == "function_call_output":
            label = text_part(f"Output of a tool call ({item['call_id']}):")
            self._add("user", [label, *self._parts.write(item.get("output"), f"{where}.output")])
            return
        parts = self._parts.write(item.get("content"), f"{where}.content")
        role = item.get("role")
        if role not in _SYSTEM:
            self._add("user", parts)
        elif not self._contents:
            self.system += [part["text"] for part in parts if "text" in part]
        else:
            self.report.append(f"{where} ({role} message): sent as a user message")
            self._add("user", parts)

    # The model.

    def _act(self, turn: Turn) -> None:
        calls = {call.index: call for call in turn.calls}
        ids = self._ids(turn)
        parts: list[GeminiPart] = []
        for index, item in sorted(_entries(turn), key=lambda entry: entry[0]):
            if index in calls:
                parts.append(self._call(calls[index], ids))
            else:
                parts += self._own_parts(index, item)
        self._sign_first_call(turn, parts)
        self._add("model", parts)
        if calls:
            self._add_results([*calls.values()], ids)

    def _own_parts(self, index: int, item: Item) -> list[GeminiPart]:
        match item_type(item):
            case "reasoning":
                return self._think(index, item)
            case "message":
                written = self._parts.write(item.get("content"), f"input[{index}].content")
                text = "".join(part["text"] for part in written if "text" in part)
                return signed_texts(text, self._signatures.of.get(index))
            case "google:part":
                return [{**item["part"]}]  # it may get a signature
        media = f"image/{item.get('output_format') or 'png'}"
        image = {"inlineData": {"mimeType": media, "data": item["result"]}}
        return [self._signed(index, image)]

    def _think(self, index: int, item: Item) -> list[GeminiPart]:
        """Return the signed parts of a thought; the rest of it is not sent back."""
        state = self._signatures.alone.get(index)
        if state is None:
            if state_of(item) is None and (text_of(item.get("summary")) or item.get("content")):
                self._unused.append(index)
            return []
        if state.kind != "thought":
            return [{"text": "", "thoughtSignature": one.signature} for one in state.parts]
        parts = signed_texts(text_of(item.get("summary")), state)
        return [part | {"thought": True} for part in parts if "thoughtSignature" in part]

    def _call(self, call: Call, ids: dict[Call, str]) -> GeminiPart:
        arguments = call.item.get("arguments") or "{}"
        if not is_object(arguments):
            self.report.append(
                f"input[{call.index}].arguments: no JSON object; sent as a text in one"
            )
            arguments = msgspec.json.encode({"arguments": arguments}).decode()
        made: dict[str, Any] = {"name": self._name(call), "args": msgspec.Raw(arguments.encode())}
        if call in ids:
            made["id"] = ids[call]
        return self._signed(call.index, {"functionCall": made})

    def _name(self, call: Call) -> str:
        return name_for(str(call.item["name"]), self._aliases)

    def _signed(self, index: int, part: GeminiPart) -> GeminiPart:
        state = self._signatures.of.get(index)
        if state is None or not state.parts:
            return part
        return part | {"thoughtSignature": state.parts[0].signature}

    def _ids(self, turn: Turn) -> dict[Call, str]:
        """Return the ids that the model gave its calls. One that was minted here is none of them.

        Only a call with a signature states its id; the others of its turn have theirs then, too.
        """
        states = {call: self._signatures.of.get(call.index) for call in turn.calls}
        if not any(state is not None and state.call_id for state in states.values()):
            return {}
        return {
            call: state.call_id if state is not None and state.call_id else call.id
            for call, state in states.items()
            if (state is not None and state.call_id) or not call.id.startswith(_MINTED)
        }

    def _sign_first_call(self, turn: Turn, parts: list[GeminiPart]) -> None:
        if not self._generation.needs_signatures:
            return
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and "thoughtSignature" not in first:
            first["thoughtSignature"] = DUMMY
            self._unsigned += [call.index for call in turn.calls[:1]]

    # Results.

    def _add_results(self, calls: list[Call], ids: dict[Call, str]) -> None:
        """Add the results in one content; images that it cannot hold, in another one."""
        answers: list[GeminiPart] = []
        shown: list[GeminiPart] = []
        for call in calls:
            parts = self._result_parts(call.result)
            media = [part for part in parts if is_binary(part)]
            answer = self._answer(call, parts, has_media=bool(media))
            if call in ids:
                answer["id"] = ids[call]
            if media and self._generation.part_media:
                answer["parts"] = [_without_resolution(part) for part in media]
            elif media:
                shown += [text_part(f"Shown by a call of {self._name(call)}:"), *media]
                self.report.append(
                    f"input[{call.index}] (function_call): its images are in a user message"
                )
            answers.append({"functionResponse": answer})
        self._add("user", answers)
        if shown:
            self._add("user", shown)

    def _answer(self, call: Call, parts: list[GeminiPart], *, has_media: bool) -> dict[str, Any]:
        text = "\n".join(part["text"] for part in parts if "text" in part)
        failed = call.result is not None and call.result[1].get("status") == "incomplete"
        if has_media and not text:
            text = "(see the image)"
        return {"name": self._name(call), "response": {"error" if failed else "output": text}}

    def _result_parts(self, result: Entry | None) -> list[GeminiPart]:
        if result is None:
            return [text_part(_NO_OUTPUT)]
        index, item = result
        return self._parts.write(item.get("output"), f"input[{index}].output")

    def _add(self, role: str, parts: list[GeminiPart]) -> None:
        if not parts:
            return
        self._first = self._first or role
        last = self._contents[-1] if self._contents else None
        if last is not None and last["role"] == role and not _clash(last["parts"], parts):
            last["parts"] += parts
        else:
            self._contents.append({"role": role, "parts": parts})


def _entries(turn: Turn) -> list[Entry]:
    return [*turn.reasoning, *turn.messages, *((call.index, call.item) for call in turn.calls)]


def _clash(before: list[GeminiPart], parts: list[GeminiPart]) -> bool:
    """Return whether an image would stand beside a result: then they are no longer one to one."""
    return "functionResponse" in before[0] and any(is_binary(part) for part in parts)


def _without_resolution(part: GeminiPart) -> GeminiPart:
    return {name: value for name, value in part.items() if name != "mediaResolution"}


def _noted(places: Sequence[int], kind: str, why: str) -> list[str]:
    """Return one note for all items at these places, if there are any."""
    if not places:
        return []
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return [f"input[{places[0]}] ({kind}): {why}{more}"]
