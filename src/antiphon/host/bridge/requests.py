"""How is a request of an asker answered? With a provider, for the settings of its `hello`.

Each method returns the last message of its request, or raises; parts go out on the way. Tokens
are counted in the event loop, from memory, a few milliseconds at a time; only what counting needs
is loaded in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

import msgspec
from msgspec import UNSET

from antiphon.client.client import AsyncClient
from antiphon.client.errors import BadCall
from antiphon.client.settings import ApiKey
from antiphon.client.tool_limits import ToolLimits
from antiphon.host.bridge.faults import EmptyAnswer
from antiphon.host.bridge.usage import UsageReports, figures_of
from antiphon.host.endpoint_choice import RESPONSES_FOR_ALL
from antiphon.host.models import ModelDescription
from antiphon.host.options import RespondOptions, ToolSpec
from antiphon.host.outcome import Outcome
from antiphon.host.provider import Provider, ProviderSettings
from antiphon.host.state import STATE_MIME, USAGE_MIME
from antiphon.models.prices import Price
from antiphon.wires.host.messages import (
    Answer,
    AskSettings,
    Count,
    Counted,
    Done,
    ListModels,
    Measure,
    Measured,
    ModelEntry,
    Models,
    ModelsChanged,
    Options,
    Parts,
    Respond,
)
from antiphon.wires.host.parts import DataPart, ResponsePart, TextPart, ThinkingPart

__all__ = ["Requests", "open_client"]

# The editor decides how many tools it sends, and the server what it takes.
_NO_LIMITS: Final = ToolLimits(max_count=None, max_size=None, max_name=None, max_description=None)
_COUNT_SECONDS: Final = 0.005
_NOTES: Final = frozenset({USAGE_MIME, STATE_MIME})


def open_client(base_url: str, api_key: ApiKey, settings: AskSettings) -> AsyncClient:
    """Return the client for an asker. Raise BadCall for a URL or a key that cannot be used."""
    return AsyncClient(
        base_url=settings.base_url or base_url,
        # Empty means none: what the environment has was read by the command.
        api_key=api_key if settings.api_key is None else settings.api_key,
        tool_limits=_NO_LIMITS,
        environ={},
    )


class Requests:
    """Answers requests. `send` takes messages, `room` waits while the asker does not read."""

    def __init__(
        self,
        client: AsyncClient,
        settings: AskSettings,
        send: Callable[[Answer], object],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._send = send
        self._room = room
        self._provider = Provider(
            client,
            ProviderSettings(
                shows_thinking=settings.shows_thinking,
                call_prefix=settings.call_prefix,
                gate=RESPONSES_FOR_ALL,
                usage_part=settings.usage_part,
                state_part=settings.state_part,
            ),
            environ={},
        )
        self._provider.usage.add_listener(UsageReports(send, self._find_price).note)
        self._provider.add_models_listener(lambda _: send(ModelsChanged()))

    async def close(self) -> None:
        """Close the connections."""
        await self._provider.close()
        await self._client.close()

    def count_now(self, asked: Count) -> Counted | None:
        """Return the counts of a few contents, or None if that may take longer."""
        if len(asked.contents) > 1 or not self._provider.tokens.is_prepared(asked.model):
            return None
        tokens = [self._provider.count_tokens(asked.model, it) for it in asked.contents]
        return Counted(id=asked.id, tokens=tokens)

    async def answer(self, asked: ListModels | Count | Measure | Respond) -> Answer:
        """Return the last message of a request."""
        match asked:
            case ListModels():
                return await self._list_models(asked)
            case Count():
                return await self._count(asked)
            case Measure():
                return await self._measure(asked)
            case Respond():
                return await self._respond(asked)

    async def _list_models(self, asked: ListModels) -> Models:
        found = await self._provider.models(silent=False, refresh=asked.refresh)
        return Models(id=asked.id, models=[_describe(model) for model in found])

    async def _count(self, asked: Count) -> Counted:
        if not self._provider.tokens.is_prepared(asked.model):
            await asyncio.to_thread(self._provider.tokens.prepare, asked.model)
        tokens: list[int] = []
        pause = time.monotonic() + _COUNT_SECONDS
        for content in asked.contents:
            tokens.append(self._provider.count_tokens(asked.model, content))
            if time.monotonic() >= pause:
                await asyncio.sleep(0)
                pause = time.monotonic() + _COUNT_SECONDS
        return Counted(id=asked.id, tokens=tokens)

    async def _measure(self, asked: Measure) -> Measured:
        options = _translate(asked.options)
        found = await self._provider.measure_tokens(asked.model, asked.messages, options)
        return Measured(
            id=asked.id, input_tokens=found.input_tokens, is_estimate=bool(found.is_estimate)
        )

    async def _respond(self, asked: Respond) -> Done:
        options = _translate(asked.options)
        answer = self._provider.stream(asked.model, asked.messages, options)
        has_content = False
        async with aclosing(answer.batches()) as batches:
            async for parts in batches:
                has_content = has_content or any(map(_is_content, parts))
                self._send(Parts(id=asked.id, parts=parts))
                await self._room()
        outcome = answer.outcome
        if not has_content:
            raise EmptyAnswer(outcome.incomplete_reason, has_thought=bool(outcome.response.output))
        return self._end(asked, outcome)

    def _end(self, asked: Respond, outcome: Outcome) -> Done:
        notes = outcome.response.antiphon
        booked = self._provider.usage.of(outcome.response_id)
        return Done(
            id=asked.id,
            response_id=outcome.response_id or None,
            status="incomplete" if outcome.status == "incomplete" else "completed",
            incomplete_reason=outcome.incomplete_reason,
            refusal=outcome.refusal,
            usage=figures_of(booked.counted, is_estimate=booked.is_estimate) if booked else None,
            degraded=() if notes is UNSET else notes.degraded,
        )

    def _find_price(self, model: str) -> Price | None:
        known = self._provider.describe(model)
        return known.price if known else None


def _is_content(part: ResponsePart) -> bool:
    """Return whether this is something that an application can show or run."""
    match part:
        case TextPart():
            return bool(part.value.strip())
        case ThinkingPart():
            return False
        case DataPart():
            return part.mime not in _NOTES
    return True


def _translate(options: Options) -> RespondOptions:
    """Return the options as the provider takes them. Raise BadCall for a tool that is not there."""
    model_options, mode = dict(options.model_options), options.tool_mode
    if options.tool_name is not None:
        if options.tool_name not in {tool.name for tool in options.tools}:
            raise BadCall(f"tool_name is {options.tool_name!r}, but no tool has this name")
        model_options["tool_choice"] = {"type": "function", "name": options.tool_name}
        mode = "none" if mode == "none" else "auto"
    return RespondOptions(
        tools=[ToolSpec(it.name, it.description, it.input_schema) for it in options.tools],
        tool_mode=mode,
        model_options=model_options,
        system_prompt=options.system_prompt,
        session=options.session,
    )


def _describe(model: ModelDescription) -> ModelEntry:
    abilities = msgspec.structs.asdict(model.capabilities)
    fields = msgspec.structs.asdict(model)
    del fields["capabilities"]
    return ModelEntry(**fields, **abilities)
