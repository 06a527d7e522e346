"""Programs that call tools through the official SDK: its stream helper reads them.

Only the protocol is checked; the model plays a script.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall
from openai.types.responses.response_output_item import Program, ProgramOutput

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import serve_gateway
from antiphon.tools.programs.runner import ProgramRunner
from tests.containers import make_service
from tests.sandboxes import engine

TOOLS: Any = [
    {"type": "programmatic_tool_calling"},
    {
        "type": "function",
        "name": "stock",
        "parameters": {"type": "object", "properties": {"sku": {"type": "string"}}},
        "strict": False,
        "allowed_callers": ["programmatic"],
        "output_schema": {"type": "object"},
    },
]
CODE = "text((await tools.stock({sku: 'a'})).count * 2)"
STOP = Stopped("stop")


async def test_the_stream_helper_reads_a_program_and_its_replay(tmp_path: Path) -> None:
    arguments = msgspec.json.encode({"code": CODE}).decode()
    script: list[list[Step]] = [
        [CallMade("program", arguments, "p"), STOP],
        [TextGrew("Six."), STOP],
    ]
    store = SqliteStore(tmp_path / "antiphon.db")
    service = make_service(store, engine("bwrap+sandlock"))
    tools = [ProgramRunner(service)]
    async with (
        serve_gateway(
            ScriptedBackend(script), store=store, tools=tools, containers=service
        ) as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client,
    ):
        async with client.responses.stream(model="echo", input="count", tools=TOOLS) as stream:
            kinds = [event.type async for event in stream]
            first = await stream.get_final_response()
        program, call = first.output
        assert isinstance(program, Program)
        assert isinstance(call, ResponseFunctionToolCall)
        output: Any = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": '{"count": 3}',
        }
        async with client.responses.stream(
            model="echo", input=[output], previous_response_id=first.id, tools=TOOLS
        ) as stream:
            later = [event.type async for event in stream]
            second = await stream.get_final_response()
        stored = await client.responses.retrieve(second.id)
    await service.close()
    await store.close()
    end, message = second.output
    assert isinstance(end, ProgramOutput)
    assert (end.call_id, end.result, end.status) == (program.call_id, "6", "completed")
    assert call.caller is not None
    assert call.caller.type == "program"
    assert call.caller.caller_id == program.call_id
    assert message.type == "message"
    assert [item.type for item in stored.output] == ["program_output", "message"]
    assert kinds.count("response.output_item.added") == 2
    assert "response.function_call_arguments.done" in kinds
    assert later.count("response.output_item.done") == 2
