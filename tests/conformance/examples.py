"""Valid events of every class, generated: everything that a stream may contain.

The strategies know the specification, not the builder: they make any event that may stand on
the wire, one by one, and care nothing for what comes before or after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, get_args

from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.protocol.events import (
    AnnotationEvent,
    ArgumentsDelta,
    ArgumentsDone,
    CodeDelta,
    CodeDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    KnownEvent,
    McpArgumentsDelta,
    McpArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    PartialImage,
    ReasoningTextDelta,
    ReasoningTextDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    StageEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
)
from antiphon.protocol.items import Item, Part
from antiphon.protocol.response import (
    Failure,
    IncompleteDetails,
    InputDetails,
    OutputDetails,
    Reasoning,
    Response,
    Usage,
)

__all__ = ["EXAMPLES", "responses"]

_Strategy = st.SearchStrategy[Any]

# Everything a JSON text can carry: no half surrogate pairs.
_text = st.text(st.characters(codec="utf-8"), max_size=20)
_name = st.text("abcXYZ019_-", min_size=1, max_size=12)
_count = st.integers(0, 2**31)
_index = st.integers(0, 50)
_none = st.none()
_status = st.sampled_from(["in_progress", "completed", "incomplete"])
_logprob = st.floats(-100, 0, allow_nan=False)


def _objects(**fields: object) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with these fields; a field may be a strategy or a plain value."""
    return st.fixed_dictionaries(
        {
            name: value if isinstance(value, st.SearchStrategy) else st.just(value)
            for name, value in fields.items()
        }
    )


_bytes = st.lists(st.integers(0, 255), max_size=4)
_logprobs = st.lists(
    _objects(
        token=_text,
        logprob=_logprob,
        bytes=_bytes,
        top_logprobs=st.lists(_objects(token=_text, logprob=_logprob, bytes=_bytes), max_size=2),
    ),
    max_size=2,
)
_annotation = _objects(
    type="url_citation", url=_text, title=_text, start_index=_index, end_index=_index
)
_output_text: st.SearchStrategy[Part] = _objects(
    type="output_text",
    text=_text,
    annotations=st.lists(_annotation, max_size=2),
    logprobs=_logprobs,
)
_refusal: st.SearchStrategy[Part] = _objects(type="refusal", refusal=_text)
_reasoning_text: st.SearchStrategy[Part] = _objects(type="reasoning_text", text=_text)
_summary_text: st.SearchStrategy[Part] = _objects(type="summary_text", text=_text)

_items: st.SearchStrategy[Item] = st.one_of(
    _objects(
        type="message",
        id=_name,
        status=_status,
        role="assistant",
        content=st.lists(_output_text | _refusal, max_size=2),
    ),
    _objects(
        type="message",
        id=_name,
        status=_status,
        role="assistant",
        content=st.lists(_output_text, max_size=1),
        phase=st.sampled_from(["commentary", "final_answer"]),
    ),
    _objects(
        type="function_call", id=_name, status=_status, call_id=_name, name=_name, arguments=_text
    ),
    _objects(
        type="reasoning",
        id=_name,
        summary=st.lists(_summary_text, max_size=2),
        content=st.lists(_reasoning_text, max_size=2),
    ),
    _objects(
        type="reasoning",
        id=_name,
        status=_status,
        summary=st.lists(_summary_text, max_size=1),
        encrypted_content=_text,
    ),
    _objects(type="function_call_output", id=_name, status=_status, call_id=_name, output=_text),
    _objects(type="compaction", id=_name, encrypted_content=_text),
)

_tools = st.lists(
    _objects(
        type="function",
        name=_name,
        description=st.none() | _text,
        parameters=st.none() | st.just({"type": "object", "properties": {}}),
        strict=st.none() | st.booleans(),
    ),
    max_size=2,
)
_tool_choice = st.sampled_from(["auto", "none", "required"]) | _objects(type="function", name=_name)
_format = st.sampled_from(
    [
        {"type": "text"},
        {"type": "json_object"},
        {
            "type": "json_schema",
            "name": "answer",
            "description": None,
            "schema": {"type": "object"},
            "strict": True,
        },
    ]
)
_usage = st.builds(
    Usage,
    input_tokens=_count,
    input_tokens_details=st.builds(InputDetails, _count, _count),
    output_tokens=_count,
    output_tokens_details=st.builds(OutputDetails, _count),
    total_tokens=_count,
)


