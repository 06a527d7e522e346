"""The site of the documentation: it is built strictly, and has every page and a search."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.heavy

ROOT: Final = Path(__file__).parent.parent
_SECONDS: Final = 900


def _build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    program = subprocess.run(
        [ROOT / "scripts/environment", "docs"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_SECONDS,
    ).stdout.strip()
    return subprocess.run(
        [f"{program}/mkdocs", "build", "--strict", "--site-dir", site],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [ROOT / "scripts/docs", made], capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the project, in which a test may break something."""
    copy = tmp_path / "tree"
    copy.mkdir()
    command = 'git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C "$1"'
    subprocess.run(["sh", "-c", command, "sh", copy], cwd=ROOT, check=True, timeout=_SECONDS)
    return copy


class _Addresses(HTMLParser):
    """What a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.loaded.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") != "canonical":
            self.loaded.append(values.get("href") or "")


def test_every_page_of_the_documentation_is_on_the_site_and_in_the_navigation(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    named = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(map(Path, named)) == sorted(pages)
    for page in pages:
        folder = page.parent if page.name == "README.md" else page.with_suffix("")
        assert (site / folder / "index.html").is_file(), page


def test_the_search_knows_the_text_of_the_pages(site: Path) -> None:
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {one["location"] for one in entries if "allow-older" in one["text"]}
    assert any(place.startswith("howto/upgrade/") for place in found)
    assert any(place.startswith("reference/cli/") for place in found)


def test_nothing_is_loaded_from_another_server(site: Path) -> None:
    for path in site.rglob("*.html"):
        reader = _Addresses()
        reader.feed(path.read_text())
        assert [one for one in reader.loaded if re.match(r"(https?:)?//", one)] == [], path


@pytest.mark.parametrize(
    ("page", "line", "complaint"),
    [
        ("howto/team.md", "[x](nothing.md)", "'howto/nothing.md' is not found"),
        ("howto/team.md", "[x](keys.md#nothing)", "does not contain an anchor '#nothing'"),
        ("howto/team.md", "[x](../../src/nothing.py)", "src/nothing.py, which does not exist"),
        ("howto/lonely.md", "# Lonely", 'not included in the "nav"'),
    ],
)
def test_a_broken_page_is_refused(tree: Path, page: str, line: str, complaint: str) -> None:
    with (tree / "docs" / page).open("a") as file:
        file.write(f"\n{line}\n")
    done = _build(tree, tree / "site")
    assert done.returncode == 1
    assert complaint in done.stderr
