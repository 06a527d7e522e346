"""A chat application's whole view of a server: its models, its answers, its token counts.

Faithful to VS Code's LanguageModelChatProvider, so that an editor can sit on it with one line
each. The provider only puts the others in order:

    translate  messages to items             endpoint_choice  which endpoint for which model
    client     the request and its stream    usage            tokens used
    adapter    events to parts               tokens           tokens of the next request

A tool call is handed to the application, which runs it and comes back with the result in the
messages of its next turn; nothing here runs a tool.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Self, cast

import msgspec

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
from antiphon.client.resources import InputTokens
from antiphon.client.settings import WireApi
from antiphon.client.stream import AsyncStream
from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.answer import AnswerStream, Batches, CancelGuard
from antiphon.host.data import Annotations
from antiphon.host.endpoint_choice import GateConfig, choose_wire, is_listed
from antiphon.host.errors import HostError, TurnCancelled
from antiphon.host.model_table import ModelTable
from antiphon.host.models import ModelDescription, ModelDirectory
from antiphon.host.options import RespondOptions, make_params, session_of, system_text
from antiphon.host.outcome import Outcome
from antiphon.host.state import ConversationState, show_usage
from antiphon.host.tokens import TokenCounter
from antiphon.host.translate import TranslateSettings, translate_messages
from antiphon.host.usage import TrackedTurn, TurnUsage, UsageTracker
from antiphon.plans.estimate import estimate_tokens
from antiphon.protocol.response import Response
from antiphon.wires.chat.profiles import profile_for
from antiphon.wires.host.parts import Message, ResponsePart

__all__ = ["Progress", "Provider", "ProviderSettings"]

_log: Final = logging.getLogger("antiphon.host")

Progress = Callable[[ResponsePart], object]
"""Takes each part as it comes; what it returns is awaited if it can be. If it raises, the turn
is stopped."""

# Where nothing came, these show that no model ran; any other error leaves that open.
_NOT_RUN: Final = (BadCall, ServerRefused, ServerFailed, ServerUnreachable, InvalidAnswer)

_CHAT_HINT: Final = (
    "this was asked at /chat/completions; if the server speaks Responses, let the gate know: "
    "ProviderSettings(gate=RESPONSES_FOR_ALL)"
)


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every turn. Thinking is shown only if asked for.

    `thinking_models` are the models that may show it: names, beginnings of names with a star,
    or `*`. None stands for every model that sends any. `call_prefix` stands before the ids of
    calls that the application sees, such as `gw-`.

    With `usage_part` an answer ends with its token counts, as data of the type `usage`. With
    `state_part` it ends with a `stateful_marker`: an application that sends it back can be
    restarted and still continues by `previous_response_id` (see `state`).
    """

    shows_thinking: bool = False
    thinking_models: tuple[str, ...] | None = None
    call_prefix: str = ""
    annotations: Annotations = "inline"
    tool_images: Literal["content", "message"] = "content"
    gate: GateConfig = GateConfig()
    usage_part: bool = False
    state_part: bool = False


