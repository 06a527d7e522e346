"""How does the gateway speak TLS itself? The certificate of the settings, and its replacement.

Wrong files are refused before anything listens. `Certificates` holds the context in use: a new
connection takes the one that is there at its handshake, so replacing it ends no connection.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings

__all__ = ["Certificates", "read_certificate"]

_PROTOCOLS: Final = ["http/1.1"]


def read_certificate(settings: Settings) -> ssl.SSLContext | None:
    """Return a context with the certificate, or None without one. Raise BadSettings.

    Without `tls_key`, the key is in the file of the certificate.
    """
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise BadSettings("tls_key is set, and tls_cert is not: a key needs its certificate")
        return None
    certificate = _file(settings.tls_cert, "tls_cert")
    key = None if settings.tls_key is None else _file(settings.tls_key, "tls_key")
    context = _new_context()
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except ssl.SSLError as error:
        raise BadSettings(_explain(error, certificate, key)) from None
    except OSError as error:
        raise BadSettings(f"tls_cert or tls_key cannot be read: {error.strerror}") from None
    return context


class Certificates:
    """The certificate that new connections get, and which can be replaced at any time."""

    def __init__(self, first: ssl.SSLContext) -> None:
        self.current = first
        self.context = _new_context()
        """What a server listens with. It has no certificate of its own."""
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Give a connection the present certificate; OpenSSL asks at each handshake."""
        connection.context = self.current


def _new_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)  # TLS 1.2 and later
    context.set_alpn_protocols(_PROTOCOLS)
    return context


def _file(name: str, setting: str) -> Path:
    path = Path(name).expanduser()
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise BadSettings(f"{setting}: {name}: {reason}") from None


def _refuse_password() -> str:
    raise BadSettings("tls_key is encrypted; the gateway cannot ask for a password, so decrypt it")


def _explain(error: ssl.SSLError, certificate: Path, key: Path | None) -> str:
    """Return what is wrong with the files. OpenSSL has the same words for most mistakes."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"tls_key: {key or certificate} is not the key of the certificate {certificate}"
    if b"-----BEGIN CERTIFICATE-----" not in certificate.read_bytes():
        return f"tls_cert: {certificate} holds no certificate in PEM format"
    if b"PRIVATE KEY-----" not in (key or certificate).read_bytes():
        where = f"tls_key: {key}" if key else f"tls_key is not set, and {certificate}"
        return f"{where} holds no private key in PEM format"
    return f"tls_cert or tls_key: {certificate} cannot be used: {error.reason or error}"
