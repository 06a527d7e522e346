"""Requests that are wrong in every way we could think of: a 4xx with a name, never a 5xx.

What `tests/protocol/test_body.py`, `tests/protocol/test_request.py` and `tests/server/test_app.py`
prove is not repeated here.
"""

from __future__ import annotations

import asyncio
import io
import random
import tracemalloc
from typing import Any

import aiohttp
import msgspec
import pytest

from antiphon.protocol.body import decode_body
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse
from antiphon.testing import Script
from antiphon.testing.gateway import Gateway
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import PATIENCE, open_house
from tests.transport.raw import Connection, Request, raw_server, reply

WRONG: list[Any] = [
    *(True, 7, -1, 2**63 - 1, 1e308, "x", "", "\x00", [], {}, [7], [None], [[]], [{}], {"a": 7}),
    *({"type": None}, {"type": "x"}, [{"type": "function"}], [{"type": []}], None),
]
FIELDS = sorted(set(CreateResponse.__struct_encode_fields__) - {"$extra"})

KINDS = ["message", "function_call", "function_call_output", "reasoning", "compaction", "acme:x"]
SOUND: dict[str, dict[str, Any]] = {
    "message": {"role": "user", "content": "hi"},
    "function_call": {"call_id": "c", "name": "f", "arguments": "{}"},
    "function_call_output": {"call_id": "c", "output": "x"},
}
ITEM_FIELDS = ["id", "role", "content", "status", "call_id", "arguments", "output", "summary"]
PARTS = ["input_text", "output_text", "refusal", "input_image", "input_file", "acme", ""]
PART_FIELDS = ["text", "image_url", "file_id", "file_data", "filename", "refusal", "annotations"]


def check_error(status: int, error: dict[str, Any]) -> None:
    assert 400 <= status < 500 or status == 501, (status, error)
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] is not None


@pytest.mark.parametrize("field", FIELDS)
async def test_no_value_of_any_field_is_our_fault(field: str) -> None:
    async with open_house(Script(text="ok")) as house:
        for value in WRONG:
            answer = await ask(house.gateway, **{field: value})
            if answer.status == 200:
                continue
            check_error(answer.status, answer.error)
            if answer.error["code"] in ("invalid_type", "invalid_value"):
                assert str(answer.error["param"]).startswith(field), (value, answer.error)


async def test_no_item_is_our_fault() -> None:
    dice = random.Random(7)
    async with open_house(Script(text="ok")) as house:
        for _ in range(600):
            items = [_odd_item(dice) for _ in range(dice.randint(1, 4))]
            answer = await ask(house.gateway, input=items)
            if answer.status != 200:
                check_error(answer.status, answer.error)


def _odd_item(dice: random.Random) -> dict[str, Any]:
    kind = dice.choice(KINDS)
    item: dict[str, Any] = {"type": kind} | SOUND.get(kind, {})
    for _ in range(dice.randint(0, 2)):
        item[dice.choice(ITEM_FIELDS)] = dice.choice(WRONG)
    if dice.random() < 0.5:
        item["content"] = [_odd_part(dice) for _ in range(dice.randint(0, 3))]
    return item


def _odd_part(dice: random.Random) -> dict[str, Any]:
    return {"type": dice.choice(PARTS)} | {
        dice.choice(PART_FIELDS): dice.choice(WRONG) for _ in range(dice.randint(0, 3))
    }


async def test_a_part_we_do_not_know_may_hold_anything() -> None:
    part = {"type": "acme", "text": [1], "refusal": True}
    async with open_house(Script(text="ok")) as house:
        thought = await ask(house.gateway, input=[{"type": "reasoning", "content": [part]}])
        said = await ask(house.gateway, input=[{"role": "user", "content": [part]}])

    assert (thought.status, said.status) == (200, 200)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"input": NaN}', "invalid_json"),
        (b'{"input": "x", "temperature": Infinity}', "invalid_json"),
        (b'{"input": "x", "seed": 18446744073709551616}', "invalid_value"),
        (b'{"input": "x", "seed": -9223372036854775809}', "invalid_value"),
        (b'{"input": "\\ud83d"}', "invalid_json"),
        (b'{"input": "\xed\xa0\xbd"}', "invalid_json"),
        (b'{"input": "x", "metadata": {"a": "1", "a": "2"}}', "duplicate_field"),
        (b'{"input": ' + b"[" * 65 + b"]" * 65 + b"}", "too_deep"),
        (b'{"input": [' + b"1," * 100_000 + b"1]}", "too_many_values"),
        (b'{"input": "x"}{"input": "y"}', "invalid_json"),
        (b'{"input": "x"', "invalid_json"),
    ],
)
async def test_a_body_with_a_trap_in_it_is_refused_by_name(body: bytes, code: str) -> None:
    async with open_house() as house:
        answer = await request(house.gateway, "POST", "/responses", body)

    assert (answer.status, answer.error["code"]) == (400, code)
    assert house.upstream.requests == []


BOMBS = {
    "depth": b'{"input": ' + b"[" * 8_000_000,
    "lists": b'{"input": [' + b"[]," * 8_000_000 + b"[]]}",
    "objects": b'{"input": [' + b'{"a":1},' * 3_000_000 + b"1]}",
    "names": b'{"input": {' + b'"a":1,' * 4_000_000 + b'"a":1}}',
    "escapes": b'{"input": "' + b"\\u00e9" * 4_000_000 + b'", "input": ""}',
    "backslashes": b'{"input": "' + b"\\" * 1_000_000,
}
every_bomb = pytest.mark.parametrize("bomb", BOMBS.values(), ids=list(BOMBS))


@every_bomb
async def test_others_are_answered_while_a_bomb_is_read(bomb: bytes) -> None:
    async with open_house(Script(text="ok")) as house, aiohttp.ClientSession() as session:
        url = f"{house.gateway.base_url}/responses"
        exploding = asyncio.create_task(_post(session, url, bomb))
        while not exploding.done():
            async with asyncio.timeout(PATIENCE):
                assert (await ask(house.gateway)).status == 200

    assert exploding.result() == 400


async def _post(session: aiohttp.ClientSession, url: str, data: bytes) -> int:
    headers = {"Content-Type": "application/json"}
    async with session.post(url, data=io.BytesIO(data), headers=headers) as answer:
        return answer.status


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("depth", "too_deep"),
        ("lists", "too_many_values"),
        ("objects", "too_many_values"),
        ("names", "too_many_values"),
    ],
)
def test_too_many_values_are_refused_before_they_are_made(name: str, code: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest) as caught:
            decode_body(BOMBS[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert caught.value.code == code
    assert peak < 1_000_000


@pytest.mark.parametrize("size", [0, 300_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("rest", "is_fine"),
    [
        (b'"a": 1, "b": "a\\": 1"', True),
        (b'"a\\"": 1, "a": ":"', True),
        (b'"a\\\\" : 1, "a" : [",", "[", "{"]', True),
        (b'"a": {"a": {"a": 1}}', True),
        (b'"a": 1, "a"\n\t: 2', False),
        (b'"a\\"": 1, "a\\"": 2', False),
        (b'"a": 1, "\\u0061": 2', False),
        (b'"x": {"\\\\": 1, "\\\\": 2}', False),
    ],
)
def test_a_field_named_twice_is_found_at_any_size(rest: bytes, is_fine: bool, size: int) -> None:
    body = b'{"pad": "%b", %b}' % (b"x, [{" * (size // 5), rest)
    if is_fine:
        assert isinstance(decode_body(body), dict)
        return
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body)
    assert caught.value.code == "duplicate_field"


async def raw_status(gateway: Gateway, data: bytes) -> int:
    """Send bytes as they stand; return the status of the answer."""
    reader, writer = await asyncio.open_connection(*gateway.address)
    writer.write(data)
    try:
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
    finally:
        writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses/%00",
        "/v1/responses/%ED%A0%80",
        "/v1/responses/%ff%fe",
        "/v1/responses/%",
        "/v1/responses/..%2f..%2fetc",
        "/v1/responses/" + "a" * 20_000,
        "/v1/responses/{id}",
        "/v1/responses/x/input_items?after=%ED%A0%80",
        "/v1/models/%ED%A0%80",
        "//v1/responses",
        "http://evil/v1/nothing",
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "FOO"])
async def test_an_odd_path_leads_nowhere(method: str, path: str) -> None:
    async with open_house() as house:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        status = await raw_status(house.gateway, head.encode())

    assert 400 <= status < 500


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Authorization: Bearer ak_a_\xff", 401),
        (b"Authorization: Bearer \xff\xfe", 200),
        (b"Authorization: \xff", 200),
        (b"x-antiphon-dialect: \xff", 400),
        (b"x-antiphon-strict: \xff", 200),
        (b"x-request-id: \xff", 200),
        (b"Content-Encoding: \xff", 400),
        (b"Origin: http://[::1", 403),
        (b"Cookie: a=\x00", 400),
    ],
)
async def test_an_odd_header_is_never_our_fault(header: bytes, status: int) -> None:
    body = b'{"input":"x"}'
    head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n%b\r\n\r\n"
    async with open_house(Script(text="ok")) as house:
        assert await raw_status(house.gateway, head % (len(body), header) + body) == status


