"""A real nginx or Caddy before a gateway, with the configuration of the page or a bare one.

Of the page's configuration only addresses and certificates are replaced.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.proxies.install import install

__all__ = ["PAGE", "Proxy", "bare", "from_page", "page_block", "run_proxy"]

PAGE: Final = Path(__file__).parents[2] / "docs/howto/proxy.md"
PATIENCE: Final = 60.0
_LANGUAGES: Final = {"nginx": "nginx", "caddy": "caddyfile"}
_NGINX: Final = """
daemon off;
master_process off;
error_log {folder}/error.log;
pid {folder}/nginx.pid;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""
_CADDY: Final = """
{{
    admin off
    default_bind 127.0.0.1
    auto_https disable_redirects
    storage file_system {folder}
}}
{server}
"""
_BARE: Final = {
    "nginx": "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {gateway}; }} }}",
    "caddy": "http://localhost:{port} {{\n reverse_proxy {gateway}\n}}",
}


class Proxy(msgspec.Struct, frozen=True):
    """A proxy that runs. `tls` knows its certificate, if it has one."""

    url: str
    tls: ssl.SSLContext | None = None


def page_block(name: str) -> str:
    """Return the configuration that the page shows for this proxy."""
    language = _LANGUAGES[name]
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)


@asynccontextmanager
async def from_page(name: str, gateway: str, folder: Path) -> AsyncIterator[Proxy]:
    """Run the proxy as the page says."""
    certificate, key = _make_certificate(folder)
    port = _free_port()
    gateway = gateway.removeprefix("http://")
    changes = {
        "127.0.0.1:4680": gateway,
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/ssl/gateway.example.pem": str(certificate),
        "/etc/ssl/gateway.example.key": str(key),
        "server_name gateway.example;": "server_name localhost;",
        "gateway.example {\n": f"https://localhost:{port} {{\n    tls {certificate} {key}\n",
    }
    server = page_block(name)
    for shown, real in changes.items():
        server = server.replace(shown, real)
    assert gateway in server, "the page names another address of the gateway"
    assert "gateway.example" not in server
    tls = ssl.create_default_context(cafile=str(certificate))
    async with run_proxy(name, server, port, folder):
        yield Proxy(f"https://localhost:{port}", tls)


@asynccontextmanager
async def bare(name: str, gateway: str, folder: Path) -> AsyncIterator[Proxy]:
    """Run the proxy with nothing but its one line that passes everything on."""
    port = _free_port()
    server = _BARE[name].format(port=port, gateway=gateway)
    async with run_proxy(name, server, port, folder):
        yield Proxy(f"http://localhost:{port}")


@asynccontextmanager
async def run_proxy(name: str, server: str, port: int, folder: Path) -> AsyncIterator[None]:
    """Run the proxy with this server in its configuration, until it is left."""
    whole = (_NGINX if name == "nginx" else _CADDY).format(folder=folder, server=server)
    config = folder / f"{name}.conf"
    config.write_text(whole)
    program = install(name)
    arguments = {
        "nginx": ("-e", str(folder / "error.log"), "-p", str(folder), "-c", str(config)),
        "caddy": ("run", "--adapter", "caddyfile", "--config", str(config)),
    }
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(program),
            *arguments[name],
            cwd=folder,
            env={"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            await _until_it_listens(process, port, log)
            yield
        finally:
            if process.returncode is None:
                process.kill()  # Caddy would wait for its clients
            async with asyncio.timeout(PATIENCE):
                await process.wait()


async def _until_it_listens(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if process.returncode is not None:
                raise RuntimeError(_words(log))
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


def _words(log: Path) -> str:
    return f"the proxy ended: {log.read_text()}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost that signs itself; return it and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "localhost.pem", folder / "localhost.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths
