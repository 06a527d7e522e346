"""The Responses API as a wire: what `backends.http` needs to reach such a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.models.facts import ModelInfo
from antiphon.models.listing import read_models
from antiphon.plans.plan import Plan
from antiphon.protocol.errors import BackendError
from antiphon.wires.faults import fault_from_body
from antiphon.wires.responses.exchange import ResponsesExchange
from antiphon.wires.responses.profiles import Profile, capabilities_of
from antiphon.wires.responses.request import write_request
from antiphon.wires.wire import Post

__all__ = ["ResponsesWire"]

# What the server takes to count an input. The rest changes nothing about it.
_COUNTED: Final[tuple[str, ...]] = (
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
)


class ResponsesWire:
    """Any server that speaks `POST {base_url}/responses`. `profile` is what it takes.

    `hosted` are the kinds of tools that it runs itself, if not those of the profile. `account` is
    whose encrypted reasoning it can read.
    """

    headers: Final[Mapping[str, str]] = {}
    models_path: Final = "/models"

    def __init__(
        self, profile: Profile, *, hosted: frozenset[str] | None = None, account: str = ""
    ) -> None:
        self.profile = profile
        self.capabilities = capabilities_of(profile, hosted)
        self.key_header = profile.key_header
        self._account = account

    def exchange(self, plan: Plan, max_line: int) -> ResponsesExchange:
        """Return the request for this plan, and the reader of its answer."""
        hosted = self.capabilities.tool_kinds
        return ResponsesExchange(plan, self.profile, hosted, self._account, max_line)

    def refusal(
        self, status: int, body: bytes, retry_after: float | None, *, has_key: bool
    ) -> BackendError:
        """Return the error that an answer with this status stands for."""
        return fault_from_body(status, body, retry_after, has_key=has_key)

    def read_models(self, body: bytes) -> tuple[Sequence[ModelInfo], str | None]:
        """Return the list of models. It has one page."""
        return read_models(body), None

    async def count(self, plan: Plan, post: Post) -> int | None:
        """Return the input tokens of this plan, where the server counts them."""
        if not self.profile.counts:
            return None
        hosted = self.capabilities.tool_kinds
        body, _ = write_request(plan, self.profile, hosted, self._account)
        asked = {name: body[name] for name in _COUNTED if name in body}
        count = (await post("/responses/input_tokens", asked)).get("input_tokens")
        return count if isinstance(count, int) else None
