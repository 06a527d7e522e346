"""Which clients are there, where do their versions come from, and what must a user know?

This table is the hand-written half of the pages in docs/clients; what works comes from the record
of the suite. A client without `lock` is not run by any suite, and its row says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tests.clients.install import (
    AGENTS_LOCK,
    AIDER_LOCK,
    CLAUDE_LOCK,
    CREWAI_LOCK,
    LLM_PLUGIN_LOCK,
    MASTRA_LOCK,
    NODE_LOCK,
    OPENAI2_LOCK,
    OPENCODE_LOCK,
    PYTHON_LOCK,
    SEMANTIC_KERNEL_LOCK,
    TEST_LOCK,
    locked_version,
)

__all__ = ["CLIENTS", "Client", "versions"]


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One client: how it is called, how it is pinned, how it is set up, what it cannot do."""

    name: str
    """As `antiphon connect` calls it, if it knows the client."""
    title: str
    package: str
    lock: Path | None = None
    """The lock file that names the package."""
    apis: tuple[str, ...] = ("Responses",)
    """Which of our APIs the turns use."""
    setup: str = ""
    limits: tuple[str, ...] = ()


_HOSTED: Final = (
    "[Hosted tools](../topics/hosted-tools.md) are run where the settings name who does it (web "
    "search, image generation, MCP). File search and the code interpreter are left out and named "
    "in `x-antiphon-degraded`."
)

_NO_BATCHES: Final = "Batches and files of Anthropic's API are not served."

_LARGE: Final = "It is large, so `scripts/test-more` runs it, not `scripts/test`."

