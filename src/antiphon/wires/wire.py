"""The contract between an HTTP backend and the language of its server. No I/O.

A wire writes a plan as a request of one API and reads what comes back; `backends.http` sends and
receives. One `Exchange` is one request with its answer. Nothing is raised for what a server does
wrong: everything read before a fault is returned as deltas, and `fault` holds the fault.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from antiphon.models.facts import ModelInfo
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.protocol.long_body import LongBody

__all__ = ["Exchange", "Post", "Wire"]

Post = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Posts a JSON object to a path and returns the object of a 200 answer, otherwise {}.

The path is added to the base URL; one that begins with `~` to the base URL without its `/v1`.
"""


class Exchange(Protocol):
    """The request for one plan, and the reader of its answer."""

    @property
    def body(self) -> bytes | LongBody:
        """The request, until it is dropped."""
        ...

    @property
    def path(self) -> str:
        """Where to post it, added to the base URL."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What is sent with this request besides the headers of the wire, or in their place."""
        ...

    @property
    def degraded(self) -> Sequence[str]:
        """What the request cannot express of the plan."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether the model has begun to answer; its output may still be held back."""
        ...

    @property
    def fault(self) -> BackendError | None:
        """Why the answer cannot be read further."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete."""
        ...

    @property
    def has_stopped(self) -> bool:
        """Whether the model has stopped, so that only usage and the end mark can follow."""
        ...

    @property
    def is_about_to_end(self) -> bool:
        """Whether nothing more, or only usage and the end mark, is to be expected."""
        ...

    def drop_body(self) -> None:
        """Forget the request: the answer has begun, so it is not sent again."""
        ...

    def feed(self, data: bytes) -> Sequence[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        ...

    def end(self, error: BackendError | None = None) -> Sequence[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        ...

    def whole(self, body: bytes) -> Sequence[Delta]:
        """Return the deltas of an answer that was not streamed."""
        ...


class Wire(Protocol):
    """One API that model servers speak, with what is known about the server."""

    @property
    def capabilities(self) -> Capabilities:
        """What the server does by itself."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What is sent with each request, such as the version of the API."""
        ...

    @property
    def key_header(self) -> str:
        """Which header carries the key: "Authorization" (as a bearer token), "x-api-key" etc."""
        ...

    @property
    def models_path(self) -> str:
        """Where the server lists its models, added to the base URL."""
        ...

    def exchange(self, plan: Plan, max_line: int) -> Exchange:
        """Return the request for this plan. No line of its answer may be longer than that."""
        ...

    def refusal(
        self, status: int, body: bytes, retry_after: float | None, *, has_key: bool
    ) -> BackendError:
        """Return the error that an answer with this status stands for."""
        ...

    def read_models(self, body: bytes) -> tuple[Sequence[ModelInfo], str | None]:
        """Return a page of the list of models, and the path of the next page if there is one."""
        ...

    async def count(self, plan: Plan, post: Post) -> int | None:
        """Return the input tokens of this plan, or None if the server cannot count them.

        It awaits nothing but `post`: the code between two requests may run in another thread.
        """
        ...
