"""Is this the base URL of a server? The error for a wrong one shows what to write."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from antiphon.gateway.errors import BadSettings

__all__ = ["EXAMPLE", "read_base_url", "read_server_url"]

EXAMPLE: Final = "http://127.0.0.1:11434/v1"
_ENDPOINTS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/models")


def read_base_url(text: str, what: str, like: str = EXAMPLE) -> str:
    """Return the URL without its last slash. Raise BadSettings if it cannot be a base URL.

    `what` is the flag or key that it came from. `like` is a base URL of the same API: a host alone
    will do only if that has no path.
    """
    example = f"a base URL looks like {like}"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise BadSettings(f"{what}: {text!r} is not a URL; {example}") from None
    if parts.scheme not in ("http", "https"):
        raise BadSettings(f"{what}: {text!r} does not begin with http:// or https://; {example}")
    if not parts.hostname or port == 0 or any(char.isspace() for char in text.strip()):
        raise BadSettings(f"{what}: {text!r} does not name a server; {example}")
    if parts.username or parts.password:
        raise BadSettings(f"{what} must not hold a password; name the variable with the key")
    if parts.query or parts.fragment:
        raise BadSettings(f"{what}: leave out what follows the path of {text!r}; {example}")
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        if path.endswith(endpoint):
            raise BadSettings(f"{what}: leave {endpoint} out of {text!r}; {example}")
    usual = urlsplit(like).path
    if usual and not path:
        raise BadSettings(
            f"{what}: {text!r} has no path; did you mean {parts.scheme}://{parts.netloc}{usual}?"
        )
    return f"{parts.scheme}://{parts.netloc}{path}"


def read_server_url(text: str, what: str) -> str:
    """Return the base URL of a Responses server; /v1 is added where no path is given."""
    text = text.strip()
    scheme, separator, place = text.partition("://")
    if separator and "/" not in place.rstrip("/"):
        text = f"{scheme}://{place.rstrip('/')}/v1"
    return read_base_url(text, what)
