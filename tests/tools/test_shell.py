"""The hosted shell: commands, their outputs, timeouts, files, and skills."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from openai import AsyncOpenAI

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.protocol.events import event_type
from antiphon.store.base import Skill, SkillVersion
from antiphon.testing import judge_stream
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.base import ToolRunner
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.containers.archives import pack
from antiphon.tools.containers.service import ContainerService, ContainerWish
from antiphon.tools.containers.settings import ShellSettings
from antiphon.tools.shell import HostedShell
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.containers import FakeEngine, make_service
from tests.faults.house import PATIENCE

STOP = Stopped("stop")
AUTO: Any = {"type": "shell", "environment": {"type": "container_auto"}}
HEAD = b"---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"


def commanding(*commands: str, call_id: str = "a", **action: Any) -> list[Step]:
    """Return a round that runs commands."""
    arguments = msgspec.json.encode({"commands": commands, **action}).decode()
    return [CallMade("shell", arguments, call_id), STOP]


def saying(*texts: str) -> list[Step]:
    """Return a round that answers."""
    return [*map(TextGrew, texts), STOP]


def serving(backend: ScriptedBackend, service: ContainerService, **settings: Any) -> Any:
    """Run a gateway with a shell, and a code interpreter beside it."""
    tools: list[ToolRunner] = [
        HostedShell(service, ShellSettings(**settings)),
        CodeInterpreter(service),
    ]
    return serve_gateway(backend, store=service.store, tools=tools, containers=service)


async def answered(gateway: Gateway, **body: Any) -> Any:
    """Return a whole response."""
    answer = await ask(gateway, **({"tools": [AUTO]} | body))
    assert answer.status == 200, answer.body
    return answer.json


async def test_commands_run_and_their_events_come_in_order() -> None:
    backend = ScriptedBackend(
        [commanding("echo one > a.txt; cat a.txt", "cat none; exit 3"), saying("Done.")]
    )
    async with serving(backend, make_service()) as gateway:
        events = await ask_stream(gateway, tools=[AUTO])
        replayed = await request(gateway, "GET", f"/responses/{terminal(events).id}?stream=true")
    names = [event_type(event).removeprefix("response.") for event in events]
    begin = names.index("output_item.added")
    commands = ["shell_call_command.added", "shell_call_command.delta", "shell_call_command.done"]
    assert names[begin : begin + 8] == [
        "output_item.added",
        *commands,
        *commands,
        "output_item.done",
    ]
    assert names[begin + 8 : begin + 14] == [
        "output_item.added",
        "shell_call_output_content.delta",
        "shell_call_output_content.done",
        "shell_call_output_content.delta",
        "shell_call_output_content.done",
        "output_item.done",
    ]
    call, output, message = terminal(events).output
    assert call["status"] == output["status"] == "completed"
    assert call["call_id"] == output["call_id"]
    assert call["environment"]["type"] == "container_reference"
    assert call["action"]["commands"] == ["echo one > a.txt; cat a.txt", "cat none; exit 3"]
    first, second = output["output"]
    assert first == {"stdout": "one\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    assert second["outcome"] == {"type": "exit", "exit_code": 3}
    assert "none" in second["stderr"]
    assert message["content"][0]["text"] == "Done."
    assert replayed.status == 200
    result = backend.plans[1].items[-1]["output"]
    assert "one" in result
    assert "[exit code 3]" in result
    assert "[files written: /mnt/data/a.txt (4 bytes)]" in result


async def test_a_timeout_ends_the_call_and_the_rest_is_not_run() -> None:
    backend = ScriptedBackend([commanding("SLEEP", "echo never", timeout_ms=50), saying("ok")])
    async with serving(backend, make_service()) as gateway:
        _, output, _ = (await answered(gateway))["output"]
    assert [one["outcome"] for one in output["output"]] == [{"type": "timeout"}]
    assert "[1 more commands were not run]" in backend.plans[1].items[-1]["output"]


async def test_long_outputs_are_cut_to_what_the_model_asked_for() -> None:
    backend = ScriptedBackend([commanding("seq 1 10000", max_output_length=100), saying("ok")])
    async with serving(backend, make_service()) as gateway:
        call, output, _ = (await answered(gateway))["output"]
    assert call["action"]["max_output_length"] == output["max_output_length"] == 100
    (one,) = output["output"]
    assert len(one["stdout"]) <= 100
    assert "characters left out" in one["stdout"]


WAITS = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second"
PRINTED = "response.shell_call_output_content"


async def test_what_a_command_prints_is_streamed_while_it_runs() -> None:
    backend = ScriptedBackend([commanding(WAITS, "echo third"), saying("Done.")])
    fake = FakeEngine()
    pieces: list[str] = []
    async with (
        asyncio.timeout(PATIENCE),
        serving(backend, make_service(engine=fake)) as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client,
        client.responses.stream(model="echo", input="go", tools=[AUTO]) as stream,
    ):
        event: Any  # the SDK's union has dozens of members
        async for event in stream:
            if event.type == f"{PRINTED}.delta":
                pieces.append(f"{event.command_index}:{event.delta.stdout}")
                (fake.started[-1] / "go").touch()  # the first command goes on only now
        final = await stream.get_final_response()
    assert pieces == ["0:first\n", "0:second\n", "1:third\n"]
    call, output, _ = final.output
    assert call.type == "shell_call" and call.status == "completed"
    assert output.type == "shell_call_output"
    assert [one.stdout for one in output.output] == ["first\nsecond\n", "third\n"]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100, 1000, 30000, 60000])
async def test_a_stream_has_what_the_item_has_however_it_is_cut(length: int) -> None:
    backend = ScriptedBackend(
        [commanding("seq 1 8000; seq 1 90 >&2", max_output_length=length), saying("ok")]
    )
    async with serving(backend, make_service(), output_chars=60000) as gateway:
        events = await ask_stream(gateway, tools=[AUTO])
        replayed = await request(gateway, "GET", f"/responses/{terminal(events).id}?stream=true")
    assert not judge_stream(events_of(replayed.body))
    (output,) = terminal(events).output[1]["output"]
    assert len(output["stdout"]) <= length


async def test_calls_of_one_round_stream_their_outputs_each_in_its_own_item() -> None:
    first, second = commanding("echo a; echo b >&2"), commanding("echo c", call_id="b")
    backend = ScriptedBackend([[first[0], second[0], STOP], saying("ok")])
    async with serving(backend, make_service()) as gateway:
        events = await ask_stream(gateway, tools=[AUTO])
        replayed = await request(gateway, "GET", f"/responses/{terminal(events).id}?stream=true")
    assert not judge_stream(events)
    assert not judge_stream(events_of(replayed.body))
    found = {
        item["call_id"]: item["output"][0]["stdout"]
        for item in terminal(events).output
        if item["type"] == "shell_call_output"
    }
    assert sorted(found.values()) == ["a\n", "c\n"]
    calls = [one["call_id"] for one in terminal(events).output if one["type"] == "shell_call"]
    assert (found[calls[0]], found[calls[1]]) == ("a\n", "c\n")


@pytest.mark.parametrize("how", ["fails", "cancelled"])
async def test_a_call_that_ends_in_the_middle_keeps_what_its_commands_printed(how: str) -> None:
    last = "echo lost; DIE" if how == "fails" else WAITS
    backend = ScriptedBackend([commanding("echo one", last, "echo never"), saying("ok")])
    async with (
        asyncio.timeout(PATIENCE),
        serving(backend, make_service()) as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client,
    ):
        stream = await client.responses.create(
            model="echo", input="go", tools=[AUTO], stream=True, background=True
        )
        event: Any  # the SDK's union has dozens of members
        async for event in stream:
            if event.type == "response.created":
                name = event.response.id
            is_second = event.type == f"{PRINTED}.delta" and event.command_index == 1
            if is_second and how == "cancelled":
                await client.responses.cancel(name)
        stored = await request(gateway, "GET", f"/responses/{name}")
        replayed = await request(gateway, "GET", f"/responses/{name}?stream=true")
    assert not judge_stream(events_of(replayed.body))
    call, output, *_ = stored.json["output"]
    assert (call["status"], output["status"]) == ("completed", "incomplete")
    assert [one["stdout"] for one in output["output"]] == ["one\n"]
    if how == "fails":
        assert "the sandbox has gone" in backend.plans[1].items[-1]["output"]


async def test_a_sandbox_that_does_not_start_makes_an_incomplete_call() -> None:
    engine = FakeEngine()
    engine.is_broken = True
    backend = ScriptedBackend([commanding("ls"), saying("sorry")])
    async with serving(backend, make_service(engine=engine)) as gateway:
        response = terminal(await ask_stream(gateway, tools=[AUTO]))
    call, output, _ = response.output
    assert call["status"] == output["status"] == "incomplete"
    assert output["output"][0]["stderr"] == "error: the sandbox does not start"
    assert response.status == "completed"


async def test_a_chain_goes_on_in_its_container_and_knows_its_calls() -> None:
    backend = ScriptedBackend(
        [
            commanding("echo kept > a"),
            saying("ok"),
            commanding("cat a", call_id="b"),
            saying("See /mnt/data/a."),
        ]
    )
    async with serving(backend, make_service()) as gateway:
        first = await answered(gateway)
        second = await answered(gateway, previous_response_id=first["id"])
    one, two = first["output"][0]["environment"], second["output"][0]["environment"]
    assert one == two
    assert second["output"][1]["output"][0]["stdout"] == "kept\n"
    (note,) = second["output"][2]["content"][0]["annotations"]
    assert (note["type"], note["filename"]) == ("container_file_citation", "a")
    kinds = [item["type"] for item in backend.plans[2].items]
    assert "shell_call" in kinds
    assert "shell_call_output" in kinds


async def test_shell_and_code_can_share_a_container() -> None:
    service = make_service()
    made: Any = await service.create("local", ContainerWish(name="both"))
    tools = [
        {
            "type": "shell",
            "environment": {"type": "container_reference", "container_id": made.id},
        },
        {"type": "code_interpreter", "container": made.id},
    ]
    code = '{"code": "print(here(\'a\').read_text())"}'
    backend = ScriptedBackend(
        [
            commanding("echo x > a"),
            [CallMade("code_interpreter", code, "b"), STOP],
            saying("/mnt/data/a"),
        ]
    )
    async with serving(backend, service) as gateway:
        response = await answered(gateway, tools=tools, include=["code_interpreter_call.outputs"])
    assert response["output"][2]["outputs"] == [{"type": "logs", "logs": "x\n\n"}]
    assert len(response["output"][3]["content"][0]["annotations"]) == 1


async def test_a_local_shell_stays_with_the_caller() -> None:
    backend = ScriptedBackend(
        [[CallMade("shell", '{"commands": ["ls"]}', "a", kind="shell"), STOP]]
    )
    engine = FakeEngine()
    tool = {"type": "shell", "environment": {"type": "local"}}
    async with serving(backend, make_service(engine=engine)) as gateway:
        response = await answered(gateway, tools=[tool])
    assert [item["type"] for item in response["output"]] == ["shell_call"]
    assert engine.started == []


# Skills.


async def stored_skill(service: ContainerService) -> str:
    """Store a skill; return its id."""
    writer = await service.store.blobs.create("local")
    await writer.write(pack([("SKILL.md", HEAD)]))
    blob = await writer.finish()
    skill = Skill(id="skill_1", name="greet", description="How to greet.", created_at=1)
    version = SkillVersion(
        id="v", version=1, name="greet", description="How to greet.", created_at=1, blob=blob
    )
    await service.store.skills.add("local", skill, version)
    return skill.id


def inline(data: bytes) -> dict[str, Any]:
    """Return a skill that is sent with the request."""
    source = {
        "type": "base64",
        "media_type": "application/zip",
        "data": base64.b64encode(data).decode(),
    }
    return {"type": "inline", "name": "greet", "description": "How to greet.", "source": source}


@pytest.mark.parametrize("is_inline", [True, False])
async def test_a_skill_is_shown_to_the_model_and_is_in_the_sandbox(*, is_inline: bool) -> None:
    service = make_service()
    name = await stored_skill(service)
    skill = inline(pack([("greet/SKILL.md", HEAD)]))
    if not is_inline:
        skill = {"type": "skill_reference", "skill_id": name, "version": "latest"}
    tool = {"type": "shell", "environment": {"type": "container_auto", "skills": [skill]}}
    backend = ScriptedBackend([commanding("cat /mnt/skills/greet/SKILL.md"), saying("hello")])
    async with serving(backend, service) as gateway:
        _, output, _ = (await answered(gateway, tools=[tool]))["output"]
    (offer,) = [one for one in backend.plans[0].toolbox.offers if one.alias == "shell"]
    assert "greet: How to greet. (/mnt/skills/greet)" in offer.tool["description"]
    assert output["output"][0]["stdout"] == HEAD.decode()


WRONG: list[tuple[Any, int, str]] = [
    ({"type": "container_reference", "container_id": "cntr_none"}, 404, "container_not_found"),
    ({"type": "container_reference"}, 400, "invalid_value"),
    ({"type": "elsewhere"}, 400, "invalid_value"),
    (
        {
            "type": "container_auto",
            "skills": [{"type": "skill_reference", "skill_id": "skill_none"}],
        },
        404,
        "skill_not_found",
    ),
    ({"type": "container_auto", "skills": [{"type": "other"}]}, 400, "invalid_value"),
    ({"type": "container_auto", "skills": [inline(b"no zip")]}, 400, "invalid_skill"),
    (
        {"type": "container_auto", "skills": [inline(pack([("SKILL.md", HEAD), ("../x", b"")]))]},
        400,
        "invalid_skill",
    ),
]


@pytest.mark.parametrize(("environment", "status", "code"), WRONG)
async def test_a_wrong_environment_is_refused_before_the_model_is_asked(
    environment: Any, status: int, code: str
) -> None:
    backend = ScriptedBackend([saying("never")])
    async with serving(backend, make_service()) as gateway:
        answer = await ask(gateway, tools=[{"type": "shell", "environment": environment}])
    assert (answer.status, answer.error["code"]) == (status, code)
    assert backend.plans == []
