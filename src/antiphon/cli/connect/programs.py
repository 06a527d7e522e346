"""The smallest program that works, for each library, and the variables it can do with instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import Template
from typing import Final, NamedTuple

from antiphon.cli.connect.lines import SettingsPiece
from antiphon.cli.connect.target import Target

__all__ = ["PROGRAMS", "UNUSED", "dotenv_piece", "program", "variables"]

UNUSED: Final = "unused"
"""What stands for a key where none is needed: the libraries insist on one."""
_NO_TRACES: Final = "OPENAI_AGENTS_DISABLE_TRACING"

_OPENAI_PYTHON: Final = """\
${imports}from openai import OpenAI

client = OpenAI(base_url=$url, api_key=$key)
response = client.responses.create(model=$model, input="Say hello.")
print(response.output_text)
"""
_AGENTS_PYTHON: Final = """\
${imports}from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)  # traces would be sent to api.openai.com
client = AsyncOpenAI(base_url=$url, api_key=$key)
model = OpenAIResponsesModel(model=$model, openai_client=client)
agent = Agent(name="Assistant", instructions="Answer in one line.", model=model)
print(Runner.run_sync(agent, "Say hello.").final_output)
"""
_OPENAI_NODE: Final = """\
import OpenAI from "openai";

const client = new OpenAI({ baseURL: $url, apiKey: $key });
const response = await client.responses.create({ model: $model, input: "Say hello." });
console.log(response.output_text);
"""
_AGENTS_JS: Final = """\
import { Agent, OpenAIResponsesModel, run, setTracingDisabled } from "@openai/agents";
import OpenAI from "openai";

setTracingDisabled(true); // traces would be sent to api.openai.com
const client = new OpenAI({ baseURL: $url, apiKey: $key });
const model = new OpenAIResponsesModel(client, $model);
const agent = new Agent({ name: "Assistant", instructions: "Answer in one line.", model });
console.log((await run(agent, "Say hello.")).finalOutput);
"""
_AI_SDK: Final = """\
import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

const antiphon = createOpenAI({ baseURL: $url, apiKey: $key });
const { text } = await generateText({ model: antiphon($model), prompt: "Say hello." });
console.log(text);
"""


class _Form(NamedTuple):
    """A program with blanks, and how to run it."""

    text: str
    is_python: bool
    file: str
    packages: str


PROGRAMS: Final[Mapping[str, _Form]] = {
    "openai-python": _Form(_OPENAI_PYTHON, True, "hello.py", "openai"),
    "openai-node": _Form(_OPENAI_NODE, False, "hello.mjs", "openai"),
    "agents": _Form(_AGENTS_PYTHON, True, "hello.py", "openai-agents"),
    "agents-js": _Form(_AGENTS_JS, False, "hello.mjs", "@openai/agents openai zod"),
    "ai-sdk": _Form(_AI_SDK, False, "hello.mjs", "ai @ai-sdk/openai"),
}


def program(client: str, url: str, model: str, key_env: str | None = None) -> str:
    """Return a program that asks the model at the URL for a greeting and prints it.

    `client` is a key of PROGRAMS; `key_env` names the variable that holds the key, if one is
    needed. Python and JavaScript both write texts as JSON does.
    """
    form = PROGRAMS[client]
    key, imports = json.dumps(UNUSED), ""
    if key_env and form.is_python:
        key, imports = f"os.environ[{json.dumps(key_env)}]", "import os\n\n"
    elif key_env:
        key = f"process.env.{key_env}"
    return Template(form.text).substitute(
        url=json.dumps(url), model=json.dumps(model), key=key, imports=imports
    )


def variables(client: str, url: str) -> list[str]:
    """Return the settings of the variables that the library reads, without that of the key."""
    # Traces hold the conversation, and would be sent to api.openai.com.
    quiet = [f"{_NO_TRACES}=1"] if client in ("agents", "agents-js") else []
    return [f"OPENAI_BASE_URL={url}", *quiet]


def dotenv_piece(client: str, target: Target) -> SettingsPiece:
    """Return the variables as lines of a `.env` file."""
    key = f"OPENAI_API_KEY={UNUSED}"
    if target.key_env:
        key = "# OPENAI_API_KEY must hold a key of the gateway"
    return SettingsPiece(
        client=client,
        lines=(*variables(client, target.url), key),
        names=("OPENAI_BASE_URL", "OPENAI_API_KEY", _NO_TRACES),
    )
