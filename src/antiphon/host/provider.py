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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar, cast

import msgspec

from antiphon.chat.profiles import profile_for
from antiphon.client.client import AsyncClient
from antiphon.client.errors import (
    BadCall,
    InvalidAnswer,
    ResourceNotFound,
    ServerFailed,
    ServerRefused,
    ServerUnreachable,
)
from antiphon.client.parameters import Params
from antiphon.client.settings import WireApi
from antiphon.client.stream import AsyncStream
from antiphon.host.adapter import AdapterSettings, Outcome, StreamAdapter
from antiphon.host.data import Annotations
from antiphon.host.errors import HostError, TurnCancelled
from antiphon.host.gate import GateConfig, choose_wire, is_listed
from antiphon.host.model_table import ModelTable
from antiphon.host.models import ModelDescription, ModelDirectory
from antiphon.host.parts import Message, ResponsePart
from antiphon.host.tokens import TokenCounter
from antiphon.host.tool_specs import ToolSpec, translate_tool_mode, translate_tools
from antiphon.host.translate import (
    TranslateSettings,
    Translation,
    translate_messages,
)
from antiphon.host.usage import Turn, UsageTracker
from antiphon.protocol.estimate import estimate_tokens
from antiphon.protocol.response import Response
from antiphon.protocol.tools import Mode

__all__ = ["Progress", "Provider", "ProviderSettings", "RespondOptions"]

_log: Final = logging.getLogger("antiphon.host")

Progress = Callable[[ResponsePart], object]
"""Takes each part as it comes. If it raises, the turn is stopped."""

# Where nothing came, these say that no model ran; of any other error nobody can be sure.
_NOT_RUN: Final = (BadCall, ServerRefused, ServerFailed, ServerUnreachable, InvalidAnswer)

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

        Setting `cancel` hangs up and raises TurnCancelled; if it is set already, nothing is
        sent. An answer that is not whole raises, after all its parts: a HostError that says
        what is missing, or the client's error.
        """
        if cancel is not None and cancel.is_set():
            raise TurnCancelled(None)
        options = options or RespondOptions()
        wire = choose_wire(model, self._client.base_url, self._settings.gate, self._environ)
        sent = translate_messages(messages, self._translation(model, wire, options))
        params = self._params(model, sent, options)
        stream = self._client.stream(wire_api=wire, **params)
        _log.debug("%d items go out by way of %s", len(sent.items), wire)
        try:
            return await _until(cancel, self._run(stream, model, params, options, progress), stream)
        except ResourceNotFound as error:
            if wire == "chat":
                error.add_note(_CHAT_HINT)
            raise

    async def _run(
        self,
        stream: AsyncStream,
        model: str,
        params: Params,
        options: RespondOptions,
        progress: Progress,
    ) -> Outcome:
        """Run a turn, and book it however it ends."""
        if not self.tokens.is_prepared(model):
            # Loading a tokenizer takes a while the first time; nobody else is kept waiting.
            await asyncio.to_thread(self.tokens.prepare, model)
        turn = self._start(model, params, options)
        adapter = StreamAdapter(self._adapter_settings(model))
        try:
            outcome = await _show(stream, adapter, progress)
        except BaseException as error:
            self._count_failure(turn, stream, error)
            raise
        self._count(turn, options, params, outcome.response)
        return outcome

    def _start(self, model: str, params: Params, options: RespondOptions) -> Turn:
        known = self._directory.get(model)
        estimate = self.tokens.count_request(_counted(params), model, options.session)
        limit = known.max_input_tokens if known else None
        return self.usage.start(options.session, model, estimate.tokens, limit)

    def _translation(self, model: str, wire: WireApi, options: RespondOptions) -> TranslateSettings:
        return TranslateSettings(
            call_prefix=self._settings.call_prefix,
            tool_images=self._settings.tool_images,
            keeps_reasoning=wire == "responses" or self._is_taking_thoughts(),
            is_stored=wire == "chat" or options.model_options.get("store") is not False,
            may_reason=self._reasons(model) is not False,
            custom_calls=wire == "responses",
            inline_links=self._settings.annotations == "inline",
            system_prompt=options.system_prompt,
        )

    def _is_taking_thoughts(self) -> bool:
        """Say whether the chat server takes thoughts back. It keeps none: their text goes."""
        return profile_for(self._client.base_url).reasoning_replay != "none"

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
        return self._reasons(model) is True

    def _reasons(self, model: str) -> bool | None:
        """Say whether a model reasons; None if nobody said."""
        known = self._directory.get(model)
        return known.capabilities.reasoning if known else None

    def _count(
        self, turn: Turn, options: RespondOptions, params: Params, response: Response
    ) -> None:
        ended = self.usage.complete(
            turn, response, estimated_output=estimate_tokens(response.output)
        )
        if options.session is not None and ended.usage and not ended.is_estimate:
            model = turn.started.model
            self.tokens.note_actual(options.session, model, _counted(params), ended.usage)

    def _count_failure(self, turn: Turn, stream: AsyncStream, error: BaseException) -> None:
        """Book what came before the error: whoever stops an answer pays for it all the same."""
        response = stream.response
        if response is None and isinstance(error, _NOT_RUN):
            self.usage.discard(turn)
            return
        output = estimate_tokens(response.output) if response else 0
        if response is not None and isinstance(error, HostError):
            self.usage.complete(turn, response, estimated_output=output)
        else:
            self.usage.abandon(turn, response, estimated_output=output)


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
        # What it books on the way out is booked before anyone hears of the end.
        await asyncio.gather(working, watching, return_exceptions=True)


def _counted(params: Params) -> Mapping[str, Any]:
    """Return the request as the token counter takes it: with the whole conversation as input."""
    return {**params, "input": params.get("messages") or params.get("input")}
