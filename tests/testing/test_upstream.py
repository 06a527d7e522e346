"""The scripted upstream: it says what the script says, and misbehaves as ordered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from antiphon.testing import (
    BadUtf8,
    Bom,
    Call,
    Close,
    Comments,
    ContentType,
    Cut,
    Empty,
    Endless,
    ErrorChunk,
    Fault,
    Garbage,
    Gzip,
    Html,
    HugeLine,
    IdleClose,
    LineEnds,
    NoDone,
    NoFinalBlank,
    NoSpace,
    Reset,
    Script,
    ScriptedUpstream,
    Split,
    Stall,
    Status,
)

ASK: dict[str, Any] = {
    "model": "echo",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "hello big world"}],
}


class Answer:
    """What came back: the head, the body as far as it got, and how it broke."""

    def __init__(self, status: int, headers: Any) -> None:
        self.status = status
        self.headers = headers
        self.body = b""
        self.reads: list[bytes] = []
        self.error: Exception | None = None

    @property
    def chunks(self) -> list[dict[str, Any]]:
        lines = self.body.decode().splitlines()
        data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
        return [json.loads(line) for line in data if line != "[DONE]"]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [chunk["choices"][0]["delta"] for chunk in self.chunks if chunk.get("choices")]

    def joined(self, field: str) -> str:
        return "".join(delta.get(field) or "" for delta in self.deltas)


async def ask(upstream: ScriptedUpstream, **fields: Any) -> Answer:
    url = f"{upstream.base_url}/chat/completions"
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.post(url, json={**ASK, **fields}) as reply,
    ):
        answer = Answer(reply.status, reply.headers)
        try:
            async for data in reply.content.iter_any():
                answer.body += data
                answer.reads.append(data)
        except aiohttp.ClientError as error:
            answer.error = error
        return answer


async def ask_one(*faults: Fault, **fields: Any) -> Answer:
    async with ScriptedUpstream(Script(text="a b c", faults=faults)) as upstream:
        return await ask(upstream, **fields)


@contextlib.asynccontextmanager
async def connected(upstream: ScriptedUpstream) -> AsyncIterator[asyncio.StreamReader]:
    """Send the question over a bare socket; the caller reads, and the socket is then closed."""
    port = int(upstream.base_url.rpartition(":")[2].removesuffix("/v1"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(ASK).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()


async def test_it_echoes_the_last_user_message_and_counts_words() -> None:
    async with ScriptedUpstream() as upstream:
        answer = await ask(upstream)
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.joined("content") == "hello big world"
    assert answer.chunks[-1]["usage"]["total_tokens"] == 6
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_a_whole_answer_says_the_same_as_a_stream() -> None:
    script = Script(reasoning="let me see", text="It is cold.", calls=[Call("f", '{"a": 1}')])
    async with ScriptedUpstream(script) as upstream:
        streamed = await ask(upstream)
        answer = json.loads((await ask(upstream, stream=False)).body)
    message = answer["choices"][0]["message"]
    assert message["content"] == streamed.joined("content") == "It is cold."
    assert message["reasoning_content"] == streamed.joined("reasoning_content") == "let me see"
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["usage"] == streamed.chunks[-1]["usage"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_out_in_the_field_that_was_chosen(field: Any) -> None:
    script = Script(reasoning="so and so", text="yes", reasoning_as=field)
    async with ScriptedUpstream(script) as upstream:
        assert (await ask(upstream)).joined(field) == "so and so"


async def test_reasoning_can_go_out_as_think_tags() -> None:
    async with ScriptedUpstream(Script(reasoning="hm", text="yes", reasoning_as="think")) as up:
        assert (await ask(up)).joined("content") == "<think>hm</think>yes"


async def test_a_refusal_has_its_own_field() -> None:
    async with ScriptedUpstream(Script(refusal="I will not.")) as upstream:
        assert (await ask(upstream)).joined("refusal") == "I will not."


async def test_arguments_of_two_calls_can_interleave() -> None:
    calls = [Call("f", '{"text": "one two"}'), Call("g", '{"text": "three four"}')]
    async with ScriptedUpstream(Script(calls=calls, interleave=True)) as upstream:
        answer = await ask(upstream)
    pieces = [delta["tool_calls"][0] for delta in answer.deltas if "tool_calls" in delta]
    assert [piece["index"] for piece in pieces[:4]] == [0, 1, 0, 1]
    for index, call in enumerate(calls):
        grown = [p["function"]["arguments"] for p in pieces if p["index"] == index]
        assert "".join(grown) == call.arguments


async def test_usage_is_sent_only_when_asked_for_and_known() -> None:
    async with ScriptedUpstream([Script(text="a"), Script(text="a", usage=None)]) as upstream:
        unasked = await ask(upstream, stream_options=None)
        unknown = await ask(upstream)
    assert not any("usage" in chunk for chunk in unasked.chunks + unknown.chunks)


async def test_requests_are_remembered_with_headers_and_body() -> None:
    async with ScriptedUpstream() as upstream:
        await ask(upstream, temperature=0.5)
        request = await upstream.received()
    assert request.json["temperature"] == 0.5
    assert request.headers["content-type"] == "application/json"
    assert not request.client_left.is_set()


async def test_models_are_listed() -> None:
    async with (
        ScriptedUpstream(models=["a", "b"]) as upstream,
        aiohttp.ClientSession() as session,
        session.get(f"{upstream.base_url}/models") as reply,
    ):
        assert [model["id"] for model in (await reply.json())["data"]] == ["a", "b"]


async def test_failures_come_before_success_when_the_scripts_say_so() -> None:
    busy = Script(faults=[Status(429, "slow down", headers={"Retry-After": "2"})])
    async with ScriptedUpstream([busy, busy, Script(text="at last")]) as upstream:
        answers = [await ask(upstream) for _ in range(4)]
    assert [answer.status for answer in answers] == [429, 429, 200, 200]
    assert answers[0].headers["Retry-After"] == "2"
    assert json.loads(answers[0].body)["error"]["message"] == "slow down"


async def test_html_empty_bodies_and_wrong_types_are_200s() -> None:
    html, empty = await ask_one(Html()), await ask_one(Empty())
    wrong = await ask_one(ContentType("text/plain"))
    assert [html.status, empty.status, wrong.status] == [200, 200, 200]
    assert (html.headers["Content-Type"], html.body[:9]) == ("text/html", b"<!doctype")
    assert empty.body == b""
    assert wrong.headers["Content-Type"] == "text/plain"
    assert wrong.joined("content") == "a b c"


async def test_a_reset_is_a_reset_after_the_chunks_before_it() -> None:
    script = Script(text="a b c", faults=[Reset(after=2)])
    received = b""
    async with ScriptedUpstream(script) as upstream, connected(upstream) as reader:
        with pytest.raises(ConnectionResetError):
            while data := await reader.read(65536):
                received += data
    assert received.count(b"data: ") == 2


async def test_a_cut_ends_the_connection_without_ending_the_body() -> None:
    answer = await ask_one(Cut(after=2))
    assert isinstance(answer.error, aiohttp.ClientPayloadError)
    assert len(answer.chunks) == 2


async def test_a_close_ends_the_body_without_ending_the_answer() -> None:
    answer = await ask_one(Close(after=2))
    assert answer.error is None
    assert len(answer.chunks) == 2
    assert b'finish_reason":"' not in answer.body


@pytest.mark.parametrize("fault", [Reset(), Cut()])
async def test_a_whole_answer_breaks_in_the_middle(fault: Fault) -> None:
    answer = await ask_one(fault, stream=False)
    assert answer.error is not None
    assert answer.body.startswith(b'{"id"')


async def test_a_stall_lasts_until_it_is_released() -> None:
    async with ScriptedUpstream(Script(text="a b", faults=[Stall(after=2)])) as upstream:
        asking = asyncio.ensure_future(ask(upstream))
        request = await upstream.received()
        await request.stalled.wait()
        assert not asking.done()
        upstream.release()
        assert (await asking).joined("content") == "a b"


async def test_a_client_that_leaves_a_stall_is_noticed() -> None:
    async with ScriptedUpstream(Script(text="a b", faults=[Stall(after=1)])) as upstream:
        async with connected(upstream) as reader:
            await reader.readuntil(b"assistant")
            request = await upstream.received()
            assert not request.client_left.is_set()
        await asyncio.wait_for(request.client_left.wait(), 60)
        assert request.client_left_at is not None


async def test_an_endless_stream_runs_until_the_client_leaves() -> None:
    async with ScriptedUpstream(Script(faults=[Endless(after=1)])) as upstream:
        async with connected(upstream) as reader:
            for _ in range(50):
                await reader.readuntil(b"again ")
        request = await upstream.received()
        await asyncio.wait_for(request.client_left.wait(), 60)
        assert request.chunks_sent >= 50


async def test_garbage_comes_between_good_chunks() -> None:
    answer = await ask_one(Garbage(after=2))
    assert b'"cont\n\n' in answer.body
    assert answer.body.endswith(b"[DONE]\n\n")


async def test_invalid_utf8_comes_between_good_chunks() -> None:
    assert b'"content":"\xff\xfe"' in (await ask_one(BadUtf8(after=2))).body


async def test_a_huge_line_is_as_long_as_it_says() -> None:
    answer = await ask_one(HugeLine(size=1_000_000, after=1))
    assert max(map(len, answer.body.split(b"\n"))) == 1_000_000 + len(b"data: ")
    assert answer.body.endswith(b"[DONE]\n\n")


async def test_an_error_object_ends_the_stream() -> None:
    answer = await ask_one(ErrorChunk(after=2, error={"message": "no more", "code": 500}))
    assert answer.chunks[-1] == {"error": {"message": "no more", "code": 500}}
    assert b"[DONE]" not in answer.body


async def test_gzip_is_announced_and_real() -> None:
    answer = await ask_one(Gzip())
    assert answer.headers["Content-Encoding"] == "gzip"
    answer.body = zlib.decompress(answer.body, wbits=31)
    assert answer.joined("content") == "a b c"


async def test_a_split_changes_the_reads_but_not_the_bytes() -> None:
    plain, split = await ask_one(), await ask_one(Split([1, 2, 3]))
    assert split.body == plain.body
    assert len(split.reads) > len(plain.reads)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
async def test_line_ends_are_as_ordered(end: Any) -> None:
    plain, other = await ask_one(), await ask_one(LineEnds(end))
    assert other.body == plain.body.replace(b"\n", end.encode())


async def test_the_small_liberties_of_the_format() -> None:
    plain = (await ask_one()).body
    assert (await ask_one(NoSpace())).body == plain.replace(b"data: ", b"data:")
    assert (await ask_one(Bom())).body == b"\xef\xbb\xbf" + plain
    assert (await ask_one(NoFinalBlank())).body == plain.rstrip(b"\n")
    assert (await ask_one(NoDone())).body == plain.replace(b"data: [DONE]\n\n", b"")
    noisy = (await ask_one(Comments())).body
    assert noisy.startswith(b": comment\nevent: ping\n\ndata: ")
    assert noisy.replace(b": comment\nevent: ping\n\n", b"") == plain


async def test_one_connection_serves_many_requests() -> None:
    async with ScriptedUpstream() as upstream, aiohttp.ClientSession() as session:
        url = f"{upstream.base_url}/chat/completions"
        for _ in range(3):
            async with session.post(url, json=ASK) as reply:
                assert (await reply.read()).endswith(b"[DONE]\n\n")
        assert len(upstream.requests) == 3


async def test_leaving_the_upstream_ends_what_it_is_doing() -> None:
    async with ScriptedUpstream(Script(faults=[Stall()])) as upstream:
        asking = asyncio.ensure_future(ask(upstream))
        await (await upstream.received()).stalled.wait()
    assert (await asking).error is not None


async def test_an_echo_ends_at_its_limit() -> None:
    async with ScriptedUpstream() as upstream:
        messages = [{"role": "user", "content": "one two three four"}]
        answer = await ask(upstream, messages=messages, max_tokens=2, stream=False)

    choice = json.loads(answer.body)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == "one two"


async def _ask_twice(fault: IdleClose) -> tuple[bytes, bytes]:
    """Ask, wait until the connection is closed if it is, ask again; return both readings."""
    async with ScriptedUpstream(Script(text="a b c", faults=[fault])) as upstream:
        port = int(upstream.base_url.rpartition(":")[2].removesuffix("/v1"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(ASK).encode()
        request = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        async with asyncio.timeout(30):
            writer.write(request + body)
            first = await reader.readuntil(b"\r\n0\r\n\r\n")
            if fault.crosses:
                writer.write(request + body)
            try:
                second = await reader.read()
            except ConnectionResetError:
                second = b""
        writer.close()
        return first, second


@pytest.mark.parametrize("fault", [IdleClose(seconds=0.01), IdleClose(crosses=True)])
async def test_an_idle_connection_is_closed_unannounced_after_a_whole_answer(
    fault: IdleClose,
) -> None:
    first, second = await _ask_twice(fault)
    assert b"[DONE]" in first
    assert b"connection: close" not in first.lower()
    assert second == b""


async def test_a_request_that_comes_in_time_keeps_its_connection() -> None:
    script = [Script(text="a", faults=[IdleClose(seconds=3600)]), Script(text="b")]
    async with ScriptedUpstream(script) as upstream, aiohttp.ClientSession() as session:
        for _ in range(2):
            url = f"{upstream.base_url}/chat/completions"
            async with session.post(url, json=ASK) as reply:
                assert (await reply.read()).endswith(b"data: [DONE]\n\n")
        assert len(upstream.requests) == 2
