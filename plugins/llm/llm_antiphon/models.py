"""A model of the gateway as llm sees it, for programs with and without an event loop.

Leaving an answer early, also by Ctrl-C, closes the connection, and the gateway stops the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Final

import llm
from llm.parts import StreamEvent

from llm_antiphon.errors import as_llm_errors
from llm_antiphon.listing import KnownModel
from llm_antiphon.options import GatewayOptions
from llm_antiphon.server import KEY_ALIAS, KEY_VARIABLE, AsyncConnection, find_key, open_sync

__all__ = ["AsyncGatewayModel", "GatewayModel", "GatewayModelBase"]

PREFIX: Final = "antiphon/"
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_FILES: Final = frozenset(
    {
        *("application/pdf", "application/json"),
        *("text/plain", "text/markdown", "text/csv", "text/html", "text/xml"),
    }
)


class GatewayModelBase:
    """What both kinds of models have in common: what is known of the model, and the key."""

    needs_key: str | None = KEY_ALIAS
    key_env_var: str | None = KEY_VARIABLE
    can_stream = True
    supports_schema = True
    key: str | None = None

    class Options(GatewayOptions):
        """The options of one prompt."""

    def __init__(self, known: KnownModel) -> None:
        self.known = known
        self.model_id = f"{PREFIX}{known.id}"
        self.supports_tools = known.tools is not False
        self.attachment_types: set[str] | frozenset[str] = (
            _FILES if known.images is False else _FILES | _IMAGES
        )

    @property
    def supported_server_side_tools(self) -> tuple[type[llm.ServerSideTool], ...]:
        """Tools that the gateway or its upstream runs, given as they stand in the request."""
        return (llm.ServerSideTool,)

    def get_key(self, explicit_key: str | None = None) -> str | None:
        """Return the key to send, if there is one: the gateway decides whether it needs one."""
        return self.key if self.key is not None else find_key(explicit_key)

    def __str__(self) -> str:
        return f"Antiphon: {self.model_id}"


class GatewayModel(GatewayModelBase, llm.KeyModel):
    """A model for programs without an event loop, such as the command llm."""

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None = None,
        key: str | None = None,
    ) -> Iterator[StreamEvent]:
        """Yield the answer as it comes, however it is to be shown."""
        from llm_antiphon.turn import Turn

        turn = Turn(self, prompt, response)
        with (
            as_llm_errors(),
            open_sync(key) as provider,
            provider.stream(self.known.id, turn.messages, turn.options) as answer,
        ):
            for part in answer:
                yield from turn.show(part)
            yield from turn.finish(answer.outcome)


class AsyncGatewayModel(GatewayModelBase, llm.AsyncKeyModel):
    """The same model in an event loop."""

    async def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.AsyncResponse,
        conversation: llm.AsyncConversation | None = None,
        key: str | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Yield the answer as it comes, however it is to be shown."""
        from llm_antiphon.turn import Turn

        turn = Turn(self, prompt, response)
        with as_llm_errors():
            async with (
                AsyncConnection(key) as provider,
                provider.stream(self.known.id, turn.messages, turn.options) as answer,
            ):
                async for part in answer:
                    for event in turn.show(part):
                        yield event
                for event in turn.finish(answer.outcome):
                    yield event
