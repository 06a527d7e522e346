"""A chat backend against real sockets: answers, refusals, faults, retries, hanging up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.backends import http
from antiphon.backends.base import Backend, DeltaRefused, ModelInfo
from antiphon.backends.chat import ChatBackend
from antiphon.engine.run.ask_route import ask_route
from antiphon.plans.plan import Plan, make_plan
from antiphon.protocol.deltas import (
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.request import read_request
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.faults import Cut
from antiphon.transport.http import Limits, Secret
from antiphon.wires.chat.profiles import Profile
from tests.building import assessed
from tests.paying import charges_of
from tests.playing import Collected, play_into, said
from tests.routing.making import alone
from tests.transport.raw import Connection, RawServer, Request, chunk, head, raw_server, reply

EVENTS = head("text/event-stream")
DONE = b"data: [DONE]\n\n"
LAST = chunk(b"")


def event(finish_reason: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


def completion(text: str) -> bytes:
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]}).encode()


def refusal(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


WHOLE = EVENTS + chunk(event(content="Hi") + event("stop") + DONE) + LAST
SAID = [TextGrew("Hi"), Stopped("stop")]


class Answers:
    """Answers request after request with the bytes given; then hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)

    async def __call__(self, _: Request, connection: Connection) -> None:
        if not self._answers or not (answer := self._answers.pop(0)):
            connection.reset()
            return
        await connection.write(answer)


