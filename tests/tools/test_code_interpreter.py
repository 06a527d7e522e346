"""The code interpreter: cells, files, images, citations, and what is refused before any of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.protocol.events import event_type
from antiphon.testing.gateway import Gateway
from antiphon.tools.base import ToolLimits
from antiphon.tools.code_interpreter import LOST_STATE
from antiphon.tools.containers.service import ContainerService, ContainerWish
from antiphon.tools.sandbox.base import SandboxLimits
from tests.asking import ask, ask_stream, request, terminal
from tests.containers import PNG, Clock, FakeEngine, make_service, read_blob, serve_code, upload

STOP = Stopped("stop")
AUTO: Any = {"type": "code_interpreter", "container": {"type": "auto"}}


def cell(code: str, call_id: str = "a") -> list[Step]:
    """Return a round that runs code."""
    arguments = msgspec.json.encode({"code": code}).decode()
    return [CallMade("code_interpreter", arguments, call_id), STOP]


def saying(*texts: str) -> list[Step]:
    """Return a round that answers."""
    return [*map(TextGrew, texts), STOP]


async def whole(gateway: Gateway, *, tools: list[Any] | None = None, **body: Any) -> Any:
    """Return a response with outputs shown."""
    shown = {"include": ["code_interpreter_call.outputs"]}
    answer = await ask(gateway, tools=tools or [AUTO], **shown, **body)
    assert answer.status == 200, answer.body
    return answer.json


def calls_of(response: Any) -> list[Any]:
    """Return the calls of a response."""
    return [item for item in response["output"] if item["type"] == "code_interpreter_call"]


def result_of(backend: ScriptedBackend, round_number: int) -> Any:
    """Return the result that the model got before this round."""
    return backend.plans[round_number].items[-1]["output"]


async def test_a_cell_runs_and_its_events_come_in_order() -> None:
    backend = ScriptedBackend([cell("x = 6 * 7\nprint(x)"), saying("It is 42.")])
    async with serve_code(backend, make_service()) as gateway:
        events = await ask_stream(gateway, tools=[AUTO], include=["code_interpreter_call.outputs"])
    names = [event_type(event).removeprefix("response.") for event in events]
    begin = names.index("output_item.added")
    assert names[begin : begin + 7] == [
        "output_item.added",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
    ]
    (call, message) = terminal(events).output
    assert call["status"] == "completed"
    assert call["code"] == "x = 6 * 7\nprint(x)"
    assert call["outputs"] == [{"type": "logs", "logs": "42\n"}]
    assert call["container_id"].startswith("cntr_")
    assert "42" in result_of(backend, 1)
    assert message["content"][0]["text"] == "It is 42."


async def test_outputs_are_shown_only_if_they_are_included() -> None:
    backend = ScriptedBackend([cell("print(1)"), saying("1")])
    async with serve_code(backend, make_service()) as gateway:
        response = (await ask(gateway, tools=[AUTO])).json
        stored = await request(
            gateway,
            "GET",
            f"/responses/{response['id']}?include[]=code_interpreter_call.outputs",
        )
    assert calls_of(response)[0]["outputs"] is None
    assert calls_of(stored.json)[0]["outputs"] == [{"type": "logs", "logs": "1\n"}]


async def test_variables_are_kept_in_a_chain_which_finds_its_container_again() -> None:
    backend = ScriptedBackend(
        [cell("x = 5"), saying("ok"), cell("print(x)"), saying("5"), cell("print(x)"), saying("?")]
    )
    engine = FakeEngine()
    async with serve_code(backend, make_service(engine=engine)) as gateway:
        first = await whole(gateway)
        second = await whole(gateway, previous_response_id=first["id"])
        other = await whole(gateway)
    (one,), (two,), (three,) = map(calls_of, (first, second, other))
    assert one["container_id"] == two["container_id"] != three["container_id"]
    assert two["outputs"] == [{"type": "logs", "logs": "5\n"}]
    assert "NameError" in three["outputs"][0]["logs"]
    assert three["status"] == "completed"
    assert len(engine.started) == 2


async def test_a_cell_that_takes_too_long_is_incomplete_and_loses_the_variables() -> None:
    backend = ScriptedBackend(
        [cell("x = 1; SLEEP", "a"), cell("print('x' in globals())", "b"), saying("ok")]
    )
    async with serve_code(backend, make_service()) as gateway:
        response = await whole(gateway)
    first, second = calls_of(response)
    assert first["status"] == "incomplete"
    assert second["status"] == "completed"
    assert second["outputs"] == [{"type": "logs", "logs": "False\n"}]
    assert "took too long" in result_of(backend, 1)
    assert LOST_STATE in result_of(backend, 2)


async def test_a_killed_cell_has_failed_and_the_model_gets_the_reason() -> None:
    backend = ScriptedBackend([cell("DIE"), saying("ok")])
    async with serve_code(backend, make_service()) as gateway:
        response = await whole(gateway)
    assert calls_of(response)[0]["status"] == "failed"
    assert "memory" in result_of(backend, 1)
    assert response["status"] == "completed"


async def test_another_process_begins_with_the_files_and_without_the_variables() -> None:
    backend = ScriptedBackend(
        [
            cell("x = 1; here('kept.txt').write_text('here')"),
            saying("ok"),
            cell("print(here('kept.txt').read_text()); print('x' in globals())"),
            saying("ok"),
            cell("print('x' in globals())"),
            saying("ok"),
        ]
    )
    first = make_service()
    second = make_service(first.store)
    async with serve_code(backend, first) as gateway, serve_code(backend, second) as other:
        one = await whole(gateway)
        two = await whole(other, previous_response_id=one["id"])
        three = await whole(gateway, previous_response_id=two["id"])
    assert calls_of(two)[0]["outputs"] == [{"type": "logs", "logs": "here\nFalse\n"}]
    assert LOST_STATE in result_of(backend, 3)
    assert calls_of(three)[0]["outputs"] == [{"type": "logs", "logs": "False\n"}]
    assert LOST_STATE in result_of(backend, 5)


async def test_made_files_are_cited_where_the_answer_names_them() -> None:
    code = "here('plot.png').write_bytes(PNG)"
    text = "See [plot](sandbox:/mnt/data/plot.png) and /mnt/data/none.png."
    backend = ScriptedBackend([cell(code), saying(*text)])
    service = make_service()
    async with serve_code(backend, service) as gateway:
        response = await whole(gateway)
    call, message = response["output"]
    (part,) = message["content"]
    (note,) = part["annotations"]
    assert part["text"] == text
    assert part["text"][note["start_index"] : note["end_index"]] == "sandbox:/mnt/data/plot.png"
    assert note["type"] == "container_file_citation"
    assert note["filename"] == "plot.png"
    assert note["container_id"] == call["container_id"]
    file = await service.store.containers.find_file("local", call["container_id"], note["file_id"])
    assert file is not None
    assert (file.path, file.source) == ("/mnt/data/plot.png", "assistant")
    assert await read_blob(service.store, file.blob.id) == PNG


async def test_changed_files_keep_their_ids_and_removed_ones_go() -> None:
    backend = ScriptedBackend(
        [
            cell("here('a').write_text('1'); here('b').write_text('1')", "a"),
            cell("here('a').write_text('22'); import os; os.remove('/mnt/data/b')", "b"),
            saying("ok"),
        ]
    )
    service = make_service()
    async with serve_code(backend, service) as gateway:
        call = calls_of(await whole(gateway))[0]
    files = await service.store.containers.files(
        "local", call["container_id"], limit=10, is_descending=False
    )
    assert [(file.path, file.blob.size) for file in files] == [("/mnt/data/a", 2)]
    assert "[files removed: /mnt/data/b]" in result_of(backend, 2)


async def test_images_are_data_urls_and_large_ones_files() -> None:
    backend = ScriptedBackend([cell("display(PNG); display(PNG + b'x' * 2000)"), saying("ok")])
    service = make_service()
    async with serve_code(backend, service) as gateway:
        (call,) = calls_of(await whole(gateway))
    image, logs = call["outputs"]
    assert image["type"] == "image"
    assert image["url"].startswith("data:image/png;base64,")
    assert "/mnt/data/image-1.png" in logs["logs"]
    (file,) = await service.store.containers.files(
        "local", call["container_id"], limit=10, is_descending=False
    )
    assert file.blob.size == len(PNG) + 2000
    assert "[images shown to the user: 1]" in str(result_of(backend, 1))


@pytest.mark.parametrize("parts", [frozenset(), frozenset({"image"})])
async def test_a_model_that_takes_images_sees_them(parts: frozenset[str]) -> None:
    backend = ScriptedBackend([cell("display(PNG)"), saying("ok")], parts=parts)
    async with serve_code(backend, make_service()) as gateway:
        await whole(gateway)
    result = result_of(backend, 1)
    shown = [one["type"] for one in result] if isinstance(result, list) else []
    assert ("input_image" in shown) == bool(parts)


async def test_files_of_the_caller_are_in_the_folder() -> None:
    backend = ScriptedBackend([cell("print(here('data.csv').read_text())"), saying("ok")])
    service = make_service()
    file_id = await upload(service.store, "data.csv", b"1,2")
    tool = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": [file_id]}}
    async with serve_code(backend, service) as gateway:
        (call,) = calls_of(await whole(gateway, tools=[tool]))
    assert call["outputs"] == [{"type": "logs", "logs": "1,2\n"}]


async def test_a_named_container_is_used_and_removing_it_ends_its_sandbox() -> None:
    backend = ScriptedBackend([cell("print(1)"), saying("ok"), cell("print(2)"), saying("ok")])
    engine = FakeEngine()
    service = make_service(engine=engine)
    made: Any = await service.create("local", ContainerWish(name="mine"))
    tool = {"type": "code_interpreter", "container": made.id}
    async with serve_code(backend, service) as gateway:
        (call,) = calls_of(await whole(gateway, tools=[tool]))
        assert call["container_id"] == made.id
        (folder,) = engine.started
        assert await service.remove("local", made.id)
        assert engine.open == []
        assert not folder.parent.exists()
        again = await ask(gateway, tools=[tool])
    assert again.status == 404
    assert again.error["code"] == "container_not_found"
    assert len(backend.plans) == 2


WRONG: list[tuple[Any, int, str]] = [
    ("cntr_missing", 404, "container_not_found"),
    ({"type": "auto", "file_ids": ["file-none"]}, 404, "file_not_found"),
    ({"type": "auto", "memory_limit": "2g"}, 400, "invalid_value"),
    ({"type": "auto", "memory_limit": "64g"}, 400, "invalid_value"),
    ({"type": "auto", "file_ids": "x"}, 400, "invalid_value"),
    (
        {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a.b"]}},
        400,
        "unsupported_value",
    ),
    ({"type": "other"}, 400, "invalid_value"),
    (None, 400, "missing_required_parameter"),
    (7, 400, "invalid_value"),
]


@pytest.mark.parametrize(("container", "status", "code"), WRONG)
async def test_a_wrong_container_is_refused_before_the_model_is_asked(
    container: Any, status: int, code: str
) -> None:
    backend = ScriptedBackend([saying("never")])
    async with serve_code(backend, make_service()) as gateway:
        answer = await ask(gateway, tools=[{"type": "code_interpreter", "container": container}])
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.error["param"].startswith("tools[0].container")
    assert backend.plans == []


async def test_a_container_of_another_owner_is_not_found_with_the_same_words() -> None:
    service = make_service()
    made: Any = await service.create("somebody", ContainerWish(name="theirs"))
    async with serve_code(ScriptedBackend([saying("never")]), service) as gateway:
        foreign, missing = [
            await ask(gateway, tools=[{"type": "code_interpreter", "container": name}])
            for name in (made.id, "cntr_" + "x" * len(made.id.removeprefix("cntr_")))
        ]
    assert foreign.status == missing.status == 404
    assert foreign.error["message"].replace(made.id, "") == missing.error["message"].replace(
        "cntr_" + "x" * len(made.id.removeprefix("cntr_")), ""
    )


async def test_an_expired_container_cannot_be_used_again() -> None:
    clock = Clock()
    service = make_service(clock=clock)
    made: Any = await service.create("local", ContainerWish(name="old"))
    clock.now += 20 * 60
    async with serve_code(ScriptedBackend([saying("never")]), service) as gateway:
        answer = await ask(gateway, tools=[{"type": "code_interpreter", "container": made.id}])
    assert (answer.status, answer.error["code"]) == (404, "container_expired")


async def test_a_sandbox_that_does_not_start_is_a_failed_call() -> None:
    engine = FakeEngine()
    engine.is_broken = True
    backend = ScriptedBackend([cell("print(1)"), saying("sorry")])
    async with serve_code(backend, make_service(engine=engine)) as gateway:
        response = await whole(gateway)
    (call,) = calls_of(response)
    assert call["status"] == "failed"
    assert call["outputs"] == [{"type": "logs", "logs": "error: the sandbox does not start"}]
    assert response["status"] == "completed"


async def test_a_call_that_outlives_its_time_loses_its_sandbox() -> None:
    engine = FakeEngine()
    limits = SandboxLimits(cell_seconds=0.01)
    service = make_service(engine=engine, limits=limits, wait_seconds=0.01)
    backend = ScriptedBackend([cell("HANG"), saying("late")])
    async with serve_code(backend, service, ToolLimits(turn_seconds=0.5)) as gateway:
        response = await whole(gateway)
    assert calls_of(response)[0]["status"] == "failed"
    assert engine.open == []


async def test_weak_models_may_send_bare_code_or_a_fence() -> None:
    rounds: list[list[Step]] = [
        [CallMade("code_interpreter", "print(1)", "a"), STOP],
        cell("```python\nprint(2)\n```", "b"),
        [CallMade("code_interpreter", "{}", "c"), STOP],
        saying("ok"),
    ]
    async with serve_code(backend := ScriptedBackend(rounds), make_service()) as gateway:
        response = await whole(gateway)
    logs = [call["outputs"][0]["logs"] for call in calls_of(response)]
    assert logs == ["1\n", "2\n"]
    assert "call it with a JSON object" in result_of(backend, 3)


async def _both(service: ContainerService, owner: str, name: str) -> None:
    async with service.use(owner, name) as workspace:
        async for _ in workspace.run("HANG", 60):
            pass


async def test_one_call_at_a_time_uses_a_container() -> None:
    engine = FakeEngine()
    service = make_service(engine=engine)
    made: Any = await service.create("local", ContainerWish(name="one"))
    first = asyncio.create_task(_both(service, "local", made.id))
    await engine.hangs.wait()
    engine.hangs.clear()
    second = asyncio.create_task(_both(service, "local", made.id))
    await asyncio.sleep(0)
    assert not engine.hangs.is_set()
    engine.go_on.set()
    await asyncio.gather(first, second)
    assert len(engine.started) == 1
    await service.close()
