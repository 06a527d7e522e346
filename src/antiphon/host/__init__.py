"""How does a chat application see it? Messages and parts, as in VS Code's language-model API.

`Provider` is the whole of it: models, answers, token counts. `SyncProvider` is the same
without an event loop. Its pieces can be used alone:
`translate` (messages to items), `adapter` (events to parts), `usage`, `tokens`, `models`,
`endpoint_choice`. The errors are in `antiphon.host.errors` and in `antiphon.client.errors`.
"""

from __future__ import annotations

from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.answer import AnswerStream
from antiphon.host.endpoint_choice import (
    RESPONSES_API_MODELS,
    RESPONSES_FOR_ALL,
    GateConfig,
    choose_wire,
)
from antiphon.host.model_table import ModelTable
from antiphon.host.models import ModelDescription, ModelDirectory
from antiphon.host.options import RespondOptions, ToolSpec, translate_tools
from antiphon.host.outcome import Outcome
from antiphon.host.provider import Provider, ProviderSettings
from antiphon.host.status import status_line
from antiphon.host.sync import SyncAnswerStream, SyncProvider
from antiphon.host.tokens import TokenCounter
from antiphon.host.translate import translate_messages
from antiphon.host.usage import UsageTracker
from antiphon.wires.host.parts import (
    DataPart,
    Message,
    Part,
    ResponsePart,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
)

__all__ = [
    "RESPONSES_API_MODELS",
    "RESPONSES_FOR_ALL",
    "AdapterSettings",
    "AnswerStream",
    "DataPart",
    "GateConfig",
    "Message",
    "ModelDescription",
    "ModelDirectory",
    "ModelTable",
    "Outcome",
    "Part",
    "Provider",
    "ProviderSettings",
    "RespondOptions",
    "ResponsePart",
    "Role",
    "StreamAdapter",
    "SyncAnswerStream",
    "SyncProvider",
    "TextPart",
    "ThinkingPart",
    "TokenCounter",
    "ToolCallPart",
    "ToolResultPart",
    "ToolSpec",
    "UrlPart",
    "UsageTracker",
    "choose_wire",
    "status_line",
    "translate_messages",
    "translate_tools",
]
