"""A real model server: llama.cpp over HTTP, with a real model behind it.

It runs in a process of its own, through the same library as the embedded model, and the
gateway reaches it as any upstream. Its template opens `<think>`, so that a grammar can make
the model think aloud.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from antiphon.backends.base import Backend
from antiphon.backends.chat import ChatBackend
from antiphon.backends.http import HttpBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.events import ReasoningTextDelta
from antiphon.testing import serve_gateway
from antiphon.wires.messages.wire import MessagesWire
from antiphon.wires.responses.profiles import PROFILES
from antiphon.wires.responses.wire import ResponsesWire
from tests.asking import ask, ask_stream, request, terminal

pytestmark = pytest.mark.slow

SERVER = """
import sys
import xllamacpp
from antiphon.backends.weights import ensure_weights

parameters = xllamacpp.CommonParams()
parameters.model.path = str(ensure_weights())
parameters.n_ctx, parameters.n_parallel = 4096, 2
parameters.fit_params = parameters.warmup = False
parameters.cpuparams.n_threads = 1
parameters.verbosity = -1
parameters.port = 0
if sys.argv[1]:
    parameters.chat_template = sys.argv[1]
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
THOUGHT = r'root ::= [a-z ]{12,20} "\n</think>\n\nParis."'


def run_server(template: str) -> Iterator[str]:
    """Run llama.cpp's server until the tests are done; yield its base URL."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, template],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = next(line for line in process.stdout if line.startswith("http"))
        yield f"{address.strip()}/v1"
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    yield from run_server("")


@pytest.fixture(scope="module")
def thinking_upstream() -> Iterator[str]:
    yield from run_server(THINKING)


async def test_a_stream_of_real_tokens_is_what_is_stored(upstream: str) -> None:
    async with serve_gateway(ChatBackend(upstream, profile="llamacpp")) as gateway:
        response = terminal(
            await ask_stream(
                gateway, input="What is the capital of France?", temperature=0, max_output_tokens=40
            )
        )
        stored = await request(gateway, "GET", f"/responses/{response.id}")

    assert response.output_text
    assert stored.json["output"] == response.output
    assert response.usage is not None
    assert response.usage.output_tokens > 3
    assert not response.antiphon


async def test_its_messages_api_gives_the_same_text(upstream: str) -> None:
    body: Any = {"input": "Name a colour.", "temperature": 0, "max_output_tokens": 20}
    texts = []
    for backend in (
        ChatBackend(upstream, profile="llamacpp"),
        HttpBackend(upstream, MessagesWire(root="")),
    ):
        async with serve_gateway(backend) as gateway:
            streamed = terminal(await ask_stream(gateway, **body))
            whole = (await ask(gateway, **body)).json
        texts += [streamed.output_text, whole["output"][0]["content"][0]["text"]]
        assert streamed.usage is not None
        assert streamed.usage.output_tokens == whole["usage"]["output_tokens"] == 20

    assert len(set(texts)) == 1, texts


async def test_its_messages_api_counts_a_prompt(upstream: str) -> None:
    backend = HttpBackend(upstream, MessagesWire(root=""))
    item = {"type": "message", "role": "user", "content": "Name a colour."}
    count = await backend.count(Plan(model="x", items=[item]))
    await backend.close()

    assert count is not None and count > 5


async def test_streamed_and_whole_answers_count_the_same(upstream: str) -> None:
    body = {"input": "Count to three.", "temperature": 0, "max_output_tokens": 8, "seed": 1}
    async with serve_gateway(ChatBackend(upstream, profile="llamacpp")) as gateway:
        streamed = terminal(await ask_stream(gateway, **body))
        whole = (await ask(gateway, **body)).json

    assert streamed.status == whole["status"] == "incomplete"
    assert streamed.usage is not None
    assert streamed.usage.output_tokens == whole["usage"]["output_tokens"] == 8
    assert streamed.usage.input_tokens == whole["usage"]["input_tokens"]


async def test_a_conversation_goes_on_over_previous_response_id(upstream: str) -> None:
    async with serve_gateway(ChatBackend(upstream, profile="llamacpp")) as gateway:
        first = (await ask(gateway, input="Say one word.", max_output_tokens=16)).json
        second = await ask(
            gateway, input="Another.", previous_response_id=first["id"], max_output_tokens=16
        )

    assert second.status == 200
    assert second.json["usage"]["input_tokens"] > first["usage"]["input_tokens"]


async def test_a_schema_is_kept_to(upstream: str) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "place", "schema": schema, "strict": True}
    async with serve_gateway(ChatBackend(upstream, profile="llamacpp")) as gateway:
        response = terminal(
            await ask_stream(gateway, input="The capital of France?", text={"format": form})
        )

    assert response.status == "completed"
    assert json.loads(response.output_text)["city"] in ("Paris", "Rome")


async def test_genuine_reasoning_arrives_as_reasoning(thinking_upstream: str) -> None:
    async with serve_gateway(ChatBackend(thinking_upstream, profile="llamacpp")) as gateway:
        events = await ask_stream(gateway, input="The capital of France?", grammar=THOUGHT)

    response = terminal(events)
    assert [item["type"] for item in response.output] == ["reasoning", "message"]
    assert len([event for event in events if isinstance(event, ReasoningTextDelta)]) > 1
    assert response.output_text.strip() == "Paris."
    assert "think>" not in json.dumps(response.output)


async def test_a_context_that_is_too_long_is_told_or_shortened(upstream: str) -> None:
    turns = [{"role": "user", "content": "word " * 3000}, {"role": "user", "content": "Hello."}]
    async with serve_gateway(ChatBackend(upstream, profile="llamacpp")) as gateway:
        refused = await ask(gateway, input=turns)
        shortened = await ask(gateway, input=turns, truncation="auto", max_output_tokens=16)

    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    assert shortened.status == 200
    assert "truncation" in shortened.headers["x-antiphon-degraded"]


async def test_the_count_is_what_the_usage_says(upstream: str) -> None:
    body = {"input": "How long is this? é <|im_end|>", "instructions": "Be brief."}
    async with serve_gateway(ChatBackend(upstream, profile="llamacpp")) as gateway:
        counted = await request(gateway, "POST", "/responses/input_tokens", body)
        run = await ask(gateway, **body, max_output_tokens=1)

    assert counted.json == {
        "object": "response.input_tokens",
        "input_tokens": run.json["usage"]["input_tokens"],
    }


# The server has several APIs. One more is one more line here.

GREEDY: Final = "The capital of France is"
APIS: Final[dict[str, Callable[[str], Backend]]] = {
    "chat": lambda url: ChatBackend(url, profile="llamacpp"),
    "responses": lambda url: HttpBackend(url, ResponsesWire(PROFILES["llamacpp"])),
}


async def answer_of(backend: Backend, *, is_streamed: bool) -> tuple[str, str, int]:
    """Return the text of a greedy answer, how it ended, and its tokens."""
    body = {"input": GREEDY, "temperature": 0, "max_output_tokens": 24}
    async with serve_gateway(backend) as gateway:
        if is_streamed:
            response = terminal(await ask_stream(gateway, **body))
            assert response.usage is not None
            return response.output_text, response.status, response.usage.output_tokens
        found = (await ask(gateway, **body)).json
    text = "".join(part["text"] for item in found["output"] for part in item["content"])
    return text, found["status"], found["usage"]["output_tokens"]


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", APIS)
async def test_every_api_of_a_server_gives_the_same_greedy_text(
    upstream: str, api: str, is_streamed: bool
) -> None:
    expected = await answer_of(APIS["chat"](upstream), is_streamed=True)
    assert expected[0]
    assert await answer_of(APIS[api](upstream), is_streamed=is_streamed) == expected
