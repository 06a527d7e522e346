"""Everything the SSE standard allows and real servers do: the text arrives whole."""

from __future__ import annotations

import pytest

from antiphon.protocol.events import ErrorEvent
from antiphon.testing import (
    BadUtf8,
    Bom,
    Call,
    Comments,
    Fault,
    LineEnds,
    NoDone,
    NoFinalBlank,
    NoSpace,
    Script,
    Split,
)
from tests.asking import ask, ask_stream, terminal
from tests.faults.house import chat_chunk, frames, open_house, open_raw_house, send_events
from tests.transport.raw import Connection, chunk, head, reply

TEXT = "Zwölf Boxkämpfer 你好 \U0001f600 \U0001f468‍\U0001f469‍\U0001f467 end"
SEPARATORS = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\r\nh\ri"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}

FAULTS: dict[str, list[Fault]] = {
    "byte by byte": [Split((1,))],
    "odd pieces": [Split((1, 7, 2, 64, 3))],
    "one piece": [Split((1_000_000,))],
    "CRLF": [LineEnds("\r\n")],
    "CR": [LineEnds("\r")],
    "CRLF byte by byte": [LineEnds("\r\n"), Split((1,))],
    "CR byte by byte": [LineEnds("\r"), Split((1,))],
    "no space": [NoSpace()],
    "comments": [Comments()],
    "BOM": [Bom()],
    "BOM byte by byte": [Bom(), Split((1,))],
    "no final blank line": [NoFinalBlank()],
    "no final blank line, no mark": [NoFinalBlank(), NoDone()],
    "all at once": [Bom(), Comments(), NoSpace(), NoFinalBlank(), LineEnds("\r\n"), Split((1, 2))],
}
every_oddity = pytest.mark.parametrize("faults", FAULTS.values(), ids=list(FAULTS))


