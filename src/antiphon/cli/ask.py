"""`antiphon ask`: one turn with a running server, its text on stdout as it arrives.

stdout gets only the answer, so it can be piped. Everything about the answer goes to stderr. An
incomplete answer is an error, even if parts of it were printed.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable

import click

from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.cli.remote import (
    Server,
    ending,
    explain,
    is_silent,
    open_client,
    own_server,
    thinking_of,
)
from antiphon.cli.terminal import Screen
from antiphon.client import AsyncClient
from antiphon.client.errors import ClientError
from antiphon.client.parameters import Params
from antiphon.gateway.errors import BadSettings
from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.errors import ChangedCall, DamagedText, MalformedCall, ResponseFailed
from antiphon.host.models import ModelDirectory
from antiphon.host.outcome import spoken_text
from antiphon.protocol.codec import encode_response
from antiphon.protocol.items import item_type, text_of
from antiphon.protocol.response import Response
from antiphon.wires.host.parts import TextPart, ThinkingPart

__all__ = ["command"]

_Way = Callable[[AsyncClient, Params, Screen, bool], Awaitable[Response]]


@click.command(
    "ask",
    epilog='Example:  antiphon ask "Why is the sky blue?" --instructions "Answer in one line."',
    context_settings=options.OLD_NAMES,
)
@options.prompt
@options.base_url
@options.model
@options.instructions
@options.previous
@click.option("--json", "as_json", is_flag=True, help="Print the whole response as JSON.")
@click.option("--no-stream", is_flag=True, help="Do not stream the answer.")
@options.show_thinking
def command(
    prompt: str | None,
    base_url: str,
    model: str | None,
    instructions: str | None,
    previous: str | None,
    as_json: bool,
    no_stream: bool,
    show_thinking: bool,
) -> None:
    """Ask a running server one question and print the answer as it arrives.

    PROMPT is the question. With -, or without PROMPT in a pipe, it is read from standard input.
    If the server needs a key, it is read from ANTIPHON_API_KEY, otherwise from OPENAI_API_KEY.
    """
    params: Params = {
        "model": model,
        "instructions": instructions,
        "previous_response_id": previous,
        "input": _read_prompt(prompt),
    }
    server = own_server(base_url)
    screen = Screen(is_quiet=as_json)
    way = _fetch if no_stream else _follow
    response = asyncio.run(_run(server, params, screen, way, show_thinking))
    if as_json:
        click.echo(encode_response(response))
    _report(response, screen)


def _read_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise BadSettings('there is no question; write it: antiphon ask "Why is the sky blue?"')
    text = _read_stdin() if prompt is None or prompt == "-" else prompt
    if not text.strip():
        raise BadSettings("the question is empty")
    return text


def _read_stdin() -> str:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return options.check_text(sys.stdin.read(), "the question on standard input")


async def _run(
    server: Server, params: Params, screen: Screen, way: _Way, shows_thinking: bool
) -> Response:
    """Run the turn; return its response, which has been shown."""
    try:
        async with open_client(server) as client:
            if shows_thinking:
                directory = ModelDirectory(client.http, client.base_url)
                params |= thinking_of(directory, params.get("model"))
            return await way(client, params, screen, shows_thinking)
    except ClientError as error:
        raise CliError(explain(error, server, "responses")) from error
    finally:
        screen.end_line()


async def _fetch(
    client: AsyncClient, params: Params, screen: Screen, shows_thinking: bool
) -> Response:
    response = await client.create(**params)
    for item in response.output:
        if shows_thinking and item_type(item) == "reasoning":
            thoughts = text_of(item.get("summary")) or text_of(item.get("content"))
            screen.show(ThinkingPart(thoughts))
        screen.show(TextPart(spoken_text(item)))
    return response


async def _follow(
    client: AsyncClient, params: Params, screen: Screen, shows_thinking: bool
) -> Response:
    adapter = StreamAdapter(AdapterSettings(shows_thinking=shows_thinking, annotations="none"))
    async with client.stream(**params) as stream:
        async for event in stream:
            for part in adapter.feed(event):
                screen.show(part)
        response = await stream.final_response()
    try:
        adapter.finish()
    except DamagedText:
        screen.note("the final text differs from the streamed text; --json shows it", is_dim=False)
    except (ResponseFailed, MalformedCall, ChangedCall):
        pass  # the status shows it, once all was printed; and no calls are run here
    return response


def _report(response: Response, screen: Screen) -> None:
    """Report how it ended: a dim line at a terminal, an error if it failed."""
    sentence = ending(response)
    if not sentence and is_silent(response):
        screen.note("(no text)")
    usage = response.usage
    if sys.stderr.isatty():
        tokens = f" · {usage.input_tokens} in, {usage.output_tokens} out" if usage else ""
        screen.note(f"{response.id}{tokens}")
    if sentence:
        raise CliError(sentence)
