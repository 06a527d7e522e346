"""TLS of the gateway itself: real certificates, real clients, every way to ask."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import aiohttp
import openai
import pytest

from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.tls import read_certificate
from tests.cli.processes import command, serve
from tests.transport.certificates import Authority

_HOST = "127.0.0.1"
_LONG = "word " * 40_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.path))


def _split(pem: Path) -> tuple[Path, Path]:
    """Return the certificate and its key as two files."""
    text = pem.read_text()
    end = text.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----\n")
    certificate, key = pem.with_suffix(".crt"), pem.with_suffix(".key")
    certificate.write_text(text[:end])
    key.write_text(text[end:])
    return certificate, key


@pytest.mark.parametrize(
    "workers",
    [
        "1",
        pytest.param(
            "2", marks=pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
        ),
    ],
)
async def test_every_way_to_ask_works_over_tls(
    tmp_path: Path, authority: Authority, workers: str
) -> None:
    certificate, key = _split(authority.issue(_HOST))
    flags = ("--tls-cert", str(certificate), "--tls-key", str(key), "--workers", workers)
    trust = _trusting(authority)
    with serve(*flags, home=tmp_path) as served:
        assert served.base_url.startswith("https://")
        http = openai.DefaultAsyncHttpxClient(verify=trust)
        async with openai.AsyncOpenAI(
            base_url=served.base_url, api_key="none", http_client=http, max_retries=0
        ) as client:
            whole = await client.responses.create(model="echo", input="hi")
            assert whole.status == "completed"
            # More than all buffers hold, so that the server has to wait for the client.
            async with client.responses.stream(model="echo", input=_LONG) as stream:
                kinds = [event.type async for event in stream]
            assert kinds[-1] == "response.completed"
            assert (await client.responses.retrieve(whole.id)).id == whole.id
        await _ask_over_websocket(served.base_url, trust)
        assert served.stop() == 0


async def _ask_over_websocket(base_url: str, trust: ssl.SSLContext) -> None:
    url = f"{base_url.replace('https://', 'wss://')}/responses"
    connector = aiohttp.TCPConnector(ssl=trust)
    session = aiohttp.ClientSession(connector=connector)
    async with session, session.ws_connect(url) as socket:
        await socket.send_json({"type": "response.create", "model": "echo", "input": "hi"})
        async for message in socket:
            if message.json()["type"] == "response.completed":
                return
    raise AssertionError("the WebSocket ended without an answer")


async def test_a_client_that_does_not_trust_the_signer_is_not_answered(
    tmp_path: Path, authority: Authority
) -> None:
    files = authority.issue(_HOST)
    with serve("--tls-cert", str(files), home=tmp_path) as served:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(f"{served.base_url}/models")
            plain = served.base_url.replace("https://", "http://")
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"{plain}/models")
            trusted = await session.get(f"{served.base_url}/models", ssl=_trusting(authority))
            assert trusted.status == 200


def test_a_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(BadSettings, match="tls_cert is not"):
        read_certificate(Settings(tls_key="key.pem"))


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    certificate, _ = _split(authority.issue(_HOST, name="one"))
    _, key = _split(authority.issue(_HOST, name="other"))
    with pytest.raises(BadSettings, match=r"other\.key is not the key of the certificate"):
        read_certificate(Settings(tls_cert=str(certificate), tls_key=str(key)))


def test_a_certificate_without_its_key_is_refused(authority: Authority) -> None:
    certificate, key = _split(authority.issue(_HOST))
    with pytest.raises(BadSettings, match="tls_key is not set"):
        read_certificate(Settings(tls_cert=str(certificate)))
    with pytest.raises(BadSettings, match="holds no certificate"):
        read_certificate(Settings(tls_cert=str(key)))


def test_an_encrypted_key_is_refused_without_a_question(
    tmp_path: Path, authority: Authority
) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = _split(authority.issue(_HOST))
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hush"),
        )
    )
    with pytest.raises(BadSettings, match="tls_key is encrypted"):
        read_certificate(Settings(tls_cert=str(certificate), tls_key=str(locked)))


def test_a_file_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    found = command(
        "serve", "--tls-cert", "none.pem", "--upstream", "http://127.0.0.1:9/v1", home=tmp_path
    )
    assert found.returncode == 2
    assert "tls_cert: none.pem: no such file" in found.stderr
