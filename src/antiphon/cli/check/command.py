"""`antiphon check`: does a server have this API? A table of what it does right and wrong."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

import click
import msgspec

from antiphon.cli import options
from antiphon.cli.check.case import Api, Case
from antiphon.cli.check.chat.cases import CHAT
from antiphon.cli.check.messages.cases import MESSAGES
from antiphon.cli.check.responses.cases import RESPONSES
from antiphon.cli.check.responses.lenient import LENIENCIES
from antiphon.cli.check.run import Result, run_case
from antiphon.cli.errors import Misuse
from antiphon.cli.remote import (
    Remote,
    Server,
    ServerFault,
    explain,
    keyed_server,
    lacks_path,
    list_models,
)
from antiphon.cli.terminal import harmless
from antiphon.client.errors import ClientError, InvalidAnswer, error_from_answer
from antiphon.gateway.address import read_server_url
from antiphon.gateway.errors import BadSettings
from antiphon.transport.http import Limits

__all__ = ["command"]

_SHOWN_FINDINGS: Final = 5
_APIS: Final = {"responses": RESPONSES, "chat": CHAT, "messages": MESSAGES}
_COLOURS: Final = {"pass": "green", "fail": "red", "skip": "yellow"}


@click.command(
    "check",
    epilog="Example:  antiphon check http://127.0.0.1:4680/v1 --only stream --only retrieve",
)
@click.argument("url")
@options.model_to_ask
@options.key_env
@click.option(
    "--wire-api",
    type=click.Choice([*_APIS]),
    default="responses",
    show_default=True,
    help="The API to check: Responses, chat completions, or Anthropic's Messages.",
)
@click.option(
    "--lenient",
    type=click.Choice([*LENIENCIES]),
    help="Do not judge what Responses services of this name are known to do today.",
)
@click.option("--only", multiple=True, metavar="NAME", help="Run this case; may be repeated.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The time limit for one answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    url: str,
    model: str | None,
    key_env: str | None,
    wire_api: str,
    lenient: str | None,
    only: tuple[str, ...],
    timeout: float,
    as_json: bool,
) -> None:
    """Run a set of test cases against the server at URL.

    Every stream is checked against the whole grammar of events; a failure shows the rule that
    was broken and the event that broke it. Only protocol conformance is checked, not answer
    quality. What the server reports as unsupported is skipped. Exit code 1: a case failed; 2:
    the server cannot be reached, or does not have the API.
    """
    api = _api(wire_api, lenient)
    cases = _chosen(api, only)
    remote = Remote(
        _server(url, key_env, api),
        # The cases keep the time themselves; these only must not be shorter.
        Limits(first_byte=timeout + 60, idle=timeout + 60, wall=timeout + 60),
    )
    model, results = asyncio.run(_run(remote, api, cases, model, timeout, as_json=as_json))
    counts = _counts(results)
    if as_json:
        about = {"url": remote.server.base_url, "wire_api": wire_api, "model": model}
        about |= {"lenient": lenient} if lenient else {}
        report = {**about, **counts, "results": results}
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        click.echo(", ".join(f"{count} {what}" for what, count in counts.items()))
    if any(result.verdict == "fail" for result in results):
        raise SystemExit(1)


def _api(wire_api: str, lenient: str | None) -> Api:
    if lenient is None:
        return _APIS[wire_api]
    if wire_api != "responses":
        raise BadSettings("--lenient is used only with --wire-api responses")
    return msgspec.structs.replace(_APIS[wire_api], forgive=LENIENCIES[lenient])


def _chosen(api: Api, only: Sequence[str]) -> list[Case]:
    names = [case.name for case in api.cases]
    for name in only:
        if name not in names:
            raise BadSettings(f"there is no case {name!r}; the cases are {', '.join(names)}")
    return [case for case in api.cases if not only or case.name in only]


def _server(url: str, key_env: str | None, api: Api) -> Server:
    if key_env is None:
        server = Server(read_server_url(url, "URL"), key_source="pass --key-env NAME")
    else:
        server = keyed_server(url, key_env, url_flag="URL", key_flag="--key-env")
    return msgspec.structs.replace(server, headers=api.headers, key_header=api.key_header)


async def _run(
    remote: Remote,
    api: Api,
    cases: Sequence[Case],
    model: str | None,
    timeout: float,
    *,
    as_json: bool,
) -> tuple[str | None, list[Result]]:
    results = []
    async with remote:
        listed = await _first_listed(remote.server, timeout)
        await _require_path(remote, api.path, timeout)
        model = model or listed
        if not as_json:
            _print(f"Checking {remote.server.base_url}{f' with {model}' if model else ''}")
        for case in cases:
            result = await run_case(case, api, remote, model, timeout)
            results.append(result)
            if not as_json:
                _print_row(result)
    return model, results


async def _first_listed(server: Server, timeout: float) -> str | None:
    """Return the first model the server lists, if it lists any; raise if it is not there."""
    try:
        async with asyncio.timeout(timeout):
            names = await list_models(server)
    except ClientError as error:
        if _may_be_checked(error):
            return None
        raise Misuse(explain(error, server)) from None
    except TimeoutError:
        raise Misuse(f"{server.base_url} did not answer within {timeout:g} s") from None
    return names[0] if names else None


async def _require_path(remote: Remote, path: str, timeout: float) -> None:
    """Raise Misuse if the server does not have the path of the API at all.

    The request is empty, so every server that has the path refuses it for another reason.
    """
    try:
        async with asyncio.timeout(timeout):
            reply = await remote.fetch("POST", path, b"{}")
    except (ServerFault, TimeoutError):
        return  # the cases report it
    status, url = reply.head.status, remote.server.base_url
    if status != 405 and not lacks_path(error_from_answer(status, reply.body, {})):
        return
    advice = "; --wire-api names the API to check"
    if path == RESPONSES.path:
        advice = (
            "; if it speaks chat completions, check those with --wire-api chat; "
            f"`antiphon serve --upstream {url}` gives it the Responses API"
        )
    raise Misuse(f"{url} has no {path} (HTTP {status}), so there is nothing to check{advice}")


def _may_be_checked(error: ClientError) -> bool:
    """Return whether the server answers and accepts the key, and lacks only the list."""
    if isinstance(error, InvalidAnswer):
        return error.code is None  # HTTP at least
    return error.status not in (0, 401, 403)


def _print_row(result: Result) -> None:
    verdict = click.style(f"{result.verdict:4}", fg=_COLOURS[result.verdict], bold=True)
    click.echo(f"{verdict}  {result.name:18}  {result.seconds:6.2f} s  {result.about}")
    if result.reason:
        _print(f"      {result.reason}")
    for finding in result.findings[:_SHOWN_FINDINGS]:
        _print(f"      {finding.rule}: {finding.detail}")
        if finding.event:
            _print(f"        at {finding.event}", dim=True)
    if len(result.findings) > _SHOWN_FINDINGS:
        _print(f"      … and {len(result.findings) - _SHOWN_FINDINGS} more (--json shows them)")


def _print(line: str, *, dim: bool = False) -> None:
    """Print a line in which a server may have had a word."""
    click.secho(harmless(" ".join(line.splitlines()), sys.stdout), dim=dim)


def _counts(results: Sequence[Result]) -> dict[str, int]:
    verdicts = [result.verdict for result in results]
    return {
        "passed": verdicts.count("pass"),
        "failed": verdicts.count("fail"),
        "skipped": verdicts.count("skip"),
    }
