"""`antiphon ask`: one turn with a running server, its text on stdout as it comes.

stdout holds the answer and nothing else, so it can be piped. Everything said about the answer
goes to stderr. An answer that is not whole is an error, whatever was printed before.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from antiphon.cli.errors import BadSettings, CliError

if TYPE_CHECKING:
    from antiphon.cli.remote import Remote
    from antiphon.protocol.events import Event
    from antiphon.protocol.response import Response

__all__ = ["command"]

_DEFAULT_URL: Final = "http://127.0.0.1:4680/v1"
# What could move the cursor or rename the window when it is shown on a terminal.
_CONTROLS: Final = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(32), 127, *range(128, 160))
    if chr(code) not in "\n\t"
}


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
@click.option("--show-reasoning", is_flag=True, help="Show the model's reasoning on stderr.")
def command(
    prompt: str | None,
    base_url: str,
    model: str | None,
    instructions: str | None,
    previous: str | None,
    as_json: bool,
    no_stream: bool,
    show_reasoning: bool,
) -> None:
    """Ask a running server one question and print the answer as it comes.

    PROMPT is the question; - reads it from standard input, and so does leaving it out when
    something is piped in. The key, if the server wants one, is taken from ANTIPHON_API_KEY,
    else OPENAI_API_KEY.
    """
    import asyncio

    from antiphon.cli.address import read_server_url
    from antiphon.cli.remote import Remote, key_from

    body = {
        "model": model,
        "instructions": instructions,
        "previous_response_id": previous,
        "input": _read_prompt(prompt),
        "stream": not no_stream,
    }
    screen = _Screen(is_quiet=as_json, shows_reasoning=show_reasoning)
    remote = Remote(
        read_server_url(base_url, "--base-url"), key_from("ANTIPHON_API_KEY", "OPENAI_API_KEY")
    )
    response = asyncio.run(_run(remote, body, screen))
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


async def _run(remote: Remote, body: dict[str, Any], screen: _Screen) -> Response:
    """Run the turn; return its response, which has been shown."""
    import msgspec

    from antiphon.cli.remote import ServerFault
    from antiphon.protocol.errors import BrokenStream

    data = msgspec.json.encode({name: value for name, value in body.items() if value is not None})
    try:
        async with remote:
            if body["stream"]:
                response = await _follow(remote, data, screen)
            else:
                response = await _fetch(remote, data)
        screen.complete(response)
    except BrokenStream as error:
        raise ServerFault(f"the answer is cut off: {error.message}") from error
    finally:
        screen.end_line()
    return response


async def _fetch(remote: Remote, data: bytes) -> Response:
    from antiphon.cli.remote import refusal
    from antiphon.protocol.codec import decode_response

    reply = await remote.fetch("POST", "/responses", data)
    if reply.head.status != 200:
        raise refusal(reply.head.status, reply.body)
    return decode_response(reply.body)


async def _follow(remote: Remote, data: bytes, screen: _Screen) -> Response:
    from antiphon.cli.remote import ServerFault, error_of, frames_of
    from antiphon.protocol.accumulator import ResponseAccumulator
    from antiphon.protocol.codec import decode_event

    accumulator = ResponseAccumulator()
    async with await remote.stream(data) as stream:
        if stream.head.status != 200:
            raise await error_of(stream)
        if stream.head.content_type != "text/event-stream":
            raise ServerFault(f"the server sent {stream.head.content_type!r} instead of a stream")
        async for frame in frames_of(stream):
            if frame.data == b"[DONE]":
                break
            event = decode_event(frame.data)
            accumulator.feed(event)
            screen.show(event)
        await stream.finish()
    return accumulator.finish()


class _Screen:
    """Shows text as it comes, and remembers how far it got."""

    def __init__(self, *, is_quiet: bool, shows_reasoning: bool) -> None:
        self._is_quiet = is_quiet
        self._shows_reasoning = shows_reasoning
        self._shown = ""
        self._half = ""
        self._is_line_open = False
        self._ends_in_reasoning = False

    def show(self, event: Event) -> None:
        """Show what an event adds."""
        from antiphon.protocol import events

        match event:
            case events.OutputTextDelta() | events.RefusalDelta():
                self._say(event.delta)
            case events.ReasoningTextDelta() | events.SummaryTextDelta():
                self._think(event.delta)

    def complete(self, response: Response) -> None:
        """Show what was not streamed: all of it, or what the last event alone told."""
        text = _spoken(response)
        if text.startswith(self._shown):
            self._say(text.removeprefix(self._shown))
        elif not self._is_quiet:
            self.end_line()
            click.echo("the final text is not what was streamed; --json shows it", err=True)

    def end_line(self) -> None:
        """Let whatever comes next begin on a line of its own."""
        self._end_reasoning()
        if self._is_line_open:
            click.echo()
            self._is_line_open = False

    def _say(self, text: str) -> None:
        text = self._half + text
        # An emoji may come in two deltas, half a character each.
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        text = _whole(text.removesuffix(self._half))
        if self._is_quiet or not text:
            return
        self._end_reasoning()
        self._shown += text
        self._is_line_open = not text.endswith("\n")
        click.echo(_harmless(text, sys.stdout), nl=False)

    def _think(self, text: str) -> None:
        if self._shows_reasoning:
            self._ends_in_reasoning = True
            click.secho(_harmless(text, sys.stderr), nl=False, err=True, dim=True)

    def _end_reasoning(self) -> None:
        if self._ends_in_reasoning:
            click.echo(err=True)
            self._ends_in_reasoning = False


def _whole(text: str) -> str:
    """Return the text with halves of characters put together, and lone ones replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _harmless(text: str, stream: Any) -> str:  # Any: whatever stands in for a text stream
    """Return the text without what a terminal would obey, and what cannot be encoded."""
    if stream.isatty():
        text = text.translate(_CONTROLS)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _spoken(response: Response) -> str:
    """Return text and refusals of every message, joined as they were streamed."""
    return "".join(
        part.get("text") or part.get("refusal") or ""
        for item in response.output
        if item.get("type") == "message"
        for part in item.get("content") or ()
    )


def _report(response: Response) -> None:
    """Say how it ended: a dim line for a person, an error if it did not end well."""
    usage = response.usage
    if sys.stderr.isatty():
        tokens = f" · {usage.input_tokens} in, {usage.output_tokens} out" if usage else ""
        click.secho(f"{response.id}{tokens}", err=True, dim=True)
    if response.status == "failed":
        reason = response.error.message if response.error else "no reason given"
        raise CliError(f"the response failed: {reason}")
    if response.status == "incomplete":
        details = response.incomplete_details
        reason = (details.reason if details else None) or "no reason given"
        raise CliError(f"the answer is incomplete: {reason}")
    if response.status != "completed":
        raise CliError(f"the response ended as {response.status}")
