"""The list of models as clients of the Messages API read it.

`max_input_tokens` is the window of a model if a source states it: a client that does not know the
window assumes 200,000 tokens and does not compact in time for a smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from antiphon.models.facts import ModelInfo

__all__ = ["messages_entry", "messages_list"]


def messages_list(models: Sequence[ModelInfo]) -> dict[str, Any]:
    """Return all models, as one page."""
    return {
        "data": [messages_entry(model) for model in models],
        "has_more": False,
        "first_id": models[0].id if models else None,
        "last_id": models[-1].id if models else None,
    }


def messages_entry(model: ModelInfo) -> dict[str, Any]:
    """Return one model; facts that no source states are null."""
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.display_name or model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat(),
        "lifecycle": "active",
        "max_input_tokens": model.max_input_tokens or model.context_length,
        "max_tokens": model.max_output_tokens,
    }
