"""Which keys seal what callers carry for us? They come from the environment alone."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.engine.prepare.seal import can_seal, read_keys
from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings, how_to_install

__all__ = ["read_seal_keys"]


def read_seal_keys(settings: Settings, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the keys that are set, the one that seals first; none: the store keeps one.

    Raise BadSettings for what is no key, or if keys are set and nothing can be sealed.
    """
    name = settings.seal_keys_env
    if not (name.isascii() and name.isidentifier()):
        # It is not repeated here: it may be a key itself.
        raise BadSettings("seal_keys_env: name the environment variable that holds the keys")
    text = environ.get(name, "").strip()
    if not text:
        return ()
    if not can_seal():
        raise BadSettings(f"{name} is set, but nothing can be sealed: {how_to_install('seal')}")
    try:
        return tuple(read_keys(text))
    except ValueError as error:
        raise BadSettings(f"{name}: {error}; `antiphon keys seal` makes one") from None
