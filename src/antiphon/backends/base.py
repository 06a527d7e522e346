"""The contract between a turn and a model.

A backend turns a frozen `Plan` into batches of deltas, or raises a `BackendError`. It never
sees ids, indexes or done-events. A batch is what one read of the wire brought: whatever
arrived together goes out together, in one write. Closing the generator early stops the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from antiphon.protocol.deltas import Delta
from antiphon.protocol.items import Item
from antiphon.protocol.tools import Tool, ToolPolicy

__all__ = ["Backend", "ModelInfo", "Plan"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that was decided about one call of the model, frozen.

    `items` is the whole context in order: history first, then what is new. None means that
    the caller left it to the model. `tools` are function tools only, and all of them stay
    visible to the model whatever `policy` allows.
    """

    model: str
    items: Sequence[Item]
    stream: bool = True
    instructions: str | None = None
    tools: Sequence[Tool] = ()
    policy: ToolPolicy = ToolPolicy()
    parallel_tool_calls: bool | None = None
    format: Mapping[str, Any] | None = None
    """`text.format` when it is not plain text: json_schema or json_object, as on the wire."""
    verbosity: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    service_tier: str | None = None
    extra: Mapping[str, Any] = {}
    """Request fields that are not of the protocol. Pass on or report as degraded."""


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that a backend offers."""

    id: str
    created: int = 0
    owned_by: str = "antiphon"
    context_length: int | None = None


class Backend(Protocol):
    """One way of reaching models."""

    def stream(self, plan: Plan) -> AsyncGenerator[Sequence[Delta], None]:
        """Run the model; yield what happens. Raise BackendError when it cannot go on.

        The first batch may hold `Degraded` deltas alone; it is yielded before anything is
        sent to the model. The last delta of a whole answer is `Stopped`; `UsageKnown` comes
        before it or in the same batch.
        """
        ...

    async def models(self) -> Sequence[ModelInfo]:
        """Return what can be asked for. Raise BackendError if that cannot be learnt now."""
        ...

    async def close(self) -> None:
        """Let go of connections, threads and weights."""
        ...
