"""Ways to upload and attach files in tests, through the official client and over raw sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import openai

from antiphon.server.auth import new_key
from antiphon.testing.gateway import Gateway
from tests.asking import Answer, request

__all__ = ["FORM", "form", "head_of", "key_of", "part", "post_form", "raw", "sdk_of", "upload"]

FORM = {"Content-Type": "multipart/form-data; boundary=X"}


async def key_of(gateway: Gateway, owner: str) -> str:
    """Return a new key of this owner."""
    secret, record = new_key(owner, int(time.time()))
    await gateway.store.add_key(record)
    return secret


async def sdk_of(gateway: Gateway, owner: str) -> openai.AsyncOpenAI:
    """Return the official client with a key of this owner."""
    key = await key_of(gateway, owner)
    return openai.AsyncOpenAI(base_url=gateway.base_url, api_key=key, max_retries=0)


def part(disposition: str, content: bytes, more: str = "") -> bytes:
    """Return one part of a form."""
    head = f"--X\r\nContent-Disposition: form-data; {disposition}\r\n{more}\r\n"
    return head.encode() + content + b"\r\n"


def form(
    content: bytes = b"hello",
    filename: str = "a.txt",
    purpose: str = "user_data",
    more: Mapping[str, str] | None = None,
) -> bytes:
    """Return a form with a file for POST /v1/files, and with more fields."""
    given = {"purpose": purpose, **(more or {})}
    parts = [part(f'name="{name}"', value.encode()) for name, value in given.items()]
    return b"".join([*parts, part(f'name="file"; filename="{filename}"', content), b"--X--\r\n"])


async def post_form(
    gateway: Gateway, key: str, body: bytes, path: str = "/files", **headers: str
) -> Answer:
    """Post a form as it stands."""
    sent = FORM | {"Authorization": f"Bearer {key}"} | headers
    return await request(gateway, "POST", path, body, sent)


async def upload(client: openai.AsyncOpenAI, content: bytes, name: str = "a.txt") -> str:
    """Store a file; return its id."""
    return (await client.files.create(file=(name, content), purpose="assistants")).id


async def raw(gateway: Gateway, head: str, body: bytes, *, hang_up: bool = False) -> bytes:
    """Send bytes over a socket of our own; return all that comes back until it is closed."""
    reader, writer = await asyncio.open_connection(*gateway.address)
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    await writer.drain()
    if hang_up:
        writer.close()
        await writer.wait_closed()
        return b""
    answer = await reader.read()
    writer.close()
    return answer


def head_of(gateway: Gateway, key: str, headers: Mapping[str, str]) -> str:
    """Return the head of a POST to /v1/files."""
    host = ":".join(map(str, gateway.address))
    given = {"Host": host, "Authorization": f"Bearer {key}", "Connection": "close", **headers}
    return "POST /v1/files HTTP/1.1\n" + "\n".join(f"{k}: {v}" for k, v in given.items())
