"""`antiphon bench`: what does a conversation cost when the server remembers it, and when not?"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from antiphon.backends.chat import ChatBackend
from antiphon.cli import options
from antiphon.cli.bench.plot import SUFFIXES, draw
from antiphon.cli.bench.report import as_json, base_of, table
from antiphon.cli.bench.run import MODES, BenchPlan, MeasuredMode, Mode, measure
from antiphon.cli.errors import CliError
from antiphon.cli.remote import Server, first_model, is_loopback, keyed_server, own_server
from antiphon.cli.terminal import harmless
from antiphon.gateway.address import read_server_url
from antiphon.gateway.errors import BadSettings, how_to_install
from antiphon.testing import ScriptedUpstream, serve_gateway

__all__ = ["command"]

_MODEL: Final = "echo"
_TURNS: Final = 10
_PROMPT_WORDS: Final = 60
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(
    "bench", epilog="Example:  antiphon bench --modes chat,stateless,stateful --plot bench.svg"
)
@click.option(
    "--modes",
    default="chat,stateless,stateful",
    show_default=True,
    help="The modes to compare; ratios refer to the first that works.",
)
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    help="The number of turns.  [default: 10, or as many as there are --prompts]",
)
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Your own questions, one per line.  [default: generated]",
)
@click.option(
    "--prompt-words",
    type=click.IntRange(min=3),
    help="The length of each generated question.  [default: 60]",
)
@click.option(
    "--max-output-tokens",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="The maximum length of an answer.",
)
@options.model_to_ask
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
@click.option("--yes", is_flag=True, help="Allow requests to a server on another machine.")
@click.option("--plot", type=_FILE, metavar="FILE", help="Write a plot: FILE.svg or FILE.png.")
@click.option(
    "--json", "json_file", type=_FILE, metavar="FILE", help="Write all measurements as JSON."
)
def command(
    modes: str,
    turns: int | None,
    prompts: Path | None,
    prompt_words: int | None,
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
    """Run the same conversation in several modes and compare what is sent and how long it takes.

    chat posts the whole conversation to /chat/completions each turn, stateless does the same
    to /responses, stateful posts only what is new. Without --base-url nothing leaves this
    machine: a scripted model answers. Exit code 1: a mode failed, or the plot was not drawn.
    """
    _check_files(plot, json_file)
    questions = _read_prompts(prompts, prompt_words)
    plan = BenchPlan(
        modes=_modes(modes),
        turns=_turns(turns, len(questions)),
        prompt_words=None if questions else prompt_words or _PROMPT_WORDS,
        max_output_tokens=max_output_tokens,
        model=model or "",
        prompts=questions,
    )
    places = _read_places(base_url, chat_url, key_env, chat_key_env)
    if places is not None:
        _announce(plan, places, is_allowed=yes)
    run = _Benchmark(plan, places)
    was_interrupted = run.to_the_end()
    _report(run, json_file, plot, is_scripted=places is None)
    if was_interrupted:
        raise CliError("interrupted; these are the turns that were measured")
    if any(mode.failure for mode in run.measured):
        raise SystemExit(1)


def _report(
    run: _Benchmark, json_file: Path | None, plot: Path | None, *, is_scripted: bool
) -> None:
    """Print and write what was measured, if anything was tried at all."""
    if not any(mode.turns or mode.failure for mode in run.measured):
        return
    shown = f"{_heading(run)}\n{table(run.measured)}"
    click.echo(harmless(shown, sys.stdout))
    if json_file is not None:
        data = as_json(run.plan, run.urls, run.measured, is_scripted=is_scripted)
        _write(json_file, lambda: json_file.write_bytes(data))
    if plot is None:
        return
    if not any(mode.turns for mode in run.measured):
        raise CliError(f"{plot} was not written: no mode completed a turn")
    title = f"{run.plan.turns} turns with {run.plan.model}"
    _write(plot, lambda: draw(plot, title, run.measured))


def _read_prompts(path: Path | None, prompt_words: int | None) -> list[str]:
    """Return the questions of the file; none if there is no file."""
    if path is None:
        return []
    if prompt_words is not None:
        raise BadSettings("--prompt-words is for generated questions, not for --prompts")
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"--prompts: {path} cannot be read: {error}") from None
    questions = [line.strip() for line in lines if line.strip()]
    if not questions:
        raise BadSettings(f"--prompts: there is no question in {path}")
    return questions


def _turns(turns: int | None, questions: int) -> int:
    if turns is not None and questions and turns > questions:
        raise BadSettings(f"--turns: there are only {questions} questions in --prompts")
    return turns or questions or _TURNS


def _modes(text: str) -> list[Mode]:
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
    if plot is not None and plot.suffix.lower() not in SUFFIXES:
        raise BadSettings(f"--plot: {plot.name!r} must end in {' or '.join(SUFFIXES)}")
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise BadSettings(f"--plot: matplotlib is missing; {how_to_install('plot')} brings it")
    for flag, path in (("--plot", plot), ("--json", json_file)):
        if path is not None and not path.absolute().parent.is_dir():
            raise BadSettings(f"{flag}: there is no directory {path.parent}")


def _read_places(
    base_url: str | None, chat_url: str | None, key_env: str | None, chat_key_env: str | None
) -> _Places | None:
    """Return where to send, or None for servers of our own."""
    if base_url is None:
        if chat_url or key_env or chat_key_env:
            raise BadSettings("--chat-url and keys need --base-url: without it no server is asked")
        return None
    if key_env is None:
        responses = own_server(base_url)
    else:
        responses = keyed_server(
            base_url, key_env, url_flag="--base-url", key_flag="--key-env", environ=os.environ
        )
    if chat_url is None:
        return _Places(responses, responses)
    return _Places(responses, _chat_server(chat_url, chat_key_env, responses))


def _chat_server(chat_url: str, key_env: str | None, responses: Server) -> Server:
    """Return the chat server. A key is for the server it was given for."""
    if key_env is not None:
        return keyed_server(chat_url, key_env, url_flag="--chat-url", key_flag="--chat-key-env")
    url = read_server_url(chat_url, "--chat-url")
    # Scheme, host and port: the same server may have another path.
    ours, theirs = (place.lower().split("/")[:3] for place in (url, responses.base_url))
    if ours == theirs:
        return msgspec.structs.replace(responses, base_url=url)
    return Server(url, key_source="name the variable with its key: --chat-key-env NAME")


class _Places(NamedTuple):
    """The server of each mode."""

    responses: Server
    chat: Server

    def of(self, mode: Mode) -> Server:
        """Return where the requests of a mode go."""
        return self.chat if mode.wire_api == "chat" else self.responses


def _announce(plan: BenchPlan, places: _Places, *, is_allowed: bool) -> None:
    """Return what will be sent where. Raise BadSettings if that needs to be allowed first."""
    counts: dict[str, int] = {}
    for mode in plan.modes:
        url = places.of(mode).base_url
        counts[url] = counts.get(url, 0) + plan.turns
    listed = " and ".join(f"{count} to {url}" for url, count in counts.items())
    if not is_allowed and not all(map(is_loopback, counts)):
        raise BadSettings(
            f"this would send requests, {listed}, which may cost money; pass --yes to do it"
        )
    first = "" if plan.model else ", after one for the list of models"
    click.echo(f"sending requests: {listed}{first}", err=True)


class _Benchmark:
    """Runs the benchmark and keeps what was measured, however it ends."""

    def __init__(self, plan: BenchPlan, places: _Places | None) -> None:
        self.plan = plan
        self.urls: dict[str, str] = {}
        self.measured: list[MeasuredMode] = []
        self._places = places

    def to_the_end(self) -> bool:
        """Measure everything; return whether it was interrupted."""
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
        if not self.plan.model:
            model = await first_model(places.of(self.plan.modes[0]))
            self.plan = msgspec.structs.replace(self.plan, model=model)
        self.urls = {mode.name: places.of(mode).base_url for mode in self.plan.modes}
        turns = self.plan.turns
        await measure(
            self.plan, places.of, self.measured, lambda turn: _show(f"turn {turn} of {turns}")
        )


@asynccontextmanager
async def _own_servers() -> AsyncIterator[_Places]:
    """Run a scripted model, and a gateway in front of it."""
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


def _show(progress: str) -> None:
    """Show where we are: on a terminal in one line that changes, and is empty at the end."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{progress}", err=True, nl=False)
    elif progress:
        click.echo(progress, err=True)


def _heading(run: _Benchmark) -> str:
    plan = run.plan
    questions = f"questions of {plan.prompt_words} words" if plan.prompt_words else "your questions"
    return (
        f"{plan.turns} turns with {plan.model}: {questions}, "
        f"answers of at most {plan.max_output_tokens} tokens\n"
        f"sizes are totals, times medians, ratios to {base_of(run.measured).mode}; "
        "~ is an estimate\n"
    )


def _write(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None
