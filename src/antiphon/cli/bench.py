"""`antiphon bench`: what does a conversation cost when the server remembers it, and when not?"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from antiphon.cli.errors import BadSettings, CliError

if TYPE_CHECKING:
    from antiphon.cli.bench_run import Measured, Mode, Plan, Server

__all__ = ["command"]

_MODEL: Final = "echo"
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(
    "bench",
    short_help="Compare chat, stateless and stateful conversations.",
    epilog="Example:  antiphon bench --modes chat,stateless,stateful --plot bench.svg",
)
@click.option(
    "--modes",
    default="chat,stateless,stateful",
    show_default=True,
    help="Which to compare; ratios are to the first.",
)
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How long the conversation is.",
)
@click.option(
    "--prompt-words",
    type=click.IntRange(min=3),
    default=60,
    show_default=True,
    help="How long each question is.",
)
@click.option(
    "--max-output-tokens",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="How long an answer may get.",
)
@click.option("--model", "-m", help="Which model to ask.  [default: the first it lists]")
@click.option(
    "--base-url",
    metavar="URL",
    help="The Responses server.  [default: one of its own, with a scripted model]",
)
@click.option(
    "--chat-url", metavar="URL", help="The chat-completions server.  [default: that of --base-url]"
)
@click.option(
    "--key-env",
    metavar="NAME",
    help="The variable that holds the key.  [default: ANTIPHON_API_KEY, else OPENAI_API_KEY]",
)
@click.option(
    "--chat-key-env",
    metavar="NAME",
    help="The same for --chat-url, if that is another server.  [default: no key]",
)
@click.option("--yes", is_flag=True, help="Send to a server that is not on this machine.")
@click.option("--plot", type=_FILE, metavar="FILE", help="Draw it: FILE.svg or FILE.png.")
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write every figure.")
def command(
    modes: str,
    turns: int,
    prompt_words: int,
    max_output_tokens: int,
    model: str | None,
    base_url: str | None,
    chat_url: str | None,
    key_env: str | None,
    chat_key_env: str | None,
    yes: bool,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    """Have the same conversation in several modes and compare what is sent and how long it takes.

    chat posts the whole conversation to /chat/completions each turn, stateless does the same
    to /responses, stateful posts only what is new. Without --base-url nothing leaves this
    machine: a scripted model answers. Exit code 1: a mode failed, or the plot was not drawn.
    """
    from antiphon.cli.bench_report import as_json, table
    from antiphon.cli.bench_run import Plan

    _check_files(plot, json_file)
    plan = Plan(
        modes=_modes(modes),
        turns=turns,
        prompt_words=prompt_words,
        max_output_tokens=max_output_tokens,
        model=model or "",
    )
    places = _read_places(base_url, chat_url, key_env, chat_key_env)
    if places is not None:
        _announce(plan, places, is_allowed=yes)
    run = _Run(plan, places)
    was_interrupted = run.to_the_end()
    if any(mode.turns or mode.failure for mode in run.measured):
        click.echo(_heading(run.plan))
        click.echo(table(run.measured))
        if json_file is not None:
            is_scripted = places is None
            data = as_json(run.plan, run.urls, run.measured, is_scripted=is_scripted)
            _write(json_file, lambda: json_file.write_bytes(data))
        if plot is not None:
            _draw(plot, run)
    if was_interrupted:
        raise CliError("interrupted; these are the turns that were measured")
    if any(mode.failure for mode in run.measured):
        raise SystemExit(1)


def _modes(text: str) -> list[Mode]:
    from antiphon.cli.bench_run import MODES

    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in MODES:
            raise BadSettings(
                f"--modes: there is no mode {name!r}; the modes are {', '.join(MODES)}"
            )
    if len(set(names)) < len(names):
        raise BadSettings("--modes: name each mode once")
    return [MODES[name] for name in names]


def _check_files(plot: Path | None, json_file: Path | None) -> None:
    """Refuse at once what would fail only after everything was sent."""
    from antiphon.cli.bench_plot import SUFFIXES

    if plot is not None and plot.suffix.lower() not in SUFFIXES:
        raise BadSettings(f"--plot: {plot.name!r} must end in {' or '.join(SUFFIXES)}")
    for flag, path in (("--plot", plot), ("--json", json_file)):
        if path is not None and not path.absolute().parent.is_dir():
            raise BadSettings(f"{flag}: there is no directory {path.parent}")


def _read_places(
    base_url: str | None, chat_url: str | None, key_env: str | None, chat_key_env: str | None
) -> _Places | None:
    """Return where to send, or None for servers of our own."""
    from antiphon.cli.address import read_server_url
    from antiphon.cli.bench_run import Server
    from antiphon.cli.remote import key_from

    if base_url is None:
        if chat_url or key_env or chat_key_env:
            raise BadSettings("--chat-url and keys need --base-url: without it no server is asked")
        return None
    names = (key_env,) if key_env else ("ANTIPHON_API_KEY", "OPENAI_API_KEY")
    responses = Server(read_server_url(base_url, "--base-url"), key_from(*names), os.environ)
    if key_env and responses.key is None:
        raise BadSettings(f"--key-env: the environment variable {key_env} is not set")
    if chat_url is None:
        return _Places(responses, responses)
    url = read_server_url(chat_url, "--chat-url")
    if chat_key_env:
        chat_key = key_from(chat_key_env)
        if chat_key is None:
            raise BadSettings(f"--chat-key-env: the environment variable {chat_key_env} is not set")
        return _Places(responses, Server(url, chat_key))
    if _origin(url) == _origin(responses.base_url):
        return _Places(responses, Server(url, responses.key, os.environ))
    return _Places(responses, Server(url))  # a key is for the server it was given for


class _Places:
    """The server of each mode."""

    def __init__(self, responses: Server, chat: Server) -> None:
        self.responses: Final = responses
        self.chat: Final = chat

    def of(self, mode: Mode) -> Server:
        """Return where the requests of a mode go."""
        return self.chat if mode.wire_api == "chat" else self.responses


def _origin(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}".lower()


def _announce(plan: Plan, places: _Places, *, is_allowed: bool) -> None:
    """Say what will be sent where. Raise BadSettings if that needs to be allowed first."""
    from antiphon.server.auth import is_loopback_name

    counts: dict[str, int] = {}
    for mode in plan.modes:
        url = places.of(mode).base_url
        counts[url] = counts.get(url, 0) + plan.turns
    listed = " and ".join(f"{count} to {url}" for url, count in counts.items())
    is_foreign = not all(is_loopback_name(_origin(url).partition("//")[2]) for url in counts)
    if is_foreign and not is_allowed:
        raise BadSettings(
            f"this would send requests, {listed}, which may cost money; pass --yes to do it"
        )
    first = "" if plan.model else ", after one for the list of models"
    click.echo(f"sending requests: {listed}{first}", err=True)


class _Run:
    """Runs the benchmark and keeps what was measured, however it ends."""

    def __init__(self, plan: Plan, places: _Places | None) -> None:
        self.plan = plan
        self.urls: dict[str, str] = {}
        self.measured: list[Measured] = []
        self._places = places

    def to_the_end(self) -> bool:
        """Measure everything; say whether somebody interrupted it."""
        import asyncio

        try:
            asyncio.run(self._run())
        except KeyboardInterrupt:
            return True
        finally:
            _show("")
        return False

    async def _run(self) -> None:
        if self._places is not None:
            await self._measure(self._places)
            return
        async with _own_servers() as places:
            await self._measure(places)

    async def _measure(self, places: _Places) -> None:
        import msgspec

        from antiphon.cli.bench_run import measure

        if not self.plan.model:
            model = await _first_model(places.of(self.plan.modes[0]))
            self.plan = msgspec.structs.replace(self.plan, model=model)
        self.urls = {mode.name: places.of(mode).base_url for mode in self.plan.modes}
        turns = self.plan.turns
        await measure(
            self.plan, places.of, self.measured, lambda turn: _show(f"turn {turn} of {turns}")
        )


@asynccontextmanager
async def _own_servers() -> AsyncIterator[_Places]:
    """Run a scripted model, and a gateway in front of it."""
    from antiphon.backends.chat import ChatBackend
    from antiphon.cli.bench_run import Server
    from antiphon.testing import ScriptedUpstream, serve_gateway

    async with (
        ScriptedUpstream(models=[_MODEL], remember=False) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        click.echo(
            f"no --base-url: a scripted model at {upstream.base_url} answers, for /responses "
            f"through a gateway at {gateway.base_url}; times are those of this machine alone",
            err=True,
        )
        yield _Places(Server(gateway.base_url), Server(upstream.base_url))


async def _first_model(server: Server) -> str:
    from antiphon.client import AsyncClient
    from antiphon.client.errors import ClientError

    async with AsyncClient(
        base_url=server.base_url, api_key=server.key or "", environ=server.environ
    ) as client:
        try:
            models = await client.models()
        except ClientError as error:
            raise CliError(f"no list of models ({error}); pass --model NAME") from None
    if not models:
        raise CliError(f"{server.base_url} lists no models; pass --model NAME")
    return models[0].id


def _show(progress: str) -> None:
    """Show where we are: on a terminal in one line that changes, and is empty at the end."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{progress}", err=True, nl=False)
    elif progress:
        click.echo(progress, err=True)


def _heading(plan: Plan) -> str:
    return (
        f"{plan.turns} turns, questions of {plan.prompt_words} words, answers of at most "
        f"{plan.max_output_tokens} tokens, model {plan.model}\n"
        f"sizes are totals, times medians of a turn, ratios to {plan.modes[0].name}; "
        "~ is an estimate\n"
    )


def _draw(plot: Path, run: _Run) -> None:
    from antiphon.cli.bench_plot import draw

    title = f"{run.plan.turns} turns with {run.plan.model}"
    try:
        _write(plot, lambda: draw(plot, title, run.measured))
    except ImportError:
        raise CliError(
            f"{plot} was not drawn: matplotlib is missing; pip install 'antiphon[plot]' has it"
        ) from None


def _write(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None
