"""The front door: finds the handler, checks the caller, and answers every error in one shape.

Each route states with its handler whether it is open; nothing else is. A route that is not
listed does not exist. The handlers live in one file per resource.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from itertools import chain
from typing import Final
from urllib.parse import unquote

import msgspec
from aiohttp import HttpVersion10, HttpVersion11, web

from antiphon.accounts.principal import LOCAL, Principal
from antiphon.accounts.refusals import limit_headers
from antiphon.engine.budget import COPIES, Hold
from antiphon.engine.engine import Engine
from antiphon.engine.keep.webhooks import Webhooks
from antiphon.engine.run.turn import Turn, TurnCancelled
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.protocol.codec import Dialect
from antiphon.protocol.errors import (
    AntiphonError,
    BodyTooLarge,
    CallerError,
    InvalidRequest,
    KeyRevoked,
    NotFound,
    Overloaded,
)
from antiphon.protocol.kept_inputs import KeptInputs, OwnInputs
from antiphon.server.absent import why_absent
from antiphon.server.api.idempotency import Idempotency
from antiphon.server.auth import Auth
from antiphon.server.delivery.socket_cache import SocketCache
from antiphon.server.delivery.sockets import Sockets
from antiphon.server.doors import DoorSettings
from antiphon.server.errors import error_response, translate
from antiphon.server.expect import check_expectation, is_waiting
from antiphon.server.issuers import Issuers
from antiphon.server.limits import FileLimits, ServerLimits
from antiphon.server.login import LoginDirectory
from antiphon.server.metrics import Metrics
from antiphon.server.origin import OriginPolicy
from antiphon.server.quota import StorageQuota
from antiphon.server.request_log import (
    CLIENT_LEFT,
    NO_WATCHER,
    Entry,
    RequestWatcher,
    log_request,
    start_entry,
)
from antiphon.server.request_tail import TailRoom
from antiphon.server.revocation import KeyWatch
from antiphon.server.roles import check_route
from antiphon.server.turn_room import TurnRoom
from antiphon.store.base import Admit
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.terms import ToolTerms
from antiphon.transport.aside import work_for
from antiphon.wires.door import ErrorWriter, openai_error

__all__ = ["App", "Call", "Handler", "Route", "note_degraded"]

_LAST_WORDS_SECONDS: Final = 2.0
_MAX_HEADER: Final = 4096
# No route has more; a path of ten thousand slashes is not worth trying.
_MAX_STEPS: Final = 8
_REQUEST_ID_CHARS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
)

_NOBODY: Final = Principal("")


class Call:
    """One HTTP request on its way through: what a handler needs to know about it."""

    def __init__(self, app: App, request: web.BaseRequest) -> None:
        self.app = app
        self.request = request
        self.principal = _NOBODY
        """Who asks; nobody on a route that is open to all."""
        self.path_id = ""
        """What stands for `{id}` in the route's path."""
        self.item_id = ""
        """What stands for `{item}`, decoded: a caller may have made that id."""
        self.request_id = _request_id(request) or app.engine.mint("req")
        self.entry = start_entry(self.request_id, request.method, "unknown")
        app.watcher.begin(request.headers)
        """What the log line of this request will hold."""
        self.body: bytes | None = None
        """What was sent, once it has been read."""
        self.is_invited = False
        """Whether a client that holds its body back was asked for it."""
        self.hold: Hold | None = None
        """The memory that is reserved for the request."""
        self.write_error: ErrorWriter = openai_error
        """What writes the body of an error, once the route is known."""

    @property
    def owner(self) -> str:
        """The owner of all data that the request may touch."""
        return self.principal.owner

    @property
    def key_id(self) -> str | None:
        """The key that the caller sent; None without one."""
        return self.principal.key_id

    @property
    def dialect(self) -> Dialect:
        """How to speak to this client."""
        wish = self.request.headers.get("x-antiphon-dialect")
        if wish is None:
            return self.app.dialect
        match wish:
            case "openai" | "open-responses":
                return wish
        raise InvalidRequest(
            "x-antiphon-dialect must be openai or open-responses", param="x-antiphon-dialect"
        )

    @property
    def is_strict(self) -> bool:
        """Return whether what cannot be honoured is to be refused."""
        wish = self.request.headers.get("x-antiphon-strict")
        return self.app.strict if wish is None else wish.lower() in ("1", "true", "yes")

    def sign(self, answer: web.StreamResponse) -> None:
        """Add the headers that every answer has. Do it before the answer begins to leave."""
        headers = answer.headers
        headers["Server"] = "antiphon"
        headers["x-request-id"] = self.request_id
        if "anthropic-version" in self.request.headers:
            headers["request-id"] = self.request_id  # where Anthropic's SDKs look for it
        headers.update(self.app.origins.headers(self.request))

    def reserve(self, size: int) -> None:
        """Reserve at least so many bytes of memory until the request has been answered.

        Raise Overloaded if they are not free. Streams need room for what is on its way.
        """
        size += self.app.limits.write_buffer_bytes
        if self.hold is None:
            self.hold = self.app.engine.budget.hold(self.owner, size)
        elif size > self.hold.size:
            self.hold.resize(size)

    @property
    def held(self) -> Hold:
        """The same, for those who need more of it."""
        self.reserve(0)
        assert self.hold is not None
        return self.hold

    def reserve_read(self) -> Admit:
        """Return what reserves memory for items that are about to be read, in any thread."""
        hold = self.held
        before = hold.size
        return lambda size: hold.resize(before + size.bytes * COPIES)

    def give_hold(self) -> None:
        """Leave the reserved memory to a turn that goes on after the request was answered."""
        self.hold = None

    @property
    def inputs(self) -> OwnInputs | None:
        """The long inputs that this owner sent before; None if nothing of it may be kept."""
        return None if self.principal.never_store else self.app.inputs.of(self.owner)

    def json(self, data: bytes, status: int = 200) -> web.Response:
        """Return an answer of JSON."""
        return web.Response(status=status, body=data, content_type="application/json")