class _Asked(msgspec.Struct, frozen=True):
    """A request that is ready to be sent."""

    model: str
    wire: WireApi
    params: Params
    session: str | None
    stream: AsyncStream
    state: ConversationState | None


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
        if not isinstance(client, AsyncClient):
            raise TypeError("Provider needs an AsyncClient; with a Client it is SyncProvider")
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

    async def models(
        self, silent: bool = True, *, refresh: bool = False
    ) -> Sequence[ModelDescription]:
        """Return the server's models. With `silent`, return none where it would raise.

        With `refresh` the server is asked now; otherwise at most every few minutes.
        """
        if refresh:
            return await self._directory.refresh(silent=silent)
        return await self._directory.list(silent=silent)

    def describe(self, model: str) -> ModelDescription | None:
        """Return what is known of a model now, listed or not; None if that is nothing."""
        return self._directory.get(model)

    def add_models_listener(
        self, listener: Callable[[Sequence[ModelDescription]], object]
    ) -> Callable[[], None]:
        """Call `listener` with each list that differs from the one before. Return how to stop."""
        return self._directory.changes.add(listener)

    def count_tokens(self, model: str, content: str | Message) -> int:
        """Return how many tokens a text or a message has for this model. Made to be fast.

        What the server counted in earlier answers is taken into account; until then the
        estimate leans high for a model whose tokenizer is not known.
        """
        return self.tokens.count_message(content, model)

    async def measure_tokens(
        self, model: str, messages: Sequence[Message], options: RespondOptions | None = None
    ) -> InputTokens:
        """Ask the server how many tokens it would be sent, and learn from it. Nothing is run.

        Raise BadCall for a model that is asked over chat completions: there is no such question.
        """
        options = options or RespondOptions()
        wire, params = self._request(model, messages, options)
        if wire == "chat":
            raise BadCall("a chat server cannot be asked for the length of a request")
        question = {**params, "session": None, "stateful": None}
        counted = await self._client.input_tokens(**cast(Params, question))
        if not counted.is_estimate and _is_whole(params):
            self.tokens.learn(model, _counted(params), counted.input_tokens)
        return counted

    def stream(
        self,
        model: str,
        messages: Sequence[Message],
        options: RespondOptions | None = None,
        cancel: asyncio.Event | None = None,
    ) -> AnswerStream:
        """Ask the model, and return the parts of its answer, to be iterated over.

        Nothing is sent until the iteration begins. Setting `cancel` hangs up and raises
        TurnCancelled; if it is set already, nothing is sent. An answer that is not whole raises,
        after all its parts: a HostError that says what is missing, or the client's error.
        """
        asked = self._ask(model, messages, options or RespondOptions())
        return AnswerStream(
            lambda answer: self._read(asked, answer), cancel, lambda: asked.stream.response
        )

    async def respond(
        self,
        model: str,
        messages: Sequence[Message],
        options: RespondOptions | None = None,
        progress: Progress = lambda part: None,
        cancel: asyncio.Event | None = None,
    ) -> Outcome:
        """Ask the model; hand each part of the answer to `progress`; return how it ended.

        An asynchronous `progress` is awaited before the next part. If it raises, the turn is
        stopped. `cancel` and errors are those of `stream`.
        """
        async with self.stream(model, messages, options, cancel) as answer:
            async for part in answer:
                shown = progress(part)
                if inspect.isawaitable(shown):
                    await answer.guard.wait(shown)
        return answer.outcome

    def _ask(self, model: str, messages: Sequence[Message], options: RespondOptions) -> _Asked:
        """Return the request, checked. Raise BadCall for an option that it cannot hold."""
        wire, params = self._request(model, messages, options)
        state = None
        if self._settings.state_part and wire == "responses":
            settings = self._translation(model, wire, options)
            state = ConversationState(self._client.base_url, model, messages, settings)
            state.resume(params, self._client.cache)
        stream = self._client.stream(wire_api=wire, **params)
        _log.debug("%d items go out by way of %s", len(params["messages"] or ()), wire)
        return _Asked(model, wire, params, session_of(options), stream, state)

    def _request(
        self, model: str, messages: Sequence[Message], options: RespondOptions
    ) -> tuple[WireApi, Params]:
        """Return the endpoint to ask, and the keywords of the client's call."""
        wire = choose_wire(model, self._client.base_url, self._settings.gate, self._environ)
        sent = translate_messages(messages, self._translation(model, wire, options))
        return wire, make_params(model, sent, options, wire)

    async def _read(self, asked: _Asked, answer: AnswerStream) -> Batches:
        """Yield the parts, and book the turn however it ends."""
        try:
            await answer.guard.wait(self._prepare(asked.model))
            turn = self._start(asked)
            shown: list[ResponsePart] = []
            try:
                await answer.guard.wait(turn.told())
                adapter = StreamAdapter(self._adapter_settings(asked.model))
                async for parts in _adapt(asked.stream, adapter, answer.guard):
                    if asked.state is not None:
                        shown += parts
                    yield parts
                outcome = adapter.finish(skipped_choices=asked.stream.skipped_choices)
            except BaseException as error:
                self._count_failure(turn, asked.stream, error)
                await turn.told()
                raise
            ended = self._count(turn, asked, outcome.response)
            answer.end(outcome)
            await turn.told()
            if notes := self._notes(asked, shown, outcome.response, ended):
                yield notes
        except ResourceNotFound as error:
            if asked.wire == "chat":
                error.add_note(_CHAT_HINT)
            raise
        finally:
            await answer.guard.close()

    async def _prepare(self, model: str) -> None:
        if not self.tokens.is_prepared(model):
            # Loading a tokenizer takes a while the first time; others are not kept waiting.
            await asyncio.to_thread(self.tokens.prepare, model)

    def _start(self, asked: _Asked) -> TrackedTurn:
        known = self._directory.get(asked.model)
        estimate = self.tokens.count_request(_counted(asked.params), asked.model, asked.session)
        limit = known.max_input_tokens if known else None
        return self.usage.start(asked.session, asked.model, estimate.tokens, limit)

    def _translation(self, model: str, wire: WireApi, options: RespondOptions) -> TranslateSettings:
        known = self._directory.get(model)
        # A chat server that accepts reasoning stores none, so the text is sent.
        takes_thoughts = profile_for(self._client.base_url).reasoning_replay != "none"
        return TranslateSettings(
            call_prefix=self._settings.call_prefix,
            tool_images=self._settings.tool_images,
            keeps_reasoning=wire == "responses" or takes_thoughts,
            is_stored=wire == "chat" or options.model_options.get("store") is not False,
            may_reason=known is None or known.capabilities.reasoning is not False,
            custom_calls=wire == "responses",
            inline_links=self._settings.annotations == "inline",
            system_prompt=system_text(options),
        )

    def _adapter_settings(self, model: str) -> AdapterSettings:
        allowed = self._settings.thinking_models
        may_think = allowed is None or is_listed(allowed, model)
        return AdapterSettings(
            shows_thinking=self._settings.shows_thinking and may_think,
            call_prefix=self._settings.call_prefix,
            annotations=self._settings.annotations,
        )

    def _notes(
        self,
        asked: _Asked,
        shown: Sequence[ResponsePart],
        response: Response,
        ended: TurnUsage,
    ) -> list[ResponsePart]:
        """Return what follows the answer, for the application itself."""
        notes: list[ResponsePart] = []
        if self._settings.usage_part:
            notes.append(show_usage(ended.counted))
        if asked.state is not None:
            is_stored = asked.params.get("store") is not False
            marker = asked.state.mark(shown, response, is_stored=is_stored)
            notes += [marker] if marker else []
        return notes

    def _count(self, turn: TrackedTurn, asked: _Asked, response: Response) -> TurnUsage:
        ended = self.usage.complete(
            turn, response, estimated_output=estimate_tokens(response.output)
        )
        if ended.usage and not ended.is_estimate and _is_whole(asked.params):
            counted = _counted(asked.params)
            self.tokens.note_actual(asked.session, asked.model, counted, ended.usage)
        return ended

    def _count_failure(self, turn: TrackedTurn, stream: AsyncStream, error: BaseException) -> None:
        """Book what came before the error: an answer that is stopped costs all the same."""
        response = stream.response
        if response is None and isinstance(error, _NOT_RUN):
            self.usage.discard(turn)
            return
        output = estimate_tokens(response.output) if response else 0
        is_told = isinstance(error, HostError) and not isinstance(error, TurnCancelled)
        if response is not None and is_told:
            self.usage.complete(turn, response, estimated_output=output)
        else:
            self.usage.abandon(turn, response, estimated_output=output)


async def _adapt(stream: AsyncStream, adapter: StreamAdapter, guard: CancelGuard) -> Batches:
    """Send the request and yield the parts of its answer; close the connection in any case."""
    try:
        await guard.wait(stream.__aenter__())
        while batch := await guard.wait(stream.next_batch()):
            parts = [part for event in batch for part in adapter.feed(event)]
            if parts:
                yield parts
    finally:
        await stream.close()


def _counted(params: Params) -> Mapping[str, Any]:
    """Return the request as the token counter takes it: with the whole conversation as input."""
    return {**params, "input": params.get("messages")}


def _is_whole(params: Params) -> bool:
    """Return whether the request shows all that the server counts, and the server counts it all."""
    unseen = ("previous_response_id", "parent_id", "conversation", "conversation_id", "prompt")
    is_shortened = params.get("truncation") == "auto" or params.get("context_management")
    return not is_shortened and not any(params.get(name) for name in unseen)
