"""Code and shell through the official SDK, in a real sandbox where this machine has one.

Its stream helper reads the stream, its referee judges the items, and its container API downloads
what the code made. Judged is the protocol; the model plays a script.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from openai import AsyncOpenAI, NotFoundError
from openai.lib import responses_tool_runner

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.base import ToolRunner
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.sandbox.engines import ENGINES, EngineName
from antiphon.tools.shell import HostedShell
from tests.containers import make_service
from tests.sandboxes import engine

CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
SHELL: Any = {"type": "shell", "environment": {"type": "container_auto"}}
STOP = Stopped("stop")
# A plot without matplotlib: a red square as a PNG, shown and saved.
PLOT = """
import struct, zlib
def chunk(kind, data):
    whole = kind + data
    return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))
rows = b"".join(b"\\0" + b"\\xff\\0\\0" * 8 for _ in range(8))
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
with open("plot.png", "wb") as file:
    file.write(png)
display(png)
print("plotted", sum(range(10)))
"""
SECRET = "a word that must not stay: xylograph"


def cell(code: str, call_id: str = "a") -> list[Step]:
    """Return a round that runs code."""
    arguments = msgspec.json.encode({"code": code}).decode()
    return [CallMade("code_interpreter", arguments, call_id), STOP]


def commanding(*commands: str) -> list[Step]:
    """Return a round that runs commands."""
    arguments = msgspec.json.encode({"commands": commands}).decode()
    return [CallMade("shell", arguments, "s"), STOP]


def saying(text: str) -> list[Step]:
    """Return a round that answers, a few letters at a time."""
    return [*(TextGrew(text[at : at + 5]) for at in range(0, len(text), 5)), STOP]


def _validate(item: Any) -> None:
    """Let the referee of the SDK judge an item. It has no public name."""
    judge = responses_tool_runner._validate_server_item
    judge(cast(dict[str, object], item.to_dict(mode="json")), [CODE])


@pytest.fixture(params=ENGINES)
async def service(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ContainerService]:
    name: EngineName = request.param
    store = SqliteStore(tmp_path / "antiphon.db")
    service = make_service(store, engine(name))
    yield service
    await service.close()
    await store.close()


def serving(backend: ScriptedBackend, service: ContainerService) -> Any:
    """Run a gateway with code and shell."""
    tools: list[ToolRunner] = [CodeInterpreter(service), HostedShell(service)]
    return serve_gateway(backend, store=service.store, tools=tools, containers=service)


def client_of(gateway: Gateway) -> AsyncOpenAI:
    """Return the official client."""
    return AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0)


async def test_code_that_prints_plots_and_writes_a_file_that_is_cited_and_downloaded(
    service: ContainerService,
) -> None:
    text = "Here is [the plot](sandbox:/mnt/data/plot.png), not /mnt/data/other.png."
    backend = ScriptedBackend([cell(PLOT), saying(text)])
    async with (
        serving(backend, service) as gateway,
        client_of(gateway) as client,
        client.responses.stream(
            model="echo", input="plot", tools=[CODE], include=["code_interpreter_call.outputs"]
        ) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
        call, message = final.output
        assert call.type == "code_interpreter_call"
        assert message.type == "message"
        (part,) = message.content
        assert part.type == "output_text"
        (note,) = part.annotations
        assert note.type == "container_file_citation"
        assert part.text == text
        assert part.text[note.start_index : note.end_index] == "sandbox:/mnt/data/plot.png"
        content = await client.containers.files.content.retrieve(
            note.file_id, container_id=note.container_id
        )
        png = content.read()
    assert "response.code_interpreter_call_code.done" in kinds
    assert "response.output_text.annotation.added" in kinds
    _validate(call)
    assert call.outputs is not None
    image, logs = sorted(call.outputs, key=lambda output: output.type)
    assert image.type == "image"
    assert image.url.startswith("data:image/png;base64,")
    assert logs.type == "logs"
    assert logs.logs == "plotted 45\n"
    assert png.startswith(b"\x89PNG")
    assert zlib.decompress(png[png.index(b"IDAT") + 4 :])[:4] == b"\x00\xff\x00\x00"


async def test_variables_and_files_are_there_in_the_next_turn(service: ContainerService) -> None:
    backend = ScriptedBackend(
        [
            cell("x = 41\nopen('a.txt', 'w').write('kept')"),
            saying("ok"),
            cell("print(x + 1, open('a.txt').read())"),
            saying("42"),
        ]
    )
    async with serving(backend, service) as gateway, client_of(gateway) as client:
        first = await client.responses.create(model="echo", input="a", tools=[CODE])
        second = await client.responses.create(
            model="echo",
            input="b",
            tools=[CODE],
            previous_response_id=first.id,
            include=["code_interpreter_call.outputs"],
        )
    call = second.output[0]
    assert call.type == "code_interpreter_call"
    assert call.outputs is not None
    assert call.outputs[0].type == "logs"
    assert call.outputs[0].logs == "42 kept\n"


async def test_shell_commands_are_read_by_the_stream_helper(service: ContainerService) -> None:
    backend = ScriptedBackend([commanding("echo hi > a; cat a", "exit 7"), saying("Done.")])
    async with (
        serving(backend, service) as gateway,
        client_of(gateway) as client,
        client.responses.stream(model="echo", input="ls", tools=[SHELL]) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds.count("response.shell_call_command.done") == 2
    assert kinds.count("response.shell_call_output_content.done") == 2
    call, output, _ = final.output
    assert call.type == "shell_call"
    assert output.type == "shell_call_output"
    assert call.action.commands == ["echo hi > a; cat a", "exit 7"]
    first, second = output.output
    assert first.stdout == "hi\n"
    assert second.outcome.type == "exit"
    assert second.outcome.exit_code == 7


async def test_after_a_deletion_no_byte_is_left(service: ContainerService, tmp_path: Path) -> None:
    code = f"open('secret.txt', 'w').write({SECRET!r})"
    backend = ScriptedBackend([cell(code), saying("/mnt/data/secret.txt")])
    async with serving(backend, service) as gateway, client_of(gateway) as client:
        response = await client.responses.create(model="echo", input="a", tools=[CODE])
        call = response.output[0]
        assert call.type == "code_interpreter_call"
        (workspace,) = [one.workspace for one in service.running._all.values()]
        assert workspace is not None
        assert (workspace.folder / "secret.txt").read_text() == SECRET
        await client.containers.delete(call.container_id)
        await client.responses.delete(response.id)
        with pytest.raises(NotFoundError):
            await client.containers.retrieve(call.container_id)
        assert not workspace.folder.exists()
        await service.store.files.sweep(service.now(), 100)
    await service.store.close()
    assert _files_with(SECRET, tmp_path) == []


def _files_with(text: str, folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if text.encode() in path.read_bytes()]
