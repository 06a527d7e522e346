"""The embedded model: a small one, in this process, on the CPU.

llama.cpp (through xllamacpp) speaks chat completions without a socket, so the request and the
answer go the same way as those of any chat upstream (`chat_request`, `chat_stream`). It runs
in worker threads without the interpreter's lock and asks us after every piece whether to go
on; cancelling the run answers no. Weights and library are loaded with the first request.

The model has no words for tools: `toolless` says what is done about that.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from antiphon.backends.base import Ask, DeltaSink, ModelInfo, Relayed
from antiphon.backends.counting import count_by_asking
from antiphon.backends.lifted import lifted
from antiphon.backends.toolless import (
    candidates,
    in_functions,
    plan_answer,
    plan_choice,
    unenforced,
)
from antiphon.backends.weights import ensure_weights
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Delta,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, NotBuilt
from antiphon.protocol.response import Usage, add_usage
from antiphon.protocol.tools import Tool
from antiphon.transport.http import HttpClient, Sending
from antiphon.transport.secret import Secret
from antiphon.wires.chat.counting import count_prompt
from antiphon.wires.chat.profiles import PROFILES, Profile
from antiphon.wires.chat.request import write_request
from antiphon.wires.chat.stream import ChatStream

__all__ = ["MAX_OUTPUT_TOKENS", "MODEL", "LocalBackend"]

MODEL: Final = "smollm2-135m"
MAX_OUTPUT_TOKENS: Final = 1024
"""Where an answer ends if the caller set no limit: small models may never end by themselves."""

_MAX_WAITING: Final = 64
# One step of reading a prompt: about 0.4 s, and the longest time that a stop can take.
_BATCH: Final = 64
# The prompts of earlier turns that are kept beside those in use.
_CACHE_MIB: Final = 256
_PROFILE: Final = Profile(
    name="local",
    images=False,
    reasoning_effort=False,
    think_tags=False,
    counts_by="template",
    grammar="gbnf",
    extra_fields=PROFILES["llamacpp"].extra_fields,
)
# As in the example of the model card.
_TEMPERATURE: Final = 0.2
# Without it, one answer in five repeats itself until it is cut off.
_REPEAT_PENALTY: Final = 1.1
_TOOLS_NOTE: Final = (
    "tool_choice: the embedded model cannot choose, so a tool is called when the message names it"
)

# A chat-completions object: Any is what JSON holds.
Json = dict[str, Any]


class _Server(Protocol):
    """What we use of xllamacpp.Server."""

    listening_address: str

    def handle_chat_completions(self, body: Json, take: Callable[[Json], bool], /) -> object: ...


class LocalBackend:
    """Serves one GGUF model: SmolLM2-135M, fetched when first needed, or the file at `path`.

    `threads` defaults to all cores but one: with all of them busy, llama.cpp slows down by an
    order of magnitude. `parallel` requests run at once, each with a `context` of its own; the
    others wait.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        context: int = 8192,
        parallel: int = 2,
    ) -> None:
        self._path = Path(path) if path is not None else None
        self._threads = threads or max(1, (os.cpu_count() or 2) - 1)
        self._context = context
        self._parallel = parallel
        # Constrained decoding holds the model to a format.
        self.capabilities = Capabilities(enforces=frozenset({"format"}), counts=True)
        self.patience = None
        self._model = self._path.stem.lower() if self._path else MODEL
        # The library cannot be kept from listening on a loopback port: only we know this key.
        self._key = Secret(secrets.token_urlsafe(32))
        self._http = HttpClient(key=self._key)
        self._starting: asyncio.Future[_Server] | None = None
        self._room = asyncio.Semaphore(parallel)
        self._waiting = 0
        self._runs: set[_Run] = set()
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="antiphon-local")

    async def open(self, plan: Plan) -> Ask:
        """Return the request for this plan; its answer is written in a worker thread."""
        if plan.model != self._model:
            raise _no_such_model(plan.model, self._model)
        tools = candidates(plan)
        asked, _ = plan_answer(plan, tools, _PROFILE)
        body, degraded = self._request(asked)
        run = lifted(partial(self._run, plan, tools), plan.toolbox)
        # With several tools the model is asked to choose one first, so this is not all of it.
        written = partial(msgspec.json.encode, body) if len(tools) <= 1 else bytes
        return Ask([*_notes(plan, asked), *degraded], run, body=written)

    async def _run(self, plan: Plan, tools: Sequence[Tool], sink: DeltaSink) -> None:
        spent = Usage()
        if len(tools) > 1:
            tool, spent = await self._choose(in_functions(plan), tools)
            tools = [tool]
        asked, emulation = plan_answer(plan, tools, _PROFILE)
        body, _ = self._request(asked)
        is_call = bool(tools) and emulation is None
        if is_call and not sink.push([CallOpened(0, tools[0]["name"])]):
            await sink.drained()
        async with aclosing(self._deltas(body)) as batches:
            async for batch in batches:
                said = batch if emulation is None else emulation.feed(batch)
                if not sink.push([_told(delta, is_call=is_call, spent=spent) for delta in said]):
                    await sink.drained()

    async def count(self, plan: Plan) -> int | None:
        """Return the tokens of the prompt; None if the model has to choose a tool first."""
        if plan.model != self._model:
            raise _no_such_model(plan.model, self._model)
        tools = candidates(plan)
        if len(tools) > 1:
            return None
        body, _ = self._request(plan_answer(plan, tools, _PROFILE)[0])
        server = await self._load()
        count = partial(count_prompt, body=body, profile=_PROFILE)
        return await count_by_asking(self._http, server.listening_address, count)

    def relay(
        self, path: str, body: bytes, *, is_streamed: bool, sending: Sending
    ) -> AbstractAsyncContextManager[Relayed]:
        """Refuse: there is no server."""
        raise NotBuilt(f"the embedded model does not answer {path}")

    async def models(self) -> Sequence[ModelInfo]:
        """Return the one model. It cannot choose tools by itself: see `toolless`."""
        return [ModelInfo(self._model, context_length=self._context, supports_tools=False)]

    async def close(self) -> None:
        """Stop what runs, then close the threads and the weights."""
        for run in tuple(self._runs):
            run.stop()
        await self._http.close()
        await asyncio.to_thread(self._pool.shutdown)
        self._starting = None

    def _request(self, plan: Plan) -> tuple[Json, Sequence[str]]:
        limit = min(plan.max_output_tokens or MAX_OUTPUT_TOKENS, self._context)
        asked = msgspec.structs.replace(plan, stream=True, max_output_tokens=limit)
        body, degraded = write_request(asked, _PROFILE)
        if plan.temperature is None:
            body["temperature"] = _TEMPERATURE
        if plan.format is None:
            body.setdefault("repeat_penalty", _REPEAT_PENALTY)
        # Without this nothing arrives while a long prompt is read, and nothing can be stopped.
        body["return_progress"] = True
        return body, degraded

    async def _choose(self, plan: Plan, tools: Sequence[Tool]) -> tuple[Tool, Usage]:
        """Let the model name one of the tools; return it and what that cost."""
        body, _ = self._request(plan_choice(plan, tools))
        text, usage = "", Usage()
        async with aclosing(self._deltas(body)) as batches:
            async for batch in batches:
                for delta in batch:
                    text += delta.text if isinstance(delta, TextGrew) else ""
                    usage = delta.usage if isinstance(delta, UsageKnown) else usage
        named = [tool for tool in tools if text.strip() == f'"{tool["name"]}"']
        return (named or list(tools))[0], usage

    async def _deltas(self, body: Json) -> AsyncGenerator[Sequence[Delta], None]:
        """Run one chat completion and read its chunks as if they had come over the wire."""
        reader = ChatStream(think_tags=_PROFILE.think_tags)
        async with aclosing(self._chunks(body)) as arrivals:
            async for chunks in arrivals:
                data = b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks)
                if deltas := reader.feed(data):
                    yield deltas
        if deltas := reader.end():
            yield deltas

    async def _chunks(self, body: Json) -> AsyncGenerator[Sequence[Json], None]:
        """Yield the chunks of one completion, as many at a time as have come."""
        server = await self._load()
        await self._enter()
        run = _Run(asyncio.get_running_loop(), self._leave)
        self._runs.add(run)
        self._pool.submit(run.work, server, body)
        try:
            while chunks := await run.take():
                yield chunks
        finally:
            run.stop()

    async def _enter(self) -> None:
        """Wait for room to run."""
        if self._waiting >= _MAX_WAITING:
            raise BackendError(
                f"{_MAX_WAITING} requests wait for the embedded model already; try again later",
                code="server_overloaded",
                status=503,
                retry_after=5.0,
            )
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1

    def _leave(self, run: _Run) -> None:
        self._runs.discard(run)
        self._room.release()

    async def _load(self) -> _Server:
        """Return the server, starting it once for all who wait; a failed start is tried again."""
        starting = self._starting
        if starting is None or (starting.done() and starting.exception() is not None):
            loop = asyncio.get_running_loop()
            starting = self._starting = loop.run_in_executor(self._pool, self._start)
            starting.add_done_callback(lambda future: future.exception())
        return await asyncio.shield(starting)

    def _start(self) -> _Server:
        """Load library and weights. Runs in a worker thread."""
        try:
            import xllamacpp
        except ImportError:
            raise BackendError(
                "the embedded model needs xllamacpp: "
                "`pip install '.[local]'` in antiphon's directory",
                code="model_not_found",
                status=503,
            ) from None
        path = self._path or ensure_weights()
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_parallel = self._parallel
        parameters.n_ctx = self._context * self._parallel
        parameters.kv_unified = False
        parameters.n_batch = parameters.n_ubatch = _BATCH
        parameters.cpuparams.n_threads = self._threads
        parameters.cpuparams_batch.n_threads = self._threads
        parameters.fit_params = False
        parameters.warmup = False
        parameters.cache_ram_mib = _CACHE_MIB
        parameters.verbosity = -1
        parameters.api_keys = [self._key.reveal()]
        parameters.ui = False
        try:
            server: _Server = xllamacpp.Server(parameters)
        except RuntimeError:
            raise BackendError(
                f"{path} cannot be loaded: it is no GGUF model that llama.cpp knows", status=503
            ) from None
        return server


