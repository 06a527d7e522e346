"""Errors on the wire: raised anywhere, translated here and nowhere else."""

from __future__ import annotations

import logging
import math

import msgspec
from aiohttp import web

from antiphon.protocol.errors import AntiphonError, OurFault, ResponseDeleted

__all__ = ["error_response", "translate"]

_log = logging.getLogger(__name__)


def translate(error: Exception) -> AntiphonError:
    """Return the error to show. An unexpected error is logged and reported as ours."""
    if isinstance(error, AntiphonError):
        return error
    _log.error("a request broke", exc_info=error)
    return OurFault("the gateway broke; this is our fault, and it is in the log")


def error_response(error: AntiphonError) -> web.Response:
    """Return the error in OpenAI's shape, with its status and headers."""
    body = {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }
    response = web.Response(
        status=error.status, body=msgspec.json.encode(body), content_type="application/json"
    )
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if error.status < 500 and error.status not in (408, 409, 429):
        response.headers["x-should-retry"] = "false"
    elif error.status == 409:
        is_passing = not isinstance(error, ResponseDeleted)
        response.headers["x-should-retry"] = "true" if is_passing else "false"
    return response
