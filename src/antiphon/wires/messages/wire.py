"""The Messages API as a wire: what `backends.http` needs to reach Anthropic or a server like it.

    request   plan -> system, messages, tools -> body
    answer    bytes -> MessagesStream -> lifter -> deltas

The deltas are about the caller's own tools: calls of the functions that stood for them in the
request are lifted back. What a model takes is learned from the list of models when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from antiphon.models.facts import ModelInfo
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import BETAS, Plan
from antiphon.protocol.errors import BackendError
from antiphon.protocol.sse import MAX_LINE
from antiphon.wires.exchange import LiftedExchange
from antiphon.wires.faults import fault_from_body
from antiphon.wires.messages.listing import read_page
from antiphon.wires.messages.offers import MCP_BETA
from antiphon.wires.messages.profiles import GENERIC, Profile
from antiphon.wires.messages.request import Terms, count_body, encode_body, write_request
from antiphon.wires.messages.server_tools import INCLUDES
from antiphon.wires.messages.stream import MessagesStream
from antiphon.wires.messages.traits import Stated, Traits, traits_of
from antiphon.wires.wire import Post

__all__ = ["VERSION", "MessagesExchange", "MessagesWire"]

VERSION: Final = "2023-06-01"
_BETA: Final = re.compile(r"[a-z0-9-]{1,100}")

_MAX_KNOWN: Final = 10_000
_MODELS: Final = "/models?limit=1000"


class MessagesWire:
    """Any server that speaks `POST /v1/messages`.

    `root` is what comes between the base URL and `/messages`. `hosted` are the kinds of tools that
    the provider runs itself. `account` is whose signatures it can read.
    """

    def __init__(
        self,
        profile: Profile = GENERIC,
        *,
        root: str = "/v1",
        account: str = "",
        hosted: Sequence[str] = (),
        betas: Sequence[str] = (),
        is_cached: bool = False,
        max_tokens: int | None = None,
    ) -> None:
        needed = [MCP_BETA] if "mcp" in hosted else []
        all_betas = tuple(dict.fromkeys([*betas, *needed]))
        self._terms = Terms(
            profile=profile,
            account=account,
            is_cached=is_cached,
            max_tokens=max_tokens,
            betas=all_betas,
        )
        self._root = root
        self._stated: dict[str, Stated] = {}
        self.key_header = profile.key_header
        self.models_path = root + _MODELS
        self.headers: Mapping[str, str] = {"anthropic-version": VERSION, **_header(all_betas)}
        self.capabilities = Capabilities(
            tool_kinds=frozenset(hosted),
            includes=INCLUDES if hosted else frozenset(),
            parts=frozenset({"image", "pdf", "text", "file_id"}),
            file_urls="https?:",
            counts=True,
            continues=bool(profile.continued_models),
            continued_models=profile.continued_models,
            strips_prefix=True,
        )

    def exchange(self, plan: Plan, max_line: int = MAX_LINE) -> MessagesExchange:
        """Return the request for this plan, and the reader of its answer."""
        terms = with_caller_betas(plan, self._terms)
        return MessagesExchange(plan, self._traits(plan), terms, self._root, max_line)

    def refusal(
        self, status: int, body: bytes, retry_after: float | None, *, has_key: bool
    ) -> BackendError:
        """Return the error that an answer with this status stands for."""
        return fault_from_body(status, body, retry_after, has_key=has_key)

    def read_models(self, body: bytes) -> tuple[Sequence[ModelInfo], str | None]:
        """Return a page of the list of models; what it states of them is used from then on."""
        page = read_page(body)
        if len(self._stated) < _MAX_KNOWN:
            self._stated.update(page.traits)
        after = page.after
        path = None if after is None else f"{self.models_path}&after_id={quote(after, safe='')}"
        return page.models, path

    async def count(self, plan: Plan, post: Post) -> int | None:
        """Return the input tokens of this plan if the server counts them. No model runs."""
        written = write_request(plan, self._traits(plan), self._terms)
        answer = await post(f"{self._root}/messages/count_tokens", count_body(written.body))
        count = answer.get("input_tokens")
        return count if type(count) is int and count >= 0 else None

    def _traits(self, plan: Plan) -> Traits:
        return traits_of(plan.model, self._stated.get(plan.model))


def with_caller_betas(plan: Plan, terms: Terms) -> Terms:
    """Return the terms with the betas that the caller may turn on, and wants to.

    A name may hold nothing that ends a header or adds another one to the list.
    """
    wanted, allowed = plan.hints.get(BETAS), terms.profile.caller_betas
    if not wanted or not allowed:
        return terms
    named = [one for one in wanted if one.startswith(allowed) and _BETA.fullmatch(one)]
    return msgspec.structs.replace(terms, betas=tuple(dict.fromkeys([*terms.betas, *named])))


def _header(betas: Sequence[str]) -> dict[str, str]:
    return {BETAS: ",".join(betas)} if betas else {}


class MessagesExchange(LiftedExchange):
    """The body to post for a plan, and the reader of what comes back."""

    def __init__(self, plan: Plan, traits: Traits, terms: Terms, root: str, max_line: int) -> None:
        written = write_request(plan, traits, terms)
        self.path = f"{root}/messages"
        self.headers = _header(terms.betas)
        self.body = encode_body(written.body, is_large=plan.is_large)
        self.degraded: Sequence[str] = written.report
        reader = MessagesStream(
            account=terms.account,
            is_summary=traits.summarises,
            keeps_blocks=written.has_server_tools,
            max_line=max_line,
        )
        super().__init__(reader, plan.toolbox)
