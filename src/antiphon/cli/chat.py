"""`antiphon chat`: a conversation with a running server, in the terminal or through a pipe.

Answers and what commands show go to stdout; the status line, thinking, tool calls and errors go
to stderr. Piped, every line of stdin is a question.
"""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from antiphon.cli.errors import BadSettings, CliError

if TYPE_CHECKING:
    from antiphon.cli.chat_keyboard import Keyboard
    from antiphon.cli.chat_session import ChatSession
    from antiphon.cli.terminal import Screen
    from antiphon.client import AsyncClient
    from antiphon.host.model_table import Price
    from antiphon.host.models import ModelDirectory
    from antiphon.transport.http import HttpClient

__all__ = ["command"]

_DEFAULT_URL: Final = "http://127.0.0.1:4680/v1"
_HISTORY: Final = "chat_history"
_LIST_SECONDS: Final = 5.0


@click.command(
    "chat",
    short_help="Chat with a running server.",
    epilog='Example:  antiphon chat --instructions "Answer in one line."',
)
@click.option(
    "--base-url",
    envvar="ANTIPHON_BASE_URL",
    default=_DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="Where the server is.",
)
@click.option("--model", "-m", help="Which model; the server's default if left out.")
@click.option("--instructions", "-i", help="What the model is to keep in mind.")
@click.option("--previous", "-p", metavar="ID", help="Go on from this response.")
@click.option("--show-thinking", is_flag=True, help="Show the model's thinking.")
@click.option(
    "--tool",
    "tools",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON file that defines a function, or a list of them; may be repeated.",
)
@click.option(
    "--wire-api",
    type=click.Choice(["responses", "chat"]),
    default="responses",
    show_default=True,
    help="What the server speaks: the Responses API, or only chat completions.",
)
@click.option(
    "--price",
    metavar="IN/OUT",
    help="US dollars for a million tokens, for models whose price is not known.",
)
@click.option("--no-history", is_flag=True, help="Neither read nor write what was typed.")
def command(
    base_url: str,
    model: str | None,
    instructions: str | None,
    previous: str | None,
    show_thinking: bool,
    tools: tuple[Path, ...],
    wire_api: Literal["responses", "chat"],
    price: str | None,
    no_history: bool,
) -> None:
    """Chat with a model of a running server.

    /help in the chat lists what can be said to the chat itself; Ctrl-C stops an answer, Ctrl-D
    leaves. Tools are not run: their calls are shown, and you type the results. Piped, every
    line is a question. The key, if the server wants one, is taken from ANTIPHON_API_KEY, else
    OPENAI_API_KEY.
    """
    import asyncio

    from antiphon.cli.address import read_server_url
    from antiphon.cli.chat_commands import Desk
    from antiphon.cli.chat_loop import Chat
    from antiphon.cli.chat_session import ChatSession, ChatSettings
    from antiphon.cli.remote import open_client, own_key
    from antiphon.cli.terminal import Screen
    from antiphon.host.models import ModelDirectory
    from antiphon.transport.http import HttpClient

    if previous and wire_api == "chat":
        raise BadSettings("--previous: a server of chat completions keeps nothing to go on from")
    settings = ChatSettings(
        model=model,
        instructions=instructions,
        shows_thinking=show_thinking,
        tools=_read_tools(tools),
        price=_read_price(price),
    )
    screen = Screen()
    keyboard = _open_keyboard(screen, no_history)
    with asyncio.Runner() as runner:
        client = open_client(read_server_url(base_url, "--base-url"), wire_api)
        http = HttpClient(key=own_key())
        directory = ModelDirectory(http, client.base_url, timeout=_LIST_SECONDS)
        session = ChatSession(client, directory, settings, screen.note, previous=previous)
        try:
            runner.run(_look_around(session))
            if keyboard.is_terminal:
                screen.note(_greeting(client.base_url))
            went_well = Chat(Desk(session, keyboard, screen, runner.run)).run()
        finally:
            runner.run(_close(client, directory, http))
    # At a terminal the errors were read, and the person went on.
    if not went_well and not keyboard.is_terminal:
        raise click.exceptions.Exit(1)


def _read_tools(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Return the tools of all files, checked. Raise BadSettings for one that cannot be used."""
    import msgspec

    from antiphon.client.errors import BadCall
    from antiphon.client.tool_limits import ToolLimits, prepare_tools

    tools: list[Any] = []
    for path in paths:
        try:
            found = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadSettings(f"--tool: {path} cannot be read: {error}") from None
        tools += found if isinstance(found, list) else [found]
    try:
        return prepare_tools(tools, ToolLimits())
    except BadCall as error:
        raise BadSettings(f"--tool: {error.message}") from None


def _read_price(text: str | None) -> Price | None:
    from antiphon.host.model_table import Price

    if text is None:
        return None
    try:
        read, written = (float(figure) for figure in text.split("/"))
    except ValueError:
        read = written = math.nan
    if not (0 <= read < math.inf and 0 <= written < math.inf):
        raise BadSettings(f"--price: {text!r} is no price; write IN/OUT, as in 0.5/1.5")
    return Price(read, written)


def _open_keyboard(screen: Screen, no_history: bool) -> Keyboard:
    from antiphon.cli.chat_keyboard import History, Keyboard
    from antiphon.cli.places import data_directory

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    history = None if no_history else History(data_directory() / _HISTORY, screen.complain)
    return Keyboard(is_terminal=sys.stdin.isatty() and sys.stdout.isatty(), history=history)


async def _look_around(session: ChatSession) -> None:
    """Learn which models there are. Raise CliError if nobody is there to talk to."""
    from antiphon.cli.remote import explain
    from antiphon.cli.terminal import harmless
    from antiphon.client.errors import ClientError, ServerUnreachable

    settings = session.settings
    needs_model = session.client.wire_api == "chat" and settings.model is None
    try:
        models = await session.directory.list(silent=False)
    except ClientError as error:
        # There are servers without a list; but not without a connection or a key.
        if isinstance(error, ServerUnreachable) or error.status == 401 or needs_model:
            sentence = explain(error, session.client.base_url)
            raise CliError(harmless(sentence, sys.stderr)) from error
        return
    if needs_model:
        if not models:
            raise BadSettings("the server lists no models; name one with --model")
        settings.model = models[0].id


def _greeting(base_url: str) -> str:
    return f"Chat with {base_url}. /help lists the commands; Ctrl-D leaves."


async def _close(client: AsyncClient, directory: ModelDirectory, http: HttpClient) -> None:
    await directory.close()
    await http.close()
    await client.close()
