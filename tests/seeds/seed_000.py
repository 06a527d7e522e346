"""Seed 000, RFC 016: a provider that speaks Open Responses directly."""

from __future__ import annotations

from typing import Final

from tests.seeds.base import Requirement as Req
from tests.seeds.base import Section, Seed

__all__ = ["SEED_000"]

_GAINS: Final = (
    Req(
        "RFC016-gain-1",
        "Summary, gain 1: token usage comes with every answer",
        see=("RFC016-metric-1",),
    ),
    Req(
        "RFC016-gain-2",
        "Summary, gain 2: the real reason why an answer ended",
        "A response has a status and, when cut short, `incomplete_details.reason`; there is no "
        "`finish_reason`.",
    ),
    Req("RFC016-gain-3", "Summary, gain 3: cached and reasoning tokens are visible"),
    Req(
        "RFC016-gain-4",
        "Summary, gain 4: control over the protocol, with no SDK in between",
        see=("RFC016-client", "RFC016-types"),
    ),
    Req(
        "RFC016-problem-1",
        "Problem 1: without token counts it is unknown when a conversation gets too long",
        see=("RFC016-usage", "RFC016-metric-5"),
    ),
    Req(
        "RFC016-problem-2",
        "Problem 2: one file that does everything",
        see=("RFC016-modules", "RFC016-metric-2"),
    ),
    Req(
        "RFC016-problem-3",
        "Problem 3: one layer too high, on top of a foreign abstraction",
        see=("RFC016-client",),
    ),
)

_DESIGN: Final = (
    Req(
        "RFC016-modules",
        "Module structure: client, types, errors, translator, adapter, usage tracker, facade, "
        "token counting and model discovery each in a place of its own",
        "Rooms instead of folders: `protocol` has the types, `client` the HTTP side, `host` the "
        "rest. There is no tool buffer: the adapter asks what is open. Put together by hand, the "
        "pieces do what the provider does.",
    ),
    Req(
        "RFC016-types",
        "Core types: request, items, response, usage and events as typed values",
        "Two dialects are read and written: Open Responses and OpenAI. What we do not know is "
        "kept, not dropped.",
    ),
    Req(
        "RFC016-types-1",
        "Request type: model, input, stream, sampling, limits, tools, tool_choice, reasoning, "
        "previous_response_id",
        "More fields than the document has; effort may also be `none` and `minimal`.",
    ),
    Req(
        "RFC016-types-2",
        "Input types: messages of four roles, text, image, file and video parts, calls and their "
        "outputs, reasoning",
        "What cannot be sent to a chat model (video, files by id) leaves a note and is reported.",
    ),
    Req(
        "RFC016-types-3",
        "Response type: id, times, status, model, output, usage, incomplete_details, error",
    ),
    Req(
        "RFC016-types-4",
        "Output types: message with text and refusal, function_call, reasoning with summary, "
        "content and encrypted_content",
    ),
    Req("RFC016-types-5", "Usage type: all five figures are there whenever there is a usage"),
    Req(
        "RFC016-types-6",
        "Event types: lifecycle, items, text, arguments, reasoning, errors",
        "Every event of both dialects; errors are read flat and nested.",
    ),
)

_TRANSLATOR: Final = (
    Req(
        "RFC016-translator",
        "Message translator: a chat application's messages become input items",
        "Assistant text is `output_text`, not `input_text`; empty messages are dropped; the type "
        "of an image is read from its bytes; all parts of a tool result count, not only the "
        "first text.",
    ),
    Req(
        "RFC016-translator-1",
        "Transformation 1: a system prompt goes in front",
        "There is a system role now, and it becomes `instructions`, not a message.",
        see=("RFC016-translator",),
    ),
    Req(
        "RFC016-translator-2",
        "Transformation 2: user and assistant keep their roles",
        see=("RFC016-translator",),
    ),
    Req(
        "RFC016-translator-3",
        "Transformation 3: a message is split where a tool call or result stands in it",
        see=("RFC016-translator",),
    ),
    Req(
        "RFC016-translator-4",
        "Transformation 4: data parts become content parts; images become data URIs",
        see=("RFC016-translator",),
    ),
    Req(
        "RFC016-translator-5",
        "Transformation 5: tool calls and results become function_call and function_call_output",
        "An empty result is an empty output, not `{}`.",
        see=("RFC016-translator",),
    ),
)