CLIENTS: Final = (
    Client(
        name="codex",
        title="Codex CLI",
        package="@openai/codex",
        lock=NODE_LOCK,
        setup="""\
One command starts a gateway for an upstream and Codex against it, and stops both:

```sh
antiphon run codex --upstream http://127.0.0.1:11434/v1
```

To use a gateway that runs anyway, `antiphon connect codex --write` puts a provider named
`antiphon` into `~/.codex/config.toml`. That provider speaks HTTP. Codex's built-in provider speaks
WebSocket to the gateway if `openai_base_url` in the same file names it and `CODEX_API_KEY` is set.

Describe what the model can do in `[models."NAME"]` of
[antiphon.toml](../reference/config.md#modelsname), if the upstream does not state it: Codex sends
images only to a model that takes them, and compacts a thread when `context_length` is near.""",
        limits=(
            "The built-in provider does not read the gateway's list of models, so it warns that it "
            "does not know the model and offers no `apply_patch`, unless `model_catalog_json` "
            "names a file with that list. A provider of one's own, as `antiphon connect` writes "
            "it, reads the list.",
            "Hosted tools (web search, image generation) cannot be run; they are left "
            "out and named in `x-antiphon-degraded`.",
            "When an upstream is cut off, Codex keeps the part of the answer it has shown and "
            "asks again. Cut off in the middle of a call, it gets the unfinished call, cannot "
            "read the arguments and reports that to the model; nothing of it is run.",
            "With `memory:` as the store, what the gateway sealed (compacted history, thoughts) "
            "cannot be opened after a restart; the rest of a thread goes on.",
        ),
    ),
    Client(
        name="claude-code",
        apis=("Messages",),
        title="Claude Code",
        package="@anthropic-ai/claude-code-linux-x64",
        lock=CLAUDE_LOCK,
        setup="""\
One command starts a gateway for an upstream and Claude Code against it, and stops both:

```sh
antiphon run claude --upstream http://127.0.0.1:11434/v1
```

To use a gateway that runs anyway, `antiphon connect claude-code --write` puts the variables and the
command that prints the key into `~/.claude/settings.json`. More:
[Claude Code on your model](../howto/claude-code.md).

Describe what the model can do in `[models."NAME"]` of
[antiphon.toml](../reference/config.md#modelsname), if the upstream does not state it: Claude Code
takes a model that it does not know for one of 200,000 tokens.""",
        limits=(
            "Claude Code speaks Anthropic's Messages API to the gateway; what is supported is "
            "in [Messages](../reference/messages.md).",
            "The turns are run with the program for Linux on x86-64, without a terminal (`-p`).",
            "`context_management` is named in `x-antiphon-degraded` with every request: a chat "
            "server has no such setting.",
            "When an upstream is cut off before a block of its answer has ended, Claude Code asks "
            "again without streaming. After that it shows the error and does not ask again.",
            "What a model thought comes back only with the extra `seal`; without it the gateway "
            "sends no thinking.",
        ),
    ),
    Client(
        name="vscode",
        title="VS Code chat",
        package="code-server",
        lock=Path("tests/vscode/package-lock.json"),
        setup="""\
`antiphon connect vscode --write` adds a group to `chatLanguageModels.json`, which lies beside VS
Code's `settings.json`; without `--write` it prints what to paste. The model is an entry of VS
Code's own provider "Custom Endpoint" with `"apiType": "responses"`; no extension is needed, and no
sign-in where `"chat.allowAnonymousAccess": true` is set. Open the chat's model picker, then *Manage
Models…* once, so that VS Code loads the list, and choose the model.

Set `reasoning_as = "summary"` in [antiphon.toml](../reference/config.md): VS Code shows thinking
only where it comes as a summary, and does not ask for one.

`"chat.byokUtilityModelDefault": "mainAgent"` in `settings.json` lets the same model write titles
and the like; otherwise VS Code asks for a sign-in for those.""",
        limits=(
            "The version is that of code-server, which is VS Code 1.139.1 with a browser as its "
            "window. `scripts/test-vscode` runs it.",
            "A key cannot be written into the file: VS Code keeps it in its secret storage. Enter "
            "it under *Manage Models…*. A gateway on loopback needs none.",
            "A turn that fails is shown with the gateway's message and a JavaScript stack; the "
            "next question goes on from the last good answer.",
            "VS Code sends 40 tools and a long prompt with its first question, 73 KB together: a "
            "model with a short context window cannot take part in agent mode.",
        ),
    ),
    Client(
        name="vscode-extension",
        title="VS Code with the extension",
        package="code-server",
        lock=Path("tests/vscode/package-lock.json"),
        setup="""\
`antiphon connect vscode --extension` installs the extension, and the model picker of the chat has
the models of the gateway then. [How to use it](../howto/vscode.md), with settings and errors.""",
        limits=(
            "The version is that of code-server, which is VS Code 1.139.1 with a browser as its "
            "window. `scripts/test-vscode` runs it, with the extension installed from its file.",
            "VS Code sends 40 tools and a long prompt with its first question, about 30,000 "
            "tokens: a model with a shorter context cannot take part in agent mode.",
            "VS Code removes the text of an answer that fails on its way.",
        ),
    ),
    Client(
        name="openai-python",
        title="OpenAI SDK for Python",
        package="openai",
        lock=TEST_LOCK,
        setup="""\
```sh
export OPENAI_BASE_URL=http://127.0.0.1:4680/v1 OPENAI_API_KEY=none
```

or `OpenAI(base_url=..., api_key=...)`. A gateway on loopback takes any key.""",
        limits=(
            _HOSTED,
            "Whether a custom call keeps to its grammar is checked if the extra `[grammar]` is "
            "installed.",
            "Webhooks are configured at the gateway; `webhooks.create` and its siblings, which "
            "manage them at OpenAI, are not served.",
        ),
    ),
    Client(
        name="openai-node",
        title="OpenAI SDK for JavaScript",
        package="openai",
        lock=NODE_LOCK,
        setup="""\
```js
const client = new OpenAI({ baseURL: 'http://127.0.0.1:4680/v1', apiKey: 'none' });
```

A gateway on loopback takes any key.""",
        limits=(_HOSTED,),
    ),
    Client(
        name="anthropic-python",
        apis=("Messages",),
        title="Anthropic SDK for Python",
        package="anthropic",
        lock=TEST_LOCK,
        setup="""\
```sh
export ANTHROPIC_BASE_URL=http://127.0.0.1:4680 ANTHROPIC_API_KEY=none
```

or `Anthropic(base_url=..., api_key=...)`. The base URL has no `/v1`. A gateway on loopback takes
any key. See [the Messages API](../reference/messages.md) for what becomes of each field.""",
        limits=(
            _HOSTED,
            _NO_BATCHES,
            "`tool_runner` begins a thread, which is not kept here: it sends the whole history "
            "again after that answer. `thread=False` avoids the extra request.",
        ),
    ),
    Client(
        name="anthropic-node",
        apis=("Messages",),
        title="Anthropic SDK for JavaScript",
        package="@anthropic-ai/sdk",
        lock=NODE_LOCK,
        setup="""\
```js
const client = new Anthropic({ baseURL: 'http://127.0.0.1:4680', apiKey: 'none' });
```

The base URL has no `/v1`. A gateway on loopback takes any key. See [the Messages
API](../reference/messages.md) for what becomes of each field.""",
        limits=(_HOSTED, _NO_BATCHES),
    ),
    Client(
        name="agents",
        title="OpenAI Agents SDK for Python",
        package="openai-agents",
        lock=PYTHON_LOCK,
        setup="""\
```py
set_default_openai_client(AsyncOpenAI(base_url="http://127.0.0.1:4680/v1", api_key="none"))
set_tracing_disabled(True)
```

Without the second line the SDK sends traces to OpenAI, with the key it has.""",
        limits=(
            _HOSTED,
            "`OpenAIResponsesCompactionSession` itself refuses a model whose name does not begin "
            "with `gpt-` or with `o` and a digit.",
        ),
    ),
    Client(
        name="agents-js",
        title="OpenAI Agents SDK for JavaScript",
        package="@openai/agents",
        lock=NODE_LOCK,
        setup="""\
```js
setDefaultOpenAIClient(new OpenAI({ baseURL: 'http://127.0.0.1:4680/v1', apiKey: 'none' }));
setTracingDisabled(true);
```

Without the second line the SDK sends traces to OpenAI, with the key it has.""",
        limits=(
            _HOSTED,
            "The SDK has no custom tools and no local shell tool of the older kind.",
            "`OpenAIResponsesCompactionSession` itself refuses a model whose name does not begin "
            "with `gpt-` or with `o` and a digit.",
        ),
    ),
    Client(
        name="ai-sdk",
        title="AI SDK with @ai-sdk/openai",
        package="@ai-sdk/openai",
        lock=NODE_LOCK,
        setup="""\
```js
const openai = createOpenAI({ baseURL: 'http://127.0.0.1:4680/v1', apiKey: 'none' });
const model = openai.responses('MODEL');
```""",
        limits=(
            _HOSTED,
            "What the model thinks is shown only as a summary: set `reasoningSummary: 'auto'`. For "
            "a model whose name the provider does not know, set `forceReasoning: true` too.",
        ),
    ),
    Client(
        name="ai-sdk-open-responses",
        title="AI SDK with @ai-sdk/open-responses",
        package="@ai-sdk/open-responses",
        lock=NODE_LOCK,
        setup="""\
```js
const antiphon = createOpenResponses({
  name: 'antiphon',
  url: 'http://127.0.0.1:4680/v1/responses',
});
```""",
        limits=(
            "The provider sends the whole history each time; it has no `previousResponseId`.",
            "It shows the message of an error only if the error names a parameter; else the "
            "message is in the error's `responseBody`.",
        ),
    ),
    Client(
        name="langchain-openai",
        apis=("Responses", "chat"),
        title="LangChain with langchain-openai",
        package="langchain-openai",
        lock=PYTHON_LOCK,
        setup="""\
```py
ChatOpenAI(
    model="MODEL",
    base_url="http://127.0.0.1:4680/v1",
    api_key="none",
    use_responses_api=True,
)
```

Without `use_responses_api` the library speaks chat completions to the gateway, which works too.""",
        limits=(_HOSTED,),
    ),
    Client(
        name="langchain-openai-js",
        apis=("Responses", "chat"),
        title="LangChain.js with @langchain/openai",
        package="@langchain/openai",
        lock=NODE_LOCK,
        setup="""\
```js
const chat = new ChatOpenAI({
  model: 'MODEL',
  apiKey: 'none',
  useResponsesApi: true,
  configuration: { baseURL: 'http://127.0.0.1:4680/v1' },
});
```

Without `useResponsesApi` the library speaks chat completions to the gateway, which works too.""",
        limits=(_HOSTED,),
    ),
    Client(
        name="pydantic-ai",
        title="Pydantic AI",
        package="pydantic-ai-slim",
        lock=PYTHON_LOCK,
        setup="""\
```py
provider = OpenAIProvider(base_url="http://127.0.0.1:4680/v1", api_key="none")
agent = Agent(OpenAIResponsesModel("MODEL", provider=provider))
```""",
        limits=(_HOSTED,),
    ),
    Client(
        name="llama-index",
        title="LlamaIndex with llama-index-llms-openai",
        package="llama-index-llms-openai",
        lock=OPENAI2_LOCK,
        setup="""\
```py
llm = OpenAIResponses(
    model="MODEL",
    api_base="http://127.0.0.1:4680/v1",
    api_key="none",
    context_window=32_000,
)
```

`context_window` must be given: the library knows only the windows of OpenAI's own models.""",
        limits=(_HOSTED,),
    ),
    Client(
        name="llama-index-js",
        title="LlamaIndex.TS with @llamaindex/openai",
        package="@llamaindex/openai",
        lock=NODE_LOCK,
        setup="""\
```js
const llm = new OpenAIResponses({
  model: 'MODEL',
  baseURL: 'http://127.0.0.1:4680/v1',
  apiKey: 'none',
});
```""",
        limits=(
            _HOSTED,
            "In a stream the library repeats the last piece of text with every event that follows "
            "it. Take the pieces whose `raw.type` is `response.output_text.delta`.",
        ),
    ),
    Client(
        name="haystack",
        title="Haystack",
        package="haystack-ai",
        lock=PYTHON_LOCK,
        setup="""\
```py
generator = OpenAIResponsesChatGenerator(
    model="MODEL",
    api_base_url="http://127.0.0.1:4680/v1",
    api_key=Secret.from_token("none"),
)
```

`HAYSTACK_TELEMETRY_ENABLED=False` keeps it from reporting its use.""",
        limits=(_HOSTED,),
    ),
    Client(
        name="agno",
        title="Agno",
        package="agno",
        lock=PYTHON_LOCK,
        setup="""\
```py
model = OpenAIResponses(id="MODEL", base_url="http://127.0.0.1:4680/v1", api_key="none")
agent = Agent(model=model)
```

`AGNO_TELEMETRY=false` keeps it from reporting its use.""",
        limits=(
            _HOSTED,
            "An agent does not raise when its model does: a streamed run ends in a `RunError` "
            "event.",
        ),
    ),
    Client(
        name="ag2",
        title="AG2",
        package="ag2",
        lock=PYTHON_LOCK,
        setup="""\
```py
config = OpenAIResponsesConfig("MODEL", base_url="http://127.0.0.1:4680/v1", api_key="none")
agent = Agent("helper", config=config)
```""",
        limits=(_HOSTED,),
    ),
    Client(
        name="strands",
        title="Strands Agents",
        package="strands-agents",
        lock=OPENAI2_LOCK,
        setup="""\
```py
model = OpenAIResponsesModel(
    client_args={"base_url": "http://127.0.0.1:4680/v1", "api_key": "none"},
    model_id="MODEL",
)
agent = Agent(model=model)
```

With `stateful=True` the gateway keeps the conversation.""",
        limits=(_HOSTED,),
    ),
    Client(
        name="semantic-kernel",
        apis=("Responses", "chat"),
        title="Semantic Kernel",
        package="semantic-kernel",
        lock=SEMANTIC_KERNEL_LOCK,
        setup="""\
```py
client = AsyncOpenAI(base_url="http://127.0.0.1:4680/v1", api_key="none")
agent = OpenAIResponsesAgent(ai_model_id="MODEL", client=client, name="helper")
```

The chat service, which most programs use, speaks chat completions to the gateway:

```py
service = OpenAIChatCompletion(ai_model_id="MODEL", async_client=client)
```""",
        limits=(
            _HOSTED,
            "With `store_enabled=False` the library sends the first question twice.",
            _LARGE,
        ),
    ),
    Client(
        name="mastra",
        apis=("chat",),
        title="Mastra",
        package="@mastra/core",
        lock=MASTRA_LOCK,
        setup="""\
```js
const agent = new Agent({
  id: 'helper',
  name: 'helper',
  instructions: 'Be short.',
  model: { id: 'antiphon/MODEL', url: 'http://127.0.0.1:4680/v1', apiKey: 'none' },
});
```

`MASTRA_TELEMETRY_DISABLED=true` keeps it from reporting its use.""",
        limits=(
            "Its router of models speaks chat completions to the gateway.",
            "`textStream` ends without an error when the answer is cut off; read `error` of the "
            "stream after it.",
            _LARGE,
        ),
    ),
    Client(
        name="crewai",
        title="CrewAI",
        package="crewai",
        lock=CREWAI_LOCK,
        setup="""\
```py
llm = LLM(
    model="MODEL",
    provider="openai",
    api="responses",
    base_url="http://127.0.0.1:4680/v1",
    api_key="none",
)
```

`provider` must be given: the library guesses it only from the names of vendors' models.
`CREWAI_DISABLE_TELEMETRY=true` keeps it from reporting its use.""",
        limits=(_HOSTED, _LARGE),
    ),
    Client(name="zed", title="Zed", package="zed"),
    Client(
        name="cline",
        apis=("chat",),
        title="Cline",
        package="@cline/cli-linux-x64",
        lock=AGENTS_LOCK,
        setup="""\
`antiphon connect cline --write` makes the gateway the provider `openai-compatible` of the command
`cline`. The extension for VS Code keeps its settings elsewhere: there, choose the API provider
*OpenAI Compatible* and enter the URL of the gateway, which ends in `/v1`, and the model.""",
        limits=(
            "The turn is run with the command for Linux on x86-64, not with the extension.",
            "Cline speaks chat completions to the gateway.",
            _LARGE,
        ),
    ),
    Client(
        name="continue",
        apis=("chat",),
        title="Continue",
        package="@continuedev/cli",
        lock=AGENTS_LOCK,
        setup="""\
`antiphon connect continue --write` adds the model to `~/.continue/config.yaml`, which the command
`cn` and the extensions read.""",
        limits=(
            "The turn is run with the command `cn`, not with an extension.",
            "Continue speaks chat completions to the gateway.",
            _LARGE,
        ),
    ),
    Client(
        name="aider",
        apis=("chat",),
        title="Aider",
        package="aider-chat",
        lock=AIDER_LOCK,
        setup="""\
`antiphon connect aider --write` puts the gateway and the model into `~/.aider.conf.yml`.""",
        limits=(
            "Aider speaks chat completions to the gateway, without tools: the model writes its "
            "edits as text.",
            "Aider needs a Python before 3.13; with a newer one its turn is skipped.",
            _LARGE,
        ),
    ),
    Client(
        name="opencode",
        title="opencode",
        package="opencode-linux-x64",
        lock=OPENCODE_LOCK,
        limits=(
            "One turn is run, with the program for Linux on x86-64.",
            "opencode asks for a title of the session beside the first turn: two requests at once.",
        ),
    ),
    Client(
        name="llm",
        title="llm",
        package="llm",
        lock=PYTHON_LOCK,
        setup="""\
`antiphon connect llm --write` adds the model to `extra-openai-models.yaml`, as one that speaks
Responses; without `--write` it prints what to put there. Then:

```sh
llm -m antiphon/MODEL "Say hello."
```

The [plugin](llm-plugin.md) does more.""",
    ),
    Client(
        name="llm-plugin",
        title="llm with the plugin llm-antiphon",
        package="llm",
        lock=LLM_PLUGIN_LOCK,
        setup="""\
```sh
llm install . ./plugins/llm
llm antiphon refresh
llm -m antiphon/MODEL "Say hello."
```

More: [use the models in the command llm](../howto/llm.md).""",
        limits=(
            "The gateway is always asked for a stream; `--no-stream` decides only when llm prints.",
            "An answer that is cut off is printed and ends with an error; llm does not log it.",
            "llm lists a model twice if `antiphon connect llm` wrote it too. The plugin's is used.",
        ),
    ),
)


def versions() -> dict[str, str]:
    """Return the pinned version of each client that a suite runs."""
    return {
        client.name: locked_version(client.lock, client.package)
        for client in CLIENTS
        if client.lock
    }
