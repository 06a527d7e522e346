"""`antiphon connect`: what is printed, written and taken back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.cli.connect.places import Machine
from antiphon.cli.connect.programs import PROGRAMS, program
from antiphon.cli.connect.recipes import RECIPES
from tests.cli.canned import Canned, Json, canned_server
from tests.cli.processes import Served, closed_port

_MODELS = b'{"data": [{"id": "big", "context_length": 1000}, {"id": "small"}]}'
_SETTINGS = {
    "codex": '# mine\nmodel = "gpt" # best\n\n[mcp_servers.x]\ncommand = "y"\n',
    "claude-code": '{"env": {"A": "1", "ANTHROPIC_BASE_URL": "https://mine"}, "model": "opus"}',
    "cline": '{"version": 1, "lastUsedProvider": "cline", "providers": {"cline": {}}}',
    "continue": "name: Mine\nschema: v1\nmodels: # all\n    - name: a\n      model: b\nrules: []",
    "aider": "model: gpt # best\nread:\n- CONVENTIONS.md",
    "vscode": '[\r\n\t{"name": "mine", "vendor": "other"}, // c\r\n]\r\n',
    "zed": '// Zed\n{\n  "theme": "One", // dark\n  "language_models": {},\n}\n',
    "opencode": '{"model": "mine/x", "provider": {"a": {}}}',
    "llm": "- model_id: a\n  model_name: b",
}
_DOTENV = "\ufeffOPENAI_API_KEY=sk-mine\nexport OPENAI_BASE_URL='x'"


def _run(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, ["connect", *arguments])


@pytest.fixture
def listed() -> Iterator[str]:
    """A gateway with two models."""
    with canned_server(lambda *_: Canned(200, _MODELS)) as base_url:
        yield base_url


def test_without_a_client_they_are_listed(runner: CliRunner) -> None:
    result = _run(runner)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(RECIPES)


@pytest.mark.parametrize(
    ("client", "hint"),
    [("codx", "did you mean codex?"), ("?", "the clients are codex, claude-code")],
)
def test_an_unknown_client_is_told_which_there_are(
    runner: CliRunner, client: str, hint: str
) -> None:
    result = _run(runner, client)
    assert result.exit_code == 2
    assert hint in result.stderr


@pytest.mark.parametrize("client", RECIPES)
def test_a_settings_file_is_written_and_restored_to_the_byte(
    runner: CliRunner, listed: str, tmp_path: Path, client: str
) -> None:
    path = RECIPES[client].place(Machine.ours())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_SETTINGS.get(client, _DOTENV), newline="")
    before = path.read_bytes()
    for _ in range(2):
        result = _run(runner, client, "--url", listed, "--write")
        assert result.exit_code == 0, result.stderr
    assert "is set up already; nothing was changed" in result.stderr
    address = listed.removesuffix("/v1").encode()
    assert address in path.read_bytes()
    moved = _run(runner, client, "--url", "http://127.0.0.1:9/v1", "-m", "big", "--write")
    assert moved.exit_code == 0
    assert b"http://127.0.0.1:9" in path.read_bytes() and address not in path.read_bytes()
    undone = _run(runner, client, "--undo")
    assert (undone.exit_code, undone.stderr) == (0, f"Removed the settings from {path}.\n")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("client", RECIPES)
def test_a_new_settings_file_is_removed_again(runner: CliRunner, listed: str, client: str) -> None:
    path = RECIPES[client].place(Machine.ours())
    result = _run(runner, client, "--url", listed, "--write")
    assert f"Created {path}." in result.stderr
    assert f"To undo this: antiphon connect {client} --undo" in result.stderr
    assert path.read_bytes()
    result = _run(runner, client, "--undo")
    assert result.stderr == f"Removed {path}, which did not exist before.\n"
    assert not path.exists()
    again = _run(runner, client, "--undo")
    assert (again.exit_code, "no settings of antiphon" in again.stderr) == (0, True)


@pytest.mark.parametrize("client", RECIPES)
def test_what_is_printed_is_what_would_be_written(
    runner: CliRunner, listed: str, tmp_path: Path, client: str
) -> None:
    printed = _run(runner, client, "--url", listed)
    assert printed.exit_code == 0
    assert "Model: big (of big, small; --model NAME chooses another)" in printed.stderr
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    _run(runner, client, "--url", listed, "--write", "--file", "settings")
    if client in PROGRAMS:
        assert printed.stdout == program(client, listed, "big")
    else:
        assert printed.stdout == Path("settings").read_text()


def test_limits_come_from_the_gateway(runner: CliRunner, listed: str) -> None:
    result = _run(runner, "vscode", "--url", listed, "-m", "big", "-m", "small")
    (group,) = json.loads(result.stdout)
    assert [model["maxInputTokens"] for model in group["models"]] == [750, 24_576]
    assert "does not report the context of small: 32768 is assumed" in result.stderr


def test_the_default_is_the_gateway_of_the_other_commands(
    runner: CliRunner, listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_BASE_URL", listed)
    result = _run(runner, "codex")
    assert tomllib.loads(result.stdout)["model_providers"]["antiphon"]["base_url"] == listed


def test_a_real_gateway_tells_its_models(runner: CliRunner, echo: Served) -> None:
    result = _run(runner, "codex", "--url", echo.base_url.removesuffix("/v1"))
    settings = tomllib.loads(result.stdout)
    assert settings["model"] == "scripted"
    assert settings["model_providers"]["antiphon"]["base_url"] == echo.base_url


def test_one_model_is_no_choice(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(200, b'{"data": [{"id": "only"}]}')) as url:
        result = _run(runner, "codex", "--url", url)
    assert "Model: only\n" in result.stderr


def test_a_long_list_is_cut(runner: CliRunner) -> None:
    body = json.dumps({"data": [{"id": f"m{at}"} for at in range(12)]}).encode()
    with canned_server(lambda *_: Canned(200, body)) as url:
        result = _run(runner, "codex", "--url", url, "-m", "mine")
    assert "lists no model mine; it has m0, " in result.stderr
    assert "m9 and 2 more." in result.stderr
    assert tomllib.loads(result.stdout)["model"] == "mine"


def test_without_a_gateway_a_model_must_be_named(runner: CliRunner) -> None:
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}/v1"
        named, printed, written = (
            _run(runner, "codex", "--url", url, *more) for more in (["-m", "m"], [], ["--write"])
        )
    for result in (named, printed, written):
        assert f"no server answers at {url}" in result.stderr
    assert tomllib.loads(named.stdout)["model"] == "m"
    assert "MODEL" not in named.stdout
    assert "Replace MODEL with" in printed.stderr
    assert (written.exit_code, written.stdout) == (1, "")
    assert "no model can be chosen; pass --model NAME" in written.stderr


def test_a_gateway_that_wants_a_key_is_given_the_name_of_one(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        seen.append(path)
        if len(seen) % 2:
            return Canned(401, b'{"error": {"message": "no key"}}')
        return Canned(200, _MODELS)

    monkeypatch.setenv("ANTIPHON_API_KEY", "ak_secret")
    with canned_server(answer) as url:
        result = _run(runner, "codex", "--url", url)
        named = _run(runner, "codex", "--url", url, "--key-env", "MY_KEY")
    provider = tomllib.loads(result.stdout)["model_providers"]["antiphon"]
    assert provider["env_key"] == "ANTIPHON_API_KEY"
    assert "ANTIPHON_API_KEY must be set where it runs." in result.stderr
    assert tomllib.loads(named.stdout)["model_providers"]["antiphon"]["env_key"] == "MY_KEY"
    assert "ak_secret" not in result.output


def test_the_gateway_is_asked_with_the_key_that_is_named(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "ak_mine")
    with canned_server(lambda *_: Canned(401, b'{"error": {"message": "bad key"}}')) as url:
        result = _run(runner, "codex", "--url", url, "--key-env", "MY_KEY", "-m", "m")
    assert result.exit_code == 0
    assert "bad key; it is from MY_KEY" in result.stderr
    assert "ak_mine" not in result.output


def test_a_gateway_that_wants_a_key_nobody_has_is_taken_at_its_word(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(401, b'{"error": {"message": "no key"}}')) as url:
        result = _run(runner, "codex", "--url", url, "-m", "m")
    provider = tomllib.loads(result.stdout)["model_providers"]["antiphon"]
    assert provider["env_key"] == "ANTIPHON_API_KEY"


def test_another_machine_wants_a_key(runner: CliRunner) -> None:
    with closed_port() as port:  # an address that is not loopback's, and yet goes nowhere
        result = _run(runner, "codex", "--url", f"http://0.0.0.0:{port}/v1", "-m", "m")
    provider = tomllib.loads(result.stdout)["model_providers"]["antiphon"]
    assert provider["env_key"] == "ANTIPHON_API_KEY"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--write", "--undo"], "--write and --undo are opposites"),
        (["--key-env", "ak_123-456"], "not the key"),
        (["--url", "ftp://x"], "--url: 'ftp://x/v1' does not begin with http"),
        (["--profile", "../x"], "--profile: '../x' may have letters"),
    ],
)
def test_what_makes_no_sense_is_refused(
    runner: CliRunner, arguments: list[str], complaint: str
) -> None:
    result = _run(runner, "codex", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert "ak_123" not in result.stderr


def test_only_codex_has_profiles(runner: CliRunner) -> None:
    result = _run(runner, "zed", "--profile", "x")
    assert (result.exit_code, result.stderr) == (2, "Error: --profile is for codex; zed has none\n")


def test_a_profile_leaves_the_settings_of_codex_alone(
    runner: CliRunner, listed: str, tmp_path: Path
) -> None:
    result = _run(runner, "codex", "--url", listed, "--profile", "anti", "--write")
    assert list(Path(".codex").iterdir()) == [Path(".codex/anti.config.toml")]
    assert "antiphon connect codex --profile anti --undo" in result.stderr
    assert "Then: codex --profile anti\n" in result.stderr


def test_the_command_that_takes_it_back_can_be_pasted(
    runner: CliRunner, listed: str, tmp_path: Path
) -> None:
    path = tmp_path / "my settings.toml"
    result = _run(runner, "codex", "--url", listed, "--file", str(path), "--write")
    assert f"antiphon connect codex --file '{path}' --undo\n" in result.stderr


def test_a_backup_that_stays_is_named(runner: CliRunner, listed: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("a = 1\n")
    _run(runner, "codex", "--url", listed, "--file", str(path), "--write")
    path.write_text(path.read_text().replace("a = 1", "a = 2"))
    result = _run(runner, "codex", "--file", str(path), "--undo")
    kept = f"{path}.antiphon-backup"
    assert result.stderr == f"Removed the settings from {path}; the old version is {kept}.\n"
    assert Path(kept).read_text() == "a = 1\n"


def test_a_dry_run_shows_the_change_and_makes_none(
    runner: CliRunner, listed: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.toml"
    path.write_text("a = 1\n")
    arguments = ["codex", "--url", listed, "--file", str(path)]
    shown = _run(runner, *arguments, "--write", "--dry-run")
    assert "\n+[model_providers.antiphon]\n" in shown.stdout
    assert shown.stdout == _run(runner, *arguments, "--dry-run").stdout
    assert path.read_text() == "a = 1\n"
    written = _run(runner, *arguments, "--write")
    assert f"--file {path} --undo" in written.stderr
    assert "would not change" in _run(runner, *arguments, "--dry-run").stderr
    back = _run(runner, *arguments, "--undo", "--dry-run")
    assert "\n-[model_providers.antiphon]\n" in back.stdout
    assert path.read_text() != "a = 1\n"


def test_a_file_that_cannot_be_understood_is_left_with_what_to_paste(
    runner: CliRunner, listed: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"a": ')
    written = _run(runner, "zed", "--url", listed, "--file", str(path), "--write")
    undone = _run(runner, "zed", "--file", str(path), "--undo")
    assert (written.exit_code, undone.exit_code) == (1, 1)
    assert "language_models" in json.loads(written.stdout)
    assert "was not changed: it is not JSON: line 1" in written.stderr
    assert "remove what mentions antiphon yourself" in undone.stderr
    assert path.read_text() == '{"a": '


def test_where_settings_are_there_the_order_is_told(
    runner: CliRunner, listed: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    result = _run(runner, "codex", "--url", listed, "--file", str(path))
    assert "and keep the rest of it" in result.stderr
    assert "before the first [table]" in result.stderr
