"""Where do webhooks go? The `[[webhooks]]` of the settings, checked before anything starts.

A secret is read from the environment variable that the settings name, and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from antiphon.engine.keep.webhooks import Endpoint, is_signing_secret
from antiphon.gateway.config import Settings, Webhook
from antiphon.gateway.errors import BadSettings
from antiphon.transport.egress import is_public
from antiphon.transport.secret import Secret

__all__ = ["read_endpoints"]

_MAX_ENDPOINTS: Final = 16
_MAX_SECRETS: Final = 4


def read_endpoints(settings: Settings, environ: Mapping[str, str]) -> list[Endpoint]:
    """Return the endpoints, each with its secrets. Raise BadSettings if one cannot be used."""
    if len(settings.webhooks) > _MAX_ENDPOINTS:
        raise BadSettings(f"[[webhooks]]: at most {_MAX_ENDPOINTS} are allowed")
    endpoints = [_read(webhook, environ) for webhook in settings.webhooks]
    urls = [endpoint.url for endpoint in endpoints]
    for endpoint in endpoints:
        if urls.count(endpoint.url) > 1:
            raise BadSettings(
                f"[[webhooks]]: the url at {endpoint.origin} is listed twice; "
                "list all its events in one entry"
            )
    return endpoints


def _read(webhook: Webhook, environ: Mapping[str, str]) -> Endpoint:
    parts = _split(webhook.url)
    host = parts.hostname or ""
    if not webhook.allow_private and (host == "localhost" or _is_inner(host)):
        raise BadSettings(
            f"[[webhooks]] url: {host} is not a public address; "
            "set allow_private = true to allow it"
        )
    if not webhook.events:
        raise BadSettings("[[webhooks]] events is empty; leave it out to get all")
    return Endpoint(
        url=webhook.url,
        secrets=_read_secrets(webhook.secret_env, environ),
        events=webhook.events,
        allow_private=webhook.allow_private,
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or any(char.isspace() for char in url):
        # It is not repeated: a URL may hold a token.
        raise BadSettings("[[webhooks]] url must look like https://example.com/hook")
    if parts.username is not None:
        raise BadSettings("[[webhooks]] url must not hold a name or password; the secret signs")
    return parts


def _is_inner(host: str) -> bool:
    """Return whether the host is an address, and not a public one. Names are judged when used."""
    looks_like_address = ":" in host or host.replace(".", "").isdecimal()
    return looks_like_address and not is_public(host)


def _read_secrets(name: str, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    if not (name.isascii() and name.isidentifier()) or name.startswith("whsec_"):
        # It is not repeated here: it may be the secret itself.
        raise BadSettings(
            "[[webhooks]] secret_env: name the environment variable that holds the secret, "
            "not the secret"
        )
    found = environ.get(name, "").split()
    if not found:
        raise BadSettings(
            f"[[webhooks]] secret_env: the environment variable {name} is not set; "
            "`antiphon keys webhook` makes a secret for it"
        )
    if len(found) > _MAX_SECRETS or not all(map(is_signing_secret, found)):
        raise BadSettings(
            f"[[webhooks]] secret_env: {name} holds no secret as `antiphon keys webhook` makes one"
        )
    return tuple(map(Secret, found))
