"""The pages on hosted tools keep their word: their settings and examples work."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.gateway.config import Settings, load
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.tools import open_tools
from antiphon.store.memory import MemoryStore
from antiphon.testing import Call, ChatBackend, Script, ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.containers.settings import CodeSettings, ShellSettings
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.programs.runner import ProgramRunner
from antiphon.tools.programs.settings import ProgramSettings
from antiphon.tools.shell import HostedShell
from tests.containers import make_service
from tests.faults.house import PATIENCE
from tests.images_upstream import IMAGE, images_upstream
from tests.images_upstream import KEY as IMAGE_KEY
from tests.sandboxes import engine
from tests.server.test_web_search import QUERY
from tests.test_docs import _commands, _examples, _send
from tests.web import KEY, loopback_web

ROOT = Path(__file__).parent.parent


def _settings(page: str, folder: Path, more: str = "") -> Settings:
    """Return the settings that a page shows, with these lines at their end."""
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    path = folder / "antiphon.toml"
    path.write_text(text + more)
    return load({"config": str(path)}, {}, folder).settings


async def test_the_examples_on_web_search_work(tmp_path: Path) -> None:
    page = "docs/howto/web-search.md"
    (command,) = _commands((ROOT / page).read_text())
    (program,) = _examples(page)

    def play(body: dict[str, Any]) -> Script:
        has_searched = any(message["role"] == "tool" for message in body["messages"])
        if not has_searched:
            return Script(calls=[Call("web_search", QUERY)])
        return Script(text="About fifteen metres【1】.")

    async with (
        asyncio.timeout(PATIENCE),
        loopback_web() as web,
        ScriptedUpstream(play, models=["smollm2-135m"]) as upstream,
    ):
        settings = _settings(page, tmp_path, f'base_url = "{web.url}/brave"\n')
        tools = (await open_tools(settings, {"BRAVE_KEY": KEY}, MemoryStore())).runners
        async with serve_gateway(ChatBackend(upstream.base_url), tools=tools) as gateway:
            answer = await _send(gateway, command)
            printed: list[tuple[str, ...]] = []
            local = program.replace("http://127.0.0.1:4680/v1", gateway.base_url)
            scope = {"print": lambda *words: printed.append(words)}
            await asyncio.to_thread(exec, f"{local}\nclient.close()", scope)

    search, message = answer.json["output"]
    assert search["action"]["sources"]
    assert message["content"][0]["annotations"]
    address = f"{web.url}/tides"
    assert printed == [("Tides of the Severn", address, f"([127.0.0.1]({address}))")]


async def test_the_examples_on_files_work() -> None:
    page = "docs/howto/files-in-requests.md"
    (command,) = _commands((ROOT / page).read_text())
    (program,) = _examples(page)

    def play(body: dict[str, Any]) -> Script:
        asked = msgspec.json.encode(body["messages"]).decode()
        return Script(text="The Aurora." if "[File ships.csv]\\nship,port" in asked else "None.")

    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(play, models=["smollm2-135m"]) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        answer = await _send(gateway, command)
        printed: list[tuple[str, ...]] = []
        local = program.replace("http://127.0.0.1:4680/v1", gateway.base_url)
        scope = {"print": lambda *words: printed.append(words)}
        await asyncio.to_thread(exec, f"{local}\nclient.close()", scope)
    assert answer.json["output"][0]["content"][0]["text"] == "The Aurora."
    assert "degraded" not in answer.json.get("antiphon", {})
    assert printed == [("The Aurora.",)]


async def test_the_example_on_images_works(tmp_path: Path) -> None:
    page = "docs/howto/images.md"
    (command,) = _commands((ROOT / page).read_text())
    scripts = [
        Script(calls=[Call("image_generation", '{"prompt": "a cat"}')]),
        Script(text="There."),
    ]
    async with (
        asyncio.timeout(PATIENCE),
        images_upstream() as images,
        ScriptedUpstream(scripts) as upstream,
    ):
        shown = _settings(page, tmp_path)
        local = msgspec.structs.replace(shown.images, base_url=images.url)
        settings = msgspec.structs.replace(shown, images=local)
        tools = (await open_tools(settings, {"OPENAI_API_KEY": IMAGE_KEY}, MemoryStore())).runners
        async with serve_gateway(ChatBackend(upstream.base_url), tools=tools) as gateway:
            answer = await _send(gateway, command)
    assert answer.json["output"][0]["result"] == IMAGE
    assert images.asked[0][1]["model"] == "gpt-image-1"


async def test_the_example_on_file_search_works() -> None:
    (program,) = _examples("docs/howto/file-search.md")

    def play(body: dict[str, Any]) -> Script:
        if not any(message["role"] == "tool" for message in body["messages"]):
            return Script(calls=[Call("file_search", '{"queries": ["tidal range"]}')])
        return Script(text="About fifteen metres【1】.")

    store = MemoryStore()
    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(play, models=["smollm2-135m"]) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url), store=store, index=FileIndex(store)
        ) as gateway,
    ):
        printed: list[tuple[object, ...]] = []
        local = program.replace("http://127.0.0.1:4680/v1", gateway.base_url)
        scope = {"print": lambda *words: printed.append(words)}
        await asyncio.to_thread(exec, f"{local}\nclient.close()", scope)
    await store.close()
    text = "# Tides\n\nThe tidal range of the Severn is about fifteen metres."
    assert printed == [("tides.md", 1.0, text), ("tides.md", "About fifteen metres")]


def test_the_settings_of_file_search_can_be_read(tmp_path: Path) -> None:
    assert _settings("docs/howto/file-search.md", tmp_path).file_search.embedding == "local"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('embedding = "upstream"', "needs base_url and model"),
        ('embedding = "upstream"\nbase_url = "http://x/v1"', "needs base_url and model"),
        ('base_url = "http://x/v1"', "base_url needs embedding = 'upstream'"),
        ('embedding = "local"\nmodel = "m"', "model needs embedding = 'upstream'"),
        (
            'embedding = "upstream"\nbase_url = "http://x/v1"\nmodel = "m"\nkey_env = "K"',
            "the environment variable K is not set",
        ),
    ],
)
async def test_embeddings_that_cannot_work_are_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(f"[file_search]\n{text}\n")
    settings = load({"config": str(path)}, {}, tmp_path).settings
    with pytest.raises(BadSettings, match=why):
        await open_tools(settings, {}, MemoryStore())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('provider = "searxng"', "base_url is missing"),
        ('provider = "searxng"\nbase_url = "http://x"\nkey_env = "K"', "takes no key"),
        ('provider = "brave"', "key_env is missing"),
        ('provider = "brave"\nkey_env = "K"', "the environment variable K is not set"),
        ('provider = "mcp"', "needs server and tool"),
        ('provider = "mcp"\nserver = "x"\ntool = "y"', r"there is no \[mcp.servers.x\]"),
        ('provider = "exa"\nkey_env = "OK"\nopen_places = ["wiki"]', "'wiki' is not host:port"),
    ],
)
async def test_settings_that_cannot_work_are_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(f"[web_search]\n{text}\n")
    settings = load({"config": str(path)}, {}, tmp_path).settings
    with pytest.raises(BadSettings, match=why):
        await open_tools(settings, {"OK": "a-key-of-some-length"}, MemoryStore())


async def test_nothing_is_run_that_is_not_set() -> None:
    kinds = (await open_tools(Settings(), {}, MemoryStore())).kinds
    assert kinds == {
        "tool_search",
        "file_search",
        "code_interpreter",
        "shell",
        "programmatic_tool_calling",
    }
    off = Settings(
        code_interpreter=CodeSettings(enabled=False),
        shell=ShellSettings(enabled=False),
        programs=ProgramSettings(enabled=False),
    )
    kinds = (await open_tools(off, {}, MemoryStore())).kinds
    assert kinds == {"tool_search", "file_search"}


def _here(program: str, gateway: Gateway) -> tuple[str, list[tuple[Any, ...]], dict[str, Any]]:
    """Return a program of a page for this gateway, what it will print, and its scope."""
    printed: list[tuple[Any, ...]] = []
    local = program.replace("http://127.0.0.1:4680/v1", gateway.base_url)
    return f"{local}\nclient.close()", printed, {"print": lambda *words: printed.append(words)}


async def test_the_examples_on_code_work(tmp_path: Path) -> None:
    page = "docs/howto/code-interpreter.md"
    assert _settings(page, tmp_path).sandbox.python == "/srv/venv/bin/python"
    (command,) = _commands((ROOT / page).read_text())
    (program,) = _examples(page)
    scripts = [
        Script(calls=[Call("code_interpreter", '{"code": "print(2**100)"}')]),
        Script(text="Large."),
        Script(calls=[Call("code_interpreter", "{\"code\": \"here('n.txt').write_text('1')\"}")]),
        Script(text="[n](sandbox:/mnt/data/n.txt)"),
    ]
    service = make_service()
    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(scripts, models=["smollm2-135m"]) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url),
            store=service.store,
            tools=[CodeInterpreter(service)],
            containers=service,
        ) as gateway,
    ):
        answer = await _send(gateway, command)
        text, printed, scope = _here(program, gateway)
        await asyncio.to_thread(exec, text, scope)
    call, _ = answer.json["output"]
    assert call["outputs"] == [{"type": "logs", "logs": f"{2**100}\n"}]
    assert printed == [("n.txt", b"1")]


async def test_the_example_on_programs_works() -> None:
    program, hosted = _examples("docs/howto/programs.md")
    code = (
        "const all = await Promise.all(['a', 'b'].map((sku) => tools.stock({sku})));"
        "text(all.reduce((sum, one) => sum + one.count, 0))"
    )
    asked = msgspec.json.encode({"code": code}).decode()
    power = "text((await tools.code_interpreter({code: 'print(2**64)'})).trim().at(-1))"
    scripts = [
        Script(calls=[Call("program", asked)]),
        Script(text="There are 5."),
        Script(calls=[Call("program", msgspec.json.encode({"code": power}).decode())]),
        Script(text="6"),
    ]
    service = make_service(engine=engine("bwrap+sandlock"))
    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(scripts, models=["smollm2-135m"]) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url),
            store=service.store,
            tools=[ProgramRunner(service), CodeInterpreter(service)],
            containers=service,
        ) as gateway,
    ):
        text, printed, scope = _here(program, gateway)
        await asyncio.to_thread(exec, text, scope)
        last = upstream.requests[-1].json["messages"]
        text, further, scope = _here(hosted, gateway)
        await asyncio.to_thread(exec, text, scope)
    kinds = ["program", "code_interpreter_call", "program_output", "message"]
    assert further == [(kinds,)]
    assert upstream.requests[-1].json["messages"][-1]["content"].endswith("6")
    assert printed == [("There are 5.",)]
    assert [message["role"] for message in last] == ["user", "assistant", "tool"]
    assert last[-1]["content"].endswith("5")


async def test_the_examples_on_the_shell_work() -> None:
    page = "docs/howto/shell.md"
    (command,) = _commands((ROOT / page).read_text())
    (program,) = _examples(page)
    scripts = [
        Script(calls=[Call("shell", '{"commands": ["ls"]}')]),
        Script(text="None."),
        Script(calls=[Call("shell", '{"commands": ["cat /mnt/skills/greet/SKILL.md"]}')]),
        Script(text="Hello!"),
    ]
    service = make_service()
    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(scripts, models=["smollm2-135m"]) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url),
            store=service.store,
            tools=[HostedShell(service)],
            containers=service,
        ) as gateway,
    ):
        answer = await _send(gateway, command)
        text, printed, scope = _here(program, gateway)
        await asyncio.to_thread(exec, text, scope)
        last = msgspec.json.decode(upstream.requests[-1].body)["messages"][-1]["content"]
    kinds = [item["type"] for item in answer.json["output"]]
    assert kinds == ["shell_call", "shell_call_output", "message"]
    assert printed == [("Hello!",)]
    assert "Say hello." in last
