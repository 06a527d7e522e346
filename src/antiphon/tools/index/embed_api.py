"""How is an embeddings upstream asked? OpenAI's `POST /embeddings`, as every server speaks it.

The answer must have one vector for each text, all of the same length: anything else is a failure,
and never a vector in the wrong place. Servers return numbers, or base64 of float32.
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.models.prices import Price
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import Usage
from antiphon.tools.index.embed import EmbeddingFailed, Pay, not_paid, pack_vector
from antiphon.transport.aside import aside
from antiphon.transport.http import HttpClient, Limits
from antiphon.transport.secret import Secret
from antiphon.wires.chat.chunks import read_usage

__all__ = ["EmbeddingsUpstream"]

_MAX_BODY: Final = 64 * 1024 * 1024
_MAX_REASON: Final = 500
_MAY_PASS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_MAX_WAIT: Final = 60.0


class _Counted(msgspec.Struct):
    usage: Any = None


_decode_counted = msgspec.json.Decoder(_Counted).decode


class EmbeddingsUpstream:
    """One model of a server with an embeddings API."""

    def __init__(
        self,
        base_url: str,
        key: Secret | None,
        *,
        model: str,
        dimensions: int | None = None,
        batch: int = 32,
        seconds: float = 60.0,
        proxies: bool = False,
        price: Price | None = None,
    ) -> None:
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._model = model
        self._dimensions = dimensions
        self.batch = batch
        self.kind = f"api:{model}" + (f":{dimensions}" if dimensions else "")
        limits = Limits(connect=5.0, first_byte=seconds, idle=seconds, wall=seconds, body=_MAX_BODY)
        self._client = HttpClient(key=key, limits=limits, proxies=proxies)
        self._price = price
        self._pay: Pay = not_paid

    def pay_with(self, pay: Pay) -> None:
        """Charge each call in this way."""
        self._pay = pay

    async def embed(self, owner: str, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts."""
        body: dict[str, Any] = {"model": self._model, "input": list(texts)}
        body["encoding_format"] = "float"
        if self._dimensions:
            body["dimensions"] = self._dimensions
        answer = await self._post(owner, msgspec.json.encode(body))
        return await aside(_read_vectors, answer, len(texts))

    async def embed_query(self, owner: str, text: str) -> bytes:
        """Return the vector of a query."""
        (vector,) = await self.embed(owner, [text])
        return vector

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _post(self, owner: str, body: bytes) -> bytes:
        try:
            async with self._pay(owner, self._model, self._price, len(body)) as charge:
                reply = await self._client.fetch(
                    "POST", self._url, body=body, sending=charge.sending
                )
                if reply.head.status == 200:
                    charge.usage, charge.is_whole = _read_usage(reply.body), True
        except BackendError as error:
            reason = self._client.redact(str(error))
            raise EmbeddingFailed(f"the embeddings upstream: {reason}", may_pass=True) from None
        status = reply.head.status
        if status != 200:
            reason, wait = self._reason(status, reply.body), _wait_of(reply.head.headers)
            raise EmbeddingFailed(reason, may_pass=status in _MAY_PASS, wait=wait)
        return reply.body

    def _reason(self, status: int, body: bytes) -> str:
        """Return what the upstream gives as its reason, without our key."""
        words: Any = None
        try:
            found = msgspec.json.decode(body)["error"]
            words = found["message"] if isinstance(found, dict) else found
        except (msgspec.DecodeError, KeyError, TypeError):
            pass
        where = f"the embeddings upstream answered HTTP {status}"
        if not isinstance(words, str):
            return where
        return self._client.redact(f"{where}: {words[:_MAX_REASON]}")


def _read_usage(answer: bytes) -> Usage | None:
    """Return what the upstream reports, if it does."""
    try:
        usage = _decode_counted(answer).usage
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return read_usage(usage) if isinstance(usage, dict) else None


def _wait_of(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return min(float(value), _MAX_WAIT) if value.isdecimal() else None


def _read_vectors(answer: bytes, count: int) -> list[bytes]:
    """Return the vectors in the order of their texts. Raise EmbeddingFailed if one is missing."""
    try:
        data = msgspec.json.decode(answer)["data"]
        found = {one.get("index", at): one["embedding"] for at, one in enumerate(data)}
        vectors = [pack_vector(_numbers(found[at])) for at in range(count)]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError, binascii.Error):
        raise EmbeddingFailed("the embeddings upstream did not answer with embeddings") from None
    if len(found) != count or len({len(vector) for vector in vectors}) > 1:
        raise EmbeddingFailed("the embeddings upstream returned another number of embeddings")
    return vectors


def _numbers(value: Any) -> Sequence[float]:
    if isinstance(value, str):
        packed = array("f", base64.b64decode(value, validate=True))
        if sys.byteorder == "big":
            packed.byteswap()
        return packed
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        raise TypeError
    return value
