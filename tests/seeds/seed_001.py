"""Seed 001, phase 22: the Responses endpoint in a command-line program's provider."""

from __future__ import annotations

from typing import Final

from tests.seeds.base import Requirement as Req
from tests.seeds.base import Section, Seed

__all__ = ["SEED_001"]

_GOALS: Final = (
    Req(
        "22-goal-1",
        "Goal 1: everything that chat completions can do, over Responses",
        "Parameters that the Responses API does not have are refused by name.",
        see=("22-B4", "22-E2"),
    ),
    Req(
        "22-goal-2",
        "Goal 2: with the whole history, or by id",
        "`conversation` and `previous_response_id` are today's names of conversation and parent.",
        see=("22-B2", "22-C4"),
    ),
    Req(
        "22-goal-3",
        "Goal 3: tools, tool_choice and calls as the end of a turn",
        "Responses has no `finish_reason`: a call is an item of the output.",
        see=("22-B4", "22-D3"),
    ),
    Req(
        "22-goal-4",
        "Goal 4: streaming first, and no second code path without it",
        see=("22-A3", "REQ-001.1"),
    ),
    Req(
        "22-goal-5",
        "Goal 5: nothing breaks for older models and other providers",
        see=("22-A-AC1", "REQ-009.1"),
    ),
    Req(
        "22-scope",
        "Scope guard: one package changes, and no other interface",
        "No other interface: requests to models of other providers are the same bytes as before.",
        see=("22-A-AC1",),
        not_shown="That one package changes, of several in a repository: there is one here.",
    ),
    Req("22-A", "Deliverable A: the way to the endpoint", see=("22-A1", "22-A2", "22-A4")),
    Req("22-B", "Deliverable B: the request, whole or by id", see=("22-B1", "22-B2", "22-B4")),
    Req("22-C", "Deliverable C: the stream, and the ids kept", see=("22-C1", "22-C2", "22-C3")),
    Req("22-D", "Deliverable D: tools and several choices", see=("22-D1", "22-D2", "22-D3")),
    Req("22-E", "Deliverable E: tests and docs", see=("22-E1", "22-E2")),
)

_A: Final = (
    Req(
        "22-A1",
        "A1: a list of models that take Responses, and OPENAI_RESPONSES_DISABLE to switch it off",
        "The matrix also has the base URL and the configuration in it.",
    ),
    Req(
        "22-A2",
        "A2: the call takes stream, conversation, parent and tool_choice",
        "`create` and `stream` are two methods, not a flag; `conversation_id` and `parent_id` go "
        "out as `conversation` and `previous_response_id`; tool_choice has every form of the "
        "specification.",
    ),
    Req(
        "22-A3",
        "A3: a stateless call, streamed or whole, through one helper",
        "A whole answer is read by the same accumulator as a stream.",
    ),
    Req(
        "22-A4",
        "A4: the provider chooses the endpoint, and both fail with the same errors",
        "The same class with the same attributes in every situation, before and after output; "
        "what was produced before a fault is in `partial`.",
    ),
    Req(
        "22-A5",
        "A5: a docs page, and the older tests again with the feature switched off",
        "The suite of roads runs each of its tests with the switch set as well.",
        see=("22-E1", "22-A-AC3", "REQ-009.1"),
    ),
    Req(
        "22-A-AC1",
        "A, criterion 1: other providers do not notice",
        "Models of other makers are sent the same bytes whether the feature is on or off.",
    ),
    Req("22-A-AC2", "A, criterion 2: one line adds a model"),
    Req("22-A-AC3", "A, criterion 3: switched off means that no Responses request leaves"),
)

_B: Final = (
    Req(
        "22-B1",
        "B1: one function builds the request, and a table shows every mapping",
        "A test keeps the table and the code equal.",
    ),
    Req(
        "22-B2",
        "B2: with an id, only the last two messages are sent, and a long history is warned about",
        "What follows the last item the model made is sent, with whole tool pairs: two messages "
        "would repeat what the server has and could cut a pair (REQ-004.2). The note is at DEBUG.",
    ),
    Req(
        "22-B3",
        "B3: `prompt` is short for one user message; prompt and messages together are an error",
        "`input` is a third way; two of the three are an error, and so is no input.",
    ),
    Req(
        "22-B4",
        "B4: tools, tool_choice, stop, response_format and the rest are passed on; more than 16 "
        "tools or 32 KB are refused",
        "response_format becomes `text.format`. What the Responses API does not have (`stop`, "
        "`seed`, `n`, …) is refused by name instead of being sent and ignored. The caps can be "
        "set (REQ-006).",
    ),
    Req(
        "22-B-AC",
        "B, criterion: types are checked, and request bodies are compared whole",
        "`scripts/test` runs mypy, strictly, over sources and tests.",
        not_shown="By a test, that types are checked: only that command shows it.",
    ),
    Req(
        "22-B-behaviour-1",
        "B, behaviour 1: the whole history, or ids and the end of it",
        see=("22-B1", "22-B2"),
    ),
    Req(
        "22-B-behaviour-2",
        "B, behaviour 2: all tuning parameters go through",
        "Those that Responses has, under its names.",
        see=("22-B4",),
    ),
    Req("22-B-behaviour-3", "B, behaviour 3: tool_choice is public", see=("22-A2",)),
    Req("22-B-task-1", "B, task 1: the builder", see=("22-B1",)),
    Req("22-B-task-2", "B, task 2: earlier messages are left out by id", see=("22-B2",)),
    Req("22-B-task-3", "B, task 3: prompt style", see=("22-B3",)),
    Req("22-B-task-4", "B, task 4: tests of what is forwarded", see=("22-B4",)),
)

