"""The tool loop: runs what it was given, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.client import AsyncClient, Client, ToolLimits
from antiphon.client.errors import BadCall, BadTool, ThreadGone
from antiphon.client.tool_loop import Handler, ToolFailed, ToolRun, run_tools, run_tools_sync
from antiphon.protocol.deltas import CallGrew, CallOpened, TextGrew
from antiphon.protocol.response import Response
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from tests.asking import terminal
from tests.building import COUNTED, STOP, build
from tests.client.calling import KINDS
from tests.client.native import Answer, NativeServer, error, native, whole

TOOLS = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
ASK = {"model": "m", "input": "2 and 3?", "tools": TOOLS}


def calls(*arguments: str, name: str = "add") -> Answer:
    """Return a turn that calls a tool once for each of the arguments."""
    deltas = [
        delta
        for key, text in enumerate(arguments)
        for delta in (CallOpened(key, name, f"call_{key}"), CallGrew(key, text))
    ]
    return whole(terminal(build([*deltas, COUNTED, STOP])))


DONE = whole(terminal(build([TextGrew("five"), COUNTED, STOP])))


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
CALLED = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_0",
    "name": "add",
    "arguments": "{}",
}
BARE = {name: value for name, value in CALLED.items() if name != "id"}
ASKED = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "2 and 3?"}],
}
GIVEN = {"type": "function_call_output", "call_id": "call_0", "output": "0"}
GONE = error(400, "previous_response_not_found", "gone")


def thinks(**fields: Any) -> Answer:
    """Return a turn that thinks, and calls a tool."""
    made = {"id": "resp_1", "status": "completed", "output": [THOUGHT, CALLED]}
    return whole(Response(**(made | fields)))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def run(
    kind: str, base_url: str, handlers: dict[str, Handler], of_client: Any = None, **more: Any
) -> ToolRun:
    """Run the loop; `of_client` is the API that the client speaks, unless the call says."""
    options: dict[str, Any] = {"base_url": base_url, "environ": {}}
    if of_client:
        options["wire_api"] = of_client
    if kind == "async":
        async with AsyncClient(**options) as client:
            return await run_tools(client, handlers, **(ASK | more))

    def in_thread() -> ToolRun:
        with Client(**options) as client:
            return run_tools_sync(client, handlers, **(ASK | more))

    return await asyncio.to_thread(in_thread)


def outputs(server: NativeServer, number: int) -> dict[str, str]:
    sent = server.body(number)["input"]
    return {
        item["call_id"]: item["output"] for item in sent if item["type"] == "function_call_output"
    }


@pytest.mark.requirement("22-D4")
async def test_calls_are_run_and_their_outputs_handed_back(kind: str) -> None:
    async with native(calls('{"a":2,"b":3}', '{"a":0,"b":0}'), DONE) as server:
        ran = await run(kind, server.base_url, {"add": lambda a, b: a + b})

    assert ran.response.output_text == "five"
    assert ran.rounds == 2
    assert server.body(1)["previous_response_id"] == "resp_1"
    assert outputs(server, 1) == {"call_0": "5", "call_1": "0"}
    assert len(server.body(1)["input"]) == 2
    kinds = [item["type"] for item in ran.items]
    assert kinds == ["message", *["function_call"] * 2, *["function_call_output"] * 2, "message"]


async def test_of_two_calls_under_one_call_id_one_is_run_and_the_other_is_reported(
    kind: str,
) -> None:
    again = {"id": "fc_2", "arguments": '{"a":1,"b":1}'}
    called = CALLED | {"arguments": '{"a":2,"b":3}'}
    twice = thinks(output=[called, called | again])
    async with native(twice, DONE) as server:
        ran = await run(kind, server.base_url, {"add": lambda a, b: a + b})

    sent = [item for item in server.body(1)["input"] if item["type"] == "function_call_output"]
    assert [item["output"] for item in sent] == ["5"]
    assert ran.deviations == ("call_id call_0 stands for several calls; only the first was run",)


@pytest.mark.requirement("22-D4")
async def test_a_client_without_the_loop_never_runs_anything() -> None:
    async with (
        native(calls('{"a":2}')) as server,
        AsyncClient(base_url=server.base_url, environ={}) as client,
    ):
        made = await client.create(**ASK)  # type: ignore[arg-type] # a dict of any parameters

    assert [item["type"] for item in made.output] == ["function_call"]
    assert len(server.requests) == 1


async def test_a_tool_says_what_went_wrong_and_the_model_hears_it(kind: str) -> None:
    def fail(**arguments: Any) -> None:
        raise ToolFailed("the scales are broken")

    async with native(calls("{}", "[1]", "{no"), DONE) as server:
        await run(kind, server.base_url, {"add": fail})

    told = outputs(server, 1)
    assert told["call_0"] == "the scales are broken"
    assert "must be a JSON object" in told["call_1"]
    assert "no JSON" in told["call_2"]


async def test_a_bug_in_a_tool_leaves_the_loop(kind: str) -> None:
    async with native(calls("{}"), DONE) as server:
        with pytest.raises(ZeroDivisionError):
            await run(kind, server.base_url, {"add": lambda: 1 / 0})


async def test_a_coroutine_may_be_a_tool() -> None:
    async def add(a: int, b: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"sum": a + b}

    async with native(calls('{"a":2,"b":3}'), DONE) as server:
        await run("async", server.base_url, {"add": add})
    assert outputs(server, 1) == {"call_0": '{"sum":5}'}


async def test_a_call_that_nobody_can_run_is_the_callers(kind: str) -> None:
    async with native(calls("{}", name="launch")) as server:
        ran = await run(kind, server.base_url, {"add": lambda: 0})

    assert ran.rounds == 1
    assert ran.response.output[0]["name"] == "launch"


async def test_the_rounds_are_limited(kind: str) -> None:
    async with native(calls("{}")) as server:
        ran = await run(kind, server.base_url, {"add": lambda: 0}, max_rounds=3)

    assert ran.rounds == 3
    assert len(server.requests) == 3


NAMED = {"type": "function", "name": "add"}
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}


@pytest.mark.requirement("003-tool-choice")
@pytest.mark.parametrize(
    ("choice", "first"),
    [
        ("required", "required"),
        (NAMED, NAMED),
        ({"type": "function", "function": {"name": "add"}}, NAMED),
        ({"type": "web_search"}, {"type": "web_search"}),
    ],
)
async def test_a_forced_call_is_forced_once(kind: str, choice: Any, first: Any) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, tool_choice=choice)

    assert server.body(0)["tool_choice"] == first
    assert "tool_choice" not in server.body(1)


@pytest.mark.requirement("003-tool-choice")
@pytest.mark.parametrize("choice", ["auto", "none", ALLOWED])
async def test_a_free_choice_stays(kind: str, choice: Any) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, tool_choice=choice)
    assert server.body(1)["tool_choice"] == choice


@pytest.mark.requirement("003-tool-choice")
async def test_what_forces_one_of_some_tools_goes_on_to_allow_only_these(kind: str) -> None:
    nested = {"mode": "required", "tools": [{"type": "function", "function": {"name": "add"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": nested}
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, tool_choice=choice)

    assert server.body(0)["tool_choice"] == ALLOWED | {"mode": "required"}
    assert server.body(1)["tool_choice"] == ALLOWED


async def test_a_lost_thread_is_mended_with_the_whole_run(kind: str) -> None:
    gone = error(400, "previous_response_not_found", "gone")
    async with native(calls("{}"), gone, DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0})

    kinds = [item["type"] for item in server.body(2)["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({"session": "s"}, {"previous_response_id": "resp_1"}),
        ({"conversation": "conv_1"}, {"conversation": "conv_1"}),
        ({"conversation_id": "conv_1"}, {"conversation": "conv_1"}),
        ({"previous_response_id": "resp_0"}, {"previous_response_id": "resp_1"}),
        ({"parent_id": "resp_0"}, {"previous_response_id": "resp_1"}),
        ({"session": "s", "parent_id": "resp_0"}, {"previous_response_id": "resp_1"}),
        ({"session": "s", "conversation": "conv_1"}, {"conversation": "conv_1"}),
        ({"prompt": {"id": "pmpt_1"}}, {"previous_response_id": "resp_1", "prompt": None}),
        ({"parent_id": "", "conversation": {"id": ""}}, {"previous_response_id": "resp_1"}),
    ],
)
async def test_a_run_goes_on_in_the_thread_it_began_in(
    kind: str, how: dict[str, Any], kept: dict[str, Any]
) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, **how)

    sent = server.body(1)
    assert {name: sent.get(name) for name in kept} == kept
    assert [item["type"] for item in sent["input"]] == ["function_call_output"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"store": False}, {}),
        ({}, {"store": False}),
        ({}, {"id": ""}),
        ({"stateful": False}, {}),
        ({"stateful": False, "session": "s"}, {}),
        ({"session": "s"}, {"store": False}),
        ({"session": "s", "store": False}, {}),
    ],
)
async def test_what_nobody_keeps_is_sent_whole(
    kind: str, how: dict[str, Any], says: dict[str, Any]
) -> None:
    """Without the reasoning, whose id the server does not know, and the ids that lead to it."""
    async with native(thinks(**says), DONE) as server:
        ran = await run(kind, server.base_url, {"add": lambda: 0}, **how)

    assert server.body(1)["input"] == [ASKED, BARE, GIVEN]
    assert "previous_response_id" not in server.body(1)
    assert ran.items[:4] == [ASKED, THOUGHT, CALLED, GIVEN]


async def test_what_the_caller_gave_goes_back_as_it_came(kind: str) -> None:
    own = {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "hm"}]}
    async with native(thinks(), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, input=[own, ASKED], store=False)
    assert server.body(1)["input"] == [own, ASKED, BARE, GIVEN]


@pytest.mark.parametrize(
    ("how", "says"), [({"store": False}, {}), ({}, {"store": False}), ({"stateful": False}, {})]
)
async def test_a_run_that_is_not_kept_goes_on_from_where_it_began(
    kind: str, how: dict[str, Any], says: dict[str, Any]
) -> None:
    async with native(thinks(**says), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, parent_id="resp_0", **how)

    assert server.body(1)["previous_response_id"] == "resp_0"
    assert server.body(1)["input"] == [ASKED, BARE, GIVEN]


@pytest.mark.parametrize(
    ("how", "answers"), [({"store": False}, []), ({}, [GONE])], ids=["not kept", "lost"]
)
async def test_a_history_is_the_whole_wherever_it_is_said_to_begin(
    kind: str, how: dict[str, Any], answers: list[Answer]
) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}
    async with native(thinks(), *answers, DONE) as server:
        await run(
            kind,
            server.base_url,
            {"add": lambda: 0},
            input=None,
            messages=[ASKED, said, ASKED],
            previous_response_id="resp_0",
            **how,
        )
    last = server.body(len(server.requests) - 1)
    assert last["input"] == [ASKED, said, ASKED, BARE, GIVEN]
    assert "previous_response_id" not in last


async def test_a_template_is_asked_again_where_nothing_is_kept(kind: str) -> None:
    template = {"id": "pmpt_1"}
    async with native(thinks(), DONE) as server:
        await run(
            kind, server.base_url, {"add": lambda: 0}, input=None, prompt=template, store=False
        )
    assert server.body(1)["prompt"] == template
    assert server.body(1)["input"] == [BARE, GIVEN]


async def test_a_lost_thread_is_mended_without_what_the_server_cannot_resolve(kind: str) -> None:
    async with native(thinks(), GONE, DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0})
    assert server.body(1)["input"] == [GIVEN]
    assert server.body(2)["input"] == [ASKED, BARE, GIVEN]


async def test_a_lost_thread_of_which_a_template_was_part_is_gone(kind: str) -> None:
    async with native(thinks(), GONE) as server:
        with pytest.raises(ThreadGone):
            await run(kind, server.base_url, {"add": lambda: 0}, input="x", prompt={"id": "p"})


async def test_half_a_character_of_the_model_or_a_tool_does_not_end_the_run(kind: str) -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}
    said["content"][0]["text"] = "half HALF"  # type: ignore[index] # a dict of any values
    answer = thinks(output=[said, CALLED])
    answer.pieces = [piece.replace(b"HALF", rb"\ud83d") for piece in answer.pieces]
    async with native(answer, DONE) as server:
        await run(kind, server.base_url, {"add": lambda: "cut \ud83d"}, store=False)

    sent = server.body(1)["input"]
    assert sent[1]["content"][0]["text"] == "half \ufffd"
    assert sent[3]["output"] == "cut \ufffd"


async def test_arguments_that_do_not_fit_are_the_models_to_correct(kind: str) -> None:
    ran: list[int] = []

    def add(a: int, b: int = 0) -> int:
        ran.append(a)
        return a + b

    async with native(calls('{"nope":1}', "{}", '{"a":2}'), DONE) as server:
        await run(kind, server.base_url, {"add": add})

    told = outputs(server, 1)
    assert told["call_0"].startswith("the arguments do not fit: ")
    assert "'a'" in told["call_1"]
    assert told["call_2"] == "2"
    assert ran == [2]


async def test_a_wrong_type_inside_a_tool_is_a_bug_and_leaves_the_loop(kind: str) -> None:
    def add(a: Any) -> Any:
        return a + 1

    async with native(calls('{"a":"x"}'), DONE) as server:
        with pytest.raises(TypeError, match="concatenate"):
            await run(kind, server.base_url, {"add": add})


async def test_a_tool_that_hides_its_signature_is_simply_called(kind: str) -> None:
    class Hidden:
        __signature__ = "none"

        def __call__(self, **arguments: int) -> int:
            return sum(arguments.values())

    async with native(calls('{"a":2,"b":3}'), DONE) as server:
        await run(kind, server.base_url, {"add": Hidden()})
    assert outputs(server, 1) == {"call_0": "5"}


async def test_what_a_tool_returns_may_look_like_json_or_is_refused(kind: str) -> None:
    async with native(calls("{}"), DONE, calls("{}")) as server:
        await run(kind, server.base_url, {"add": lambda: {"sum": (1, 2)}})
        with pytest.raises(BadCall, match=r"what add returned\.sum cannot be written as JSON"):
            await run(kind, server.base_url, {"add": lambda: {"sum": object()}})
    assert outputs(server, 1) == {"call_0": '{"sum":[1,2]}'}


async def test_a_run_has_the_limits_of_its_client() -> None:
    tools = [{"type": "function", "name": f"add{n}"} for n in range(20)]
    async with (
        native(calls("{}"), DONE) as server,
        AsyncClient(
            base_url=server.base_url, environ={}, tool_limits=ToolLimits(max_count=20)
        ) as client,
    ):
        ran = await run_tools(client, {"add": lambda: 0}, model="m", input="x", tools=tools)
    assert ran.rounds == 2


async def test_a_call_may_choose_the_chat_road_for_the_whole_run(kind: str) -> None:
    scripts = [Script(calls=[Call("add", '{"a": 2, "b": 3}')]), Script(text="five")]
    async with ScriptedUpstream(scripts) as upstream:
        ran = await run(
            kind,
            upstream.base_url,
            {"add": lambda a, b: a + b},
            model="echo",
            wire_api="chat",
        )
    assert ran.response.output_text == "five"


async def test_a_server_that_keeps_nothing_is_sent_everything(kind: str) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, store=False)

    kinds = [item["type"] for item in server.body(1)["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]


@pytest.mark.requirement("22-E2", "22-goal-3")
@pytest.mark.parametrize("wire_api", ["responses", "chat"])
async def test_a_tool_round_trip_on_a_chat_model(kind: str, wire_api: str) -> None:
    """Through our gateway, and without it."""
    scripts = [Script(calls=[Call("add", '{"a": 2, "b": 3}')]), Script(text="five")]
    async with (
        ScriptedUpstream(scripts) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        base_url = gateway.base_url if wire_api == "responses" else upstream.base_url
        ran = await run(kind, base_url, {"add": lambda a, b: a + b}, wire_api, model="echo")

    assert ran.response.output_text == "five"
    last = upstream.requests[1].json["messages"][-1]
    assert (last["role"], last["content"]) == ("tool", "5")


async def test_the_synchronous_loop_refuses_an_asynchronous_tool_by_name() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    async with native(calls('{"a":2,"b":3}'), DONE) as server:
        with pytest.raises(BadTool, match="'add': it is asynchronous, and run_tools_sync"):
            await run("sync", server.base_url, {"add": add})


async def test_the_other_kind_of_client_is_refused_before_anything_is_asked() -> None:
    sync: Any = Client(base_url="http://127.0.0.1:1/v1", environ={})
    other: Any = AsyncClient(base_url="http://127.0.0.1:1/v1", environ={})
    with sync:
        with pytest.raises(TypeError, match="with a Client it is run_tools_sync"):
            await run_tools(sync, {}, model="m", input="x")
        with pytest.raises(TypeError, match="with an AsyncClient it is run_tools"):
            run_tools_sync(other, {}, model="m", input="x")
    await other.close()
