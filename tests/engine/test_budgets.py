"""Budgets and limits hold: before the call, in mid-stream and between rounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.run.charging import LEAST_GRANT
from antiphon.models.prices import NANO
from antiphon.protocol.response import Notes
from antiphon.protocol.token_counts import MOST_TOKENS
from antiphon.routing.describe import ModelSettings
from antiphon.store.base.ledger import Budget, RateLimit, Settlement
from antiphon.store.base.requests import RequestQuery
from antiphon.store.memory import MemoryStore
from antiphon.store.memory.ledger import MemoryLedger
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.tools.base import Fee, ToolRequest, ToolSession
from tests.asking import Answer, ask, ask_stream, request, terminal
from tests.billing import Json, Play, billing_upstream
from tests.engine.test_bill import HOSTED, PRICE, billed_gateway, settled
from tests.server.keyed import make_key
from tests.talking import talk
from tests.transport.raw import Connection, Request, raw_server, reply

LONG: Final = Play(pieces=6000)
AT_ONCE: Final = 500
"""Events of the upstream that are read together, at most."""


def budget(ceiling: int, **fields: Any) -> Budget:
    known: dict[str, Any] = {"id": "bud_1", "scope": "project", "scope_id": "local"}
    return Budget(ceiling=ceiling, **{**known, "unit": "tokens", **fields})


async def with_budget(store: MemoryStore, *budgets: Budget) -> None:
    for one in budgets:
        await store.ledger.put_budget(one)


async def test_a_request_without_room_is_refused_before_the_upstream_is_asked() -> None:
    store = MemoryStore()
    await with_budget(store, budget(100))
    async with billed_gateway([Play()], store) as (gateway, bill):
        for answer in (await ask(gateway), await ask(gateway, stream=True)):
            assert answer.status == 429
            assert (answer.error["type"], answer.error["code"]) == ("insufficient_quota",) * 2
            assert answer.headers["x-should-retry"] == "false"
            assert "budget bud_1 of project local: 100 tokens per month" in answer.error["message"]
        assert bill.requests == []
        assert await store.ledger.charges() == []


async def test_a_budget_in_dollars_is_named_in_dollars() -> None:
    store = MemoryStore()
    await with_budget(store, budget(NANO // 1000, unit="usd"))
    async with billed_gateway([Play()], store) as (gateway, _):
        answer = await ask(gateway, max_output_tokens=100_000)
        assert answer.status == 429
        assert "bud_1 of project local: 0.001 USD per month" in answer.error["message"]


async def test_a_websocket_reports_it_as_a_failed_response() -> None:
    store = MemoryStore()
    await with_budget(store, budget(100))
    async with (
        billed_gateway([Play()], store) as (gateway, _),
        talk(gateway.base_url) as wire,
    ):
        last = await wire.turn(input="hello", model="m")
        assert last["type"] == "response.failed"
        assert last["response"]["error"]["code"] == "insufficient_quota"


async def test_a_stream_ends_cleanly_when_the_budget_is_used_up_and_can_be_continued() -> None:
    store = MemoryStore()
    await with_budget(store, budget(4000))
    async with billed_gateway([LONG, Play()], store) as (gateway, bill):
        ended = terminal(await ask_stream(gateway))
        assert (ended.status, ended.error) == ("incomplete", None)
        assert ended.incomplete_details is not None
        assert ended.incomplete_details.reason == "max_output_tokens"
        notes = ended.antiphon
        assert isinstance(notes, Notes) and notes.budget is not None
        assert (notes.budget.id, notes.budget.scope, notes.budget.limit) == (
            "bud_1",
            "project",
            4000,
        )
        assert any("the answer ends early: budget bud_1" in note for note in notes.degraded)
        (charge,) = await settled(store)
        assert (charge.outcome, charge.basis) == ("incomplete", "counted")
        assert 2048 <= charge.used.output_total <= 4000
        shown = len(ended.output_text) // len(LONG.text)
        assert charge.used.output_total == shown
        assert ended.usage is not None and ended.usage.output_tokens == shown
        assert charge.used.total <= 4000
        # With a higher limit it goes on from there.
        await with_budget(store, budget(400_000))
        more = await ask(gateway, previous_response_id=ended.id, input="go on")
        assert (more.status, more.json["status"]) == (200, "completed")
        assert ended.output_text in str(bill.requests[-1]["messages"])
        assert await store.ledger.check() == []


@pytest.mark.parametrize(
    "budgets",
    [
        [budget(5000)],
        [budget(50_000_000, unit="usd")],
        [budget(50_000), budget(50_000_000, unit="usd", id="bud_2", period="day")],
    ],
)
async def test_an_answer_gets_what_is_left_of_a_budget(budgets: Sequence[Budget]) -> None:
    store = MemoryStore()
    await with_budget(store, *budgets)
    async with billed_gateway([LONG], store) as (gateway, _):
        ended = terminal(await ask_stream(gateway))
        assert ended.status == "incomplete"
        (charge,) = await settled(store)
        # There is room for 5,000 tokens of output. What arrives in one piece is not divided.
        least = 5000 - 2 * LEAST_GRANT - charge.held.fresh
        assert least <= charge.used.output_total <= 5000 + AT_ONCE
        assert isinstance(ended.antiphon, Notes) and ended.antiphon.budget is not None
        assert await store.ledger.check() == []


@pytest.mark.parametrize("body", [{}, {"stream": True}, {"max_output_tokens": 1500}])
async def test_a_request_is_made_with_less_room_than_it_might_need(body: Json) -> None:
    store = MemoryStore()
    await with_budget(store, budget(1000))
    async with billed_gateway([Play()], store) as (gateway, bill):
        assert (await ask(gateway, **body)).status == 200
        (charge,) = await settled(store)
        assert (charge.outcome, charge.used.output_total) == ("completed", 5)
        assert charge.held.total == 1000
        assert bill.requests[0]["max_tokens"] == charge.held.output
        # What was refused first has left nothing, so the request is found by its only charge.
        assert await store.ledger.requests(RequestQuery(limit=2)) == [[charge]]


async def test_an_answer_within_its_limit_is_not_cut_because_its_tokens_are_long() -> None:
    store = MemoryStore()
    await with_budget(store, budget(700))
    async with billed_gateway([Play(pieces=500, text="longword ")], store) as (gateway, _):
        ended = terminal(await ask_stream(gateway, max_output_tokens=500))
        assert ended.status == "completed"
        (charge,) = await settled(store)
        assert (charge.basis, charge.used.output_total) == ("reported", 500)


async def test_a_model_is_told_how_much_is_left_of_a_budget() -> None:
    store = MemoryStore()
    await with_budget(store, budget(1000))
    async with billed_gateway([Play(pieces=980, finish="length")], store) as (gateway, _):
        ended = terminal(await ask_stream(gateway))
        assert (ended.status, ended.max_output_tokens) == ("incomplete", None)
        assert isinstance(ended.antiphon, Notes) and ended.antiphon.budget is not None
        assert ended.antiphon.budget.id == "bud_1"
        (charge,) = await settled(store)
        assert charge.basis == "reported"


async def test_a_limit_that_a_budget_has_set_is_not_that_of_the_next_round() -> None:
    store = MemoryStore()
    await with_budget(store, budget(1800))
    async with billed_gateway([Play(calls="{}"), Play()], store) as (gateway, bill):
        ended = terminal(await ask_stream(gateway, tools=[HOSTED], max_output_tokens=3000))
        assert ended.status == "completed"
        assert isinstance(ended.antiphon, Notes) and ended.antiphon.budget is None
        first, second = (one["max_tokens"] for one in bill.requests)
        assert second < first < 1800


async def test_the_budget_of_a_round_ends_with_it() -> None:
    class Generous(MemoryLedger):
        async def reserve(self, wanted: Any, settled: Any = ()) -> Any:
            if wanted.number > 0:  # what was refused for the first round has no number
                await self.put_budget(budget(400_000))
            return await super().reserve(wanted, settled)

    store = MemoryStore()
    store.ledger.__class__ = Generous
    await with_budget(store, budget(1800))
    async with billed_gateway([Play(calls="{}"), Play(finish="length")], store) as (gateway, bill):
        ended = terminal(await ask_stream(gateway, tools=[HOSTED], max_output_tokens=3000))
        assert ended.status == "incomplete"
        assert isinstance(ended.antiphon, Notes) and ended.antiphon.budget is None
        first, second = (one["max_tokens"] for one in bill.requests)
        assert (first < 1800, second) == (True, 2999)


async def test_a_limit_that_is_raised_in_mid_stream_counts_for_that_stream() -> None:
    class Generous(MemoryLedger):
        async def extend(self, *charge: Any) -> bool:
            has_room = await super().extend(*charge)
            if not has_room:
                await self.put_budget(budget(400_000))
            return has_room

    store = MemoryStore()
    store.ledger.__class__ = Generous
    await with_budget(store, budget(4000))
    async with billed_gateway([LONG], store) as (gateway, _):
        ended = terminal(await ask_stream(gateway))
        assert ended.status == "completed"
        (charge,) = await settled(store)
        assert (charge.basis, charge.used.output_total) == ("reported", 6000)


async def test_a_stream_is_granted_more_while_it_arrives() -> None:
    store = MemoryStore()
    await with_budget(store, budget(100_000))
    async with billed_gateway([LONG], store) as (gateway, _):
        ended = terminal(await ask_stream(gateway))
        assert ended.status == "completed"
        (charge,) = await settled(store)
        assert (charge.basis, charge.used.output_total) == ("reported", 6000)
        assert charge.held.output >= 6000


async def test_what_is_held_covers_what_arrives_without_limits_too() -> None:
    store = MemoryStore()
    async with billed_gateway([LONG], store) as (gateway, _):
        await ask_stream(gateway)
        (charge,) = await settled(store)
        assert charge.held.output >= 6000


async def test_a_round_without_room_ends_the_answer_with_what_there_is() -> None:
    store = MemoryStore()
    await with_budget(store, budget(5000))
    async with billed_gateway([Play(calls="{}"), Play(pieces=3000)], store) as (gateway, bill):
        body: Json = {"tools": [HOSTED], "input": "x" * 3000}
        ended = terminal(await ask_stream(gateway, **body))
        assert ended.status == "incomplete"
        assert isinstance(ended.antiphon, Notes) and ended.antiphon.budget is not None
        assert [item["type"] for item in ended.output][:1] == ["mcp_call"]
        assert len(await settled(store)) == len(bill.calls)


async def test_a_model_without_a_price_is_refused_by_a_budget_in_dollars() -> None:
    store = MemoryStore()
    await with_budget(store, budget(NANO, unit="usd"))
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        answer = await ask(gateway)
        assert (answer.status, answer.error["code"]) == (429, "insufficient_quota")
        assert "the price of this model is not known" in answer.error["message"]


async def test_rate_limits_are_stated_in_headers_and_refuse_with_a_time_to_wait() -> None:
    store = MemoryStore()
    limit = RateLimit(id="lim_1", scope="project", scope_id="local", requests=2, tokens=1_000_000)
    await store.ledger.put_limit(limit)
    async with billed_gateway([Play()], store) as (gateway, _):
        first, second, third = [await ask(gateway) for _ in range(3)]
        assert (first.status, second.status, third.status) == (200, 200, 429)
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert second.headers["x-ratelimit-remaining-requests"] == "0"
        assert int(first.headers["x-ratelimit-remaining-tokens"]) < 1_000_000
        assert first.headers["x-ratelimit-reset-requests"].endswith("s")
        assert third.error["code"] == "rate_limit_exceeded"
        assert int(third.headers["retry-after"]) >= 1
        assert int(third.headers["retry-after-ms"]) >= 1
        assert "x-should-retry" not in third.headers


async def test_a_request_that_no_minute_has_room_for_is_not_to_be_repeated() -> None:
    store = MemoryStore()
    await store.ledger.put_limit(
        RateLimit(id="lim_1", scope="project", scope_id="local", tokens=1000)
    )
    async with billed_gateway([Play()], store) as (gateway, _):
        answer = await ask(gateway, input="x" * 4000)
        assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
        assert answer.headers["x-should-retry"] == "false"
        assert (await ask(gateway)).status == 200


async def test_the_first_threshold_of_a_budget_is_announced() -> None:
    store = MemoryStore()
    await with_budget(store, budget(20_000, soft=(10,)))
    async with billed_gateway([Play(pieces=2200)], store) as (gateway, _):
        await ask(gateway)
        answer = await ask(gateway)
        assert "bud_1" in answer.headers["x-antiphon-budget-warning"]


RUN: Final = {"x-antiphon-run": "job-1", "x-antiphon-run-budget": "usd=0.05"}


async def test_a_run_has_its_own_budget() -> None:
    store = MemoryStore()
    async with billed_gateway([Play(pieces=3500)], store) as (gateway, _):
        answers = [await ask(gateway, RUN, max_output_tokens=4000) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert [one.json["status"] for one in answers[:2]] == ["completed", "incomplete"]
        assert "run job-1: 0.05 USD" in answers[2].error["message"]
        assert (await ask(gateway)).status == 200
        (charge, *_) = await store.ledger.charges(project="local", run="job-1")
        assert charge.payer.run == "job-1"


async def ceiling(store: MemoryStore, run: str) -> int:
    (state,) = await store.ledger.budgets("run", f"ann/{run}")
    return state.budget.ceiling


async def test_a_key_limits_runs_whose_requests_name_no_budget() -> None:
    store = MemoryStore()
    key = await make_key(store, run_budget=NANO // 20)
    async with billed_gateway([Play(pieces=3500)], store) as (gateway, _):
        run = key | {"x-antiphon-run": "job-1"}
        answers = [await ask(gateway, run, max_output_tokens=4000) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert "run job-1: 0.05 USD" in answers[2].error["message"]
        assert (await ask(gateway, key)).status == 200  # what belongs to no run
        named = key | {"x-antiphon-run": "job-2", "x-antiphon-run-budget": "usd=9"}
        assert (await ask(gateway, named)).status == 200
        assert (await ask(gateway, key | {"x-antiphon-run": "job-2"})).status == 200
        assert await ceiling(store, "job-2") == 9 * NANO


async def test_a_key_has_a_maximum_for_its_runs() -> None:
    store = MemoryStore()
    key = await make_key(store, max_run_budget=NANO)
    async with billed_gateway([Play()], store) as (gateway, bill):
        run = key | {"x-antiphon-run": "job-1"}
        for path in ("/responses", "/chat/completions", "/messages", "/embeddings"):
            headers = run | {"x-antiphon-run-budget": "usd=1.01"}
            refused = await request(gateway, "POST", path, _body(path), headers)
            assert refused.status == 400
            assert "usd=1.00 is the most" in refused.error["message"]
        assert bill.requests == []
        async with talk(gateway.base_url, headers) as wire:
            assert (await wire.turn(input="hello", model="m"))["status"] == 400
        assert (await ask(gateway, run | {"x-antiphon-run-budget": "usd=0.8"})).status == 200
        assert await ceiling(store, "job-1") == NANO * 8 // 10
        assert (await ask(gateway, key | {"x-antiphon-run": "job-2"})).status == 200
        assert await ceiling(store, "job-2") == NANO


async def test_a_run_in_the_background_has_the_budget_of_its_key() -> None:
    store = MemoryStore()
    key = await make_key(store, run_budget=2 * NANO)
    async with billed_gateway([Play()], store) as (gateway, _):
        answer = await ask(gateway, key | {"x-antiphon-run": "job-1"}, background=True)
        assert answer.status == 200
        await settled(store)
        assert await ceiling(store, "job-1") == 2 * NANO


@pytest.mark.parametrize(
    "headers",
    [
        {"x-antiphon-run": ""},
        {"x-antiphon-run": "a b"},
        {"x-antiphon-run": "x" * 129},
        {"x-antiphon-run-budget": "usd=1"},
        {"x-antiphon-run": "a", "x-antiphon-run-budget": "1"},
        {"x-antiphon-run": "a", "x-antiphon-run-budget": "usd=-1"},
        {"x-antiphon-run": "a", "x-antiphon-run-budget": "usd=1e9"},
        {"x-antiphon-run": "a", "x-antiphon-run-budget": "usd=nan"},
        {"x-antiphon-run": "a", "x-antiphon-run-budget": "eur=1"},
    ],
)
async def test_a_run_that_cannot_be_read_is_refused(headers: Mapping[str, str]) -> None:
    async with billed_gateway([Play()], MemoryStore()) as (gateway, bill):
        for path in ("/responses", "/chat/completions", "/messages", "/embeddings"):
            answer = await request(gateway, "POST", path, _body(path), headers)
            assert answer.status == 400, path
        assert bill.requests == []


def _body(path: str) -> Json:
    said = [{"role": "user", "content": "x"}]
    if path == "/responses":
        return {"model": "m", "input": "x"}
    if path == "/embeddings":
        return {"model": "m", "input": "x"}
    return {"model": "m", "messages": said, "max_tokens": 10}


async def test_the_cost_is_in_the_response_and_in_the_last_event() -> None:
    async with billed_gateway([Play()], MemoryStore()) as (gateway, _):
        whole = await ask(gateway)
        streamed = terminal(await ask_stream(gateway))
    usage = whole.json["usage"]
    cost = Decimal("1.25") * usage["input_tokens"] + 10 * usage["output_tokens"]
    assert whole.json["antiphon"]["cost"] == {
        "usd": _plain(cost / 1_000_000),
        "basis": "reported",
    }
    assert isinstance(streamed.antiphon, Notes) and streamed.antiphon.cost is not None
    assert streamed.antiphon.cost.usd == whole.json["antiphon"]["cost"]["usd"]


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}"


async def test_what_asks_no_upstream_is_not_charged() -> None:
    store = MemoryStore()
    async with billed_gateway([Play()], store) as (gateway, bill):
        key = {"Idempotency-Key": "once"}
        answers: Sequence[Answer] = [await ask(gateway, key) for _ in range(2)]
        assert answers[0].json["id"] == answers[1].json["id"]
        await ask(gateway, generate=False)
        await request(gateway, "GET", f"/responses/{answers[0].json['id']}")
        await request(gateway, "POST", "/responses/input_tokens", {"input": "x", "model": "m"})
        assert len(bill.calls) == len(await store.ledger.charges()) == 1


async def test_summaries_are_charged() -> None:
    store = MemoryStore()
    async with billed_gateway([Play()], store) as (gateway, bill):
        await _skip_without_sealing(gateway)
        said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
        answer = await request(gateway, "POST", "/responses/compact", {"model": "m", "input": said})
        assert answer.status == 200
        (charge,) = await settled(store)
        assert charge.response_id == answer.json["id"]
        assert (charge.used.input_total, charge.used.output_total) == (bill.input, bill.output)
        assert answer.json["antiphon"]["cost"]["basis"] == "reported"


async def _skip_without_sealing(gateway: Gateway) -> None:
    if gateway.app.engine.sealer is None:
        pytest.skip("nothing can be sealed here")


async def test_paths_that_are_passed_on_are_charged() -> None:
    async def script(request: Request, connection: Connection) -> None:
        if request.path.endswith("/models"):
            data: Json = {"object": "list", "data": [{"id": "m", "object": "model"}]}
        elif request.path.endswith("/embeddings"):
            data = {"data": [], "usage": {"prompt_tokens": 7, "total_tokens": 7}}
        else:
            usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
            data = {"choices": [{"text": "abc"}], "usage": usage}
        status = "400 Bad" if b"wrong" in request.body else "200 OK"
        await connection.write(reply(json.dumps(data).encode(), status=status))

    store = MemoryStore()
    async with raw_server(script) as server:
        backend = ChatBackend(f"{server.url}/v1")
        models = {"m": ModelSettings(price=PRICE)}
        async with serve_gateway(backend, store=store, models=models) as gateway:
            await request(gateway, "POST", "/embeddings", {"model": "m", "input": "x"}, RUN)
            await request(gateway, "POST", "/completions", {"model": "m", "prompt": "x"})
            await request(gateway, "POST", "/completions", {"model": "m", "prompt": "wrong"})
            await with_budget(store, budget(3))
            refused = await request(gateway, "POST", "/embeddings", {"model": "m", "input": "x"})
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
    charges = (await store.ledger.charges())[::-1]
    assert [(one.kind, one.outcome, one.used.total) for one in charges] == [
        ("embedding", "completed", 7),
        ("model", "completed", 8),
        ("model", "released", 0),
    ]
    assert [one.cost for one in charges] == [8750, 36250, 0]
    assert charges[0].payer.run == "job-1"
    assert await store.ledger.check() == []


class PaidTool(ScriptedTool):
    """A tool that is paid by the piece."""

    async def begin(self, request: ToolRequest) -> ToolSession:
        session = await super().begin(request)
        decide = session.decide
        fee = Fee(kind="search", name="web_search", provider="brave", cost=5_000_000)
        session.decide = lambda call: _with_fee(decide(call), fee)  # type: ignore[method-assign]
        return session


def _with_fee(decision: Any, fee: Fee) -> Any:  # of a scripted tool: it always starts
    return msgspec.structs.replace(decision, fee=fee)


@pytest.mark.parametrize(("ceiling", "has_room"), [(NANO, True), (4_000_000, False)])
async def test_a_call_that_is_paid_by_the_piece_is_charged_or_not_run(
    ceiling: int, has_room: bool
) -> None:
    store, tool = MemoryStore(), PaidTool()
    await with_budget(store, budget(ceiling, unit="usd"))
    async with billing_upstream([Play(calls="{}"), Play()]) as bill:
        models = {"m": ModelSettings(price=PRICE)}
        async with serve_gateway(
            ChatBackend(bill.url), store=store, models=models, tools=[tool]
        ) as gateway:
            answer = await ask(gateway, model="m", tools=[HOSTED], max_output_tokens=50)
    charges = await settled(store)
    paid = [one for one in charges if one.kind == "search"]
    assert (answer.status, answer.json["status"]) == (200, "completed")
    assert [(one.cost, one.items[0].quantity) for one in paid] == [(5_000_000, 1)] * has_room
    assert len(tool.calls) == has_room
    assert len(charges) - len(paid) == len(bill.calls) == 2
    assert await store.ledger.check() == []


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_report_that_cannot_be_true_is_settled_all_the_same(
    tmp_path: Path, is_streamed: bool
) -> None:
    most = 2**63 - 1

    async def script(request: Request, connection: Connection) -> None:
        usage = {"prompt_tokens": most, "completion_tokens": most, "total_tokens": most}
        message = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        data: Json = {"choices": [choice], "usage": usage}
        if request.path.endswith("/models"):
            data = {"object": "list", "data": [{"id": "m", "object": "model"}]}
        await connection.write(reply(json.dumps(data).encode()))

    store = SqliteStore(tmp_path / "antiphon.db")
    async with raw_server(script) as server:
        backend = ChatBackend(f"{server.url}/v1")
        models = {"m": ModelSettings(price=PRICE)}
        async with serve_gateway(backend, store=store, models=models) as gateway:
            if is_streamed:
                assert terminal(await ask_stream(gateway, model="m")).status == "completed"
            else:
                assert (await ask(gateway, model="m")).status == 200
        (charge,) = await store.ledger.charges()
        assert (charge.state, charge.used.total) == ("settled", 2 * MOST_TOKENS)
        assert await store.ledger.check() == []
    await store.close()


async def test_charges_are_written_before_the_end_of_a_stream_is_shown() -> None:
    store, written = MemoryStore(), list[int]()
    settle = store.ledger.settle

    async def settle_slowly(settled: Sequence[Settlement]) -> None:
        await asyncio.sleep(0.1)
        await settle(settled)
        written.append(len(settled))

    store.ledger.settle = settle_slowly  # type: ignore[method-assign] # slower, and the same
    body = {"model": "echo", "input": "hello", "store": False, "stream": True}
    async with (
        serve_gateway(ScriptedBackend(), store=store) as gateway,
        aiohttp.ClientSession() as session,
        session.post(gateway.base_url + "/responses", json=body) as answer,
    ):
        await answer.content.readuntil(b"event: response.completed\n")
        assert written == [1]
        await answer.read()