_C: Final = (
    Req(
        "22-C1",
        "C1: an SSE reader that knows keep-alives, `data:`, JSON and `[DONE]`",
        "By the standard: any line end, any split of the bytes, with a limit.",
    ),
    Req(
        "22-C2",
        "C2: raw chunks become deltas with content and tool calls; usage comes once at the end",
        "Typed events on the client, parts on the host. Usage comes with the terminal event; "
        "`[DONE]` carries nothing.",
    ),
    Req(
        "22-C3",
        "C3: a cache of threads by session and model, 100 at most, two hours, "
        "get, set and invalidate",
        "It also keeps the items and the token counts (REQ-002.1).",
    ),
    Req(
        "22-C4",
        "C4: ids of the first chunk are kept and used in the next call; `stateful` off skips it",
        "A thread is remembered at the terminal event, not at the first: a response that fails "
        "must never become the head of a chain.",
    ),
    Req(
        "22-C5",
        "C5: 409, 410 and 422 have errors of their own; one more try for 5xx and rate limits",
        "Servers also answer 400 (`previous_response_not_found`) and 404 for a lost thread, "
        "and 400 for validation. Retry-After is obeyed, lack of money is not retried, and "
        "nothing is retried after the first event.",
    ),
    Req(
        "22-C-AC",
        "C, criterion: a connection that drops in mid-stream is an error that the caller sees",
        "The error holds what had arrived.",
    ),
    Req("22-C-behaviour-1", "C, behaviour 1: each SSE chunk is reported", see=("22-C1", "22-C2")),
    Req("22-C-behaviour-2", "C, behaviour 2: ids are kept", see=("22-C3", "22-C4")),
    Req("22-C-behaviour-3", "C, behaviour 3: a turn may end in tool calls", see=("22-D3",)),
    Req("22-C-behaviour-4", "C, behaviour 4: usage is surfaced", see=("22-C2", "REQ-002.3")),
    Req("22-C-task-1", "C, task 1: the stream parser", see=("22-C1", "22-C2")),
    Req("22-C-task-2", "C, task 2: the cache, with a size that can be set", see=("22-C3",)),
    Req("22-C-task-3", "C, task 3: the next call uses it", see=("22-C4",)),
    Req("22-C-task-4", "C, task 4: tests of streams", see=("22-C2",)),
)

_D: Final = (
    Req(
        "22-D1",
        "D1: a tool's name has at most 90 characters, its description 256, its schema a sane form",
        "Checked before anything is sent. The form is JSON Schema 2020-12, which OpenAPI 3.1 uses.",
    ),
    Req(
        "22-D2",
        "D2: of several choices the first is taken, and the others are counted",
        "Responses has no choices: those of a chat server are counted in `meta.skipped_choices`, "
        "and the gateway names them in `antiphon.degraded`.",
    ),
    Req(
        "22-D3",
        "D3: calls are collected until they are complete, and then reported",
        "One part per call, each as soon as it is whole, not an array at the end.",
    ),
    Req(
        "22-D4",
        "D4: the caller runs the tool; the library never does",
        "A loop that runs tools is there for those who ask for it.",
    ),
    Req("22-D-task-1", "D, task 1: tools in the form of Responses", see=("22-D1",)),
    Req("22-D-task-2", "D, task 2: several choices", see=("22-D2",)),
    Req("22-D-task-3", "D, task 3: tests of both", see=("22-D2", "22-D3")),
)

_E: Final = (
    Req("22-E1", "E1: docs for both ways of use, a tool round trip, and the flags"),
    Req(
        "22-E2",
        "E2: a suite over four roads: chat, stateless, stateful, tools",
        "Over loopback, against our gateway, a scripted chat server and a native stream.",
        not_shown="The nightly run with a live key: no server of OpenAI's was ever asked.",
    ),
    Req("22-E3", "E3: a benchmark of three modes: tokens sent and latency"),
    Req("22-E-task-1", "E, task 1: examples in the docs", see=("22-E1",)),
    Req("22-E-task-2", "E, task 2: other providers are untouched", see=("22-A-AC1",)),
    Req(
        "22-E-task-3",
        "E, task 3: once by hand with a real key",
        "The official SDK is the other side instead, in 22-E2.",
        not_shown="It was not done: there is no key.",
    ),
)

SEED_001: Final = Seed(
    "001",
    "Phase 22: the Responses endpoint, in slices A to E",
    "The plan by which a command-line program's provider learns Responses beside chat completions.",
    (
        Section("Goals and deliverables", _GOALS),
        Section("22 A: the way to the endpoint", _A),
        Section("22 B: the request", _B),
        Section("22 C: stream and state", _C),
        Section("22 D: tools", _D),
        Section("22 E: docs and regression", _E),
    ),
)
