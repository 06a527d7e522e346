"""What Claude Code is started with: the gateway for every model it knows, and no login."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.cli.run.claude import CLIENT
from antiphon.cli.run.client import Launch, Order
from tests.cli.processes import ECHO

_PROGRAM = """\
#!{python}
import json, os, sys
settings = json.load(open(sys.argv[sys.argv.index("--settings") + 1]))
print(json.dumps({{"arguments": sys.argv[1:], "environ": dict(os.environ), "settings": settings}}))
"""


def _order(tmp_path: Path, **changes: Any) -> Order:
    order = Order(
        base_url="http://127.0.0.1:1/v1",
        model="qwen",
        context=65_536,
        models=[],
        is_small=False,
        arguments=["-p", "hello"],
        directory=tmp_path,
    )
    return msgspec.structs.replace(order, **changes)


def _written(launch: Launch) -> dict[str, str]:
    """Return the variables of the settings file, which override those of the user's settings."""
    at = list(launch.arguments).index("--settings")
    return dict(json.loads(Path(launch.arguments[at + 1]).read_text())["env"])


def test_every_model_that_it_asks_for_is_the_one_of_the_gateway(tmp_path: Path) -> None:
    launch = CLIENT.prepare("/bin/claude", _order(tmp_path))
    assert _written(launch) == {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "ANTHROPIC_AUTH_TOKEN": "unused",
        "ANTHROPIC_MODEL": "qwen",
        "ANTHROPIC_DEFAULT_FABLE_MODEL": "qwen",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "qwen",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "qwen",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "qwen",
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "65536",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "65536",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "16384",
    }


def test_the_variables_are_in_the_environment_and_in_a_file_that_wins(tmp_path: Path) -> None:
    launch = CLIENT.prepare("/bin/claude", _order(tmp_path))
    assert _written(launch).items() <= launch.environ.items()
    assert Path(launch.arguments[2]).parent == tmp_path


def test_a_window_that_is_not_known_is_left_to_claude_code(tmp_path: Path) -> None:
    written = _written(CLIENT.prepare("claude", _order(tmp_path, context=None)))
    assert not [name for name in written if name.endswith(("_WINDOW", "_TOKENS"))]


def test_no_login_of_the_user_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-mine")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "mine")
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/mine")
    environ = CLIENT.prepare("claude", _order(tmp_path)).environ
    assert {"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"}.isdisjoint(
        environ
    )
    assert environ["CLAUDE_CONFIG_DIR"] == "/mine"
    assert "127.0.0.1" in environ["NO_PROXY"]


def test_a_small_model_gets_one_tool_and_a_short_prompt(tmp_path: Path) -> None:
    launch = CLIENT.prepare("claude", _order(tmp_path, is_small=True, context=8_192))
    tools, flag, prompt = launch.arguments[3:6]
    assert (tools, flag) == ("--tools=Bash", "--system-prompt")
    assert len(prompt) < 500
    assert _written(launch)["CLAUDE_CODE_SIMPLE"] == "1"
    assert _written(launch)["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "2048"


@pytest.mark.parametrize("is_small", [False, True])
def test_what_the_user_says_comes_last_and_wins(tmp_path: Path, is_small: bool) -> None:
    launch = CLIENT.prepare("/bin/claude", _order(tmp_path, is_small=is_small))
    assert launch.arguments[0] == "/bin/claude"
    assert launch.arguments[-2:] == ["-p", "hello"]


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
@pytest.mark.parametrize("flags", [[], ["--small"]])
def test_it_is_run_on_a_gateway_of_its_own(
    runner: CliRunner,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    Path("antiphon.toml").write_text(ECHO)
    result = runner.invoke(main, ["run", "claude", *flags, "--", "-p", "hello"])
    assert result.exit_code == 0, result.stderr
    seen = json.loads(capfd.readouterr().out)
    assert seen["arguments"][-2:] == ["-p", "hello"]
    assert seen["settings"]["env"]["ANTHROPIC_MODEL"] == "scripted"
    assert seen["environ"]["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
    how = ", with one tool and a prompt of 600 tokens" if flags else ""
    assert result.stderr == f"antiphon: claude runs on scripted{how}\n"
