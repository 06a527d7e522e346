"""Errors on the wire: raised anywhere, translated here and nowhere else.

Each door has a body of its own for an error; the route of a request says which. Status and
headers are the same everywhere.
"""

from __future__ import annotations

import logging
import math

from aiohttp import web

from antiphon.protocol.errors import AntiphonError, LimitReached, OurFault, ResponseDeleted
from antiphon.wires.door import ErrorWriter, openai_error

__all__ = ["error_response", "translate"]

_log = logging.getLogger(__name__)


def translate(error: Exception) -> AntiphonError:
    """Return the error to show. An unexpected error is logged and reported as ours."""
    if isinstance(error, AntiphonError):
        return error
    _log.error("a request broke", exc_info=error)
    return OurFault("the gateway broke; this is our fault, and it is in the log")


def error_response(
    error: AntiphonError, write: ErrorWriter = openai_error, request_id: str = ""
) -> web.Response:
    """Return the error with its status and headers, and with the body of the route's door."""
    body = write(error, request_id)
    response = web.Response(status=error.status, body=body, content_type="application/json")
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if error.status < 500 and error.status not in (408, 409, 429):
        response.headers["x-should-retry"] = "false"
    elif isinstance(error, LimitReached):
        response.headers.update(error.headers)
    elif error.status == 409:
        is_passing = not isinstance(error, ResponseDeleted)
        response.headers["x-should-retry"] = "true" if is_passing else "false"
    return response
