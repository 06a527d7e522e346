"""`antiphon connect`: print or write the settings with which a client uses the gateway.

stdout gets only what is to be pasted, a diff or a list, so it can be piped. What was chosen,
where it belongs and what to do next goes to stderr. No key is ever written.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

import click
from msgspec.structs import replace

from antiphon.cli import options
from antiphon.cli.connect import places
from antiphon.cli.connect.extension import change_extension
from antiphon.cli.connect.files import Change, apply, diff_of, plan_undo, plan_write
from antiphon.cli.connect.piece import CannotMerge, Piece
from antiphon.cli.connect.recipes import RECIPES, Recipe, quoted
from antiphon.cli.connect.target import Target, unknown_model
from antiphon.cli.errors import CliError
from antiphon.cli.remote import Server, explain, is_loopback, keyed_server, open_client, own_server
from antiphon.cli.terminal import harmless
from antiphon.client.errors import AuthFailed, ClientError
from antiphon.gateway.address import read_server_url
from antiphon.gateway.errors import BadSettings
from antiphon.host.models import ModelDescription, ModelDirectory

__all__ = ["command"]

_KEY: Final = "ANTIPHON_API_KEY"
_NO_MODEL: Final = "MODEL"
_SHOWN_MODELS: Final = 10
_NO_CHOICE: Final = (
    "an agent that expects tool calls will not work well with it. A request can still require one "
    "(tool_choice), and the embedded model calls a tool that the message names."
)


class _Options(NamedTuple):
    """What was asked for."""

    url: str
    models: tuple[str, ...]
    key_env: str | None
    writes: bool
    shows_diff: bool
    where: str
    """The flags that name the file."""


@click.command("connect", epilog="Example:  antiphon connect codex --write")
@click.argument("client", required=False)
@click.option(
    "--url",
    "--base-url",
    "url",
    metavar="URL",
    envvar="ANTIPHON_BASE_URL",
    default=options.DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="The URL of the gateway.",
)
@click.option(
    "--model",
    "-m",
    "models",
    multiple=True,
    metavar="NAME",
    help="Which model; may be repeated, for clients that let you choose.  [default: the first "
    "the gateway lists]",
)
@options.key_env
@click.option("--write", is_flag=True, help="Write it into the client's settings.")
@click.option("--undo", is_flag=True, help="Remove it from the client's settings.")
@click.option("--dry-run", is_flag=True, help="Show what --write or --undo would change.")
@click.option("--file", type=click.Path(path_type=Path), help="The client's settings file.")
@click.option(
    "--profile", metavar="NAME", help="Codex only: a profile of this name, for codex --profile."
)
@click.option(
    "--extension",
    is_flag=True,
    help="VS Code only: install the extension of antiphon; with --undo, remove it.",
)
@click.option(
    "--vsix",
    type=click.Path(path_type=Path),
    help="The file of the extension.  [default: the one in this package]",
)
def command(
    client: str | None,
    url: str,
    models: tuple[str, ...],
    key_env: str | None,
    write: bool,
    undo: bool,
    dry_run: bool,
    file: Path | None,
    profile: str | None,
    extension: bool,
    vsix: Path | None,
) -> None:
    """Set up CLIENT to use the gateway: print what to paste and where, or --write it there.

    Without CLIENT, list the clients. --write changes nothing else in the file and keeps a backup
    beside it; --undo reverts the change. The models come from the gateway, which need not run
    if --model is given.
    """
    if client is None:
        _list()
        return
    if write and undo:
        raise BadSettings("--write and --undo are opposites; pass one of them")
    recipe = _recipe(client)
    if extension or vsix:
        _extend(recipe, url, vsix, removes=undo, shows_only=dry_run)
        return
    path = file or _place(recipe, profile)
    if undo:
        _undo(recipe, path, shows_diff=dry_run)
        return
    where = f" --file {quoted(str(file))}" if file else f" --profile {profile}" if profile else ""
    asked = _Options(url, models, _key_name(key_env), write or dry_run, dry_run, where)
    _connect(recipe, path, asked, profile)


def _list() -> None:
    for recipe in RECIPES.values():
        click.echo(f"{recipe.name:14}  {recipe.about}")
    _note("`antiphon connect CLIENT` prints what to paste; --write does it for you.")


def _recipe(client: str) -> Recipe:
    if client in RECIPES:
        return RECIPES[client]
    close = get_close_matches(client, RECIPES, 1)
    hint = f"did you mean {close[0]}?" if close else f"the clients are {', '.join(RECIPES)}"
    raise BadSettings(f"no client {client!r} is supported; {hint}")


def _place(recipe: Recipe, profile: str | None) -> Path:
    machine = places.Machine.ours()
    if profile is None:
        return recipe.place(machine)
    if recipe.name != "codex":
        raise BadSettings(f"--profile is for codex; {recipe.name} has none")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", profile):
        raise BadSettings(f"--profile: {profile!r} may have letters, digits, - and _ only")
    return places.codex(machine, profile)


def _extend(
    recipe: Recipe, url: str, vsix: Path | None, *, removes: bool, shows_only: bool
) -> None:
    if recipe.name != "vscode":
        raise BadSettings(f"--extension is for vscode; {recipe.name} has none")
    change_extension(vsix, removes=removes, shows_only=shows_only, note=_note)
    if removes or shows_only:
        return
    if shutil.which("antiphon") is None:
        program = Path(sys.argv[0]).resolve()
        _note(f'Set "antiphon.command" in the editor to {program}: it is not in PATH.')
    if url != options.DEFAULT_URL:
        _note(f'Set "antiphon.url" in the editor to {read_server_url(url, "--url")}.')
    _note("Then: choose a model of antiphon in the chat's model picker.")


def _key_name(name: str | None) -> str | None:
    if name is not None and not (name.isascii() and name.isidentifier()):
        # It is not repeated: it may be the key itself.
        raise BadSettings(
            "--key-env: name the environment variable that holds the key, not the key"
        )
    return name


def _note(line: str) -> None:
    """Print a line on stderr, without control characters that a server may have sent."""
    click.echo(harmless(line, sys.stderr), err=True)


def _give(text: str) -> None:
    """Print the result on stdout, without control characters."""
    click.echo(harmless(text, sys.stdout), nl=False)


# What is to be connected.


def _target(asked: _Options) -> Target:
    """Return the target, and print what was chosen and why."""
    url = read_server_url(asked.url, "--url")
    key_env = asked.key_env or (None if is_loopback(url) else _KEY)
    listed: tuple[ModelDescription, ...] = ()
    server = _server(url, key_env)
    try:
        wants_key, listed = asyncio.run(_ask(server))
        key_env = key_env or (_KEY if wants_key else None)
    except ClientError as error:
        _note(f"{explain(error, server)}.")
        key_env = key_env or (_KEY if isinstance(error, AuthFailed) else None)
    names = asked.models or tuple(model.id for model in listed[:1])
    if not names:
        if asked.writes:
            raise CliError("no model can be chosen; pass --model NAME")
        _note(f"Replace {_NO_MODEL} with the name of your model, or pass --model NAME.")
        names = (_NO_MODEL,)
    elif listed:
        _tell_models(names, listed, is_given=bool(asked.models))
    known = {model.id: model for model in listed}
    return Target(url, tuple(known.get(name) or unknown_model(name) for name in names), key_env)


def _tell_models(
    names: tuple[str, ...], listed: tuple[ModelDescription, ...], *, is_given: bool
) -> None:
    ids = [model.id for model in listed]
    shown = ", ".join(ids[:_SHOWN_MODELS])
    more = f" and {len(ids) - _SHOWN_MODELS} more" if len(ids) > _SHOWN_MODELS else ""
    if not is_given:
        others = f" (of {shown}{more}; --model NAME chooses another)" if len(ids) > 1 else ""
        _note(f"Model: {names[0]}{others}")
    for name in names:
        if name not in ids:
            _note(f"The gateway lists no model {name}; it has {shown}{more}.")


def _server(url: str, key_env: str | None) -> Server:
    """Return the gateway with its key, if the environment has one."""
    if not key_env or key_env == _KEY or not os.environ.get(key_env, "").strip():
        return own_server(url)
    server = keyed_server(url, key_env, url_flag="--url", key_flag="--key-env", environ=os.environ)
    return replace(server, key_source=f"it is from {key_env}")


async def _ask(server: Server) -> tuple[bool, tuple[ModelDescription, ...]]:
    """Return whether the gateway needs a key, and its models. Raise ClientError."""
    try:
        return False, await _fetch_models(replace(server, key=None))
    except AuthFailed:
        return True, await _fetch_models(server)


async def _fetch_models(server: Server) -> tuple[ModelDescription, ...]:
    async with open_client(server, max_retries=0) as client:
        return await ModelDirectory(client.http, client.base_url).list(silent=False)


# What is done about it.


def _connect(recipe: Recipe, path: Path, asked: _Options, profile: str | None) -> None:
    target = _target(asked)
    for model in target.models:
        if model.capabilities.tool_calling is False:
            _note(f"{model.id} does not choose tools by itself: {_NO_CHOICE}")
    piece = recipe.piece(target)
    if not asked.writes:
        _print(recipe, target, piece, path)
        return
    try:
        change = plan_write(path, piece)
    except CannotMerge as reason:
        _give(piece.paste())
        raise CliError(
            f"{path} was not changed: {reason}; add the lines above yourself"
        ) from reason
    if asked.shows_diff:
        _show(change)
        return
    _tell_written(change, apply(change), f"antiphon connect {recipe.name}{asked.where} --undo")
    for line in recipe.then(target):
        _note(f"{line} --profile {profile}" if profile and line == "Then: codex" else line)


def _print(recipe: Recipe, target: Target, piece: Piece, path: Path) -> None:
    program = recipe.program(target)
    if program is not None:
        _give(program)
        lines = recipe.run(target)
    else:
        beside = ", and keep the rest of it" if places.is_there(path) else ""
        _note(f"Put this into {path}{beside} (--write does it for you):")
        if beside and recipe.name == "codex":
            _note("The first two lines must come before the first [table] of the file.")
        _give(piece.paste())
        lines = recipe.then(target)
    for line in lines:
        _note(line)


def _show(change: Change) -> None:
    if change.is_none:
        _note(f"{change.path} would not change.")
    _give(diff_of(change))


def _tell_written(change: Change, kept: Path | None, undo: str) -> None:
    if change.is_none:
        _note(f"{change.path} is set up already; nothing was changed.")
        return
    if change.before is None:
        _note(f"Created {change.path}.")
    else:
        _note(f"Changed {change.path}; the old version is {kept}.")
    _note(f"To undo this: {undo}")


def _undo(recipe: Recipe, path: Path, *, shows_diff: bool) -> None:
    try:
        change = plan_undo(path, recipe.piece(Target("", (unknown_model(""),))))
    except CannotMerge as reason:
        raise CliError(
            f"{path} was not changed: {reason}; remove what mentions antiphon yourself"
        ) from reason
    if shows_diff:
        _show(change)
        return
    apply(change)
    if change.is_none:
        _note(f"{path} has no settings of antiphon; nothing was changed.")
    elif change.after is None:
        _note(f"Removed {change.path}, which did not exist before.")
    else:
        kept = f"; the old version is {change.left[0]}" if change.left else ""
        _note(f"Removed the settings from {change.path}{kept}.")
