"""Requests that no client should send: made from valid ones, with a seeded random source.

`Maker.request` returns the bytes of a whole HTTP request, `Maker.frames` those of WebSocket
frames. Ids in paths and bodies are partly those of objects that exist, so that the damage gets
past the first lookup. Nothing here does I/O.
"""

from __future__ import annotations

import json
import random
import struct
from typing import Any, Final, NamedTuple

__all__ = ["UPGRADE", "Maker", "Request"]

_MODEL: Final = "echo"
_FUNCTION: Final = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    "strict": False,
}
_TURN: Final[dict[str, Any]] = {
    "model": _MODEL,
    "input": [
        {"role": "system", "content": "Be brief."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hello"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                {"type": "input_file", "filename": "a.txt", "file_data": "data:;base64,AAAA"},
            ],
        },
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
    ],
    "instructions": "Answer.",
    "tools": [_FUNCTION, {"type": "custom", "name": "note"}],
    "tool_choice": {"type": "function", "name": "look"},
    "text": {
        "format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}},
        "verbosity": "low",
    },
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "temperature": 0.5,
    "top_p": 0.9,
    "top_logprobs": 2,
    "max_output_tokens": 50,
    "max_tool_calls": 3,
    "parallel_tool_calls": True,
    "truncation": "auto",
    "service_tier": "auto",
    "store": True,
    "stream": False,
    "stream_options": {"include_obfuscation": False},
    "background": False,
    "user": "me",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
}
_CALL: Final = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_CHAT: Final[dict[str, Any]] = {
    "model": _MODEL,
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "hello"}]},
        {
            "role": "assistant",
            "content": "well",
            "refusal": None,
            "reasoning_content": "hm",
            "reasoning_details": [
                {"type": "reasoning.encrypted", "format": "antiphon-1", "data": "x", "index": 0}
            ],
            "tool_calls": [_CALL],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
        {"type": "custom", "custom": {"name": "g", "format": {"type": "text"}}},
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": {"type": "object"}},
    },
    "stream": True,
    "stream_options": {"include_usage": True},
    "logprobs": True,
    "top_logprobs": 2,
    "max_tokens": 50,
    "reasoning_effort": "low",
    "stop": ["x"],
    "n": 1,
    "store": True,
}
_CLAUDE: Final[dict[str, Any]] = {
    "model": _MODEL,
    "max_tokens": 50,
    "system": [{"type": "text", "text": "be brief"}],
    "messages": [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "well"},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "adaptive"},
    "stop_sequences": ["x"],
    "metadata": {"user_id": "u"},
    "stream": True,
}
_ITEMS: Final = {"items": [{"role": "user", "content": "hello"}]}
_ROUTES: Final[list[tuple[str, str, dict[str, Any] | None]]] = [
    ("POST", "/v1/responses", _TURN),
    ("POST", "/v1/chat/completions", _CHAT),
    ("POST", "/v1/messages", _CLAUDE),
    ("POST", "/v1/responses/compact", {"model": _MODEL, "input": _TURN["input"]}),
    ("POST", "/v1/responses/input_tokens", {"model": _MODEL, "input": _TURN["input"]}),
    ("POST", "/v1/messages/count_tokens", _CLAUDE),
    ("POST", "/v1/responses/{id}/cancel", {}),
    ("GET", "/v1/responses/{id}", None),
    ("GET", "/v1/responses/{id}?stream=true&starting_after=2", None),
    ("GET", "/v1/responses/{id}/input_items?limit=5&order=asc&after=msg_1", None),
    ("DELETE", "/v1/responses/{id}", None),
    ("POST", "/v1/conversations", {**_ITEMS, "metadata": {"a": "b"}}),
    ("POST", "/v1/conversations/{id}", {"metadata": {"a": "c"}}),
    ("POST", "/v1/conversations/{id}/items", _ITEMS),
    ("GET", "/v1/conversations/{id}", None),
    ("GET", "/v1/conversations/{id}/items?limit=5&order=desc", None),
    ("GET", "/v1/conversations/{id}/items/{id}", None),
    ("DELETE", "/v1/conversations/{id}/items/{id}", None),
    ("DELETE", "/v1/conversations/{id}", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/echo", None),
    ("GET", "/", None),
    ("GET", "/version", None),
    ("GET", "/healthz", None),
    ("GET", "/health", None),
    ("GET", "/readyz", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
]
_TURN_SHARE: Final = 0.5
_DOORS: Final = 3  # the first routes, which run turns
_METHODS: Final = [
    "PUT",
    "PATCH",
    "OPTIONS",
    "HEAD",
    "TRACE",
    "get",
    "PROPFIND",
    "P\x7fST",
    "X" * 300,
]
_ODD_VALUES: Final[list[Any]] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**40,
    -(10**400),
    0.1,
    -0.0,
    1e308,
    5e-324,
    "",
    "x",
    "\x00",
    "\ud800",
    "é\u202e\u2028",
    "😀" * 50,
    "x" * 5000,
    "null",
    "[" * 500,
    "{}",
    "call_1",
    "data:image/png;base64,%%%",
    "http://127.0.0.1:1/x",
    "file:///etc/passwd",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": ""},
    {"type": None},
    {"type": "message"},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "nonsense", "id": 7},
    {"$ref": "#"},
    {"type": "json_object"},
    {"type": "web_search"},
    {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:1/"},
    {"type": "input_text", "text": 5},
    {"__proto__": 1},
]
_MANY_PLACES: Final = 300
# What `json.dumps` cannot write.
_RAW_VALUES: Final = [
    b"NaN",
    b"Infinity",
    b"1e999",
    b"-",
    b"01",
    b"1.",
    b'"\\u12"',
    b"\xff",
    b"tru",
]
_HEADERS: Final = [
    b"Content-Type: text/plain",
    b"Content-Type: application/json; charset=utf-16",
    b"Content-Type: multipart/form-data; boundary=",
    b"Content-Encoding: gzip",
    b"Accept: text/event-stream",
    b"Accept: \xff\xfe;q=2",
    b"Authorization: Bearer \xff",
    b"Authorization: Basic Og==",
    b"Authorization:",
    b"Idempotency-Key: same",
    b"Idempotency-Key: " + b"k" * 5000,
    b"Idempotency-Key: \xf0\x9f",
    b"X-Stainless-Retry-Count: -1",
    b"X-Stainless-Retry-Count: 1",
    b"OpenAI-Beta: " + b"x" * 2000,
    b"Last-Event-ID: -5",
    b"Range: bytes=5-1",
    b"Expect: 100-continue",
    b"Expect: nonsense",
    b"Origin: null",
    b"Origin: http://127.0.0.1",
    b"Sec-Fetch-Site: cross-site",
    b"X-Forwarded-For: 1.2.3.4",
    b"Upgrade: h2c",
    b"Upgrade: websocket",
    b"Connection: upgrade",
    b"Connection: keep-alive, \x01",
    b"Cookie: " + b"a=b;" * 500,
    b"antiphon-dialect: nonsense",
    b"Host: evil.example",
    b"Content-Length: 3",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"No colon here",
    b" folded: line",
    b": empty",
    b"A\x00B: c",
]
UPGRADE: Final = (
    b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Request(NamedTuple):
    """The bytes of a request. A broken one may be waited on for more, so it gets little time."""

    data: bytes
    has_sound_frame: bool
    """Whether the server can tell where it ends."""
    is_head: bool = False


class Maker:
    """Makes damaged requests; the same ones for the same seed and the same ids."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.ids: list[str] = ["resp_1", "conv_1", "msg_1"]
        """Ids to use; the caller adds those that it saw."""

    def request(self) -> Request:
        """Return a damaged request for some route."""
        dice = self._dice
        if dice.random() < 0.01:
            return Request(dice.randbytes(dice.randrange(1, 400)) + b"\r\n\r\n", False)
        some = _ROUTES[:_DOORS] if dice.random() < _TURN_SHARE else _ROUTES
        chosen = dice.choice(some)
        method, path, body = chosen
        data = b"" if body is None else self.body(body)
        if dice.random() < 0.05:
            data = dice.randbytes(dice.randrange(200))
        if dice.random() < 0.05:
            method = dice.choice(_METHODS)
        path = self._path(path)
        headers, is_sound = self._headers(len(data))
        head = f"{method} {path} HTTP/1.1\r\n".encode("utf-8", "surrogateescape")
        return Request(head + headers + b"\r\n" + data, is_sound, method == "HEAD")

    def body(self, valid: dict[str, Any]) -> bytes:
        """Return a damaged JSON body."""
        dice = self._dice
        copy = _copy(valid)
        if len(copy) > 5:
            kept = ["model", "input", "messages", "max_tokens", *dice.sample(list(copy), 4)]
            kept += ["tools"] if "tool_choice" in kept else []
            copy = {name: value for name, value in copy.items() if name in kept}
        if isinstance(copy.get("input"), list):
            copy["input"] = dice.sample(copy["input"], dice.randrange(1, 4))
        for _ in range(dice.choice([0, 1, 1, 1, 2, 3, 6])):
            self._mutate(copy)
        if dice.random() < 0.02:
            copy = self._value()
        return self._damage(json.dumps(copy).encode("utf-8", "surrogatepass"))

    def _mutate(self, root: Any) -> None:
        """Change one place of a JSON value."""
        dice, places = self._dice, list(_places(root))
        if not places:
            return
        owner, key = dice.choice(places)
        match dice.randrange(8):
            case 0:
                del owner[key]
            case 1:
                owner[key] = self._nested()
            case 2 if len(places) < _MANY_PLACES:
                owner[key] = [_copy(owner[key]) for _ in range(dice.choice([1, 2, 50]))]
            case 3 if isinstance(owner, dict):
                owner[dice.choice(["id", "type", "x", "", "stream", "é", "role"])] = self._value()
            case 4 if isinstance(owner, dict):
                owner[dice.choice(["previous_response_id", "conversation", "id"])] = dice.choice(
                    self.ids
                )
            case 5:
                other, name = dice.choice(places)
                owner[key] = _copy(other[name])
            case _:
                owner[key] = self._value()

    def _value(self) -> Any:
        if self._dice.random() < 0.1:
            return self._dice.choice(self.ids)
        return _copy(self._dice.choice(_ODD_VALUES))

    def _nested(self) -> Any:
        """Return a value in so many lists or objects."""
        value: Any = "deep"
        for _ in range(self._dice.choice([5, 20, 60])):
            value = [value] if self._dice.random() < 0.5 else {"type": "object", "x": value}
        return value

    def _damage(self, data: bytes) -> bytes:
        """Break the JSON itself, of some bodies."""
        dice = self._dice
        spot = dice.randrange(len(data) + 1)
        match dice.randrange(24):
            case 0:
                return data[:spot]
            case 1:
                return data[:spot] + dice.randbytes(dice.randrange(1, 5)) + data[spot:]
            case 2:
                return data[:spot] + dice.choice(_RAW_VALUES) + data[spot:]
            case 3:
                return data.replace(b'"hello"', dice.choice(_RAW_VALUES))
            case 4:
                return b"[" * 20_000 if dice.random() < 0.1 else b'{"a":' * 2000 + data
            case 5:
                return dice.choice([b"\xef\xbb\xbf", b"\xff\xfe", b" ", b"\x00"]) + data
            case 6:
                return data + data
        return data

    def _path(self, path: str) -> str:
        dice = self._dice
        while "{id}" in path:
            path = path.replace("{id}", dice.choice(self.ids), 1)
        match dice.randrange(20):
            case 0:
                odd = ["//", "/../", "/%2e%2e/", "/%00", "/%ff", "?", "?limit=-1", "?limit=1e9"]
                return path + dice.choice(odd)
            case 1:
                name = dice.choice(
                    ["limit", "after", "order", "stream", "starting_after", "include"]
                )
                value = dice.choice(["", "x", "-1", "9" * 30, "%ff", "true", "a&a=b", "desc"])
                return f"{path}{'&' if '?' in path else '?'}{name}={value}"
            case 2:
                spot = dice.randrange(len(path))
                return path[:spot] + dice.choice(["\x01", "é", "%", "/", "x" * 3000]) + path[spot:]
        return path

    def _headers(self, size: int) -> tuple[bytes, bool]:
        """Return header lines, and whether the body has the length that they state."""
        dice = self._dice
        lines = [b"Host: 127.0.0.1", b"Content-Type: application/json"]
        lines.append(b"Content-Length: %d" % size)
        odd: list[bytes] = []
        while dice.random() < 0.12:
            odd.append(dice.choice(_HEADERS))
        if dice.random() < 0.01:
            odd.append(b"X-" + dice.randbytes(20).replace(b"\n", b"") + b": " + dice.randbytes(20))
        if dice.random() < 0.02:
            lines.pop(dice.randrange(len(lines)))
            odd = odd or [b"X: y"]
        dice.shuffle(lines)
        return b"\r\n".join([*lines, *odd]) + b"\r\n", not odd

    def frames(self) -> bytes:
        """Return a few WebSocket frames, most of them with a damaged message."""
        dice = self._dice
        made = b""
        for _ in range(dice.choice([1, 1, 2, 4])):
            message = self.body({"type": "response.create", **_TURN})
            if dice.random() < 0.1:
                message = dice.randbytes(dice.randrange(200))
            made += self._frame(message)
        return made

    def _frame(self, payload: bytes) -> bytes:
        dice = self._dice
        first = 0x81 if dice.random() < 0.8 else dice.randrange(256)
        masked = 0x80 if dice.random() < 0.97 else 0
        size = len(payload)
        if dice.random() < 0.03:
            size = dice.choice([0, 1, size + 7, 2**16, 2**31, 2**63])
        if size < 126 and size == len(payload):
            head = struct.pack("!BB", first, masked | size)
        elif size < 2**16:
            head = struct.pack("!BBH", first, masked | 126, size)
        else:
            head = struct.pack("!BBQ", first, masked | 127, size)
        # A mask of zeros changes nothing, and is allowed.
        return head + (bytes(4) if masked else b"") + payload


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return each place inside a JSON value, as its owner and its key."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        owner = waiting.pop()
        keys = list(owner) if isinstance(owner, dict) else range(len(owner))
        for key in keys:
            found.append((owner, key))
            if isinstance(owner[key], dict | list):
                waiting.append(owner[key])
    return found