@every_oddity
async def test_text_arrives_whole_through_every_liberty_of_the_format(faults: list[Fault]) -> None:
    async with open_house(Script(text=TEXT, faults=faults)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("completed", TEXT)
    assert response.usage is not None
    assert response.usage.output_tokens == len(TEXT.split())


@every_oddity
async def test_arguments_arrive_whole_through_every_liberty_of_the_format(
    faults: list[Fault],
) -> None:
    calls = [Call("f", '{"a": "ß \U0001f600"}'), Call("f", '{"b": 2}')]
    script = Script(calls=calls, interleave=True, faults=faults)
    async with open_house(script) as house:
        response = terminal(await ask_stream(house.gateway, tools=[TOOL]))

    assert [item["arguments"] for item in response.output] == [call.arguments for call in calls]


@pytest.mark.parametrize("faults", [[], [Split((1,))]], ids=["whole", "byte by byte"])
async def test_separators_that_are_no_line_ends_stay_text_in_both_directions(
    faults: list[Fault],
) -> None:
    async with open_house(Script(text=[SEPARATORS, SEPARATORS], faults=faults)) as house:
        events = await ask_stream(house.gateway, input=SEPARATORS)
        sent = house.upstream.requests[0].json["messages"][-1]["content"]

    assert terminal(events).output_text == SEPARATORS * 2
    assert SEPARATORS in str(sent if isinstance(sent, str) else sent[0]["text"])


async def test_an_emoji_split_in_two_halves_over_two_deltas_arrives_as_one() -> None:
    pieces = frames(
        b'{"choices":[{"index":0,"delta":{"content":"hi \\ud83d"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\\ude00 there"}}]}',
        chat_chunk({}, "stop"),
    )
    async with open_raw_house(send_events(pieces)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.output_text == "hi \U0001f600 there"


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00"])
async def test_half_an_emoji_without_its_half_becomes_a_replacement_character(half: str) -> None:
    pieces = frames(
        b'{"choices":[{"index":0,"delta":{"content":"a%b"}}]}' % half.encode(),
        chat_chunk({"content": "b"}),
        chat_chunk({}, "stop"),
    )
    async with open_raw_house(send_events(pieces)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.output_text == "a\ufffdb"


async def test_a_half_emoji_in_arguments_finds_its_half() -> None:
    def call(fragment: str) -> bytes:
        function = b'{"index":0,"id":"c","function":{"name":"f","arguments":"%b"}}'
        delta = b'{"choices":[{"index":0,"delta":{"tool_calls":[%b]}}]}'
        return delta % (function % fragment.encode())

    pieces = frames(call('{\\"a\\":\\"\\ud83d'), call('\\ude00\\"}'), chat_chunk({}, "tool_calls"))
    async with open_raw_house(send_events(pieces)) as house:
        response = terminal(await ask_stream(house.gateway, tools=[TOOL]))

    assert response.output[0]["arguments"] == '{"a":"\U0001f600"}'


async def test_bytes_that_are_no_utf8_are_replaced_and_the_rest_is_kept() -> None:
    async with open_house(Script(text="one two three", faults=[BadUtf8(3)])) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.status == "completed"
    assert response.output_text.replace("\ufffd", "") == "one two three"
    assert response.output_text.startswith("one two\ufffd")


async def test_a_character_cut_between_two_reads_is_not_replaced() -> None:
    data = frames(chat_chunk({"content": "\U0001f600"}), chat_chunk({}, "stop"))
    middle = data.index("\U0001f600".encode()) + 2
    async with open_raw_house(send_events(data[:middle], data[middle:])) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.output_text == "\U0001f600"


async def test_several_data_lines_are_one_chunk() -> None:
    data = (
        b'data: {"choices": [{"index": 0,\ndata: "delta": {"content": "hi"},\n'
        b'data: "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    )
    async with open_raw_house(send_events(data)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("completed", "hi")


async def test_comments_and_fields_without_data_say_nothing() -> None:
    data = (
        b": OPENROUTER PROCESSING\n\nretry: 10\n\nevent: ping\n\nid: 7\n\n:\n\n"
        b"data: %b\n\nevent: ping\nid: 8\n\n" % chat_chunk({"content": "hi"})
    ) + frames(chat_chunk({}, "stop"))
    async with open_raw_house(send_events(data)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("completed", "hi")


async def test_what_follows_the_end_mark_is_not_told() -> None:
    data = frames(chat_chunk({"content": "hi"}), chat_chunk({}, "stop"))
    more = frames(chat_chunk({"content": " and more"}))
    async with open_raw_house(send_events(data + more)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("completed", "hi")


async def test_an_event_that_is_named_error_is_an_error() -> None:
    data = b"data: %b\n\n" % chat_chunk({"content": "so far"})
    data += b'event: error\ndata: {"message": "out of luck", "code": "bad_luck"}\n\n'
    async with open_raw_house(send_events(data)) as house:
        events = await ask_stream(house.gateway)

    error = events[-2]
    assert isinstance(error, ErrorEvent)
    assert "out of luck" in error.message
    assert terminal(events).output_text == "so far"


@pytest.mark.parametrize("kind", ["Text/Event-Stream", "text/event-stream;charset=UTF-8"])
async def test_the_type_of_a_stream_may_be_written_in_any_way(kind: str) -> None:
    async def answer(connection: Connection) -> None:
        data = frames(chat_chunk({"content": "hi"}, "stop"))
        await connection.write(head(kind) + chunk(data) + chunk(b""))

    async with open_raw_house(answer) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.output_text == "hi"


async def test_a_whole_answer_where_a_stream_was_asked_for_is_streamed() -> None:
    async def answer(connection: Connection) -> None:
        body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
        await connection.write(reply(body))

    async with open_raw_house(answer) as house:
        response = terminal(await ask_stream(house.gateway))
        whole = await ask(house.gateway)

    assert response.output_text == "hi"
    assert whole.json["output"][0]["content"][0]["text"] == "hi"
