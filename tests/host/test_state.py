"""Markers of state: which answer a conversation may be continued from.

The property is checked on random conversations that an application changes at random, and for
planted bugs: a digest that overlooks something must be noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from antiphon.client.conversation import ConversationCache, Thread
from antiphon.client.history import fingerprint, new_items
from antiphon.client.parameters import Params
from antiphon.host import DataPart, Message, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from antiphon.host import state as state_module
from antiphon.host.state import STATE_MIME, ConversationState, show_usage
from antiphon.host.translate import TranslateSettings, translate_messages
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response, Usage
from antiphon.wires.host.parts import Part, ResponsePart, Role

SETTINGS = TranslateSettings(call_prefix="gw-")
SERVER = "http://127.0.0.1:4680/v1"
FIRST = [Message.system("Be brief."), Message.user("first")]
LINK = " [A](https://a.example/)"
ANSWER: list[ResponsePart] = [
    ThinkingPart("hm", "rs_1"),
    TextPart("Let me "),
    TextPart("look."),
    TextPart(LINK),
    ToolCallPart("gw-call_1", "look", {"at": "sea", "far": True}),
]
PICTURE = DataPart(b"\x89PNG", "image/png")
RESULT = Message.user([ToolResultPart("gw-call_1", [TextPart("waves")])])


def _mark(
    messages: Sequence[Message], shown: Sequence[ResponsePart], response_id: str, model: str = "m"
) -> DataPart:
    response = Response(id=response_id, model=model, status="completed")
    marker = ConversationState(SERVER, model, messages, SETTINGS).mark(
        shown, response, is_stored=True
    )
    assert marker is not None
    return marker


def _resume(messages: Sequence[Message], params: Params | None = None) -> Thread | None:
    """Return the thread that a request with these messages continues."""
    cache = ConversationCache()
    params = {} if params is None else params
    ConversationState(SERVER, "m", messages, SETTINGS).resume(params, cache)
    session = params.get("session")
    return cache.get(session, "m") if session else None


def _answered(content: Sequence[Part]) -> list[Message]:
    return [*FIRST, Message.assistant(content), RESULT]


MARKER = _mark(FIRST, ANSWER, "resp_1")


@pytest.mark.parametrize(
    "messages",
    [
        _answered([*ANSWER, MARKER]),
        _answered([MARKER, *ANSWER]),
        _answered([TextPart(f"Let me look.{LINK}"), ANSWER[-1], MARKER]),
        [*FIRST, Message.assistant(ANSWER[:4]), Message.assistant([ANSWER[4], MARKER]), RESULT],
        [*FIRST, Message.assistant([MARKER, *ANSWER[:4]]), Message.assistant(ANSWER[4:]), RESULT],
        [Message.system("Be long."), *_answered([*ANSWER, MARKER])[1:]],
        _answered([*ANSWER, show_usage(Usage()), MARKER, DataPart(b"m\\foreign", STATE_MIME)]),
        _answered([*ANSWER, DataPart(MARKER.data.replace(b"m\\", b"vendor/m\\"), STATE_MIME)]),
    ],
    ids=["kept", "marker first", "joined", "split", "split after", "prompt", "others", "renamed"],
)
def test_a_conversation_that_says_the_same_is_continued(messages: list[Message]) -> None:
    thread = _resume(messages)
    assert thread is not None
    assert thread.response_id == "resp_1"
    items = translate_messages(messages, SETTINGS).items
    new = new_items(thread.items, items)
    assert new == [{"type": "function_call_output", "call_id": "call_1", "output": "waves"}]


def _call(**changes: Any) -> ToolCallPart:
    fields: dict[str, Any] = {"call_id": "gw-call_1", "name": "look", "input": ANSWER[-1].input}  # type: ignore[union-attr]
    return ToolCallPart(**(fields | changes))


@pytest.mark.parametrize(
    "messages",
    [
        [FIRST[0], Message.user("1st"), *_answered([*ANSWER, MARKER])[2:]],
        [FIRST[0], *_answered([*ANSWER, MARKER])[2:]],
        [Message.user("new"), *_answered([*ANSWER, MARKER])],
        _answered([TextPart("Let us look."), *ANSWER[3:], MARKER]),
        _answered([*ANSWER[:4], MARKER]),
        _answered([*ANSWER[:4], _call(call_id="gw-call_2"), MARKER]),
        _answered([*ANSWER[:4], _call(name="listen"), MARKER]),
        _answered([*ANSWER[:4], _call(input={"at": "sea", "far": False}), MARKER]),
        [Message.user([*FIRST[1].content, PICTURE]), *_answered([*ANSWER, MARKER])[2:]],
        _answered([*ANSWER, _mark(FIRST, ANSWER, "resp_1", "other")]),
        _answered([*ANSWER, DataPart(b"m\\resp_1", STATE_MIME)]),
        _answered([*ANSWER, DataPart(b"", STATE_MIME)]),
        _answered([*ANSWER, DataPart(b"\xff\xfe\\1::", STATE_MIME)]),
        [*FIRST, Message.user([MARKER]), RESULT],
    ],
)
def test_a_conversation_that_says_something_else_is_not(messages: list[Message]) -> None:
    assert _resume(messages) is None


def test_of_several_markers_the_last_that_holds_is_used() -> None:
    base = _answered([*ANSWER, MARKER])
    said = [TextPart("Waves.")]
    second = _mark(base, said, "resp_2")
    whole = [*base, Message.assistant([*said, second]), Message.user("And?")]
    changed = [*base, Message.assistant([TextPart("Sand."), second]), Message.user("And?")]
    ids = [thread and thread.response_id for thread in map(_resume, (whole, changed))]
    assert ids == ["resp_2", "resp_1"]


@pytest.mark.parametrize("name", ["previous_response_id", "conversation"])
def test_a_request_that_names_its_place_is_left_alone(name: str) -> None:
    params: Params = {name: "x", "session": "s"}  # type: ignore[misc]
    assert _resume(_answered([*ANSWER, MARKER]), params) is None
    assert params == {name: "x", "session": "s"}


def test_what_a_session_has_cost_stays_when_its_place_changes() -> None:
    cache, params = ConversationCache(), Params(session="s")
    cache.set("s", "m", Thread("resp_9", tokens=70, items=({"type": "message"},)))
    state = ConversationState(SERVER, "m", _answered([*ANSWER, MARKER]), SETTINGS)
    state.resume(params, cache)
    found = cache.get("s", "m")
    assert found is not None
    assert (found.response_id, found.tokens) == ("resp_1", 70)


# Random conversations.


class _World:
    """A server and an application: what each response knew, and what the messages show."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.messages: list[Message] = []
        self.knew: dict[str, list[Item]] = {}

    def take_turn(self) -> None:
        """Ask something, and get an answer with its marker."""
        self.messages.append(Message.user(self.dice.choice("ab")))
        shown: list[ResponsePart] = [TextPart(self.dice.choice("xy"))]
        if self.dice.random() < 0.5:
            shown.append(
                ToolCallPart(f"c{self.dice.randrange(3)}", "f", {"a": self.dice.random() < 0.5})
            )
        response_id = f"resp_{len(self.knew)}"
        marker = _mark(self.messages, shown, response_id)
        self.messages.append(Message.assistant([*shown, marker]))
        self.knew[response_id] = translate_messages(self.messages, SETTINGS).items
        if isinstance(shown[-1], ToolCallPart):
            result = ToolResultPart(shown[-1].call_id, [TextPart(self.dice.choice("12"))])
            self.messages.append(Message.user([result]))

    def change(self) -> None:
        """Change one message, as an editor or its user does."""
        place = self.dice.randrange(len(self.messages))
        match self.dice.randrange(5):
            case 0:
                del self.messages[place]
            case 1:
                self.messages.insert(place, Message.user(self.dice.choice("ab")))
            case 2:
                message = self.messages[place]
                kept = [part for part in message.content if not isinstance(part, TextPart)]
                text = TextPart(self.dice.choice("abxy"))
                self.messages[place] = Message(message.role, [text, *kept])
            case 3:
                message = self.messages[place]
                changed = [self._other(part) for part in message.content]
                self.messages[place] = Message(message.role, changed)
            case _:
                message = self.messages[place]
                role = Role.USER if message.role is Role.ASSISTANT else Role.ASSISTANT
                plain = [it for it in message.content if isinstance(it, TextPart | DataPart)]
                self.messages[place] = Message(role, plain)

    def _other(self, part: Part) -> Part:
        """Return another call or another result; any other part as it is."""
        call_id = f"c{self.dice.randrange(3)}"
        match part:
            case ToolCallPart() if self.dice.random() < 0.5:
                return ToolCallPart(part.call_id, "f", {"a": self.dice.random() < 0.5})
            case ToolCallPart():
                return ToolCallPart(call_id, "f", part.input)
            case ToolResultPart() if self.dice.random() < 0.5:
                return ToolResultPart(part.call_id, [TextPart(self.dice.choice("12"))])
            case ToolResultPart():
                return ToolResultPart(call_id, part.content)
        return part

    def check(self) -> int:
        """Check that what is continued is what the messages show; return whether any was."""
        messages = [*self.messages, Message.user("next")]
        thread = _resume(messages)
        if thread is None or thread.response_id is None:
            return 0
        items = translate_messages(messages, SETTINGS).items
        assert new_items(self.knew[thread.response_id], items) is not None
        return 1


