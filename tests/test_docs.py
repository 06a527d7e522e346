"""The docs keep their word: links lead somewhere, examples run, codes exist."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.testing import serve_gateway
from tests.asking import request

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


async def test_what_the_readme_says_to_paste_works() -> None:
    readme = (ROOT / "README.md").read_text()
    (asked,) = re.findall(r"curl http://127.0.0.1:4680(\S+) .*?-d '(.*?)'", readme, re.DOTALL)
    (program,) = _examples("README.md")
    async with serve_gateway(ScriptedBackend(models=["smollm2-135m"])) as gateway:
        answer = await request(gateway, "POST", asked[0].removeprefix("/v1"), asked[1].encode())
        local = program.replace("http://127.0.0.1:4680/v1", gateway.base_url)
        await asyncio.to_thread(exec, f"{local}\nclient.close()", {"print": lambda text: None})

    assert answer.json["status"] == "completed"


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