def responses(
    status: str,
    *,
    usage: _Strategy = _usage,
    completed_at: _Strategy = _none,
    error: _Strategy = _none,
    incomplete_details: _Strategy = _none,
) -> st.SearchStrategy[Response]:
    """Return responses of this status."""
    return st.builds(
        Response,
        id=_name,
        created_at=_count,
        completed_at=completed_at,
        status=st.just(status),
        error=error,
        incomplete_details=incomplete_details,
        instructions=st.none() | _text,
        max_output_tokens=st.none() | _count,
        max_tool_calls=st.none() | _index,
        model=_name,
        output=st.lists(_items, max_size=3),
        parallel_tool_calls=st.booleans(),
        previous_response_id=st.none() | _name,
        prompt_cache_key=st.none() | _name,
        reasoning=st.builds(
            Reasoning,
            effort=st.sampled_from([None, "none", "low", "medium", "high", "xhigh"]),
            summary=st.sampled_from([None, "auto", "concise", "detailed"]),
        ),
        safety_identifier=st.none() | _name,
        store=st.booleans(),
        temperature=st.floats(0, 2),
        text=_objects(format=_format) | _objects(format=_format, verbosity="low"),
        tool_choice=_tool_choice,
        tools=_tools,
        top_logprobs=st.integers(0, 20),
        top_p=st.floats(0, 1),
        presence_penalty=st.floats(-2, 2),
        frequency_penalty=st.floats(-2, 2),
        truncation=st.sampled_from(["auto", "disabled"]),
        usage=usage,
        metadata=st.dictionaries(_name, _text, max_size=2),
        user=st.just(UNSET) | _name,
    )


def _events(cls: type[KnownEvent], **fields: _Strategy) -> st.SearchStrategy[KnownEvent]:
    make: Callable[..., KnownEvent] = cls
    return st.builds(make, sequence_number=_count, **fields)


_in_item: Final[dict[str, _Strategy]] = {"item_id": _name, "output_index": _index}
_in_content = _in_item | {"content_index": _index}
_in_summary = _in_item | {"summary_index": _index}
_padding = st.just(UNSET) | _name
_content_part = _output_text | _refusal | _reasoning_text
_running = responses("in_progress", usage=st.none())

EXAMPLES: Final[dict[type[KnownEvent], st.SearchStrategy[KnownEvent]]] = {
    ResponseCreated: _events(ResponseCreated, response=_running),
    ResponseQueued: _events(ResponseQueued, response=responses("queued", usage=st.none())),
    ResponseInProgress: _events(ResponseInProgress, response=_running),
    ResponseCompleted: _events(
        ResponseCompleted, response=responses("completed", completed_at=_count)
    ),
    ResponseFailed: _events(
        ResponseFailed,
        response=responses("failed", error=st.builds(Failure, code=_name, message=_text)),
    ),
    ResponseIncomplete: _events(
        ResponseIncomplete,
        response=responses(
            "incomplete",
            incomplete_details=st.builds(
                IncompleteDetails, st.sampled_from(["max_output_tokens", "content_filter"])
            ),
        ),
    ),
    OutputItemAdded: _events(OutputItemAdded, output_index=_index, item=_items),
    OutputItemDone: _events(OutputItemDone, output_index=_index, item=_items),
    ContentPartAdded: _events(ContentPartAdded, part=_content_part, **_in_content),
    ContentPartDone: _events(ContentPartDone, part=_content_part, **_in_content),
    OutputTextDelta: _events(
        OutputTextDelta, delta=_text, logprobs=_logprobs, obfuscation=_padding, **_in_content
    ),
    OutputTextDone: _events(OutputTextDone, text=_text, logprobs=_logprobs, **_in_content),
    AnnotationEvent: _events(
        AnnotationEvent, annotation_index=_index, annotation=_annotation, **_in_content
    ),
    RefusalDelta: _events(RefusalDelta, delta=_text, **_in_content),
    RefusalDone: _events(RefusalDone, refusal=_text, **_in_content),
    ReasoningTextDelta: _events(
        ReasoningTextDelta, delta=_text, obfuscation=_padding, **_in_content
    ),
    ReasoningTextDone: _events(ReasoningTextDone, text=_text, **_in_content),
    SummaryPartAdded: _events(SummaryPartAdded, part=_summary_text, **_in_summary),
    SummaryPartDone: _events(SummaryPartDone, part=_summary_text, **_in_summary),
    SummaryTextDelta: _events(SummaryTextDelta, delta=_text, obfuscation=_padding, **_in_summary),
    SummaryTextDone: _events(SummaryTextDone, text=_text, **_in_summary),
    ArgumentsDelta: _events(ArgumentsDelta, delta=_text, obfuscation=_padding, **_in_item),
    ArgumentsDone: _events(ArgumentsDone, arguments=_text, name=_name, **_in_item),
    CustomInputDelta: _events(CustomInputDelta, delta=_text, obfuscation=_padding, **_in_item),
    CustomInputDone: _events(CustomInputDone, input=_text, **_in_item),
    **{stage: _events(stage, **_in_item) for stage in get_args(StageEvent)},
    PartialImage: _events(
        PartialImage, partial_image_index=_index, partial_image_b64=_text, size=_name, **_in_item
    ),
    CodeDelta: _events(CodeDelta, delta=_text, **_in_item),
    CodeDone: _events(CodeDone, code=_text, **_in_item),
    McpArgumentsDelta: _events(McpArgumentsDelta, delta=_text, **_in_item),
    McpArgumentsDone: _events(McpArgumentsDone, arguments=_text, **_in_item),
    ErrorEvent: _events(
        ErrorEvent, message=_text, code=st.none() | _name, param=st.none() | _name, kind=_name
    ),
}
