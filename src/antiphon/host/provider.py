"""A chat application's whole view of a server: its models, its answers, its token counts.

Faithful to VS Code's LanguageModelChatProvider, so that an editor can sit on it with one line
each. The provider only puts the others in order:

    translate  messages to items             gate   which endpoint for which model
    client     the request and its stream    usage  what it took
    adapter    events to parts               tokens what it will take

A tool call is handed to the application, which runs it and comes back with the result in the
messages of its next turn; nothing here runs a tool.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar, cast

import msgspec

from antiphon.client.client import AsyncClient
from antiphon.client.errors import ClientError, ResourceNotFound
from antiphon.client.parameters import Params
from antiphon.client.stream import AsyncStream
from antiphon.host.adapter import AdapterSettings, Outcome, StreamAdapter
from antiphon.host.data import Annotations
from antiphon.host.errors import TurnCancelled
from antiphon.host.gate import GateConfig, choose_wire, is_listed
from antiphon.host.model_table import ModelTable
from antiphon.host.models import ModelDescription, ModelDirectory
from antiphon.host.parts import Message, ResponsePart
from antiphon.host.tokens import TokenCounter
from antiphon.host.translate import (
    ToolSpec,
    TranslateSettings,
    Translation,
    translate_messages,
    translate_tool_mode,
    translate_tools,
)
from antiphon.host.usage import Turn, UsageTracker
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.estimate import estimate_tokens
from antiphon.protocol.response import Response
from antiphon.protocol.tools import Mode

__all__ = ["Progress", "Provider", "ProviderSettings", "RespondOptions"]

_log: Final = logging.getLogger("antiphon.host")

Progress = Callable[[ResponsePart], object]
"""Takes each part as it comes. If it raises, the turn is stopped."""

_T = TypeVar("_T")
_CHAT_HINT: Final = (
    "this was asked at /chat/completions; if the server speaks Responses, let the gate know: "
    "ProviderSettings(gate=RESPONSES_FOR_ALL)"
)


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every turn. Thinking is shown only if asked for, and only by some models.

    `thinking_models` are names, beginnings of names with a star, or `*`; None stands for the
    models that are known to reason. `call_prefix` stands before the ids of calls that the
    application sees, such as `gw-`.
    """

    shows_thinking: bool = False
    thinking_models: tuple[str, ...] | None = None
    call_prefix: str = ""
    annotations: Annotations = "inline"
    tool_images: Literal["content", "message"] = "content"
    gate: GateConfig = GateConfig()


class RespondOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one turn.

    `model_options` are parameters as the client takes them: `temperature`, `max_output_tokens`,
    `reasoning`, … `session` names the conversation that the messages are of: its turns form a
    thread, so that only what is new is sent, and they are counted together.
    """

    tools: Sequence[ToolSpec] = ()
    tool_mode: Mode = "auto"
    model_options: Mapping[str, Any] = {}
    system_prompt: str = ""
    session: str | None = None


class Provider:
    """Models and answers of one server, for a chat application. Enter it, or close it."""

    def __init__(
        self,
        client: AsyncClient,
        settings: ProviderSettings | None = None,
        *,
        table: ModelTable | None = None,
        usage: UsageTracker | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        table = table or ModelTable()
        self.usage: Final = usage or UsageTracker()
        self.tokens: Final = TokenCounter(table=table)
        self._client = client
        self._settings = settings or ProviderSettings()
        self._directory = ModelDirectory(client.http, client.base_url, table=table)
        self._environ = os.environ if environ is None else environ
        self._prepared: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End what is under way. The client stays open: it was given to us."""
        await self._directory.close()

    async def models(self, silent: bool = True) -> Sequence[ModelDescription]:
        """Return the server's models. Silent never raises: without a list there are none."""
        return await self._directory.list(silent=silent)

    def count_tokens(self, model: str, content: str | Message) -> int:
        """Return how many tokens a text or a message has for this model. Made to be fast."""
        return self.tokens.count_message(content, model)

    async def respond(
        self,
        model: str,
        messages: Sequence[Message],
        options: RespondOptions | None = None,
        progress: Progress = lambda part: None,
        cancel: asyncio.Event | None = None,
    ) -> Outcome:
        """Ask the model; hand each part of the answer to `progress`; return how it ended.

        Setting `cancel` hangs up and raises TurnCancelled. An answer that is not whole raises,
        after all its parts: a HostError that says what is missing, or the client's error.
        """
        options = options or RespondOptions()
        sent = translate_messages(messages, self._translation(options))
        params = self._params(model, sent, options)
        wire = choose_wire(model, self._client.base_url, self._settings.gate, self._environ)
        stream = self._client.stream(wire_api=wire, **params)
        await self._prepare(model)
        turn = self._start(model, params, options)
        adapter = StreamAdapter(self._adapter_settings(model))
        _log.debug("%d items go out by way of %s", len(sent.items), wire)
        try:
            outcome = await _until(cancel, _show(stream, adapter, progress), stream)
        except AntiphonError as error:
            self._count_failure(turn, error)
            if wire == "chat" and isinstance(error, ResourceNotFound):
                error.add_note(_CHAT_HINT)
            raise
        except BaseException:
            self.usage.abandon(turn)
            raise
        self._count(turn, options, params, outcome.response)
        return outcome

    async def _prepare(self, model: str) -> None:
        """Load the tokenizer where it keeps nobody waiting; the first time takes a while."""
        if model not in self._prepared:
            await asyncio.to_thread(self.tokens.prepare, model)
            self._prepared.add(model)

    def _start(self, model: str, params: Params, options: RespondOptions) -> Turn:
        # A turn of no conversation is one of its own.
        conversation = options.session or secrets.token_hex(8)
        known = self._directory.get(model)
        estimate = self.tokens.count_request(_counted(params), model, options.session)
        limit = known.max_input_tokens if known else None
        return self.usage.start(conversation, model, estimate.tokens, limit)

    def _translation(self, options: RespondOptions) -> TranslateSettings:
        return TranslateSettings(
            call_prefix=self._settings.call_prefix,
            tool_images=self._settings.tool_images,
            system_prompt=options.system_prompt,
        )

    def _params(self, model: str, sent: Translation, options: RespondOptions) -> Params:
        params: dict[str, Any] = {**options.model_options, "model": model}
        if sent.instructions:
            params["instructions"] = sent.instructions
        if options.tools:
            params["tools"] = translate_tools(options.tools)
            params["tool_choice"] = translate_tool_mode(options.tool_mode)
        if options.session is None:
            params["input"] = sent.items
        else:
            params |= {"session": options.session, "messages": sent.items}
        # Whatever the application put in is checked, name by name, by the client.
        return cast(Params, params)

    def _adapter_settings(self, model: str) -> AdapterSettings:
        return AdapterSettings(
            shows_thinking=self._settings.shows_thinking and self._may_think(model),
            call_prefix=self._settings.call_prefix,
            annotations=self._settings.annotations,
        )

    def _may_think(self, model: str) -> bool:
        allowed = self._settings.thinking_models
        if allowed is not None:
            return is_listed(allowed, model)
        known = self._directory.get(model)
        return known is not None and bool(known.capabilities.reasoning)

    def _count(
        self, turn: Turn, options: RespondOptions, params: Params, response: Response
    ) -> None:
        ended = self.usage.complete(
            turn, response, estimated_output=estimate_tokens(response.output)
        )
        if options.session is not None and ended.usage and not ended.is_estimate:
            model = turn.started.model
            self.tokens.note_actual(options.session, model, _counted(params), ended.usage)

    def _count_failure(self, turn: Turn, error: AntiphonError) -> None:
        response = getattr(error, "response", None) or getattr(error, "partial", None)
        output = estimate_tokens(response.output) if response else 0
        if isinstance(error, ClientError | TurnCancelled):
            self.usage.abandon(turn, response, estimated_output=output)
        elif response is None:
            self.usage.abandon(turn)
        else:
            self.usage.complete(turn, response, estimated_output=output)


async def _show(stream: AsyncStream, adapter: StreamAdapter, progress: Progress) -> Outcome:
    async with stream:
        async for event in stream:
            for part in adapter.feed(event):
                progress(part)
    return adapter.finish(skipped_choices=stream.skipped_choices)


async def _until(
    cancel: asyncio.Event | None, work: Coroutine[Any, Any, _T], stream: AsyncStream
) -> _T:
    """Do the work, unless `cancel` is set first; then hang up and raise TurnCancelled."""
    if cancel is None:
        return await work
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(cancel.wait())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TurnCancelled(stream.response)
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.wait({working, watching})


def _counted(params: Params) -> Mapping[str, Any]:
    """Return the request as the token counter takes it: with the whole conversation as input."""
    return {**params, "input": params.get("messages") or params.get("input")}