_ADAPTER: Final = (
    Req(
        "RFC016-adapter",
        "Stream adapter: events become parts, and at the end there are a response id and a usage",
        "Refined by RFC 00022, which decides where the two differ.",
    ),
    Req("RFC016-adapter-1", "A text delta is a text part", see=("RFC22-text-flow",)),
    Req(
        "RFC016-adapter-2",
        "Argument deltas are held until the call is whole",
        see=("RFC22-call-flow",),
    ),
    Req(
        "RFC016-adapter-3",
        "A finished function_call is one tool call part with parsed arguments",
        "Arguments that cannot be parsed are an error, not a log line and a lost call.",
        see=("RFC22-call-flow", "RFC22-atomic-calls"),
    ),
    Req(
        "RFC016-adapter-4",
        "A reasoning delta is a thinking part, where the application has one",
        "Opt-in, and for the models that are allowed (REQ-003).",
        see=("RFC22-thinking", "RFC22-reasoning-flow"),
    ),
    Req(
        "RFC016-adapter-5",
        "The completed event gives the response id and the usage",
        "So do `response.incomplete` and `response.failed`.",
        see=("RFC016-adapter", "RFC016-usage"),
    ),
    Req(
        "RFC016-adapter-6",
        "An error event is shown",
        "It is raised, and never written into the text as if it were output of the model.",
        see=("RFC22-error",),
    ),
)

_PIPELINE: Final = (
    Req(
        "RFC016-client",
        "HTTP client: direct, no SDK; POST with a bearer key; SSE parsed as it comes; an HTTP "
        "error becomes a typed error; cancelling closes the connection",
        "What cannot be read is an error and not a console line. The key is the client's, not "
        "set again for each request.",
    ),
    Req(
        "RFC016-usage",
        "Usage tracker: starts with an estimate, completes with the server's figures, feeds the "
        "status line",
        "It completes on every terminal event and is never keyed by the model alone. A status "
        "line is one listener of several.",
    ),
    Req(
        "RFC016-facade",
        "Provider facade: translate, request, adapt, track, and nothing else",
        "No temperature of 0.7 and no limit of 4,096 tokens are made up: what the application "
        "does not set is not sent.",
    ),
)

_NO_SCHEDULE: Final = "A schedule for the repository the document was written for."
_PLAN: Final = (
    Req(
        "RFC016-phase-1",
        "Migration, phase 1: new modules beside the old, tested, behind a flag",
        "The chat road stays, behind the gate (22-A1, REQ-005).",
        reason_without_test=_NO_SCHEDULE,
    ),
    Req(
        "RFC016-phase-2",
        "Migration, phase 2: compare both ways, check usage, measure speed",
        "Both endpoints in front of the same scripted model, with the usage it counts.",
        see=("22-E3",),
        not_shown="Trials by hand with Claude, GPT and o-series models: there is no key.",
    ),
    Req(
        "RFC016-phase-3",
        "Migration, phase 3: roll out in stages, collect telemetry",
        "Nothing is collected from anybody.",
        reason_without_test=_NO_SCHEDULE,
    ),
    Req(
        "RFC016-phase-4",
        "Migration, phase 4: remove the SDK and the old code",
        "There never was an SDK here; the chat road stays for models without Responses.",
        see=("RFC016-client",),
    ),
    Req("RFC016-benefit-1", "Benefit 1: usage is certain", see=("RFC016-metric-1",)),
    Req(
        "RFC016-benefit-2",
        "Benefit 2: a fault points to its module",
        see=("RFC016-modules",),
    ),
    Req(
        "RFC016-benefit-3",
        "Benefit 3: translator and adapter can be tested alone",
        see=("RFC016-translator", "RFC016-adapter"),
    ),
    Req(
        "RFC016-benefit-4",
        "Benefit 4: ready for what comes: new features, other servers",
        see=("RFC016-risk-1", "RFC016-scope-1"),
    ),
    Req(
        "RFC016-risk-1",
        "Risk 1: the specification changes",
        "The types are held against models of the protocol that are not ours, and fields, items "
        "and events of tomorrow survive.",
    ),
    Req(
        "RFC016-risk-2",
        "Risk 2: something that worked stops working",
        see=("22-A5", "22-E2", "REQ-009.1"),
    ),
    Req(
        "RFC016-risk-3",
        "Risk 3: it gets slow",
        reason_without_test="Speed is measured by `bench/client.py`, see topics/speed.md.",
    ),
    Req(
        "RFC016-alternatives",
        "Alternatives 1 to 3: repair the SDK, refactor only, wait",
        reason_without_test="Ways that were not taken.",
    ),
)

