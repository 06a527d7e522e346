"""What went wrong, as a sentence for a user, and what the user can do about it.

One table from the errors of client and host to the codes of the protocol. The first row whose
class fits decides. The server's own words follow ours where they help. Keys are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from antiphon.client import errors as client
from antiphon.host import errors as host
from antiphon.protocol.errors import AntiphonError
from antiphon.wires.host.messages import ErrorCode, Fault

__all__ = ["CANCELLED", "EmptyAnswer", "fault_of"]

CANCELLED: Final = Fault(code="cancelled", message="The request was cancelled.")

_AGAIN: Final = "Ask again."
_REPORT: Final = "Report this to the operator of the server."


class EmptyAnswer(host.HostError):
    """The model ended its answer without text, call or data: there is nothing to show."""

    code = "empty_answer"

    def __init__(self, reason: str | None, *, has_thought: bool) -> None:
        what = "only reasoning, and no text or tool call" if has_thought else "no output"
        cut = f"; it was stopped early: {reason}" if reason else ""
        super().__init__(f"the model returned {what}{cut}")


class _Row(NamedTuple):
    error: type[BaseException]
    code: ErrorCode
    lead: str
    """What we say; the error's own words follow. Without it, they stand alone."""
    action: str


_SHORTEN: Final = "Shorten the conversation, remove attachments, or start a new one."
_KEY: Final = "Set the key of the server, and check that it may be used for this model."
_START: Final = "Start the gateway with `antiphon serve`, or correct the URL of the server."

_TABLE: Final = (
    _Row(host.TurnCancelled, "cancelled", "", ""),
    _Row(EmptyAnswer, "empty_answer", "", "Ask again, or allow more output tokens."),
    _Row(host.UnsupportedContent, "unsupported_content", "", "Remove this attachment."),
    _Row(host.StreamCut, "stream_cut", "", _AGAIN),
    _Row(host.MalformedCall, "malformed_call", "", _AGAIN),
    _Row(host.ChangedCall, "changed_call", "", "Check what the tool did, and ask again."),
    _Row(host.DamagedText, "damaged_text", "", _AGAIN),
    _Row(host.ResponseFailed, "response_failed", "The response failed", _AGAIN),
    _Row(client.TooManyTools, "bad_request", "", "Enable fewer tools."),
    _Row(client.BadCall, "bad_request", "The request cannot be sent", ""),
    _Row(client.ContextTooLong, "context_too_long", "The conversation is too long", _SHORTEN),
    _Row(client.ValidationFailed, "bad_request", "", ""),
    _Row(client.QuotaExceeded, "quota_exceeded", "No credit is left", "Add credit at the server."),
    _Row(client.RateLimited, "rate_limited", "There are too many requests", "Wait, and ask again."),
    _Row(client.AuthFailed, "auth_failed", "The server does not accept the key", _KEY),
    _Row(client.ResourceNotFound, "not_found", "", "Choose another model, or check the URL."),
    _Row(client.ThreadGone, "not_found", "The server has lost the conversation", _AGAIN),
    _Row(client.Conflict, "bad_request", "", "Wait for the other answer, and ask again."),
    _Row(client.ServerRefused, "bad_request", "", ""),
    _Row(client.ServerFailed, "server_failed", "", f"Ask again; if that fails too: {_REPORT}"),
    _Row(client.ServerUnreachable, "unreachable", "The server cannot be reached", _START),
    _Row(client.TimedOut, "timed_out", "The server does not answer", "Ask again later."),
    _Row(client.InvalidAnswer, "invalid_answer", "", "Check that the URL is that of a /v1 API."),
    _Row(client.StreamBroken, "stream_cut", "The answer broke off", _AGAIN),
    _Row(client.InvalidArguments, "malformed_call", "", _AGAIN),
)
_BUG: Final = _Row(Exception, "internal", "The bridge has failed", "Show the log, and report this.")

# The reasons of a response that the server itself ended as failed.
_BLOCKED: Final = frozenset({"content_filter", "content_policy_violation", "safety"})
_FAILURES: Final[dict[str, type[BaseException]]] = {
    "context_length_exceeded": client.ContextTooLong,
    "insufficient_quota": client.QuotaExceeded,
    "rate_limit_exceeded": client.RateLimited,
    "invalid_api_key": client.AuthFailed,
}


def fault_of(error: BaseException, redact: Callable[[str], str] = str) -> Fault:
    """Return the error as the asker gets it. `redact` removes the key."""
    if isinstance(error, host.ResponseFailed) and error.code in _BLOCKED:
        return Fault(
            code="blocked",
            message=_sentence(_join("The answer was blocked", redact(error.message))),
            action="Ask in other words.",
        )
    row = _row_of(error)
    words = error.message if isinstance(error, AntiphonError) else str(error)
    if row is _BUG:
        words = type(error).__name__  # its message may hold anything
    failed = error if isinstance(error, client.ClientError) else None
    return Fault(
        code=row.code,
        message=_sentence(_join(row.lead, redact(words))),
        action=row.action,
        status=failed.status if failed else 0,
        retry_after=failed.retry_after if failed else None,
    )


def _row_of(error: BaseException) -> _Row:
    kind = type(error)
    if isinstance(error, host.ResponseFailed):
        kind = _FAILURES.get(error.code or "", kind)
    return next((row for row in _TABLE if issubclass(kind, row.error)), _BUG)


def _join(lead: str, words: str) -> str:
    return ": ".join(filter(None, (lead, words)))


def _sentence(words: str) -> str:
    """Return the words as one line that begins and ends as a sentence."""
    line = " ".join(words.split())
    end = "" if line.endswith((".", "!", "?")) else "."
    return line[:1].upper() + line[1:] + end
