"""Web search: one session against real HTTP providers and a real site, all on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.tools.base import Decline, Outcome, ToolFailed
from antiphon.tools.web.formats import FORMATS
from antiphon.tools.web.search import WebSearch
from tests.tools.web.sessions import begin, call, make_runner
from tests.web import KEY, Failure, LoopbackWeb, loopback_web

_PROVIDERS = sorted(FORMATS)


@pytest.fixture
async def web() -> AsyncIterator[LoopbackWeb]:
    async with loopback_web() as running:
        yield running


@pytest.fixture
async def runner(web: LoopbackWeb) -> AsyncIterator[WebSearch]:
    made = make_runner(web)
    yield made
    await made.close()


def _text(outcome: Outcome | Decline) -> str:
    assert isinstance(outcome.result, str)
    return outcome.result


def _item(outcome: Outcome | Decline) -> dict[str, object]:
    assert isinstance(outcome, Outcome)
    return outcome.item


# Searching.


@pytest.mark.parametrize("provider", _PROVIDERS)
async def test_every_provider_finds_the_page_and_shows_it_with_a_mark(
    provider: str, web: LoopbackWeb
) -> None:
    runner = make_runner(web, provider)
    outcome = await call(await begin(runner), "web_search", query="severn  tidal range")
    await runner.close()
    address = f"{web.url}/tides"
    assert _text(outcome).startswith("【1】 Tides of the Severn")
    assert address in _text(outcome)
    assert "fifteen" in _text(outcome)
    assert "<strong>" not in _text(outcome)
    item = _item(outcome)
    assert item["status"] == "completed"
    action = item["action"]
    assert isinstance(action, dict)
    assert (action["type"], action["query"]) == ("search", "severn tidal range")
    assert action["queries"] == ["severn tidal range"]
    assert action["sources"][0] == {"type": "url", "url": address}


@pytest.mark.parametrize("provider", _PROVIDERS)
@pytest.mark.parametrize(
    "failure", ["401", "429", "500", "html", "json list", "no results", "reset"]
)
async def test_a_failed_search_fails_and_is_not_empty(
    provider: str, failure: Failure, web: LoopbackWeb
) -> None:
    web.failure = failure
    runner = make_runner(web, provider)
    session = await begin(runner)
    if provider == "brave" and failure == "no results":
        # Brave leaves `web` out when it searched and found no pages.
        outcome = await call(session, "web_search", query="tides")
        assert _text(outcome) == "No results."
    else:
        with pytest.raises(ToolFailed) as caught:
            await call(session, "web_search", query="tides")
        assert KEY not in str(caught.value)
        assert "search provider" in str(caught.value)
    await runner.close()


async def test_a_provider_that_hangs_fails_in_time(web: LoopbackWeb) -> None:
    web.failure = "hang"
    runner = make_runner(web, seconds=0.2)
    with pytest.raises(ToolFailed, match="did not answer in time"):
        await call(await begin(runner), "web_search", query="tides")
    await runner.close()


async def test_engines_that_all_failed_are_a_failure(web: LoopbackWeb) -> None:
    runner = make_runner(web, "searxng")
    with pytest.raises(ToolFailed, match="none of the search engines answered"):
        await call(await begin(runner), "web_search", query="zzz")
    await runner.close()


async def test_nothing_found_is_completed_with_no_sources(
    web: LoopbackWeb, runner: WebSearch
) -> None:
    outcome = await call(await begin(runner), "web_search", query="zzz")
    assert _text(outcome) == "No results."
    action = _item(outcome)["action"]
    assert isinstance(action, dict)
    assert action["sources"] == []


@pytest.mark.parametrize("provider", _PROVIDERS)
async def test_domains_are_enforced_whatever_the_provider_returns(
    provider: str, web: LoopbackWeb
) -> None:
    web.extra = [
        ("https://docs.good.example/a", "Sub", "tides"),
        ("https://good.example/b", "Good", "tides"),
        ("https://evilgood.example/c", "Evil", "tides"),
        ("https://good.example.evil.example/d", "Evil", "tides"),
        ("https://good.example@evil.example/e", "Evil", "tides"),
        ("https://evil.example/?good.example", "Evil", "tides"),
        ("javascript:alert(1)", "Evil", "tides"),
        ("https://good.example/b", "Twice", "tides"),
    ]
    runner = make_runner(web, provider)
    tool = {"filters": {"allowed_domains": ["https://Good.example/path"]}}
    outcome = await call(await begin(runner, tool), "web_search", query="tides")
    await runner.close()
    action = _item(outcome)["action"]
    assert isinstance(action, dict)
    assert [source["url"] for source in action["sources"]] == [
        "https://docs.good.example/a",
        "https://good.example/b",
    ]
    assert "Evil" not in _text(outcome)
    asked = web.asked[0]
    told = asked.get("include_domains") or asked.get("includeDomains") or asked["q"]
    assert "good.example" in told


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "name": "web_search", "allowed_domains": ["good.example"]},
        {"type": "web_search", "name": "web_search", "blocked_domains": ["127.0.0.1"]},
        {"type": "web_search", "filters": {"blocked_domains": ["127.0.0.1"]}},
    ],
)
async def test_domains_are_enforced_as_the_messages_api_writes_them(
    tool: dict[str, Any], web: LoopbackWeb
) -> None:
    runner = make_runner(web, open_pages="any")
    session = await begin(runner, tool)
    assert session.degraded == []
    outcome = await call(session, "web_search", query="severn")
    assert web.url not in _text(outcome)
    with pytest.raises(ToolFailed, match="outside the domains"):
        await call(session, "open_page", url=f"{web.url}/tides")
    await runner.close()


async def test_all_results_outside_the_domains_are_reported_as_such(web: LoopbackWeb) -> None:
    runner = make_runner(web)
    tool = {"filters": {"allowed_domains": ["other.example"]}}
    outcome = await call(await begin(runner, tool), "web_search", query="tides")
    await runner.close()
    assert _text(outcome) == "No results in the allowed domains."


async def test_searches_beyond_max_uses_are_not_made(web: LoopbackWeb, runner: WebSearch) -> None:
    session = await begin(runner, {"max_uses": 2})
    for _ in range(2):
        assert isinstance(await call(session, "web_search", query="tides"), Outcome)
    over = await call(session, "web_search", query="tides")
    assert isinstance(over, Decline)
    assert "max_uses_exceeded" in over.result
    assert len(web.asked) == 2
    # Pages are no searches.
    assert isinstance(await call(session, "open_page", url=f"{web.url}/tides"), Outcome)


@pytest.mark.parametrize("value", [0, -1, "3", True, 1.5])
async def test_a_wrong_max_uses_is_refused(value: object, runner: WebSearch) -> None:
    with pytest.raises(InvalidRequest, match="max_uses"):
        await begin(runner, {"max_uses": value})


async def test_location_goes_to_provider_and_model(web: LoopbackWeb, runner: WebSearch) -> None:
    where = {"type": "approximate", "city": "Bristol", "country": "gb", "timezone": "Europe/London"}
    session = await begin(runner, {"user_location": where})
    functions = [one async for one in session.prepare()]
    assert "Bristol, gb, Europe/London" in functions[0].description  # type: ignore[union-attr]
    await call(session, "web_search", query="tides")
    assert web.asked[0]["country"] == "GB"
    assert web.headers[0]["x-loc-city"] == "Bristol"
    assert session.degraded == []


@pytest.mark.parametrize(("size", "count"), [("low", 4), (None, 8), ("medium", 8), ("high", 12)])
async def test_context_size_decides_how_much_is_shown(
    size: str | None, count: int, web: LoopbackWeb, runner: WebSearch
) -> None:
    web.extra = [(f"https://x.example/{n}", f"T{n}", "w" * 5000) for n in range(20)]
    tool = {"search_context_size": size}
    text = _text(await call(await begin(runner, tool), "web_search", query="tides"))
    assert text.count("https://x.example/") == count
    assert len(text) < count * 1700


async def test_marks_in_foreign_texts_are_no_marks(web: LoopbackWeb, runner: WebSearch) -> None:
    web.extra = [("https://x.example/", "Title 【7】", "quote 【8】")]
    text = _text(await call(await begin(runner), "web_search", query="tides"))
    assert "【7】" not in text
    assert "【8】" not in text
    assert "Title [7]" in text


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": 3}, {"q": "x"}])
async def test_wrong_arguments_are_declined(
    arguments: dict[str, object], runner: WebSearch
) -> None:
    outcome = await call(await begin(runner), "web_search", **arguments)
    assert isinstance(outcome, Decline)
    assert outcome.result == "error: web_search needs a JSON object with a query"


# The tool in the request.


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"filters": 3}, "tools[0].filters"),
        ({"filters": {"allowed_domains": "x"}}, "tools[0].filters.allowed_domains"),
        ({"filters": {"allowed_domains": [3]}}, "tools[0].filters.allowed_domains"),
        ({"filters": {"allowed_domains": [""]}}, "tools[0].filters.allowed_domains"),
        ({"filters": {"allowed_domains": ["a.b"] * 101}}, "tools[0].filters.allowed_domains"),
        ({"search_context_size": "huge"}, "tools[0].search_context_size"),
        ({"allowed_domains": "x"}, "tools[0].allowed_domains"),
        ({"filters": {"blocked_domains": 5}}, "tools[0].filters.blocked_domains"),
        (
            {"blocked_domains": ["a.b"], "filters": {"blocked_domains": ["a.b"]}},
            "tools[0].filters.blocked_domains",
        ),
        ({"search_content_types": 5}, "tools[0].search_content_types"),
        ({"search_content_types": "image"}, "tools[0].search_content_types"),
        ({"user_location": "here"}, "tools[0].user_location"),
        ({"user_location": {"city": "a\nb"}}, "tools[0].user_location.city"),
    ],
)
async def test_wrong_tools_are_refused(
    tool: dict[str, object], param: str, runner: WebSearch
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await begin(runner, tool)
    assert caught.value.param == param


async def test_a_search_without_the_web_is_left_out_and_reported(runner: WebSearch) -> None:
    session = await begin(runner, {"external_web_access": False})
    assert [one async for one in session.prepare()] == []
    assert session.degraded == [
        "tools[0].external_web_access: there is no stored copy of the web here, so the tool is "
        "left out"
    ]


async def test_what_is_not_honoured_is_reported(runner: WebSearch) -> None:
    tool = {
        "type": "web_search_preview",
        "search_content_types": ["text", "image"],
        "filters": {"novel_domains": ["a.example"]},
        "novelty": 1,
    }
    session = await begin(runner, tool)
    assert session.degraded == [
        "tools[0].novelty",
        "tools[0].filters.novel_domains",
        "tools[0].search_content_types (image): only texts are searched here",
    ]


# Pages.


async def test_a_result_can_be_opened_and_searched(web: LoopbackWeb, runner: WebSearch) -> None:
    session = await begin(runner)
    await call(session, "web_search", query="severn")
    opened = await call(session, "open_page", url=f"{web.url}/tides#top")
    text = _text(opened)
    assert text.startswith(f"【1】 Tides of the Severn\n{web.url}/tides\n(characters 0 to ")
    assert "range of about fifteen metres" in text
    for unseen in ("script text", "hidden words", "invisible words", "footer words", "navigation"):
        assert unseen not in text
    assert "cite [1] for everything" in text
    assert _item(opened)["action"] == {"type": "open_page", "url": f"{web.url}/tides#top"}

    found = await call(session, "find_in_page", url=f"{web.url}/tides", pattern="FIFTEEN metres")
    assert "(found 1 times)" in _text(found)
    assert _item(found)["action"] == {
        "type": "find_in_page",
        "url": f"{web.url}/tides",
        "pattern": "FIFTEEN metres",
    }
    assert web.opened == ["/tides"]

    missing = await call(session, "find_in_page", url=f"{web.url}/tides", pattern="zebra")
    assert "was not found" in _text(missing)


async def test_links_of_an_opened_page_can_be_opened(web: LoopbackWeb, runner: WebSearch) -> None:
    session = await begin(runner, items=[{"role": "user", "content": f"read {web.url}/tides."}])
    await call(session, "open_page", url=f"{web.url}/tides")
    opened = await call(session, "open_page", url=f"{web.url}/bores?all=1")
    assert "Qiantang" in _text(opened)


async def test_an_address_that_nobody_mentioned_is_not_opened(
    web: LoopbackWeb, runner: WebSearch
) -> None:
    items = [{"role": "user", "content": f"read {web.url}/tides?x=12"}]
    session = await begin(runner, items=items)
    for address in (f"{web.url}/moon", f"{web.url}/tides?x=1", f"{web.url}/tides?x=12&d=secret"):
        with pytest.raises(ToolFailed, match="search for it first"):
            await call(session, "open_page", url=address)
    assert web.opened == []


def _opening(url: str, status: str) -> dict[str, Any]:
    return {
        "type": "web_search_call",
        "action": {"type": "open_page", "url": url},
        "status": status,
    }


def _searching(url: str) -> dict[str, Any]:
    action = {"type": "search", "query": url, "queries": [url], "sources": []}
    return {"type": "web_search_call", "action": action, "status": "completed"}


def _saying(text: str, **part: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, **part}]
    return {"type": "message", "role": "assistant", "content": content}


@pytest.mark.parametrize(
    "write",
    [
        lambda url: _opening(url, "failed"),
        lambda url: _opening(url, "incomplete"),
        _searching,
        lambda url: _saying(f"see {url}"),
        lambda url: {"type": "message", "role": "assistant", "content": url},
        lambda url: {"type": "function_call", "name": "f", "call_id": "c", "arguments": url},
        lambda url: {"type": "mcp_call", "name": "f", "arguments": url, "output": "no"},
        lambda url: {"type": "mcp_approval_request", "name": "f", "arguments": url},
        lambda url: {"type": "reasoning", "summary": [{"type": "summary_text", "text": url}]},
    ],
)
async def test_an_address_that_the_model_composed_is_not_opened_in_a_later_turn(
    write: Callable[[str], dict[str, Any]], web: LoopbackWeb, runner: WebSearch
) -> None:
    address = f"{web.url}/moon?d=secret"
    session = await begin(runner, items=[write(address)])
    with pytest.raises(ToolFailed, match="search for it first"):
        await call(session, "open_page", url=address)
    assert web.opened == []


@pytest.mark.parametrize(
    "show",
    [
        lambda url: _opening(url, "completed"),
        lambda url: _saying("text", annotations=[{"type": "url_citation", "url": url}]),
        lambda url: {"type": "function_call_output", "call_id": "c", "output": f"at {url}"},
        lambda url: {"type": "mcp_call", "name": "f", "arguments": "{}", "output": f"({url})"},
        lambda url: {"role": "user", "content": [{"type": "input_text", "text": url}]},
        lambda url: {"role": "developer", "content": url},
    ],
)
async def test_an_address_that_others_showed_is_opened_in_a_later_turn(
    show: Callable[[str], dict[str, Any]], web: LoopbackWeb, runner: WebSearch
) -> None:
    session = await begin(runner, items=[show(f"{web.url}/moon")])
    assert "The Moon & tides" in _text(await call(session, "open_page", url=f"{web.url}/moon"))


async def test_any_page_can_be_opened_where_the_operator_allows_it(web: LoopbackWeb) -> None:
    runner = make_runner(web, open_pages="any")
    opened = await call(await begin(runner), "open_page", url=f"{web.url}/moon")
    await runner.close()
    assert "The Moon & tides" in _text(opened)


async def test_no_page_can_be_opened_where_the_operator_forbids_it(web: LoopbackWeb) -> None:
    runner = make_runner(web, open_pages="off")
    session = await begin(runner)
    assert [one.name async for one in session.prepare()] == ["web_search"]  # type: ignore[union-attr]
    await runner.close()


async def test_pages_outside_the_domains_are_not_opened(web: LoopbackWeb) -> None:
    runner = make_runner(web, open_pages="any")
    session = await begin(runner, {"filters": {"allowed_domains": ["good.example"]}})
    with pytest.raises(ToolFailed, match="outside the domains"):
        await call(session, "open_page", url=f"{web.url}/moon")
    await runner.close()
    assert web.opened == []


async def test_a_long_page_is_read_in_steps(web: LoopbackWeb) -> None:
    runner = make_runner(web, open_pages="any")
    session = await begin(runner, {"search_context_size": "low"})

    from aiohttp import web as http

    async def long(_: http.Request) -> http.Response:
        return http.Response(text=" ".join(map(str, range(5000))), content_type="text/plain")

    web.pages["/long"] = long
    first = _text(await call(session, "open_page", url=f"{web.url}/long"))
    second = _text(await call(session, "open_page", url=f"{web.url}/long", start=6000))
    await runner.close()
    assert "(characters 0 to 6000 of 23889)" in first
    assert "(characters 6000 to 12000 of 23889)" in second
    assert web.opened == ["/long"]