class _Run:
    """One completion in a worker thread, seen from the event loop.

    What waits here is bounded by the length of an answer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, leave: Callable[[_Run], None]) -> None:
        self._loop = loop
        self._leave = leave
        self._arrived: asyncio.Queue[Json | BackendError | None] = asyncio.Queue()
        self._stop = threading.Event()

    def work(self, server: _Server, body: Json) -> None:
        """Run to the end, or until stopped. Runs in a worker thread."""
        try:
            if not self._stop.is_set():
                server.handle_chat_completions(body, self._take_chunk)
        except ValueError as error:
            self._post(self._arrived.put_nowait, _refused(error))
        finally:
            self._post(self._arrived.put_nowait, None)
            self._post(self._leave, self)

    async def take(self) -> list[Json]:
        """Return the chunks that have come, at least one; none at the end."""
        chunks: list[Json] = []
        while not chunks or not self._arrived.empty():
            arrival = await self._arrived.get()
            if arrival is None:
                # Found again by the next call, if there are chunks to return first.
                self._arrived.put_nowait(None)
                break
            if isinstance(arrival, BackendError):
                raise arrival
            chunks.append(arrival)
        return chunks

    def stop(self) -> None:
        """Ask the model to stop. It does so after the token, or the batch, it is at."""
        self._stop.set()

    def _take_chunk(self, chunk: Json) -> bool:
        """Hand a chunk over; return whether to stop."""
        return not self._post(self._arrived.put_nowait, chunk) or self._stop.is_set()

    def _post(self, call: Callable[[Any], None], value: object) -> bool:
        """Have the loop make a call; return whether there still is a loop to make it."""
        try:
            self._loop.call_soon_threadsafe(call, value)
        except RuntimeError:  # the loop is closed
            return False
        return True


def _told(delta: Delta, *, is_call: bool, spent: Usage) -> Delta:
    """Return the delta as the caller gets it: a call's arguments came as text."""
    match delta:
        case TextGrew(text=text) if is_call:
            return CallGrew(0, text)
        case UsageKnown() if spent.total_tokens:
            return UsageKnown(add_usage(delta.usage, spent), delta.has_output)
        case _:
            return delta


def _notes(plan: Plan, asked: Plan) -> list[str]:
    """Return what of the plan is not honoured, beside what the chat request cannot express."""
    notes = []
    if plan.toolbox.offers and plan.policy.mode == "auto":
        notes.append(_TOOLS_NOTE)
    field = "text.format" if asked.format is plan.format else "tools"
    schema = (asked.format or {}).get("schema")
    notes += [f"{field}: {keyword} is not enforced" for keyword in unenforced(schema)]
    return notes


def _refused(error: ValueError) -> BackendError:
    message = str(error).splitlines()[0] if str(error) else "no reason given"
    return BackendError(
        f"the embedded model cannot take this request: {message}",
        code="invalid_request",
        status=400,
        type="invalid_request_error",
    )


def _no_such_model(asked: str, served: str) -> BackendError:
    return BackendError(
        f"there is no model {asked!r} here; ask for {served!r}",
        code="model_not_found",
        status=404,
        type="invalid_request_error",
        param="model",
    )