_METRICS: Final = (
    Req(
        "RFC016-metric-1",
        "Metric 1: every completion reports its input and output tokens",
        "The server's figures first; where it gives none, an estimate that is marked as one.",
    ),
    Req(
        "RFC016-metric-2",
        "Metric 2: the provider under 1,000 lines, a module under 200 on average",
        "The provider is the extension for VS Code. Shown for its lines of code (no blank lines, "
        "no comments), without the two modules that offer the editor's own models, and for every "
        "module with all its lines. In `host`, which does the work, it is shown for facade, "
        "translator, adapter and tracker.",
        not_shown="It does not hold as written. Every line counted, the extension has about "
        "1,750 lines; `host` has about 1,900 with the options, the answer as a loop and the "
        "synchronous provider; a module of `client` has about 230 on average, not 200.",
    ),
    Req(
        "RFC016-metric-3",
        "Metric 3: over 90 % of the new code is covered by tests",
        "Over 95 % of branches in `client` and `host`, all of the accumulator and the adapter.",
        reason_without_test="`scripts/test` measures it and fails below.",
    ),
    Req(
        "RFC016-metric-4",
        "Metric 4: at most 5 % slower than before",
        "Before is the editor's own way to the same server, its custom endpoint, in the same "
        "window. `bench/client.py` compares with the official SDK, see topics/speed.md.",
    ),
    Req(
        "RFC016-metric-5",
        "Metric 5: a conversation is never too long because of a missing count",
        "The count that an application asks for is what the server counted, plus an estimate of "
        "what is new that leans high and learns from each count.",
        not_shown="For every tokenizer: the estimate covers o200k, cl100k and SmolLM2. A tokenizer "
        "that needs more tokens than these is estimated too low until its server has counted.",
    ),
)

_QUESTIONS: Final = (
    Req(
        "RFC016-open-question",
        "Open question 1: send only what is new, by previous_response_id?",
        "The document postpones it, for lack of a session id. We do: the application names its "
        "session, and a history that does not begin with what we know is sent whole.",
    ),
    Req(
        "RFC016-scope",
        "Scope decisions",
        see=("RFC016-scope-1", "RFC016-scope-2", "RFC016-scope-3"),
    ),
    Req(
        "RFC016-scope-1",
        "Scope: one gateway only, or others too?",
        "The document names one. Any Responses server: ours, OpenAI's, another, in both dialects.",
        see=("RFC016-client", "22-E2"),
    ),
    Req(
        "RFC016-scope-2",
        "Scope: models without Responses?",
        "The document leaves them out. They take the chat road and yield the same parts.",
        see=("22-A4", "REQ-009.1"),
    ),
    Req(
        "RFC016-scope-3",
        "Scope: show what Responses offers, such as token counts and reasoning effort",
        see=("RFC016-usage", "RFC016-facade"),
    ),
)

SEED_000: Final = Seed(
    "000",
    "RFC 016: Open Responses as the backend of a chat provider",
    "A provider for an editor's chat that speaks Open Responses itself instead of through an SDK.",
    (
        Section("What it should bring", _GAINS),
        Section("Modules and types", _DESIGN),
        Section("Translator", _TRANSLATOR),
        Section("Stream adapter", _ADAPTER),
        Section("Client, usage, facade", _PIPELINE),
        Section("Plan, benefits, risks", _PLAN),
        Section("Success metrics", _METRICS),
        Section("Open question and scope", _QUESTIONS),
    ),
)
