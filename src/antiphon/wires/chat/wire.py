"""The chat completions API as a wire: what `backends.http` needs to reach such a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.models.facts import ModelInfo
from antiphon.models.listing import read_models
from antiphon.plans.plan import Plan
from antiphon.protocol.errors import BackendError
from antiphon.wires.chat.counting import count_prompt
from antiphon.wires.chat.exchange import ChatExchange, prompt_of
from antiphon.wires.chat.profiles import Profile, capabilities_of
from antiphon.wires.faults import fault_from_body
from antiphon.wires.wire import Post

__all__ = ["ChatWire"]


class ChatWire:
    """Any server that speaks `POST {base_url}/chat/completions`. `profile` is what it takes."""

    headers: Final[Mapping[str, str]] = {}
    key_header: Final = "Authorization"
    models_path: Final = "/models"

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.capabilities = capabilities_of(profile)

    def exchange(self, plan: Plan, max_line: int) -> ChatExchange:
        """Return the request for this plan, and the reader of its answer."""
        return ChatExchange(plan, self.profile, max_line)

    def refusal(
        self, status: int, body: bytes, retry_after: float | None, *, has_key: bool
    ) -> BackendError:
        """Return the error that an answer with this status stands for."""
        return fault_from_body(status, body, retry_after, has_key=has_key)

    def read_models(self, body: bytes) -> tuple[Sequence[ModelInfo], str | None]:
        """Return the list of models. It has one page."""
        return read_models(body), None

    async def count(self, plan: Plan, post: Post) -> int | None:
        """Return the tokens of the prompt if the server can count it."""
        if self.profile.counts_by == "none":
            return None
        return await count_prompt(post, prompt_of(plan, self.profile), self.profile)