def _play(seed: int, rounds: int = 200) -> int:
    """Play conversations, with some changes; return how many could be continued."""
    dice, continued = random.Random(seed), 0
    for _ in range(rounds):
        world = _World(dice)
        for _ in range(dice.randrange(1, 5)):
            world.take_turn()
        for _ in range(dice.randrange(3)):
            world.change()
        if world.messages:
            continued += world.check()
    return continued


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_continued_that_the_messages_do_not_show(seed: int) -> None:
    assert _play(seed) > 20


def _without(*names: str) -> Callable[[Sequence[Item]], str]:
    def digest(items: Sequence[Item]) -> str:
        kept = [{k: v for k, v in item.items() if k not in names} for item in items]
        return fingerprint(kept)

    return digest


@pytest.mark.parametrize(
    "bug",
    [
        lambda items: "same",
        lambda items: str(len(items)),
        lambda items: fingerprint(items[-1:]),
        lambda items: fingerprint(items[:1]),
        _without("output"),
        _without("arguments"),
        _without("call_id"),
        _without("role"),
        _without("content"),
    ],
    ids=["same", "count", "last", "first", "output", "arguments", "call_id", "role", "content"],
)
def test_a_digest_that_overlooks_something_is_noticed(
    bug: Callable[[Sequence[Item]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "fingerprint", bug)
    with pytest.raises(AssertionError):
        for seed in range(20):
            _play(seed)