async def test_what_is_not_http_gets_an_error_in_the_shape_of_all_others() -> None:
    async with open_house() as house:
        reader, writer = await asyncio.open_connection(*house.gateway.address)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n")
        _, _, body = (await asyncio.wait_for(reader.read(), PATIENCE)).partition(b"\r\n\r\n")
        writer.close()

    error = msgspec.json.decode(body)["error"]
    check_error(400, error)
    assert error["code"] == "invalid_http"


async def test_a_pattern_that_would_run_for_ever_is_matched_in_time() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    text = '{"a": "' + "a" * 40 + '!"}'
    async with open_house(Script(text=[text])) as house:
        async with asyncio.timeout(PATIENCE):
            response = terminal(await ask_stream(house.gateway, text={"format": form}))

    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "output_format_violated"


async def test_a_schema_that_unfolds_into_millions_is_refused() -> None:
    tree: dict[str, Any] = {f"d{n}": {"items": [_ref(n + 1), _ref(n + 1)]} for n in range(30)}
    schema = {"$defs": tree | {"d30": {"type": "string"}}, **_ref(0)}
    tool = {"type": "function", "name": "f", "parameters": schema}
    async with open_house() as house, asyncio.timeout(PATIENCE):
        answer = await ask(house.gateway, tools=[tool])

    check_error(answer.status, answer.error)
    assert str(answer.error["param"]).startswith("tools[0].parameters")


def _ref(number: int) -> dict[str, str]:
    return {"$ref": f"#/$defs/d{number}"}


async def test_too_many_tools_are_refused() -> None:
    tools = [{"type": "function", "name": f"f{number}"} for number in range(129)]
    async with open_house() as house:
        answer = await ask(house.gateway, tools=tools)

    assert (answer.status, answer.error["param"]) == (400, "tools")


@pytest.mark.requirement("003-content-3", "003-content-limits-1")
async def test_a_callers_url_is_never_fetched_by_us() -> None:
    async def answer_anybody(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}"))

    async with raw_server(answer_anybody) as elsewhere, open_house(Script(text="ok")) as house:
        content = [
            {"type": "input_image", "image_url": f"{elsewhere.url}/secret.png"},
            {"type": "input_file", "file_url": f"{elsewhere.url}/secret.pdf"},
        ]
        schema = {"$ref": f"{elsewhere.url}/schema.json"}
        form = {"type": "json_schema", "name": "n", "schema": schema}
        await ask(house.gateway, input=[{"role": "user", "content": content}])
        await ask(house.gateway, text={"format": form})

    assert elsewhere.connections == 0
