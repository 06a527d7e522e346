"""The smallest program that works, for each library. Each runs as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["PROGRAMS", "UNUSED", "program"]

UNUSED: Final = "unused"
"""What stands for a key where none is needed: the libraries insist on one."""


class _Blanks(NamedTuple):
    """What goes into a program, each as the language writes it."""

    url: str
    model: str
    key: str


def _openai_python(blanks: _Blanks, imports: str) -> str:
    return f"""\
{imports}from openai import OpenAI

client = OpenAI(base_url={blanks.url}, api_key={blanks.key})
response = client.responses.create(model={blanks.model}, input="Say hello.")
print(response.output_text)
"""


def _agents_python(blanks: _Blanks, imports: str) -> str:
    return f"""\
{imports}from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)  # traces would be sent to api.openai.com
client = AsyncOpenAI(base_url={blanks.url}, api_key={blanks.key})
model = OpenAIResponsesModel(model={blanks.model}, openai_client=client)
agent = Agent(name="Assistant", instructions="Answer in one line.", model=model)
print(Runner.run_sync(agent, "Say hello.").final_output)
"""


def _openai_node(blanks: _Blanks, imports: str) -> str:
    return f"""\
import OpenAI from "openai";

const client = new OpenAI({{ baseURL: {blanks.url}, apiKey: {blanks.key} }});
const response = await client.responses.create({{ model: {blanks.model}, input: "Say hello." }});
console.log(response.output_text);
"""


def _agents_js(blanks: _Blanks, imports: str) -> str:
    return f"""\
import {{ Agent, OpenAIResponsesModel, run, setTracingDisabled }} from "@openai/agents";
import OpenAI from "openai";

setTracingDisabled(true); // traces would be sent to api.openai.com
const client = new OpenAI({{ baseURL: {blanks.url}, apiKey: {blanks.key} }});
const model = new OpenAIResponsesModel(client, {blanks.model});
const agent = new Agent({{ name: "Assistant", instructions: "Answer in one line.", model }});
console.log((await run(agent, "Say hello.")).finalOutput);
"""


def _ai_sdk(blanks: _Blanks, imports: str) -> str:
    return f"""\
import {{ createOpenAI }} from "@ai-sdk/openai";
import {{ generateText }} from "ai";

const antiphon = createOpenAI({{ baseURL: {blanks.url}, apiKey: {blanks.key} }});
const {{ text }} = await generateText({{ model: antiphon({blanks.model}), prompt: "Say hello." }});
console.log(text);
"""


class _Form(NamedTuple):
    """How to write a program down, and how to run it."""

    write: Callable[[_Blanks, str], str]
    is_python: bool
    file: str
    packages: str


PROGRAMS: Final[Mapping[str, _Form]] = {
    "openai-python": _Form(_openai_python, True, "hello.py", "openai"),
    "openai-node": _Form(_openai_node, False, "hello.mjs", "openai"),
    "agents": _Form(_agents_python, True, "hello.py", "openai-agents"),
    "agents-js": _Form(_agents_js, False, "hello.mjs", "@openai/agents openai zod"),
    "ai-sdk": _Form(_ai_sdk, False, "hello.mjs", "ai @ai-sdk/openai"),
}


def program(client: str, url: str, model: str, key_env: str | None = None) -> str:
    """Return a program that asks the model at the URL for a greeting and prints it.

    `client` is a key of PROGRAMS; `key_env` names the variable that holds the key, if one is
    needed.
    """
    form = PROGRAMS[client]
    key, imports = _text(UNUSED), ""
    if key_env and form.is_python:
        key, imports = f"os.environ[{_text(key_env)}]", "import os\n\n"
    elif key_env:
        key = f"process.env.{key_env}"
    return form.write(_Blanks(_text(url), _text(model), key), imports)


def _text(value: str) -> str:
    """Return a text as Python and JavaScript both write it."""
    return json.dumps(value)