def note_degraded(answer: web.StreamResponse, degraded: Sequence[str]) -> None:
    """Report in a header what could not be honoured, if anything."""
    if degraded:
        answer.headers["x-antiphon-degraded"] = _in_header("; ".join(dict.fromkeys(degraded)))


def note_served(answer: web.StreamResponse, turn: Turn) -> None:
    """Name the deployment that answers in a header, as far as it is known by now, and limits."""
    answer.headers["x-antiphon-served-by"] = _in_header(turn.served_by.name)
    note_limits(answer, turn.charges)


def note_limits(answer: web.StreamResponse, charges: TurnCharges) -> None:
    """State in headers how much is left of the limits that apply, and which budget runs out."""
    granted = charges.granted
    answer.headers.update(limit_headers(granted.requests, granted.tokens))
    if granted.warnings:
        answer.headers["x-antiphon-budget-warning"] = _in_header(", ".join(granted.warnings))


def _in_header(text: str) -> str:
    """Return a text as one line of ASCII of limited length."""
    if text.isascii() and text.isprintable():
        return text[:_MAX_HEADER]
    plain = text.encode("ascii", "replace").decode()[:_MAX_HEADER]
    return "".join(char if char.isprintable() else "?" for char in plain)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class Route(msgspec.Struct, frozen=True):
    """A method, a path in which `{id}` stands for one segment, and who answers.

    Behind the id, `{item}` may stand for another segment.
    """

    method: str
    path: str
    handler: Handler
    is_open: bool = False
    """Answered without a key."""
    takes_rest: bool = False
    """Whether `{id}`, the last step, stands for all that follows, slashes and all."""
    takes_form: bool = False
    """Whether a body may be something else than JSON without a key, such as a form."""
    write_error: ErrorWriter = openai_error
    """Writes the body of an error, in the shape that the clients of this route know."""


