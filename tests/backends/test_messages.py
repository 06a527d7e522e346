"""A Messages server over HTTP: answers, faults, counting, the list of models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from antiphon.backends.http import HttpBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta, Reported, Stopped, TextGrew
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.transport.secret import Secret
from antiphon.wires.messages.profiles import ANTHROPIC, GENERIC
from antiphon.wires.messages.wire import MessagesWire
from tests.messages_upstream import Cut, MessagesUpstream, Refusal, serve_messages, text
from tests.playing import Collected, play_into, said
from tests.wires.messages.answers import TWINS, event, stream

HELLO = {"type": "message", "role": "user", "content": "Hi."}


@pytest.fixture
async def upstream() -> AsyncIterator[MessagesUpstream]:
    async with serve_messages() as server:
        yield server


def plan(**fields: Any) -> Plan:
    return Plan(**{"model": "claude-opus-4-8", "items": [HELLO], **fields})


def backend(upstream: MessagesUpstream, **settings: Any) -> HttpBackend:
    wire = MessagesWire(ANTHROPIC, account="claude", **settings)
    return HttpBackend(upstream.base_url, wire, key=Secret("sk-ant-1"))


async def played(upstream: MessagesUpstream, *plays: Any, **fields: Any) -> list[Delta]:
    upstream.play(*plays)
    made = backend(upstream)
    try:
        return await said(made, plan(**fields))
    finally:
        await made.close()


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_answer_is_read_streamed_and_whole(
    upstream: MessagesUpstream, is_streamed: bool
) -> None:
    deltas = await played(upstream, text("Hello there."), stream=is_streamed)

    said_text = "".join(one.text for one in deltas if isinstance(one, TextGrew))
    assert (said_text, deltas[-1]) == ("Hello there.", Stopped("stop"))
    assert upstream.requests[0].body["stream"] is is_streamed


async def test_headers_carry_key_version_and_betas(upstream: MessagesUpstream) -> None:
    upstream.play(text("x"))
    made = backend(upstream, betas=["one-1"], hosted=["mcp"])
    await said(made, plan())
    await made.close()

    headers = upstream.requests[0].headers
    assert headers["x-api-key"] == "sk-ant-1"
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["anthropic-beta"].startswith("one-1,mcp-client-")
    assert upstream.requests[0].path == "/v1/messages"


async def test_an_open_server_gets_a_bearer_token_below_its_v1(upstream: MessagesUpstream) -> None:
    upstream.play(text("x"))
    wire = MessagesWire(GENERIC, root="")
    made = HttpBackend(f"{upstream.base_url}/v1", wire, key=Secret("token"))
    await said(made, plan(model="llama"))
    await made.close()

    assert upstream.requests[0].headers["Authorization"] == "Bearer token"
    assert upstream.requests[0].path == "/v1/messages"


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (Refusal(401, "authentication_error"), 502, "upstream_auth"),
        (Refusal(403, "permission_error"), 502, "upstream_auth"),
        (Refusal(404, "not_found_error", "model: claude-9"), 404, "model_not_found"),
        (Refusal(413, "request_too_large"), 413, "upstream_refused"),
        (Refusal(400, "invalid_request_error", "tools.0: bad"), 400, "upstream_refused"),
        (Refusal(402, "billing_error"), 429, "insufficient_quota"),
        (
            Refusal(400, "x", "You have reached your specified API usage limits."),
            429,
            "insufficient_quota",
        ),
        (Refusal(429, "rate_limit_error"), 429, "rate_limit_exceeded"),
        (Refusal(500, "api_error"), 502, "upstream_error"),
        (Refusal(504, "timeout_error"), 504, "upstream_error"),
        (Refusal(529, "overloaded_error", "Overloaded"), 503, "upstream_overloaded"),
    ],
)
async def test_refusals(
    upstream: MessagesUpstream, refusal: Refusal, status: int, code: str
) -> None:
    with pytest.raises(BackendError) as caught:
        await played(upstream, refusal)

    assert (caught.value.status, caught.value.code) == (status, code)


async def test_how_long_to_wait_is_told(upstream: MessagesUpstream) -> None:
    with pytest.raises(BackendError) as caught:
        await played(upstream, Refusal(429, "rate_limit_error", headers={"retry-after": "7"}))

    assert caught.value.retry_after == 7


async def test_the_end_of_a_limit_is_waited_for_where_no_wait_is_told(
    upstream: MessagesUpstream,
) -> None:
    reset = datetime.now(UTC) + timedelta(seconds=3600)
    limit = "anthropic-ratelimit-input-tokens"
    headers = {f"{limit}-remaining": "0", f"{limit}-reset": reset.isoformat()}
    with pytest.raises(BackendError) as caught:
        await played(upstream, Refusal(429, "rate_limit_error", headers=headers))
    assert caught.value.retry_after is not None
    assert 3000 < caught.value.retry_after <= 3600

    with pytest.raises(BackendError) as caught:
        await played(upstream, Refusal(529, "overloaded_error", headers=headers))
    assert caught.value.retry_after is None


async def test_a_prompt_that_is_too_long_is_an_overflow(upstream: MessagesUpstream) -> None:
    words = "prompt is too long: 208310 tokens > 200000 maximum"

    with pytest.raises(ContextOverflow):
        await played(upstream, Refusal(400, "invalid_request_error", words))


async def test_a_cut_stream_fails_after_what_came(upstream: MessagesUpstream) -> None:
    data = stream(text("Half a sentence")).partition(b"event: content_block_stop")[0]
    upstream.play(Cut(data))
    made, sink = backend(upstream), Collected()

    with pytest.raises(BackendError):
        await play_into(sink, made, plan())
    await made.close()

    assert (
        "".join(one.text for one in sink.deltas if isinstance(one, TextGrew)) == "Half a sentence"
    )


async def test_an_error_in_the_stream_fails_after_what_came(upstream: MessagesUpstream) -> None:
    data = stream(text("Half")).partition(b"event: content_block_stop")[0]
    error = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    upstream.play(Cut(data + error))
    made, sink = backend(upstream), Collected()

    with pytest.raises(BackendError) as caught:
        await play_into(sink, made, plan())
    await made.close()

    assert caught.value.code == "upstream_overloaded"
    assert any(isinstance(one, TextGrew) for one in sink.deltas)


async def test_counting_asks_for_a_count_and_runs_no_model(upstream: MessagesUpstream) -> None:
    made = backend(upstream)
    count = await made.count(plan(max_output_tokens=5, instructions="Be brief."))
    await made.close()

    assert count == 42
    assert upstream.requests == []
    assert set(upstream.counted[0]) == {"model", "system", "messages"}


# The list of models.


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name.title(), "created_at": "x", **more}


def supported(*names: str, among: tuple[str, ...]) -> dict[str, Any]:
    found = {name: {"supported": name in names} for name in among}
    return {"supported": bool(names), **found}


ABLE = {
    "image_input": {"supported": True},
    "pdf_input": {"supported": True},
    "structured_outputs": {"supported": True},
    "effort": supported("low", "high", among=("low", "medium", "high", "xhigh", "max")),
    "thinking": {
        "supported": True,
        "types": supported("adaptive", among=("adaptive", "enabled", "disabled", "between_tools")),
    },
}


async def test_all_pages_of_the_list_are_read_with_what_models_take(
    upstream: MessagesUpstream,
) -> None:
    limits = {"max_input_tokens": 300_000, "max_tokens": 9_000, "capabilities": ABLE}
    upstream.pages = [
        {"data": [entry("claude-x", **limits)], "has_more": True, "last_id": "claude-x"},
        {"data": [entry("claude-y")], "has_more": False, "last_id": "claude-y"},
    ]
    upstream.play(text("x"))
    made = backend(upstream)
    first, second = await made.models()
    # What the server states counts from now on: no budget, two levels, nine thousand tokens.
    await said(made, plan(model="claude-x", reasoning_effort="medium"))
    await made.close()

    assert (first.id, first.display_name, second.id) == ("claude-x", "Claude-X", "claude-y")
    assert (first.context_length, first.max_output_tokens) == (300_000, 9_000)
    assert first.modalities == ("text", "image", "file")
    assert (first.reasoning, first.reasoning_levels) == (True, ("low", "high"))
    body = upstream.requests[0].body
    assert body["max_tokens"] == 9_000
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "low"}


async def test_more_than_a_model_takes_is_lowered_and_reported(upstream: MessagesUpstream) -> None:
    upstream.pages = [{"data": [entry("claude-x", max_tokens=100)]}]
    made = backend(upstream)
    await made.models()
    ask = await made.open(plan(model="claude-x", max_output_tokens=5000))
    await made.close()

    assert list(ask.degraded) == ["max_output_tokens: this model takes at most 100"]


async def test_an_answer_leaves_room_in_the_window_that_an_open_server_states(
    upstream: MessagesUpstream,
) -> None:
    upstream.pages = [{"data": [{"id": "qwen", "object": "model", "max_model_len": 8192}]}]
    upstream.play(text("x"))
    made = backend(upstream)
    await made.models()
    await said(made, plan(model="qwen"))
    await made.close()

    assert upstream.requests[0].body["max_tokens"] == 4096


@pytest.mark.parametrize("name", sorted(TWINS))
async def test_every_kind_of_answer_comes_over_http(upstream: MessagesUpstream, name: str) -> None:
    streamed = await played(upstream, TWINS[name])
    whole = await played(upstream, TWINS[name], stream=False)

    kinds = [type(one) for one in streamed if not isinstance(one, Reported)]
    assert set(kinds) == {type(one) for one in whole if not isinstance(one, Reported)}
    assert msgspec.json.encode(streamed[-1].resume if isinstance(streamed[-1], Stopped) else None)
