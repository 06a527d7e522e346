"""The commands of the chat: the lines that begin with a slash, as a table.

A command reports what it did, or raises a CliError with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from antiphon.cli.chat.keyboard import Keyboard
from antiphon.cli.chat.save import as_json, as_markdown, default_name, write_file
from antiphon.cli.chat.session import ChatSession, ChatTurn, Cost
from antiphon.cli.errors import CliError
from antiphon.cli.remote import Server, explain
from antiphon.cli.terminal import Screen, shorten
from antiphon.host.models import ModelDescription
from antiphon.host.usage import Totals
from antiphon.protocol.errors import AntiphonError

__all__ = ["COMMANDS", "ChatContext", "Quit", "RunAsync", "complete", "run_command"]

_T = TypeVar("_T")
_FIRST_WORDS: Final = 60
_CLEAR: Final = "-"
_OTHER_NAMES: Final = {"exit": "quit", "bye": "quit", "models": "model", "clear": "new"}


class RunAsync(Protocol):
    """Runs a coroutine to its end; Ctrl-C cancels it and raises KeyboardInterrupt."""

    def __call__(self, work: Coroutine[Any, Any, _T], /) -> _T: ...


class Quit(Exception):
    """The user quits."""


class ChatContext(NamedTuple):
    """What a chat works with."""

    session: ChatSession
    server: Server
    keyboard: Keyboard
    screen: Screen
    run: RunAsync

    def explain(self, error: AntiphonError) -> str:
        """Return what went wrong, in one sentence."""
        return explain(error, self.server, self.session.client.wire_api)


class Command(msgspec.Struct, frozen=True):
    """One command. `takes` is what may follow its name."""

    name: str
    takes: str
    about: str
    act: Callable[[ChatContext, str], None]


def run_command(context: ChatContext, line: str) -> None:
    """Run the command in a line that begins with a slash."""
    name, argument = [*line[1:].split(None, 1), "", ""][:2]
    name = name.lower()
    command = _BY_NAME.get(_OTHER_NAMES.get(name, name))
    if command is None:
        raise CliError(_unknown(name))
    argument = argument.strip()
    if argument and not command.takes:
        raise CliError(f"/{command.name} takes no argument")
    command.act(context, argument)


def complete(text: str, models: Iterable[str]) -> list[str]:
    """Return the lines that the beginning of a command may become."""
    name, space, _ = text.partition(" ")
    if not space:
        lines = [f"/{row.name}{' ' if row.takes else ''}" for row in COMMANDS]
    elif name == "/model":
        lines = [f"/model {model}" for model in models]
    elif name == "/thinking":
        lines = ["/thinking on", "/thinking off"]
    else:
        lines = []
    return [line for line in lines if text and line.startswith(text)]


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, _BY_NAME, n=1)
    hint = f"did you mean /{close[0]}?" if close else "/help lists the commands."
    return (
        f"there is no command /{name}; {hint} To send a text that begins with /, begin it with //"
    )


def _model(context: ChatContext, name: str) -> None:
    session = context.session
    models = context.run(session.directory.refresh(silent=bool(name)))
    if not name:
        context.screen.tell(_model_list(models, session.model))
        return
    listed = [model.id for model in models]
    if listed and name not in listed:
        close = difflib.get_close_matches(name, listed, n=1)
        hint = f"did you mean {close[0]}?" if close else "/model lists the models"
        raise CliError(f"the server does not list {name}; {hint}")
    session.settings.model = name
    context.screen.note(f"{name} is used from now on")


def _model_list(models: Sequence[ModelDescription], current: str | None) -> str:
    if not models:
        return "the server lists no models"
    lines = [f"{'*' if model.id == current else ' '} {model.id}" for model in models]
    if current is None:
        lines.append("the server chooses; /model NAME sets a model")
    return "\n".join(lines)


def _new(context: ChatContext, _: str) -> None:
    context.session.reset()
    context.screen.note("a new conversation")


def _fork(context: ChatContext, number: str) -> None:
    session = context.session
    if not session.turns:
        raise CliError("there are no turns yet")
    if not number:
        context.screen.tell("\n".join(_turn_line(turn, session.head) for turn in session.turns))
        return
    if not number.isdecimal() or not session.fork(int(number)):
        raise CliError(f"there is no turn {number}; /fork lists the turns")
    prompt = session.turns[session.head - 1].prompt
    context.screen.note(f"continuing from turn {session.head}: {shorten(prompt, _FIRST_WORDS)}")


def _turn_line(turn: ChatTurn, head: int) -> str:
    mark = "*" if turn.number == head else " "
    branch = "" if turn.parent == turn.number - 1 else f"  (from {turn.parent})"
    return f"{mark}{turn.number:3}  {shorten(turn.prompt, _FIRST_WORDS)}{branch}"


def _save(context: ChatContext, name: str) -> None:
    session = context.session
    if not session.turns:
        raise CliError("there is nothing to save yet")
    name = _unquoted(name) or default_name(datetime.now().isoformat(timespec="seconds"))
    path = Path(name).expanduser()
    if path.is_dir():
        raise CliError(f"{path} is a directory; name a file in it")
    content = _json_of(session) if path.suffix.lower() == ".json" else _markdown_of(session)
    try:
        _write(context, path, content)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None


def _unquoted(name: str) -> str:
    """Return a name without the quotes that a shell would have taken off."""
    quoted = len(name) > 1 and name[0] == name[-1] and name[0] in "\"'"
    return name[1:-1] if quoted else name


def _write(context: ChatContext, path: Path, content: bytes) -> None:
    try:
        write_file(path, content, overwrite=False)
    except FileExistsError:
        if not context.keyboard.confirm(f"{path} exists already. Overwrite it?"):
            raise CliError(f"{path} exists already and was not changed") from None
        write_file(path, content, overwrite=True)
    context.screen.note(f"saved to {path}")


def _markdown_of(session: ChatSession) -> bytes:
    assert session.thread is not None
    return as_markdown(
        session.thread.items,
        title=f"Chat with {session.model or 'a model'}",
        instructions=session.settings.instructions,
    )


def _json_of(session: ChatSession) -> bytes:
    thread = session.thread
    assert thread is not None
    about = {
        "base_url": session.client.base_url,
        "model": session.model,
        "instructions": session.settings.instructions,
        "response_id": thread.response_id,
        "is_whole": thread.is_whole,
        "turns": [
            {"number": turn.number, "prompt": turn.prompt, "response_id": turn.thread.response_id}
            for turn in session.path()
        ],
    }
    return as_json(thread.items, about)


def _thinking(context: ChatContext, word: str) -> None:
    settings = context.session.settings
    if word not in ("", "on", "off"):
        raise CliError("use /thinking on or /thinking off")
    if word:
        settings.shows_thinking = word == "on"
    context.screen.note(f"thinking is {'shown' if settings.shows_thinking else 'hidden'}")


def _instructions(context: ChatContext, text: str) -> None:
    settings = context.session.settings
    if text:
        settings.instructions = None if text == _CLEAR else text
    context.screen.note(f"instructions: {settings.instructions or 'none'}")


def _status(context: ChatContext, _: str) -> None:
    session, settings = context.session, context.session.settings
    thread = session.thread
    rows = {
        "server": f"{session.client.base_url} ({session.client.wire_api})",
        "model": session.model or "the server chooses",
        "instructions": shorten(settings.instructions or "none", _FIRST_WORDS),
        "thinking": "shown" if settings.shows_thinking else "hidden",
        "tools": ", ".join(str(tool["name"]) for tool in settings.tools) or "none",
        "turns": f"{len(session.path())} here, {len(session.turns)} in all",
        "tokens": _tokens(session.totals),
        "cost": _money(session.cost) if session.cost else "not known",
        "previous": (thread and thread.response_id) or "no response yet",
    }
    context.screen.tell("\n".join(f"{name:13} {value}" for name, value in rows.items()))


def _tokens(totals: Totals) -> str:
    mark = "~" if totals.estimated_turns else ""
    return (
        f"in {mark}{totals.input:,} ({totals.cached:,} cached) · "
        f"out {mark}{totals.output:,} ({totals.reasoning:,} reasoning)"
    )


def _money(cost: Cost) -> str:
    """Return a sum as the status line writes it."""
    least = "at least " if cost.is_partial else ""
    if 0 < cost.dollars < 0.0001:
        return f"{least}<$0.0001"
    mark = "~" if cost.is_estimate else ""
    return f"{least}{mark}${cost.dollars:,.{2 if cost.dollars >= 1 else 4}f}"


def _help(context: ChatContext, _: str) -> None:
    rows = [f"{f'/{row.name} {row.takes}':23} {row.about}" for row in COMMANDS]
    context.screen.tell("\n".join([*rows, "", _KEYS]))


def _quit(context: ChatContext, _: str) -> None:
    raise Quit


COMMANDS: Final = (
    Command("model", "[NAME]", "Use this model; without a name, list the models.", _model),
    Command("new", "", "Start a new conversation.", _new),
    Command("fork", "[N]", "Continue from turn N; without a number, list the turns.", _fork),
    Command(
        "save", "[FILE]", "Save it as Markdown, or with all items if FILE ends in .json.", _save
    ),
    Command("thinking", "[on|off]", "Show the model's thinking, or hide it.", _thinking),
    Command(
        "instructions",
        "[TEXT]",
        f"Set the instructions for the model; {_CLEAR} removes them.",
        _instructions,
    ),
    Command("status", "", "Show the state and the usage of the conversation.", _status),
    Command("help", "", "Show this.", _help),
    Command("quit", "", "Quit the chat.", _quit),
)
_BY_NAME: Final = {command.name: command for command in COMMANDS}
_KEYS: Final = """\
A line that ends in \\ continues in the next. \"\"\" begins and ends a text of several lines.
// at the beginning sends a text that begins with /. Tab completes commands and models.
Ctrl-C stops an answer or clears the line. Ctrl-C twice, Ctrl-D or exit quits."""
