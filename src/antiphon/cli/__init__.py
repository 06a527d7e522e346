"""How does a person use it? One file or folder per command.

A command's module is imported when the command is called, so that `antiphon --help` answers at
once. An error becomes one sentence on stderr; with ANTIPHON_DEBUG=1 it is a traceback, unless the
user can repair it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from antiphon.cli.errors import CliError, translate
from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.protocol.errors import AntiphonError
from antiphon.version import __version__

__all__ = ["main"]

_COMMANDS: Final = {
    "serve": ("antiphon.cli.serve", "Run the gateway."),
    "health": ("antiphon.cli.health", "Is a gateway ready? For health checks."),
    "run": ("antiphon.cli.run.command", "Run Codex or Claude Code on any model."),
    "connect": ("antiphon.cli.connect.command", "Set up a client to use the gateway."),
    "ask": ("antiphon.cli.ask", "Ask a running server one question."),
    "chat": ("antiphon.cli.chat.command", "Chat with a running server."),
    "host": ("antiphon.cli.host", "Answer an editor over stdin and stdout."),
    "check": ("antiphon.cli.check.command", "Test any Responses server."),
    "keys": ("antiphon.cli.keys", "Create, list, rotate and revoke API keys."),
    "projects": ("antiphon.cli.projects", "Create, archive and purge projects."),
    "usage": ("antiphon.cli.usage", "Show tokens and costs, by project, key or model."),
    "budgets": ("antiphon.cli.budgets", "List, set and delete budgets."),
    "limits": ("antiphon.cli.limits", "List, set and delete rate limits."),
    "ledger": ("antiphon.cli.ledger", "Check the ledger, or export its charges."),
    "top": ("antiphon.cli.top", "Watch what runs, and what it costs."),
    "ui": ("antiphon.cli.ui", "Open the dashboard in a browser."),
    "models": ("antiphon.cli.models", "List models; download one to serve."),
    "prices": ("antiphon.cli.prices", "Show what each model costs, and who states that."),
    "route": ("antiphon.cli.route", "Show who would answer for a model name."),
    "tools": ("antiphon.cli.tools", "Show the hosted tools, and check them."),
    "files": ("antiphon.cli.files", "Upload, list and delete files."),
    "vector-stores": ("antiphon.cli.vector_stores", "Make files searchable, and search them."),
    "config": ("antiphon.cli.config", "Make a configuration out of another one."),
    "store": ("antiphon.cli.store", "Show, copy, back up, check or upgrade a store."),
    "bench": ("antiphon.cli.bench.command", "Compare chat, stateless and stateful conversations."),
}
"""The module of each command, and the line about it in the help."""
_INTERRUPTED: Final = 130


class _Lazy(click.Command):
    """A command that is imported when it is called."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:  # Any: as in click
        command: click.Command = import_module(_COMMANDS[str(self.name)][0]).command
        return command.make_context(*args, **extra)


class _Root(click.Group):
    """Lists the commands in our order, and turns errors into sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return _Lazy(cmd_name, short_help=_COMMANDS[cmd_name][1])

    def invoke(self, ctx: click.Context) -> Any:  # Any: as in click
        try:
            return super().invoke(ctx)
        except (BadSettings, Unavailable) as error:
            raise translate(error) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            if _is_debugging():
                raise
            raise _interrupted() from None
        except Exception as error:
            if _is_debugging():
                raise
            if isinstance(error, AntiphonError):
                raise translate(error) from error
            raise CliError(
                f"unexpected {type(error).__name__}: {error}; "
                "this is a bug in antiphon, and ANTIPHON_DEBUG=1 shows where"
            ) from error


def _is_debugging() -> bool:
    return os.environ.get("ANTIPHON_DEBUG") == "1"


def _interrupted() -> click.exceptions.Exit:
    """Return the exit after Ctrl-C: 128 + SIGINT, as shells do it."""
    if sys.stderr.isatty():
        click.echo(err=True)  # the terminal shows ^C in the line
    return click.exceptions.Exit(_INTERRUPTED)


@click.group(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with:  antiphon serve --upstream http://127.0.0.1:11434/v1",
)
@click.version_option(__version__, prog_name="antiphon")
def main() -> None:
    """The Responses gateway that never lies: any model behind the whole Responses API."""
