"""The Responses door writes what the codec writes, with the heartbeat that a client needs."""

from __future__ import annotations

import pytest

from antiphon.protocol.codec import Dialect, encode_all_sse, encode_response
from antiphon.protocol.events import Event, OutputTextDelta, ResponseCreated
from antiphon.protocol.response import Response
from antiphon.wires.responses.door import ResponsesDoor, ResponsesEncoder

EVENTS: list[Event] = [
    ResponseCreated(sequence_number=0, response=Response(id="resp_1")),
    OutputTextDelta(
        sequence_number=1, item_id="msg_1", output_index=0, content_index=0, delta="hi"
    ),
]


@pytest.mark.parametrize("dialect", ["openai", "open-responses"])
def test_the_door_writes_what_the_codec_writes(dialect: Dialect) -> None:
    asked = ResponsesDoor(dialect).read(b'{"model":"m","input":"x"}', {})
    encoder = asked.encoder()

    assert (asked.request.model, asked.request.input) == ("m", "x")
    assert encoder.encode(EVENTS) == encode_all_sse(EVENTS, dialect)
    assert encoder.end() == b"data: [DONE]\n\n"
    assert asked.write_whole(Response(id="r")) == encode_response(Response(id="r"), dialect)


def test_codex_gets_a_heartbeat_that_is_an_event() -> None:
    assert ResponsesEncoder("openai", "codex_cli_rs/1.0").heartbeat.startswith(b"event: keepalive")
    assert ResponsesEncoder("openai", "curl/8").heartbeat.startswith(b":")
    assert ResponsesEncoder("open-responses", "codex/1").heartbeat.startswith(b":")
