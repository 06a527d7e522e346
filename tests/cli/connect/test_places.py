"""Where clients keep their settings, on each system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.cli.connect import places
from antiphon.cli.connect.places import Machine

_HOME = Path("/home/ada")
_MODELS = "Code/User/chatLanguageModels.json"
_LLM = "io.datasette.llm/extra-openai-models.yaml"


@pytest.mark.parametrize(
    ("place", "platform", "environ", "expected"),
    [
        (places.codex, "linux", {}, "/home/ada/.codex/config.toml"),
        (places.codex, "linux", {"CODEX_HOME": "/c"}, "/c/config.toml"),
        (places.claude_code, "linux", {}, "/home/ada/.claude/settings.json"),
        (places.claude_code, "darwin", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/settings.json"),
        (places.cline, "linux", {}, "/home/ada/.cline/data/settings/providers.json"),
        (places.aider, "win32", {}, "/home/ada/.aider.conf.yml"),
        (places.continue_, "linux", {}, "/home/ada/.continue/config.yaml"),
        (places.continue_, "win32", {"CONTINUE_GLOBAL_DIR": "/c"}, "/c/config.yaml"),
        (places.vscode, "linux", {}, f"/home/ada/.config/{_MODELS}"),
        (places.vscode, "linux", {"XDG_CONFIG_HOME": "/x"}, f"/x/{_MODELS}"),
        (places.vscode, "linux", {"XDG_CONFIG_HOME": "x"}, f"/home/ada/.config/{_MODELS}"),
        (places.vscode, "darwin", {}, f"/home/ada/Library/Application Support/{_MODELS}"),
        (places.vscode, "win32", {"APPDATA": "/r"}, f"/r/{_MODELS}"),
        (places.vscode, "win32", {}, f"/home/ada/AppData/Roaming/{_MODELS}"),
        (
            places.vscode,
            "linux",
            {"VSCODE_PORTABLE": "/p"},
            "/p/user-data/User/chatLanguageModels.json",
        ),
        (places.zed, "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/zed/settings.json"),
        (places.zed, "darwin", {}, "/home/ada/.config/zed/settings.json"),
        (places.zed, "win32", {"APPDATA": "/r"}, "/r/Zed/settings.json"),
        (places.opencode, "darwin", {}, "/home/ada/.config/opencode/opencode.json"),
        (places.opencode, "linux", {"OPENCODE_CONFIG": "/o.json"}, "/o.json"),
        (places.llm, "linux", {}, f"/home/ada/.config/{_LLM}"),
        (places.llm, "darwin", {}, f"/home/ada/Library/Application Support/{_LLM}"),
        (places.llm, "linux", {"LLM_USER_PATH": "/l"}, "/l/extra-openai-models.yaml"),
        (places.dotenv, "linux", {}, "/work/.env"),
    ],
)
def test_the_place_of_a_client(
    place: Callable[[Machine], Path], platform: str, environ: dict[str, str], expected: str
) -> None:
    assert place(Machine(environ, platform, _HOME, Path("/work"))) == Path(expected)


def test_a_profile_of_codex_is_a_file_of_its_own() -> None:
    machine = Machine({}, "linux", _HOME, Path("/work"))
    assert places.codex(machine, "mine") == Path("/home/ada/.codex/mine.config.toml")


def test_opencode_with_comments_is_preferred_where_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / ".config" / "opencode" / "opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.touch()
    assert places.opencode(Machine({}, "linux", tmp_path, tmp_path)) == path


def test_a_place_that_cannot_be_looked_at_holds_nothing(tmp_path: Path) -> None:
    assert not places.is_there(tmp_path / ("x" * 300))
    assert not places.is_there(tmp_path)


def test_our_machine_is_the_one_we_run_on(tmp_path: Path) -> None:
    assert Machine.ours().here == Path.cwd() == tmp_path
