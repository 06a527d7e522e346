"""All names that traces and metrics carry, in one place: the conventions still change.

Those of `gen_ai` are from OpenTelemetry's semantic conventions for generative AI, which are in
development; `http` and `error` are stable. `antiphon` names what the conventions do not.
"""

from __future__ import annotations

from typing import Final

__all__: list[str] = []  # the module itself is imported

SCOPE: Final = "antiphon"
SERVICE: Final = "antiphon"

# Stable conventions.
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"
OTHER_ERROR: Final = "_OTHER"

# What a call of a model is.
OPERATION: Final = "gen_ai.operation.name"
CHAT: Final = "chat"
EMBEDDINGS: Final = "embeddings"
EXECUTE_TOOL: Final = "execute_tool"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
SESSION_ID: Final = "session.id"
"""The same, under the name that Langfuse and Phoenix group by."""
OUTPUT_TYPE: Final = "gen_ai.output.type"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

# What it used.
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
USAGE_COST: Final = "gen_ai.usage.cost"
"""In dollars; the name that Langfuse reads."""

# Content: only if it is asked for.
CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
INSTRUCTIONS: Final = "gen_ai.system_instructions"

# Hosted tools.
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_ENDING: Final = "antiphon.tool.ending"

# Our own.
REQUEST_ID: Final = "antiphon.request.id"
KEY_ID: Final = "antiphon.key.id"
PROJECT: Final = "antiphon.project"
ROUND: Final = "antiphon.round"
OUTCOME: Final = "antiphon.outcome"
BASIS: Final = "antiphon.basis"
COST: Final = "antiphon.cost"
DEGRADED: Final = "antiphon.degraded"
ENDING: Final = "antiphon.ending"

# Metrics.
DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - a name
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - a name
TIME_TO_FIRST: Final = "gen_ai.client.operation.time_to_first_chunk"
