"""What must be true before a gateway may start, beside each setting being valid on its own.

A gateway that others can reach needs keys, and one without keys must not be open to every web
page. Several workers need a store that they can share.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings, how_to_install
from antiphon.gateway.places import using_store
from antiphon.server.issuers import has_library
from antiphon.server.origin import ANY_ORIGIN, is_origin
from antiphon.store.open import public_url
from antiphon.telemetry.open import NotInstalled, open_recorder

__all__ = [
    "check_issuers",
    "check_keyless",
    "check_origins",
    "check_telemetry",
    "check_workers",
    "has_valid_key",
]


def check_origins(settings: Settings) -> None:
    """Raise BadSettings for a bad origin, or if every web page could use a keyless gateway."""
    for origin in settings.allowed_origins:
        if origin == ANY_ORIGIN:
            if not settings.require_keys:
                raise BadSettings(
                    'allowed_origins = ["*"] lets every web page use this gateway; '
                    "set require_keys = true with it, or list the origins"
                )
        elif not is_origin(origin):
            raise BadSettings(
                f"allowed_origins: {origin!r} is not an origin; "
                "write it as browsers send it, such as http://localhost:3000"
            )


def check_workers(settings: Settings, store: str) -> None:
    """Raise BadSettings if several workers are asked for and cannot be."""
    if settings.workers == 1:
        return
    if sys.platform == "win32":
        raise BadSettings("--workers needs fork, which Windows does not have; leave it out there")
    if store.startswith("memory:"):
        raise BadSettings(
            "memory: cannot be shared by several workers; pass --store sqlite:PATH or --workers 1"
        )


def check_issuers(settings: Settings) -> None:
    """Raise BadSettings if the tokens of an issuer could not be checked, or give no project."""
    if settings.auth.issuers and not has_library():
        raise BadSettings(f"[[auth.issuers]] needs the extra oidc: {how_to_install('oidc')}")
    for one in settings.auth.issuers:
        where = f"[[auth.issuers]] {one.issuer}"
        if (one.project is None) == (one.project_claim is None):
            raise BadSettings(f"{where}: set project or project_claim, and not both")
        if not one.audience or not one.algorithms:
            raise BadSettings(f"{where}: audience and algorithms must not be empty")
        for url in (one.issuer, one.jwks_url or one.issuer):
            is_plain = one.allow_private and url.startswith("http://")
            if not url.startswith("https://") and not is_plain:
                raise BadSettings(
                    f"{where}: {url} must be an https URL (http only with allow_private = true)"
                )


def check_telemetry(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise BadSettings if telemetry is switched on in the settings, and cannot be sent."""
    try:
        open_recorder(settings.telemetry, environ)
    except NotInstalled as error:
        if settings.telemetry.enabled:
            raise BadSettings(str(error)) from None


async def has_valid_key(store: str) -> bool:
    """Return whether the store holds a key that is valid now.

    This opens the store and writes to it, so a store that is full or read-only is reported now.
    """
    now = time.time()
    async with using_store(store) as opened:
        await opened.ping()
        return any(
            key.revoked_at is None and (key.expires_at is None or now < key.expires_at)
            for key in await opened.list_keys()
        )


def check_keyless(settings: Settings, store: str, *, is_exposed: bool) -> None:
    """Raise BadSettings if a key is required; the store has none."""
    store = public_url(store)
    if store.startswith("memory:") and settings.require_keys:
        raise BadSettings(
            f"keys are required at {settings.host}, but memory: cannot keep keys; "
            "pass --store sqlite:PATH and create one with `antiphon keys create`"
        )
    if is_exposed:
        raise BadSettings(
            f"{settings.host} can be reached from other machines, and there are no keys in "
            f"{store}; create one with `antiphon keys create --store {store}`"
        )
