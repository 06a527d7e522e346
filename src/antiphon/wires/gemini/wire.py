"""The Gemini API as a wire: what `backends.http` needs to reach such a server.

The model is in the path, which differs for streams. The key is in a header of its own; tokens of
Vertex that expire are bearer tokens, which the backend knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from antiphon.models.facts import ModelInfo
from antiphon.plans.plan import Plan
from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import BackendError
from antiphon.wires.gemini.exchange import GeminiExchange, model_path
from antiphon.wires.gemini.faults import refusal
from antiphon.wires.gemini.profiles import Profile, capabilities_of, generation_of
from antiphon.wires.gemini.request import write_request
from antiphon.wires.wire import Post

__all__ = ["GeminiWire"]

_PAGE: Final = "/models?pageSize=1000"
_MAX_MODELS: Final = 10_000
_MAX_TOKENS: Final = 10**9
_LEVELS: Final = ("none", "minimal", "low", "medium", "high")


class GeminiWire:
    """Any server that speaks `POST {base_url}/models/{model}:generateContent`.

    `account` is whose signatures can be sent: those of another account are left out.
    """

    headers: Final[Mapping[str, str]] = {}
    key_header: Final = "x-goog-api-key"
    models_path: Final = _PAGE

    def __init__(self, profile: Profile, account: str = "") -> None:
        self.profile = profile
        self.account = account
        self.capabilities = capabilities_of(profile)

    def exchange(self, plan: Plan, max_line: int) -> GeminiExchange:
        """Return the request for this plan, and the reader of its answer."""
        return GeminiExchange(plan, self.profile, self.account, max_line)

    def refusal(
        self, status: int, body: bytes, retry_after: float | None, *, has_key: bool
    ) -> BackendError:
        """Return the error that an answer with this status stands for."""
        return refusal(status, body, retry_after, has_key=has_key)

    def read_models(self, body: bytes) -> tuple[Sequence[ModelInfo], str | None]:
        """Return a page of the list of models, and the path of the next page if there is one."""
        value = decode_json(body)
        fields = value if isinstance(value, dict) else {}
        entries = fields.get("models")
        models = [
            _model(entry)
            for entry in (entries if isinstance(entries, list) else ())[:_MAX_MODELS]
            if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        ]
        token = fields.get("nextPageToken")
        more = f"{_PAGE}&pageToken={quote(str(token), safe='')}" if token else None
        return models, more

    async def count(self, plan: Plan, post: Post) -> int | None:
        """Return the input tokens of this plan, as `:countTokens` has them."""
        body, _ = write_request(plan, self.profile, self.account)
        if self.profile.counts_by == "request":
            name = model_path(plan.model).removeprefix("/")
            body = {"generateContentRequest": {"model": name, **body}}
        counted = await post(f"{model_path(plan.model)}:countTokens", body)
        total = counted.get("totalTokens")
        return total if isinstance(total, int) and not isinstance(total, bool) else None


def _model(entry: dict[str, Any]) -> ModelInfo:
    name = entry["name"].removeprefix("models/")
    methods = entry.get("supportedGenerationMethods")
    shown = entry.get("displayName")
    thinks = entry.get("thinking")
    return ModelInfo(
        id=name,
        owned_by="google",
        display_name=shown if isinstance(shown, str) and shown else None,
        # Gemini states no window of both; a prompt that fits here fits there.
        context_length=_figure(entry.get("inputTokenLimit")),
        max_input_tokens=_figure(entry.get("inputTokenLimit")),
        max_output_tokens=_figure(entry.get("outputTokenLimit")),
        reasoning=thinks if isinstance(thinks, bool) else None,
        reasoning_levels=_levels(name) if thinks is True else None,
        is_hidden=isinstance(methods, list) and "generateContent" not in methods,
    )


def _levels(name: str) -> tuple[str, ...]:
    """Return the efforts that the model takes as they are."""
    generation = generation_of(name)
    if generation.thinking == "level":
        return generation.levels
    return _LEVELS if generation.budgets[0] == 0 else _LEVELS[1:]


def _figure(value: object) -> int | None:
    return value if type(value) is int and 0 < value <= _MAX_TOKENS else None
