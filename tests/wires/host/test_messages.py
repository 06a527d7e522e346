"""Messages of the bridge as JSON."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.wires.host.messages import Answer, Options, Parts, Question, Respond, Tool
from antiphon.wires.host.parts import (
    DataPart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
)

EVERY_PART = Respond(
    id="a",
    model="m",
    messages=[
        Message(Role.SYSTEM, [TextPart("Be brief.")]),
        Message.user([TextPart("What is this?"), DataPart(b"\x89PNG", "image/png")]),
        Message.assistant(
            [
                ThinkingPart("hm", "rs_1", {"encrypted_content": "x"}),
                ToolCallPart("gw-1", "look", {"at": [1, None]}),
            ]
        ),
        Message.user([UrlPart("http://127.0.0.1/a.png", "image/png")]),
        Message.user([ToolResultPart("gw-1", [TextPart("a cat")], is_error=False)]),
    ],
    options=Options(tools=[Tool("look", "Looks.", {"type": "object"})], session="window"),
)


def test_a_question_survives_the_way_over_the_wire() -> None:
    encoded = msgspec.json.encode(EVERY_PART)
    assert b"\n" not in encoded
    assert msgspec.json.decode(encoded, type=Question) == EVERY_PART


def test_data_is_base64_and_every_part_has_its_type() -> None:
    answer = Parts(id=1, parts=[TextPart("hi"), DataPart(b"\x00\xff", "application/x-y")])
    encoded = msgspec.json.encode(answer)
    assert msgspec.json.decode(encoded) == {
        "type": "parts",
        "id": 1,
        "parts": [
            {"type": "text", "value": "hi"},
            {"type": "data", "data": "AP8=", "mime": "application/x-y"},
        ],
    }
    assert msgspec.json.decode(encoded, type=Answer) == answer


def test_fields_that_are_not_known_are_ignored() -> None:
    found = msgspec.json.decode(b'{"type":"models","id":1,"shiny":true}', type=Question)
    assert found.id == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"models"}',
        b'{"type":"respond","id":1,"model":"m","messages":[{"role":"robot","content":[]}]}',
        b'{"type":"respond","id":1,"model":"m","messages":[{"role":"user","content":"hi"}]}',
        b'{"type":"sing","id":1}',
        b"[]",
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(line, type=Question)


def test_the_role_is_a_word() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Message(Role.USER, []))) == {
        "role": "user",
        "content": [],
        "name": None,
    }
