"""`antiphon ask`: one turn with a running server, its text on stdout as it comes.

stdout holds the answer and nothing else, so it can be piped. Everything said about the answer
goes to stderr. An answer that is not whole is an error, whatever was printed before.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

import click

from antiphon.cli.errors import BadSettings, CliError

if TYPE_CHECKING:
    from antiphon.cli.terminal import Screen
    from antiphon.client import AsyncClient
    from antiphon.client.parameters import Params
    from antiphon.protocol.response import Response

__all__ = ["command"]

_DEFAULT_URL: Final = "http://127.0.0.1:4680/v1"


@click.command(
    "ask",
    short_help="Ask a running server one question.",
    epilog='Example:  antiphon ask "Why is the sky blue?" --instructions "Answer in one line."',
)
@click.argument("prompt", required=False)
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
@click.option("--json", "as_json", is_flag=True, help="Print the whole response as JSON.")
@click.option("--no-stream", is_flag=True, help="Ask for the answer in one piece.")
@click.option(
    "--show-reasoning", "thinking", is_flag=True, help="Show the model's reasoning on stderr."
)
def command(
    prompt: str | None,
    base_url: str,
    model: str | None,
    instructions: str | None,
    previous: str | None,
    as_json: bool,
    no_stream: bool,
    thinking: bool,
) -> None:
    """Ask a running server one question and print the answer as it comes.

    PROMPT is the question; - reads it from standard input, and so does leaving it out when
    something is piped in. The key, if the server wants one, is taken from ANTIPHON_API_KEY,
    else OPENAI_API_KEY.
    """
    import asyncio

    from antiphon.cli.address import read_server_url
    from antiphon.cli.remote import open_client
    from antiphon.cli.terminal import Screen

    params: Params = {
        "model": model,
        "instructions": instructions,
        "previous_response_id": previous,
        "input": _read_prompt(prompt),
    }
    client = open_client(read_server_url(base_url, "--base-url"))
    screen = Screen(is_quiet=as_json)
    way = _fetch(client, params, screen) if no_stream else _follow(client, params, screen, thinking)
    response = asyncio.run(_run(client, way, screen))
    if as_json:
        from antiphon.protocol.codec import encode_response

        click.echo(encode_response(response))
    _report(response)


def _read_prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise BadSettings('there is no question; write it: antiphon ask "Why is the sky blue?"')
    text = sys.stdin.read() if prompt in (None, "-") else prompt
    assert text is not None
    if not text.strip():
        raise BadSettings("the question is empty")
    return text


async def _run(client: AsyncClient, way: Awaitable[Response], screen: Screen) -> Response:
    """Run the turn; return its response, which has been shown."""
    from antiphon.cli.remote import explain
    from antiphon.client.errors import ClientError

    try:
        async with client:
            return await way
    except ClientError as error:
        raise _failure(explain(error, client.base_url)) from error
    finally:
        screen.end_line()


async def _fetch(client: AsyncClient, params: Params, screen: Screen) -> Response:
    from antiphon.host.outcome import spoken_text
    from antiphon.host.parts import TextPart

    response = await client.create(**params)
    for item in response.output:
        screen.show(TextPart(spoken_text(item)))
    return response


async def _follow(
    client: AsyncClient, params: Params, screen: Screen, shows_thinking: bool
) -> Response:
    from antiphon.host.adapter import AdapterSettings, StreamAdapter
    from antiphon.host.errors import DamagedText, MalformedCall, ResponseFailed

    adapter = StreamAdapter(AdapterSettings(shows_thinking=shows_thinking, annotations="none"))
    async with client.stream(**params) as stream:
        async for event in stream:
            for part in adapter.feed(event):
                screen.show(part)
        response = await stream.final_response()
    try:
        adapter.finish()
    except DamagedText:
        screen.note("the final text is not what was streamed; --json shows it", is_dim=False)
    except (ResponseFailed, MalformedCall):
        pass  # the status tells, when all has been shown; and nobody here runs calls
    return response


def _report(response: Response) -> None:
    """Say how it ended: a dim line for a person, an error if it did not end well."""
    usage = response.usage
    if sys.stderr.isatty():
        tokens = f" · {usage.input_tokens} in, {usage.output_tokens} out" if usage else ""
        click.secho(f"{response.id}{tokens}", err=True, dim=True)
    if response.status == "failed":
        reason = response.error.message if response.error else "no reason given"
        raise _failure(f"the response failed: {reason}")
    if response.status == "incomplete":
        details = response.incomplete_details
        reason = (details.reason if details else None) or "no reason given"
        raise _failure(f"the answer is incomplete: {reason}")
    if response.status != "completed":
        raise _failure(f"the response ended as {response.status}")


def _failure(sentence: str) -> CliError:
    from antiphon.cli.terminal import harmless

    return CliError(harmless(sentence, sys.stderr))
