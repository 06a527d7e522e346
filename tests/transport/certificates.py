"""Certificates for tests: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority"]

_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates for servers. `path` is the file that makes a client trust it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("An authority for tests")
        self.path = folder / "authority.pem"
        certificate = self._sign(self._name, self._key, _NOW + _DAY, [])
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server_context(self, *hosts: str, is_expired: bool = False) -> ssl.SSLContext:
        """Return the settings of a server with a certificate for these hosts."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.issue(*hosts, is_expired=is_expired))
        return context

    def issue(self, *hosts: str, is_expired: bool = False, name: str = "server") -> Path:
        """Return a file with a certificate for these hosts and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for host in hosts:
            is_address = host.replace(".", "").isdigit() or ":" in host
            address = x509.IPAddress(ipaddress.ip_address(host)) if is_address else None
            names.append(address or x509.DNSName(host))
        end = _NOW - _DAY if is_expired else _NOW + _DAY
        certificate = self._sign(_name(hosts[0]), key, end, names)
        path = self._folder / f"{name}.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        end: datetime.datetime,
        hosts: list[x509.GeneralName],
    ) -> x509.Certificate:
        built = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(end - 9 * _DAY)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
            # Python 3.13 and later accept no chain without these two and the use of the key.
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            built = built.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        else:
            built = built.add_extension(_SIGNS_CERTIFICATES, critical=True)
        return built.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