class App:
    """The server without its socket. `handle` is what aiohttp calls."""

    def __init__(
        self,
        engine: Engine,
        index: FileIndex,
        auth: Auth,
        routes: list[Route],
        *,
        limits: ServerLimits,
        metrics: Metrics,
        webhooks: Webhooks,
        origins: OriginPolicy,
        containers: ContainerService,
        dialect: Dialect = "openai",
        strict: bool = False,
        reruns_background: bool = False,
        doors: DoorSettings | None = None,
        files: FileLimits | None = None,
        watcher: RequestWatcher = NO_WATCHER,
        login: LoginDirectory | None = None,
        tool_terms: Sequence[ToolTerms] = (),
        workers: int = 1,
    ) -> None:
        self.engine = engine
        self.login = login or LoginDirectory()
        self.tool_terms = tool_terms
        self.workers = workers
        self.started_at = engine.now()
        self.watcher = watcher
        self.index = index
        self.idempotency = Idempotency(engine, reruns_background=reruns_background)
        self.limits = limits
        """Read them here each time: a reload replaces them."""
        self.metrics = metrics
        self.webhooks = webhooks
        self.containers = containers
        self.dialect = dialect
        self.strict = strict
        self.doors = doors or DoorSettings()
        self.quota = StorageQuota(files or FileLimits())
        self.is_draining = False
        self.sockets = Sockets(limits)
        self.tails = TailRoom()
        self.socket_cache = SocketCache(limits.websocket_cache_bytes, limits.body_bytes)
        self.inputs = KeptInputs()
        self.origins = origins
        self.keys = KeyWatch(engine.store, engine.now)
        self._auth = auth
        self._routes: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._routes.setdefault(route.path, {})[route.method] = route
        self._prefixes = [route.path.removesuffix("{id}") for route in routes if route.takes_rest]
        self._turns: dict[asyncio.Task[object], Turn] = {}
        """The turns that have a reader here, by the task that runs each."""
        self._room = TurnRoom(limits.turns, self._note_turns)

    def use_limits(self, limits: ServerLimits, files: FileLimits) -> None:
        """Obey these limits from now on. What has a place keeps it."""
        self.limits, self.sockets.limits, self.quota.limits = limits, limits, files
        self.socket_cache.resize(limits.websocket_cache_bytes, limits.body_bytes)
        self._room.resize(limits.turns)
        self.engine.background.resize(limits.background_turns, limits.background_queue)

    @property
    def issuers(self) -> Issuers | None:
        """Whose tokens are taken."""
        return self._auth.issuers

    def use_issuers(self, issuers: Issuers | None) -> None:
        """Take the tokens of these issuers from now on."""
        self._auth.use_issuers(issuers)

    @property
    def paths(self) -> Set[str]:
        """The paths that are answered, in the form of `Route.path`."""
        return self._routes.keys()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; raise only when the client has disconnected."""
        call = Call(self, request)
        entry = call.entry
        try:
            response = await self._dispatch(call)
            entry.status = response.status
            seconds = time.monotonic() - entry.started
            self.metrics.note_request(entry.route, response.status, seconds)
            return response
        finally:
            if not entry.status:
                entry.status = 200 if request.writer.output_size else CLIENT_LEFT
            entry.key = call.key_id or ""
            self.end_entry(entry)

    def end_entry(self, entry: Entry) -> None:
        """Log a request that has ended, and report it."""
        log_request(entry)
        self.watcher.end(entry)

    async def _dispatch(self, call: Call) -> web.StreamResponse:
        """Return the answer, or the error in its shape."""
        request = call.request
        response: web.StreamResponse
        try:
            _check_head(request, self.limits)
            check_expectation(request)
            preflight = self.origins.preflight(request)
            if preflight is None:
                response = await self._answer(call, self._find(call))
            else:
                response = preflight
        except web.HTTPRequestEntityTooLarge:
            response = self._refuse(
                call, BodyTooLarge(f"the body is larger than {self.limits.body_bytes} bytes")
            )
        except ConnectionError:
            raise  # the client has disconnected
        except Exception as error:
            response = self._refuse(call, translate(error))
            if request.writer.output_size > 0:
                # Half an answer is out: only a broken connection is still truthful.
                raise ConnectionError from error
        finally:
            if call.hold is not None:
                call.hold.release()
        if not response.prepared:
            call.sign(response)
            if self.is_draining or (is_waiting(request) and not call.is_invited):
                response.force_close()
        return response

    def _refuse(self, call: Call, error: AntiphonError) -> web.StreamResponse:
        call.entry.error = error.code or error.type
        response = error_response(error, call.write_error, call.request_id)
        if isinstance(error, _WrongMethod):  # RFC 9110, section 15.5.6
            response.headers["Allow"] = ", ".join(error.allowed)
        return response

    async def principal_of(self, request: web.BaseRequest, path: str) -> Principal:
        """Return who asks, if they may call this route. Raise Unauthorized or NotAllowed.

        `path` is the pattern of the route. A key may be revoked, or have another role, by now.
        """
        principal = await self._auth.principal(request)
        check_route(principal, request.method, path)
        return principal

    async def close(self) -> None:
        """Close what finds out who asks."""
        await self._auth.close()
        await self.login.close()

    def room_for_turn(self, owner: str) -> AbstractAsyncContextManager[None]:
        """Hold room for one more turn of this owner, or raise Overloaded."""
        return self._room.place(owner)

    def _note_turns(self, count: int) -> None:
        self.metrics.turns = count

    def running(self, turn: Turn) -> _Running:
        """Know of a turn while the current task runs it, so that it can be ended from outside.

        It ends when its key is revoked.
        """
        return _Running(self, turn)

    def reading(self, call: Call) -> AbstractContextManager[None]:
        """Cut the connection of a reader whose key is revoked while it reads what others make."""

        def cut() -> None:
            if call.request.transport is not None:
                call.request.transport.abort()

        return self.keys.watching(call.principal, cut)

    def interrupt(self, owner: str, response_id: str, error: AntiphonError) -> None:
        """End a turn that has a reader here, if there is such one."""
        for task, turn in self._turns.items():
            if (turn.owner, turn.response_id) == (owner, response_id):
                turn.interrupt(task, error)

    def cancel(self, owner: str, response_id: str) -> None:
        """Cancel a turn that runs here, in the background or with a reader."""
        error = TurnCancelled("the response was cancelled")
        if not self.engine.background.interrupt(owner, response_id, error):
            self.interrupt(owner, response_id, error)

    async def drain(self) -> None:
        """Take no new turns, wait for those that run, and end what takes too long."""
        self.is_draining = self._room.is_closed = True
        background = self.engine.background.drain(self.limits.drain_seconds)
        await asyncio.gather(self._drain_turns(), background)

    async def _drain_turns(self) -> None:
        closing = self.sockets.close_all()
        if self._turns:
            await asyncio.wait(self._turns, timeout=self.limits.drain_seconds)
        late = dict(self._turns)
        for task, turn in late.items():
            turn.interrupt(task, Overloaded("the server went away in mid-turn"))
        if late or closing:
            await asyncio.wait({*late, *closing}, timeout=_LAST_WORDS_SECONDS)

    async def _answer(self, call: Call, route: Route) -> web.StreamResponse:
        """Check where the request comes from and who sent it; let the handler answer."""
        self.origins.check(call.request, is_open=route.is_open)
        if not route.is_open:
            if self.engine.share.is_paced:
                return await self._answer_in_turn(call, route)
            await self._identify(call, route)
            self.engine.share.note(call.owner)
        return await route.handler(call)

    async def _identify(self, call: Call, route: Route) -> None:
        """Find out who asks, and whether they may. Raise Unauthorized or NotAllowed."""
        call.principal = await self._auth.principal(call.request)
        check_route(call.principal, call.request.method, route.path)
        work_for(call.owner)
        if call.principal == LOCAL:
            self.origins.check_body(call.request, takes_form=route.takes_form)

    async def _answer_in_turn(self, call: Call, route: Route) -> web.StreamResponse:
        """Do the same while owners share the event loop: wait for the owner's turn.

        Who has sent this key before has right of way, if due, while the key is looked up again.
        """
        share, likely = self.engine.share, self._auth.likely_owner(call.request)
        way = None if likely is None or share.is_ahead(likely) else share.open_way()
        try:
            await self._identify(call, route)
            share.note(call.owner)
            if way is None:
                way = await share.enter(call.owner)
            return await route.handler(call)
        finally:
            if way is not None:
                way.end()

    def _find(self, call: Call) -> Route:
        """Return the route; note what stands for its `{id}` and `{item}`, and its error's shape.

        If there is none, the error has the shape of the routes that are nearest.
        """
        request = call.request
        path = request.rel_url.raw_path
        by_method = self._routes.get(path)
        if by_method is None:
            path, call.path_id, call.item_id = self._pattern(path)
            by_method = self._routes.get(path)
        if by_method is None:
            call.write_error = self._writer_above(request.rel_url.raw_path)
            raise _nothing_at(request)
        route = by_method.get(request.method)
        if route is None and request.method == "HEAD":
            # Monitors ask so. The head is that of GET, and aiohttp sends no body.
            read = by_method.get("GET")
            route = read if read is not None and read.is_open else None
        if route is None:
            call.write_error = next(iter(by_method.values())).write_error
            raise _WrongMethod(request.method, sorted(by_method))
        call.entry.route = path
        call.write_error = route.write_error
        return route

    def _writer_above(self, path: str) -> ErrorWriter:
        """Return what writes the errors of the route that this path is below, if it is."""
        while path := path.rpartition("/")[0]:
            for route in self._routes.get(path, {}).values():
                return route.write_error
        return openai_error

    def _pattern(self, path: str) -> tuple[str, str, str]:
        """Return the pattern that fits this path, and what stands for its `{id}` and `{item}`."""
        *steps, last = path.split("/", _MAX_STEPS)
        pattern, path_id = self._with_id([*steps, last])
        if pattern or not last:
            return pattern or "unknown", path_id, ""
        if found := self._with_item([*steps, last]):
            return found
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return f"{prefix}{{id}}", unquote(path.removeprefix(prefix)), ""
        return "unknown", "", ""

    def _with_item(self, steps: list[str]) -> tuple[str, str, str] | None:
        """Return the same with one more of these steps as `{item}`, and that step; or None."""
        for index in range(len(steps) - 1, 3, -1):
            pattern, path_id = self._with_id([*steps[:index], "{item}", *steps[index + 1 :]])
            if pattern and steps[index]:
                return pattern, path_id, unquote(steps[index])
        return None

    def _with_id(self, steps: list[str]) -> tuple[str, str]:
        """Return the pattern that these steps make with one of them as `{id}`, and that step."""
        for index in range(len(steps) - 1, 1, -1):
            pattern = "/".join([*steps[:index], "{id}", *steps[index + 1 :]])
            if pattern in self._routes and steps[index]:
                return pattern, unquote(steps[index])
        return "", ""


# Classes, not generators: every turn passes through these.
class _Running:
    """A turn among those that tasks of this server run."""

    __slots__ = ("_app", "_mark", "_task", "_turn")

    def __init__(self, app: App, turn: Turn) -> None:
        self._app = app
        self._turn = turn

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._app._turns[task] = self._turn
        self._mark = self._app.keys.add(self._turn.principal, self._end)

    def __exit__(self, *_: object) -> None:
        self._app.keys.remove(self._mark)
        del self._app._turns[self._task]

    def _end(self) -> None:
        self._turn.interrupt(self._task, KeyRevoked())


class _WrongMethod(CallerError):
    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, allowed: list[str]) -> None:
        super().__init__(f"{method} is not possible here; {', '.join(allowed)} is")
        self.allowed = allowed


class _HeadTooLarge(CallerError):
    status = 431
    code = "headers_too_large"


def _nothing_at(request: web.BaseRequest) -> NotFound:
    path = request.rel_url.raw_path
    why = why_absent(path)
    sentence = f" {why}" if why else ""
    return NotFound(f"There is nothing at {request.method} {path}.{sentence}", code="unknown_url")


def _check_head(request: web.BaseRequest, limits: ServerLimits) -> None:
    size = sum(map(len, chain.from_iterable(request.raw_headers)))
    if size > limits.header_bytes:
        raise _HeadTooLarge(f"the headers are larger than {limits.header_bytes} bytes")
    if len(request.headers.getall("Host", ())) > 1:
        raise InvalidRequest("the request names two hosts", code="invalid_host")
    if not HttpVersion10 <= request.version <= HttpVersion11:
        number = ".".join(map(str, request.version))
        raise InvalidRequest(f"HTTP/{number} is not answered; send HTTP/1.1", code="invalid_http")


def _request_id(request: web.BaseRequest) -> str | None:
    """Return the caller's own id for the request if it has one that is a plain word."""
    given = request.headers.get("x-request-id")
    if given and len(given) <= 128 and _REQUEST_ID_CHARS.issuperset(given):
        return given
    return None
