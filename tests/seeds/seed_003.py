"""Seed 003: a Responses endpoint in front of a chat model, as its server saw it."""

from __future__ import annotations

from typing import Final

from tests.seeds.base import Requirement as Req
from tests.seeds.base import Section, Seed

__all__ = ["SEED_003"]


def _rows(group: str, what: str, *rows: tuple[str, str]) -> tuple[Req, ...]:
    """Return a requirement for each row of a table, and one for the table."""
    ids = tuple(f"{group}-{number}" for number in range(1, len(rows) + 1))
    return (
        Req(group, what, see=ids),
        *(Req(row, title, reads) for row, (title, reads) in zip(ids, rows, strict=True)),
    )


_COMPARISON: Final = _rows(
    "003-comparison",
    "Responses beside chat completions: the whole table",
    ("Input is a string or a list of items", ""),
    ("The system prompt is a field, `instructions`", "Not inherited through a chain."),
    ("The answer is a list of output items", ""),
    ("Calls are items of their own", ""),
    ("Events are fine-grained", ""),
    ("Turns are joined by id", "By `previous_response_id`, or by `conversation`."),
    (
        "Reasoning has an effort and a summary",
        "Chat models do reason by now, which is reported as reasoning items.",
    ),
    ("There are more tools than functions", "Functions run; the others are reported."),
)

_FLOW: Final = _rows(
    "003-flow",
    "Request flow: the whole of it",
    ("Step 1: validate the request", "Stateful parameters are supported, so they pass."),
    (
        "Step 2: find the model",
        "Any chat model behind any backend; an editor's own models are one of them.",
    ),
    ("Step 3: convert the input", ""),
    (
        "Step 4: convert the tools, functions only",
        "The others are reported, and refused where a forced tool could not run.",
    ),
    ("Step 5: send it", ""),
    ("Step 6: convert the output", ""),
    ("Step 7: send it as events", ""),
)

_FILES: Final = (
    Req(
        "003-files",
        "File structure: route, conversion, tests",
        "`server`, `engine`, `chat` and `protocol`, each with its tests.",
        reason_without_test="The layout of another repository.",
    ),
)

_INPUT: Final = _rows(
    "003-input",
    "Input conversion: the whole table",
    ("A string is a user message", ""),
    ("`instructions` go in front", "As a system message, not as the user's words."),
    ("A user message is one", ""),
    ("An assistant message is one", ""),
    (
        "System and developer messages",
        "They keep their rank; where a server takes none in the middle they become the user's, "
        "and that is reported.",
    ),
    ("A function_call is the assistant's call", ""),
    ("A function_call_output is the call's result", ""),
)

_CONTENT: Final = _rows(
    "003-content",
    "Content types: the whole table",
    ("`input_text` is text", ""),
    ("`output_text` is text", ""),
    (
        "`input_image` by data URI is an image",
        "By URL too, where the upstream takes it; we never fetch it ourselves.",
    ),
    (
        "`input_file` falls back",
        "A file of text is read to the model, others go to servers that take files; what cannot "
        "be sent leaves a note and is reported, never JSON in the prompt.",
    ),
)

_OUTPUT: Final = _rows(
    "003-output",
    "Output conversion: the whole table",
    ("Text is a message", ""),
    ("A call is a function_call", ""),
)

_CHOICE: Final = _rows(
    "003-tool-choice",
    "Tool choice: the whole table",
    (
        "`none`: no call",
        "The tools stay visible to the model, and a call that comes all the same is suppressed.",
    ),
    ("`auto`: the model decides", ""),
    ("`required`: some call", "An answer without one is a failure, not a success."),
    ("A named function: that one", "And `allowed_tools`, which came later."),
)

_STREAMING: Final = _rows(
    "003-streaming",
    "Streaming events in order",
    ("Lifecycle: created, in_progress, completed", "And failed or incomplete as the end."),
    ("Items: added, done", ""),
    ("Text: part added, deltas, done", ""),
    ("Calls: argument deltas, done", ""),
)

_STATE: Final = _rows(
    "003-state",
    "Stateless architecture: the whole table",
    ("`previous_response_id` is not supported", "It is: responses are stored, and chains branch."),
    ("`conversation` is not supported", "It is: a turn reads a conversation and adds to it."),
    ("`item_reference` is not supported", "It is."),
    (
        "What is not supported is a 400 that names what to do",
        "For an unknown id, with the code `previous_response_not_found`.",
    ),
)

_TOOLS: Final = (
    Req(
        "003-tools",
        "Unsupported tools: file_search, web_search_preview, code_interpreter, "
        "computer_use_preview, image_gen, local_shell, mcp, custom, shell, apply_patch",
        "Not skipped with a line in a log: reported in `x-antiphon-degraded` and in the stored "
        "response, refused in strict mode, and refused when such a tool is forced.",
    ),
)

_LIMITS: Final = _rows(
    "003-content-limits",
    "Content limitations: the whole table",
    ("Images by URL fall back to JSON", "They are passed on as images."),
    ("Files are serialized as JSON", "See 003-content-4."),
    ("Annotations are always empty", "They are sent where a backend reports them."),
    ("Reasoning items are never made", "They are, from any field that the model uses."),
)

_IGNORED: Final = _rows(
    "003-ignored",
    "Ignored parameters: the whole list",
    (
        "`store`, `include`, `background`, `prompt_cache_key`, `service_tier` do nothing",
        "`store`, `include` and `background` are honoured, the key is echoed, the "
        "tier is the one that was used. Nothing is ignored without a word.",
    ),
    ("`reasoning.effort` may do nothing", "Passed on where the server takes it, else reported."),
    (
        "`reasoning.generate_summary` does nothing",
        "It is `reasoning.summary` today, and moves the reasoning to the summary channel.",
    ),
)

_IDS: Final = _rows(
    "003-ids",
    "Ids carry a prefix that names the server",
    (
        "Response ids",
        "`resp_`, the mark of the gateway (`id_mark`, else `ap-`), 48 random characters; no time.",
    ),
    ("Message ids", "`msg_` and the mark."),
    ("Function call ids", "`fc_` and the mark."),
    (
        "Call ids",
        "The model's own, so that histories fit; `call_` and the mark where it gave none.",
    ),
)

_ERRORS: Final = _rows(
    "003-errors",
    "Error handling: the whole list",
    ("Validation: 400 with an error object", "With the code and the name of the parameter."),
    ("Unknown model: 404", ""),
    ("Our fault: 500, with details in the log only", "Without any content in the log."),
    (
        "In a stream: response.failed",
        "After an `error` event. Before the first word it is an HTTP error.",
    ),
)

SEED_003: Final = Seed(
    "003",
    "Responses API design",
    "A server that offers Responses on top of an editor's language model. Ours stands in front of "
    "any model, and it remembers.",
    (
        Section("Chat completions and Responses", _COMPARISON),
        Section("Request flow and files", _FLOW + _FILES),
        Section("Input", _INPUT),
        Section("Content types", _CONTENT),
        Section("Output", _OUTPUT),
        Section("Tool choice", _CHOICE),
        Section("Streaming events", _STREAMING),
        Section("State", _STATE),
        Section("Tools", _TOOLS),
        Section("Content limitations", _LIMITS),
        Section("Ignored parameters", _IGNORED),
        Section("Ids", _IDS),
        Section("Errors", _ERRORS),
    ),
)
