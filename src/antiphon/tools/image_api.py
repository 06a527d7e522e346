"""How is an images upstream asked? OpenAI's Images API, whole answers and streams.

With partial images the answer is a stream of events; servers that do not stream answer with JSON
all the same, and that is taken too. An edit sends its image as a form. Nothing is fetched from
addresses: an image that is edited comes from a data URL of the conversation or from an image
that was made before.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.items import Item, item_type
from antiphon.protocol.sse import SseDecoder
from antiphon.transport.http import Exchange, HttpClient, Limits
from antiphon.transport.secret import Secret

__all__ = ["ImageFailed", "ImageWish", "ImagesUpstream", "InputImage", "find_image"]

_IMAGE_TYPE: Final = re.compile(r"image/[a-z0-9.+-]{1,40}")
_PARTIAL: Final = frozenset({"image_generation.partial_image", "image_edit.partial_image"})
_COMPLETED: Final = frozenset({"image_generation.completed", "image_edit.completed"})
_KEPT: Final = ("size", "quality", "background", "output_format", "revised_prompt")
_MAX_REASON: Final = 500


class ImageFailed(Exception):
    """The upstream made no image, for this reason. Caller and model read the text."""


class InputImage(msgspec.Struct, frozen=True):
    """An image of the conversation."""

    kind: str
    data: bytes


class ImageWish(msgspec.Struct, frozen=True, kw_only=True):
    """What to make. `fields` go to the upstream as they are."""

    prompt: str
    fields: Mapping[str, Any] = {}
    model: str | None = None
    partial_images: int = 0
    edits: InputImage | None = None
    input_fidelity: str | None = None


class ImagesUpstream:
    """One server with an Images API."""

    def __init__(
        self,
        base_url: str,
        key: Secret | None,
        *,
        model: str | None,
        response_format: str | None = None,
        seconds: float = 180.0,
        most_bytes: int = 32 * 1024 * 1024,
        proxies: bool = False,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._model = model
        self._response_format = response_format
        limits = Limits(
            connect=5.0, first_byte=seconds, idle=seconds, wall=seconds, body=most_bytes
        )
        self._client = HttpClient(key=key, limits=limits, proxies=proxies)

    def redact(self, text: str) -> str:
        """Return a text without the key."""
        return self._client.redact(text)

    async def make(self, wish: ImageWish) -> AsyncIterator[dict[str, Any]]:
        """Yield partial images and then the image, each with `is_partial`.

        Raise ImageFailed if the upstream made none, and BackendError if it cannot be reached.
        """
        path, body, headers = self._request(wish)
        exchange = await self._client.send(
            "POST", self._base_url + path, body=body, headers=headers
        )
        try:
            if exchange.head.status != 200:
                raise ImageFailed(self._reason(exchange.head.status, await self._whole(exchange)))
            if exchange.head.content_type == "text/event-stream":
                async for image in self._streamed(exchange):
                    yield image
            else:
                yield _final(_decoded(await self._whole(exchange)))
        finally:
            exchange.abort()

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    def _request(self, wish: ImageWish) -> tuple[str, bytes, dict[str, str]]:
        fields: dict[str, Any] = {"prompt": wish.prompt, "n": 1, **wish.fields}
        if model := self._model or wish.model:
            fields["model"] = model
        if self._response_format:
            fields["response_format"] = self._response_format
        if wish.partial_images:
            fields |= {"stream": True, "partial_images": wish.partial_images}
        if wish.edits is None:
            return "/images/generations", msgspec.json.encode(fields), {}
        if wish.input_fidelity:
            fields["input_fidelity"] = wish.input_fidelity
        # No text of a caller can contain it, and so none can add a field.
        boundary = secrets.token_hex(24)
        kind = f"multipart/form-data; boundary={boundary}"
        return "/images/edits", _form(fields, wish.edits, boundary), {"Content-Type": kind}

    async def _whole(self, exchange: Exchange) -> bytes:
        body = bytearray()
        while data := await exchange.read():
            body += data
            if len(body) > self._client.limits.body:
                raise ImageFailed("the answer of the images upstream is too long")
        return bytes(body)

    async def _streamed(self, exchange: Exchange) -> AsyncIterator[dict[str, Any]]:
        decoder = SseDecoder(self._client.limits.body)
        while data := await exchange.read():
            for frame in decoder.feed(data):
                if frame.data == b"[DONE]":
                    continue
                event = _decoded(frame.data)
                kind = event.get("type") or frame.event
                if kind in _PARTIAL:
                    yield _partial(event)
                elif kind in _COMPLETED:
                    yield _final({"data": [event], **event})
                    return
                elif kind == "error" or "error" in event:
                    raise ImageFailed(self._reason(None, frame.data))
        raise ImageFailed("the images upstream ended its stream without an image")

    def _reason(self, status: int | None, body: bytes) -> str:
        """Return what the upstream gives as its reason, without our key."""
        where = "the images upstream" + (f" answered HTTP {status}" if status else " failed")
        try:
            found = msgspec.json.decode(body)["error"]
            words = found["message"] if isinstance(found, dict) else found
        except (msgspec.DecodeError, KeyError, TypeError):
            words = None
        if not isinstance(words, str):
            return where
        return self.redact(f"{where}: {words[:_MAX_REASON]}")


def find_image(items: Sequence[Item]) -> InputImage | None:
    """Return the latest image of the conversation whose bytes are in it."""
    for item in reversed(items):
        if item_type(item) == "image_generation_call" and item.get("result"):
            kind = f"image/{item.get('output_format') or 'png'}"
            return _input(kind, str(item["result"]))
        for part in reversed(_parts(item)):
            url = part.get("image_url") if isinstance(part, dict) else None
            if isinstance(url, str) and url.startswith("data:image/") and ";base64," in url:
                head, _, data = url.partition(";base64,")
                return _input(head.removeprefix("data:"), data)
    return None


def _parts(item: Item) -> list[Any]:
    content = item.get("content") or item.get("output")
    return content if isinstance(content, list) else []


def _input(kind: str, data: str) -> InputImage | None:
    if not _IMAGE_TYPE.fullmatch(kind):
        return None
    try:
        return InputImage(kind, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ImageFailed("the images upstream did not answer with JSON")
    return found


def _partial(event: Mapping[str, Any]) -> dict[str, Any]:
    image = event.get("b64_json")
    if not isinstance(image, str):
        raise ImageFailed("a partial image of the images upstream has no data")
    kept = {name: event[name] for name in _KEPT[:4] if isinstance(event.get(name), str)}
    return {"is_partial": True, "partial_image_b64": image, **kept}


def _final(answer: Mapping[str, Any]) -> dict[str, Any]:
    data = answer.get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    image = first.get("b64_json")
    if not isinstance(image, str) or not image:
        hint = "; set response_format to b64_json for it" if first.get("url") else ""
        raise ImageFailed(f"the images upstream returned no image{hint}")
    kept = {**answer, **first}
    shown = {name: kept[name] for name in _KEPT if isinstance(kept.get(name), str)}
    return {"is_partial": False, "b64_json": image, "usage": answer.get("usage"), **shown}


def _form(fields: Mapping[str, Any], image: InputImage, boundary: str) -> bytes:
    """Return the fields and the image as a form."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()
        + (str(value).lower() if isinstance(value, bool) else str(value)).encode()
        for name, value in fields.items()
    ]
    ending = image.kind.rpartition("/")[2]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="image"; '
        f'filename="image.{ending}"\r\nContent-Type: {image.kind}\r\n\r\n'
    )
    parts.append(head.encode() + image.data)
    return b"\r\n".join([*parts, f"--{boundary}--\r\n".encode()])
