"""The docs keep their word: links lead somewhere, examples run, codes exist."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.server.api.openapi import describe
from antiphon.testing import Gateway, serve_gateway
from antiphon.tools.mcp.settings import McpServer
from tests.asking import Answer, request
from tests.tools.mcp.gateways import kinds, mcp_gateway, model

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in _links(page) if not _leads_somewhere(page, *link)]
    assert missing == []


def test_the_index_lists_every_page() -> None:
    """The pages of clients and of decisions are listed by an index of their own."""
    index = ROOT / "docs/README.md"
    indexes = [index, *(ROOT / f"docs/{folder}/README.md" for folder in ("clients", "decisions"))]
    listed = {(page.parent / link).resolve() for page in indexes for link, _ in _links(page)}
    pages = {path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".toml")}
    assert pages - listed == {index}
    assert len(re.findall(r"^- \[.+?\]\(.+?\): .+\.$", index.read_text(), re.MULTILINE)) == len(
        re.findall(r"^- ", index.read_text(), re.MULTILINE)
    )


def test_decisions_have_a_number_of_their_own_and_a_date() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("0*.md"))
    assert len({page.name[:4] for page in pages}) == len(pages)
    for page in pages:
        title, _, date, *_ = page.read_text().splitlines()
        assert title.startswith(f"# {page.name[:4]}: ")
        assert re.match(r"Date: \d{4}-\d\d-\d\d\b", date), page.name


def _links(page: Path) -> list[tuple[str, str]]:
    """Return the links of a page to files here, each with the heading that it names."""
    found = re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)", _without_code(page))
    return [(file, heading) for file, heading in found if file or heading]


def _leads_somewhere(page: Path, file: str, heading: str) -> bool:
    target = page.parent / file if file else page
    if not target.exists():
        return False
    titles = re.findall(r"^#+ (.+)$", _without_code(target), re.MULTILINE) if heading else []
    return not heading or heading in map(_anchor, titles)


def _without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _anchor(title: str) -> str:
    """Return the name by which a link reaches a heading, as code hosts make it."""
    text = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", title).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


async def test_what_the_readme_says_to_paste_works() -> None:
    readme = (ROOT / "README.md").read_text()
    (asked,) = re.findall(r"curl http://127.0.0.1:4680(\S+) .*?-d '(.*?)'", readme, re.DOTALL)
    (program,) = _examples("README.md")
    async with serve_gateway(ScriptedBackend(models=["smollm2-135m"])) as gateway:
        answer = await request(gateway, "POST", asked[0].removeprefix("/v1"), asked[1].encode())
        local = program.replace("http://127.0.0.1:4680/v1", gateway.base_url)
        await asyncio.to_thread(exec, f"{local}\nclient.close()", {"print": lambda text: None})

    assert answer.json["status"] == "completed"


async def test_the_commands_on_background_responses_work() -> None:
    """They are sent as curl would send them, and do what the page says."""
    page = (ROOT / "docs/howto/background.md").read_text()
    first, *others = _commands(page)
    (shown,) = map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    async with serve_gateway(ScriptedBackend(models=["smollm2-135m"])) as gateway:
        begun = await _send(gateway, first)
        mine = [command.replace("resp_…", begun.json["id"]) for command in others]
        answers = [await _send(gateway, command) for command in mine]

    assert begun.json | shown | {"id": begun.json["id"]} == begun.json
    assert [answer.status for answer in answers] == [200] * 4
    looked_at, whole, rest, cancelled = answers
    assert looked_at.json["id"] == cancelled.json["id"] == begun.json["id"]
    assert whole.body.endswith(rest.body) and len(rest.body) < len(whole.body)
    assert rest.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("name", ["compact", "conversations-api"])
async def test_the_commands_of_a_page_are_answered(name: str) -> None:
    commands = _commands((ROOT / f"docs/howto/{name}.md").read_text())
    assert commands
    async with serve_gateway(ScriptedBackend(models=["smollm2-135m"])) as gateway:
        earlier = await request(gateway, "POST", "/responses", {"input": "hello"})
        for command in commands:
            answer = await _send(gateway, command.replace("resp_…", earlier.json["id"]))
            assert answer.status == 200, answer.body


def _commands(page: str) -> list[str]:
    """Return every command of a page that asks a server."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("curl ")]


async def _send(gateway: Gateway, command: str) -> Answer:
    """Send what this command of curl would send."""
    program, *words = shlex.split(command)
    assert program == "curl"
    method, body = "GET", None
    headers: dict[str, str] = {}
    (url,) = (word for word in words if word.startswith("http"))
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        match flag:
            case "-d":
                method, body = "POST", value.encode()
            case "-X":
                method = value
            case "-H":
                name, _, text = value.partition(": ")
                headers[name] = text
    path = url.removeprefix("http://127.0.0.1:4680/v1")
    return await request(gateway, method, path, body, headers)


def _examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(_examples("docs/howto/testing.md"))))
def test_the_examples_on_testing_run(number: int) -> None:
    scope: dict[str, object] = {}
    exec(_examples("docs/howto/testing.md")[number], scope)
    tests = [value for name, value in scope.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        assert callable(test)
        asyncio.run(test())


def test_every_path_is_documented() -> None:
    page = (ROOT / "docs/reference/http.md").read_text()
    assert [path for path in describe()["paths"] if f"{path}`" not in page] == []


def test_every_documented_error_code_is_one_we_use() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    table = (ROOT / "docs/reference/http.md").read_text().partition("## Errors")[2]
    codes = set(re.findall(r"`([a-z]+_[a-z_]+)`", table)) - {"tool_choice"}
    unknown = {code for code in codes if f'"{code}"' not in source}
    assert unknown == set()


def test_the_faults_in_the_docs_are_the_faults_there_are() -> None:
    from antiphon import testing

    page = (ROOT / "docs/howto/testing.md").read_text()
    listed = set(re.findall(r"`([A-Z][A-Za-z0-9]+)`", page))
    faults = {
        name
        for name in testing.__all__
        if isinstance(getattr(testing, name), type)
        and getattr(testing, name).__module__ == "antiphon.testing.faults"
    }
    assert faults - {"Fault"} <= listed


async def test_the_example_of_an_mcp_server_runs(tmp_path: Path) -> None:
    """The server of the page is started as its settings say, and the command gets its answer."""
    page = (ROOT / "docs/howto/mcp.md").read_text()
    (server,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (table,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (command,) = re.findall(r"```sh\n(curl .*?)```", page, re.DOTALL)
    (tmp_path / "desk.py").write_text(server)
    desk = tomllib.loads(table)["mcp"]["servers"]["desk"]
    assert desk["command"] == "python"
    settings = msgspec.convert(desk, McpServer)
    here = {"command": sys.executable, "cwd": str(tmp_path), "connect_seconds": 60.0}
    servers = {"desk": msgspec.structs.replace(settings, **here)}
    async with mcp_gateway(model(("desk__add", {"a": 2, "b": 3})), servers) as gateway:
        answer = await _send(gateway, command.strip())
    assert kinds(answer.json) == ["mcp_list_tools", "mcp_call", "message"]
    assert answer.json["output"][1]["output"] == "5"