class Naps:
    """Stands in for sleep: returns at once and remembers how long it was asked to wait."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def plan(**fields: Any) -> Plan:
    return Plan(**{"model": "m", "items": [{"role": "user", "content": "hi"}], **fields})


def backend_for(server: RawServer, naps: Naps | None = None, **settings: Any) -> ChatBackend:
    settings.setdefault("sleep", naps or Naps())
    return ChatBackend(server.url + "/v1/", jitter=lambda: 0.0, **settings)


class Asked(Collected):
    """Takes what a backend produces when it is asked as a turn asks it, again if it fails."""

    def note_degraded(self, notes: Sequence[str], *, is_said: bool) -> None:
        self.batches.append([Degraded(note) for note in notes])

    def check_reader(self) -> None:
        return

    def begin_round(self, plan: Plan, *, continues: bool) -> None:
        return


async def ask(backend: ChatBackend, **fields: Any) -> tuple[list[Delta], BackendError | None]:
    """Return all that the model said, and how it failed if it did. Closes the backend."""
    sink = Asked()
    try:
        await ask_route(alone(backend), plan(**fields), (), sink, charges_of())
    except BackendError as error:
        return sink.deltas, error
    finally:
        await backend.close()
    assert all(sink.batches)
    return sink.deltas, None


async def answer_to(*answers: bytes, **fields: Any) -> tuple[list[Delta], BackendError | None]:
    async with raw_server(Answers(*answers)) as server:
        return await ask(backend_for(server), **fields)


# Answers.


@pytest.mark.requirement("003-flow-5")
async def test_a_plan_is_posted_and_the_answer_streamed() -> None:
    async with raw_server(Answers(WHOLE)) as server:
        backend: Backend = backend_for(server, key=Secret("sk-1"), headers={"X-Team": "blue"})
        assert isinstance(backend, ChatBackend)
        assert await ask(backend, instructions="be kind") == (SAID, None)
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["x-team"] == "blue"
    body = json.loads(request.body)
    assert (body["model"], body["stream"]) == ("m", True)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


async def test_what_cannot_be_honoured_is_said_before_anything_is_sent() -> None:
    async with raw_server(Answers(WHOLE)) as server:
        backend = backend_for(server)
        opened = await backend.open(plan(extra={"moderation": {}}))
        assert list(opened.degraded) == ["moderation: this backend cannot send it"]
        await backend.close()
        assert server.requests == []


async def test_each_read_of_the_wire_is_one_batch() -> None:
    sink = Collected()

    async def tell(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(content="a") + event(content="b")))
        await sink.has_more.wait()
        await connection.write(chunk(event("stop") + DONE) + LAST)

    async with raw_server(tell) as server:
        backend = backend_for(server)
        await play_into(sink, backend, plan())
        await backend.close()
    assert sink.batches == [[TextGrew("a"), TextGrew("b")], [Stopped("stop")]]


async def test_the_connection_is_kept_after_an_answer() -> None:
    async def tell(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(content="Hi") + event("stop") + DONE))
        # The end of the body comes after the end of the answer has been read.
        for _turn in range(5):
            await asyncio.sleep(0)
        await connection.write(LAST)

    async with raw_server(tell) as server:
        backend = backend_for(server)
        for _ in range(3):
            assert await said(backend, plan()) == SAID
        await backend.close()
    assert server.connections == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("answer", [WHOLE, reply(completion("Hi"))], ids=["events", "json"])
async def test_the_answer_is_read_as_what_it_is(stream: bool, answer: bytes) -> None:
    assert await answer_to(answer, stream=stream) == (SAID, None)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_without_a_type_is_what_was_asked_for(stream: bool) -> None:
    body = event(content="Hi") + event("stop") + DONE if stream else completion("Hi")
    bare = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert await answer_to(bare + body, stream=stream) == (SAID, None)


async def test_a_finish_reason_without_end_mark_is_an_end() -> None:
    assert await answer_to(EVENTS + chunk(event("stop", content="Hi")) + LAST) == (SAID, None)


async def test_nobody_waits_long_for_words_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_AFTERWORD", 0.05)

    async def never_end(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event("stop", content="Hi")))
        await connection.until_closed()
        server.closed.set()

    async with raw_server(never_end) as server:
        assert await ask(backend_for(server)) == (SAID, None)
        await server.closed.wait()


async def test_a_profile_may_leave_tags_in_the_text() -> None:
    answer = reply(completion("<think>a</think>"))
    async with raw_server(Answers(answer)) as server:
        plainly = Profile(name="x", think_tags=False)
        said, _ = await ask(backend_for(server, profile=plainly))
    assert said[0] == TextGrew("<think>a</think>")


# Faults.


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<html>hello</html>", content_type="text/html"),
        reply(b"hello", content_type="text/plain"),
        reply(b""),
        reply(b"", content_type="text/event-stream"),
        reply(b"{}"),
        reply(b"not json"),
        reply(b"", status="302 Found"),
    ],
    ids=["html", "plain", "empty json", "empty events", "no choices", "garbage", "redirect"],
)
async def test_an_answer_that_is_none_is_invalid_and_not_asked_for_again(answer: bytes) -> None:
    async with raw_server(Answers(answer, WHOLE)) as server:
        said, error = await ask(backend_for(server))
    assert error is not None
    assert (said, error.status, error.code) == ([], 502, "upstream_invalid_response")
    assert len(server.requests) == 1


async def test_a_reset_in_mid_stream_keeps_the_prefix_and_is_not_repeated() -> None:
    async def break_off(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(content="Hi")))
        connection.writer.close()

    async with raw_server(break_off) as server:
        said, error = await ask(backend_for(server))
    assert error is not None
    assert (said, error.code) == ([TextGrew("Hi")], "upstream_closed")
    assert len(server.requests) == 1


async def test_a_clean_end_without_any_mark_is_a_fault() -> None:
    said, error = await answer_to(EVENTS + chunk(event(content="Hi")) + LAST)
    assert error is not None
    assert (said, error.code) == ([TextGrew("Hi")], "upstream_closed")


async def test_an_error_in_mid_stream_keeps_the_prefix_and_the_message() -> None:
    broken = b"data: %b\n\n" % refusal("out of memory")
    said, error = await answer_to(EVENTS + chunk(event(content="Hi") + broken) + LAST)
    assert error is not None
    assert said == [TextGrew("Hi")]
    assert "out of memory" in error.message


async def test_a_stall_in_mid_stream_keeps_the_prefix() -> None:
    async def stall(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(content="Hi")))
        await connection.until_closed()
        server.closed.set()

    async with raw_server(stall) as server:
        said, error = await ask(backend_for(server, limits=Limits(idle=0.1)))
        await server.closed.wait()
    assert error is not None
    assert (said, error.status, error.code) == ([TextGrew("Hi")], 504, "upstream_timeout")


async def test_a_line_over_the_limit_is_a_fault() -> None:
    flood = EVENTS + chunk(event(content="Hi")) + chunk(b"data: " + b"x" * 5000)
    async with raw_server(Answers(flood)) as server:
        _, error = await ask(backend_for(server, limits=Limits(line=1000)))
    assert error is not None
    assert error.code == "upstream_invalid_response"


async def test_a_failed_whole_answer_gives_what_it_has() -> None:
    body = completion("Hi").replace(b'"stop"', b'"error"')
    said, error = await answer_to(reply(body), stream=False)
    assert said == [TextGrew("Hi")]
    assert error is not None


# Refusals.


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (reply(refusal("no"), status="401 No"), 502, "upstream_auth"),
        (reply(refusal("The model `m` does not exist"), status="404 No"), 404, "model_not_found"),
        (reply(b"", status="404 No"), 502, "upstream_refused"),
        (reply(refusal("no", code="bad", param="top_p"), status="400 No"), 400, "bad"),
        (
            reply(refusal("no", code="insufficient_quota"), status="429 No"),
            429,
            "insufficient_quota",
        ),
    ],
)
async def test_a_refusal_is_translated_and_not_asked_for_again(
    answer: bytes, status: int, code: str
) -> None:
    async with raw_server(Answers(answer, WHOLE)) as server:
        said, error = await ask(backend_for(server))
    assert error is not None
    assert (said, error.status, error.code) == ([], status, code)
    assert len(server.requests) == 1


async def test_too_long_a_context_is_known() -> None:
    answer = reply(refusal("maximum context length is 5 tokens"), status="400 No")
    _, error = await answer_to(answer)
    assert isinstance(error, ContextOverflow)


async def test_an_upstream_that_wants_a_key_names_the_flag_for_it() -> None:
    answer = reply(refusal("Missing bearer"), status="401 No")
    async with raw_server(Answers(answer)) as server:
        _, without = await ask(backend_for(server))
    async with raw_server(Answers(answer)) as server:
        _, refused = await ask(backend_for(server, key=Secret("sk-1")))
    assert without is not None
    assert refused is not None
    assert "--upstream-key-env NAME" in without.message
    assert "--upstream-key-env" not in refused.message
    assert without.code == refused.code == "upstream_auth"


async def test_a_key_in_a_message_is_cut_out() -> None:
    answer = reply(refusal("key sk-secret may not do that"), status="400 No")
    async with raw_server(Answers(answer)) as server:
        _, error = await ask(backend_for(server, key=Secret("sk-secret")))
    assert error is not None
    assert error.message == str(error) == "key *** may not do that"


# Retries.

BUSY = reply(refusal("busy"), status="503 Busy")


async def test_a_passing_fault_of_the_only_deployment_is_tried_again() -> None:
    naps = Naps()
    # The hang-up hits the connection that BUSY came over, so it is no attempt.
    async with raw_server(Answers(BUSY, b"", WHOLE)) as server:
        assert await ask(backend_for(server, naps)) == (SAID, None)
    assert naps.taken == [0.5]
    assert len(server.requests) == 3


async def test_two_attempts_are_enough_for_a_server_that_fails() -> None:
    async with raw_server(Answers(BUSY, BUSY, WHOLE)) as server:
        said, error = await ask(backend_for(server))
    assert error is not None
    assert (said, error.status) == ([], 503)
    assert len(server.requests) == 2


async def test_degraded_is_said_once_however_many_attempts() -> None:
    said, _ = await answer_to(BUSY, WHOLE, extra={"moderation": {}})
    assert [type(delta) for delta in said] == [Degraded, TextGrew, Stopped]


async def test_the_servers_wish_is_obeyed_within_the_budget() -> None:
    naps = Naps()
    slow = reply(refusal("slow down"), "Retry-After: 7", status="429 Slow")
    async with raw_server(Answers(slow, slow, WHOLE)) as server:
        assert await ask(backend_for(server, naps)) == (SAID, None)
    assert naps.taken == [7.0, 7.0]


async def test_a_wish_beyond_the_budget_is_passed_on() -> None:
    naps = Naps()
    slow = reply(refusal("slow down"), "Retry-After: 11", status="429 Slow")
    async with raw_server(Answers(slow, slow, WHOLE)) as server:
        _, error = await ask(backend_for(server, naps))
    assert error is not None
    assert (error.status, error.retry_after) == (429, 11.0)
    assert naps.taken == [11.0]


async def test_a_stream_that_fails_before_its_first_word_is_tried_again() -> None:
    failed = EVENTS + chunk(b"data: %b\n\n" % refusal("oops")) + LAST
    assert await answer_to(failed, WHOLE) == (SAID, None)


# Hanging up.


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_cancelling_hangs_up_at_once(stream: bool, begun: bool) -> None:
    asked = asyncio.Event()

    async def stall(_: Request, connection: Connection) -> None:
        if begun:
            await connection.write((EVENTS if stream else head("application/json")) + chunk(b" "))
        asked.set()
        await connection.until_closed()
        server.closed.set()

    async with raw_server(stall) as server:
        backend = backend_for(server)
        task = asyncio.create_task(ask(backend, stream=stream))
        await asked.wait()
        task.cancel()
        await asyncio.wait_for(server.closed.wait(), 60)
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_cancelling_after_the_first_text_hangs_up_at_once() -> None:
    async def go_on(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(content="Hi")))
        await connection.until_closed()
        server.closed.set()

    async with raw_server(go_on) as server:
        backend = backend_for(server)
        sink = Collected()
        playing = asyncio.create_task(play_into(sink, backend, plan()))
        await sink.has_more.wait()
        assert sink.deltas == [TextGrew("Hi")]
        playing.cancel()
        await asyncio.wait_for(server.closed.wait(), 60)
        await backend.close()


async def test_cancelling_a_sink_that_is_behind_pushes_what_has_arrived() -> None:
    """The model has produced it: it is on the bill, and has to be counted."""

    class Stuck(Collected):
        async def drained(self) -> None:
            stuck.set()
            await asyncio.Event().wait()

    stuck, written = asyncio.Event(), asyncio.Event()

    async def go_on(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(content="a")))
        await stuck.wait()
        await connection.write(chunk(event(content="b")) + chunk(event(content="c")))
        written.set()
        await connection.until_closed()

    async with asyncio.timeout(60), raw_server(go_on) as server:
        backend, sink = backend_for(server), Stuck(True)
        playing = asyncio.create_task(play_into(sink, backend, plan(stream=True)))
        await written.wait()
        await asyncio.sleep(0.05)  # what was written arrives
        assert sink.deltas == [TextGrew("a")]
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        await backend.close()
    assert sink.deltas == [TextGrew("a"), TextGrew("b"), TextGrew("c")]


async def test_a_peer_that_goes_on_after_the_end_mark_is_hung_up_on() -> None:
    async def go_on(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event("stop", content="Hi") + DONE))
        await connection.until_closed()
        server.closed.set()

    async with raw_server(go_on) as server:
        assert await ask(backend_for(server)) == (SAID, None)
        await asyncio.wait_for(server.closed.wait(), 60)


# Models.


async def models_in(body: bytes) -> Sequence[ModelInfo]:
    async with raw_server(Answers(reply(body))) as server:
        backend = backend_for(server)
        try:
            return await backend.models()
        finally:
            await backend.close()
            assert server.requests[0].path == "/v1/models"


async def test_models_are_listed_with_what_is_known_of_them() -> None:
    entries = [
        {"id": "a", "created": 7, "owned_by": "me", "max_model_len": 4096},
        {"id": "b", "meta": {"n_ctx_train": 8192}, "created": None},
        {"id": "c", "context_length": 0},
        {"name": "no id"},
    ]
    listed = [
        ModelInfo("a", 7, "me", context_length=4096),
        ModelInfo("b", 0, "upstream", context_length=8192, stated={"meta": {"n_ctx_train": 8192}}),
        ModelInfo("c", 0, "upstream"),
    ]
    assert await models_in(json.dumps({"data": entries}).encode()) == listed
    assert await models_in(json.dumps(entries).encode()) == listed


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b'{"data":null}'])
async def test_a_list_that_cannot_be_read_is_a_fault(body: bytes) -> None:
    with pytest.raises(BackendError) as caught:
        await models_in(body)
    assert caught.value.code == "upstream_invalid_response"


async def test_models_may_be_refused() -> None:
    async with raw_server(Answers(reply(b"", status="401 No"))) as server:
        backend = backend_for(server)
        with pytest.raises(BackendError) as caught:
            await backend.models()
        await backend.close()
    assert caught.value.code == "upstream_auth"
    assert "--upstream-key-env NAME" in caught.value.message


def test_a_base_url_must_be_one() -> None:
    with pytest.raises(ValueError, match="base_url"):
        ChatBackend("localhost:8000/v1")


async def test_usage_comes_before_the_stop() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    said, _ = await answer_to(EVENTS + chunk(event("stop", content="Hi") + usage + DONE) + LAST)
    assert [type(delta) for delta in said] == [TextGrew, UsageKnown, Stopped]


async def test_half_a_call_that_was_to_be_json_is_not_lost_when_the_upstream_breaks() -> None:
    request = read_request(
        {
            "input": "x",
            "stream": True,
            "tools": [{"type": "function", "name": "f"}],
            "tool_choice": "required",
        }
    )
    plan = make_plan(request, assessed(request), request.items, "m")
    script = Script(text=['{"name":', '"f","arg'], faults=[Cut(after=2)])
    sink = Collected()
    async with ScriptedUpstream(script) as upstream:
        backend = ChatBackend(upstream.base_url, profile="llamacpp")
        with pytest.raises(BackendError):
            await play_into(sink, backend, plan)
        await backend.close()

    text = "".join(delta.text for delta in sink.deltas if isinstance(delta, TextGrew))
    assert text
    assert '{"name":"f","arg'.startswith(text)


async def test_calls_are_of_the_callers_own_tools() -> None:
    body = {"input": "x", "stream": True, "tools": [{"type": "custom", "name": "note"}]}
    request = read_request(body)
    plan = make_plan(request, assessed(request), request.items, "m")
    begins = {"index": 0, "id": "c1", "function": {"name": "note", "arguments": '{"input":'}}
    rest = {"index": 0, "function": {"arguments": '"hi"}'}}
    answer = [chunk(event(tool_calls=[begins])), chunk(event("stop", tool_calls=[rest]) + DONE)]
    async with raw_server(Answers(EVENTS + b"".join(answer) + LAST)) as server:
        backend = backend_for(server)
        deltas = await said(backend, plan)
        await backend.close()

    assert deltas == [CallMade("note", "hi", "c1", "custom", None, "note"), Stopped("stop")]


async def test_a_held_call_shows_at_once_that_the_model_has_begun() -> None:
    body = {"input": "x", "stream": True, "tools": [{"type": "custom", "name": "note"}]}
    request = read_request(body)
    plan = make_plan(request, assessed(request), request.items, "m")
    call = {"index": 0, "id": "c1", "function": {"name": "note", "arguments": '{"input":'}}
    sink = Collected()

    async def break_off(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(tool_calls=[call])))
        await sink.has_more.wait()
        connection.reset()

    async with asyncio.timeout(30), raw_server(break_off) as server:
        backend = backend_for(server)
        with pytest.raises(BackendError):
            await play_into(sink, backend, plan)
        await backend.close()

    assert sink.batches[0] == []
    assert sink.deltas == [CallOpened(0, "note", "c1", alias="note"), CallGrew(0, '{"input":')]


async def test_a_call_left_in_the_text_is_text_where_no_tool_may_be_called() -> None:
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    body = {"input": "x", "tools": [{"type": "function", "name": "f"}], "stream": True}
    found = {}
    async with ScriptedUpstream(Script(text=text)) as upstream:
        backend = ChatBackend(upstream.base_url)
        for choice in ("auto", "none"):
            request = read_request(body | {"tool_choice": choice})
            plan = make_plan(request, assessed(request), request.items, "m")
            deltas = await said(backend, plan)
            found[choice] = "".join(one.text for one in deltas if isinstance(one, TextGrew))
        await backend.close()

    assert found == {"auto": "", "none": text}


class Paced:
    """Sends the next chunk when the test says so."""

    def __init__(self, *texts: str) -> None:
        self.gates = [asyncio.Event() for _ in (*texts, "the end")]
        self._texts = texts

    async def __call__(self, _: Request, connection: Connection) -> None:
        await connection.write(EVENTS)
        for gate, text in zip(self.gates, self._texts, strict=False):
            await gate.wait()
            await connection.write(chunk(event(content=text)))
        await self.gates[-1].wait()
        await connection.write(chunk(event("stop") + DONE) + LAST)


async def test_what_comes_is_pushed_in_order_and_a_sink_that_is_behind_is_awaited() -> None:
    paced, sink = Paced(*"abcdef"), Collected(True, False, True, False, True)
    async with asyncio.timeout(30), raw_server(paced) as server:
        backend = backend_for(server)
        playing = asyncio.create_task(play_into(sink, backend, plan(stream=True)))
        for gate in paced.gates:
            sink.has_more.clear()
            gate.set()
            await sink.has_more.wait()
        await playing
        await backend.close()
    assert sink.deltas == [*map(TextGrew, "abcdef"), Stopped("stop")]
    assert sink.waited == 3


async def test_what_breaks_a_sink_breaks_the_stream() -> None:
    class Broken(Collected):
        def push(self, batch: Sequence[Delta]) -> bool:
            raise ZeroDivisionError

    paced = Paced("a", "b")
    async with asyncio.timeout(30), raw_server(paced) as server:
        backend = backend_for(server)
        paced.gates[0].set()
        with pytest.raises(ZeroDivisionError):
            await play_into(Broken(), backend, plan(stream=True))
        await backend.close()


async def test_a_reason_that_comes_by_itself_ends_the_wait_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_AFTERWORD", 0.01)
    sink = Collected()

    async def script(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(event(content="a")))
        await sink.has_more.wait()
        await connection.write(chunk(event("stop")))
        await connection.until_closed()

    async with asyncio.timeout(30), raw_server(script) as server:
        backend = backend_for(server, limits=Limits(idle=1000.0))
        await play_into(sink, backend, plan(stream=True))
        await backend.close()
    assert sink.deltas == [TextGrew("a"), Stopped("stop")]


async def test_a_sink_that_refuses_ends_the_stream_there() -> None:
    """Held text is not pushed after that: this is not a fault of the upstream."""

    class Refusing(Collected):
        def push(self, batch: Sequence[Delta]) -> bool:
            if self.batches:
                raise DeltaRefused(BackendError("no such call", code="bad"))
            return super().push(batch)

    paced, sink = Paced("a", "b<thi"), Refusing()
    async with asyncio.timeout(30), raw_server(paced) as server:
        backend = backend_for(server)
        paced.gates[0].set()
        playing = asyncio.create_task(play_into(sink, backend, plan(stream=True)))
        await sink.has_more.wait()
        paced.gates[1].set()
        with pytest.raises(DeltaRefused, match="no such call"):
            await playing
        await backend.close()
    assert sink.deltas == [TextGrew("a")]


async def test_a_sink_is_awaited_although_the_wire_has_broken_meanwhile() -> None:
    """Text that was pushed, but not waited for, would be lost with the fault."""
    order: list[str] = []

    class Slow(Collected):
        def push(self, batch: Sequence[Delta]) -> bool:
            order.append("push")
            connections[-1].reset()
            return False

        async def drained(self) -> None:
            order.append("drained")

    connections: list[Connection] = []

    async def script(_: Request, connection: Connection) -> None:
        connections.append(connection)
        await connection.write(EVENTS + chunk(event(content="a")))
        await connection.until_closed()

    async with asyncio.timeout(30), raw_server(script) as server:
        backend = backend_for(server)
        with pytest.raises(BackendError):
            await play_into(Slow(), backend, plan(stream=True))
        await backend.close()
    assert order == ["push", "drained"]


async def test_proxy_variables_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with ScriptedUpstream(Script(text="direct")) as upstream:
        listing = ChatBackend(upstream.base_url)
        assert await listing.models()
        await listing.close()
        for stream in (True, False):
            said, error = await ask(ChatBackend(upstream.base_url), stream=stream)
            assert error is None
            assert "".join(one.text for one in said if isinstance(one, TextGrew)) == "direct"
