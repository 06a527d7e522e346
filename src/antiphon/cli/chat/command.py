"""`antiphon chat`: a conversation with a running server, in the terminal or through a pipe.

Answers and the output of commands go to stdout; the status line, thinking, tool calls and errors
go to stderr. In a pipe, every line of stdin is a question.
"""

from __future__ import annotations

import asyncio
import io
import math
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from antiphon.cli import options
from antiphon.cli.chat.keyboard import History, Keyboard
from antiphon.cli.chat.loop import Chat
from antiphon.cli.chat.session import ChatSession, ChatSettings
from antiphon.cli.chat.slash_commands import ChatContext, complete
from antiphon.cli.errors import CliError
from antiphon.cli.markdown import Markdown
from antiphon.cli.remote import Server, explain, lacks_list, open_client, own_server
from antiphon.cli.terminal import Screen, renders_markdown
from antiphon.client import AsyncClient
from antiphon.client.errors import BadCall, ClientError, ServerUnreachable
from antiphon.client.settings import WireApi
from antiphon.client.tool_limits import ToolLimits, prepare_tools
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.places import data_directory
from antiphon.host.models import ModelDirectory
from antiphon.models.prices import Price

__all__ = ["command"]

_HISTORY: Final = "chat_history"
_LIST_SECONDS: Final = 5.0


@click.command(
    "chat",
    epilog='Example:  antiphon chat --instructions "Answer in one line."',
    context_settings=options.OLD_NAMES,
)
@options.base_url
@options.model
@options.instructions
@options.previous
@options.show_thinking
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
    help="The API of the server: Responses, or only chat completions.",
)
@click.option(
    "--price",
    metavar="IN/OUT",
    help="US dollars for a million tokens, for models whose price is not known.",
)
@click.option("--no-history", is_flag=True, help="Do not read or write the history of the chat.")
@click.option("--plain", is_flag=True, help="Show answers as they arrive: no Markdown, no spinner.")
def command(
    base_url: str,
    model: str | None,
    instructions: str | None,
    previous: str | None,
    show_thinking: bool,
    tools: tuple[Path, ...],
    wire_api: WireApi,
    price: str | None,
    no_history: bool,
    plain: bool,
) -> None:
    """Chat with a model of a running server.

    /help lists the commands of the chat; Ctrl-C stops an answer, Ctrl-D quits. Tools are not
    run: their calls are shown, and you type the results. In a pipe, every line is a question.
    If the server needs a key, it is read from ANTIPHON_API_KEY, otherwise from OPENAI_API_KEY.
    """
    if previous and wire_api == "chat":
        raise BadSettings(
            "--previous: a chat-completions server stores no response to continue from"
        )
    settings = ChatSettings(
        model=model,
        instructions=instructions,
        shows_thinking=show_thinking,
        tools=_read_tools(tools),
        price=_read_price(price),
    )
    server = own_server(base_url)
    is_terminal = _is_terminal()
    screen = _open_screen(is_terminal=is_terminal, is_plain=plain)
    at_terminal = partial(_open_keyboard, screen, keeps=not no_history)
    open_keyboard = at_terminal if is_terminal else _open_pipe
    went_well = _talk(server, wire_api, settings, previous, open_keyboard, screen)
    # At a terminal the errors were read, and the person went on.
    if not went_well and not is_terminal:
        raise click.exceptions.Exit(1)


def _talk(
    server: Server,
    wire_api: WireApi,
    settings: ChatSettings,
    previous: str | None,
    open_keyboard: Callable[[ModelDirectory], Keyboard],
    screen: Screen,
) -> bool:
    """Run the chat; return whether everything succeeded."""
    with asyncio.Runner() as runner:
        client = open_client(server, wire_api=wire_api)
        directory = ModelDirectory(client.http, client.base_url, timeout=_LIST_SECONDS)
        session = ChatSession(client, directory, settings, screen.note, previous=previous)
        try:
            runner.run(_look_around(session, server))
            keyboard = open_keyboard(directory)
            if keyboard.is_terminal:
                screen.note(f"Chat with {client.base_url}. /help lists the commands; Ctrl-D quits.")
            return Chat(ChatContext(session, server, keyboard, screen, runner.run)).run()
        finally:
            runner.run(_close(client, directory))


def _read_tools(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Return the tools of all files, checked. Raise BadSettings for one that cannot be used."""
    tools: list[Any] = []
    for path in paths:
        try:
            found = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadSettings(f"--tool: {path} cannot be read: {error}") from None
        tools += found if isinstance(found, list) else [found]
        try:
            # With the tools of earlier files: a name that appears twice is reported for the second.
            prepare_tools(tools, ToolLimits())
        except BadCall as error:
            raise BadSettings(f"--tool: {path}: {error.message}") from None
    return prepare_tools(tools, ToolLimits())


def _read_price(text: str | None) -> Price | None:
    if text is None:
        return None
    try:
        read, written = (float(figure) for figure in text.split("/"))
    except ValueError:
        read = written = math.nan
    if not (0 <= read < math.inf and 0 <= written < math.inf):
        raise BadSettings(f"--price: {text!r} is not a price; write IN/OUT, as in 0.5/1.5")
    return Price(read, written)


def _is_terminal() -> bool:
    """Return whether a person types, and sees at least what is on stderr (`| tee log`)."""
    return sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty())


def _open_screen(*, is_terminal: bool, is_plain: bool) -> Screen:
    markdown = None
    if is_terminal and renders_markdown(is_plain=is_plain):
        markdown = Markdown(lambda: shutil.get_terminal_size().columns)
    return Screen(markdown=markdown, spins=is_terminal and not is_plain)


def _open_keyboard(screen: Screen, directory: ModelDirectory, *, keeps: bool) -> Keyboard:
    """Return the keyboard of a terminal, which completes the names of the models known by then."""
    from antiphon.cli.chat.editor import Editor

    stream = sys.stdout if sys.stdout.isatty() else sys.stderr
    editor = Editor(stream, lambda text: complete(text, (it.id for it in directory.known)))
    history = History(data_directory() / _HISTORY, screen.complain) if keeps else None
    return Keyboard(editor=editor, history=history)


def _open_pipe(_: ModelDirectory) -> Keyboard:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return Keyboard()


async def _look_around(session: ChatSession, server: Server) -> None:
    """Ask for the models, and choose one if need be. Raise CliError if there is no server."""
    settings = session.settings
    needs_model = session.client.wire_api == "chat" and settings.model is None
    try:
        models = await session.directory.list(silent=False)
    except ClientError as error:
        # There are servers without a list; but not without a connection or a key.
        if isinstance(error, ServerUnreachable) or error.status == 401 or needs_model:
            advice = "; name a model with --model" if lacks_list(error) else ""
            raise CliError(f"{explain(error, server)}{advice}") from error
        return
    if needs_model:
        if not models:
            raise BadSettings("the server lists no models; name one with --model")
        settings.model = models[0].id


async def _close(client: AsyncClient, directory: ModelDirectory) -> None:
    await directory.close()
    await client.close()
