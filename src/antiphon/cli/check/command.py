"""`antiphon check`: is that a Responses server? A table of what it does right and wrong."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from antiphon.cli.errors import NoServer
from antiphon.gateway.errors import BadSettings

if TYPE_CHECKING:
    from antiphon.cli.check.cases import Case
    from antiphon.cli.check.run import Result
    from antiphon.cli.remote import Remote, Server
    from antiphon.client.errors import ClientError

__all__ = ["command"]

_SHOWN_FINDINGS: Final = 5
_COLOURS: Final = {"pass": "green", "fail": "red", "skip": "yellow"}


@click.command(
    "check",
    short_help="Test any Responses server.",
    epilog="Example:  antiphon check http://127.0.0.1:4680/v1 --only stream --only retrieve",
)
@click.argument("url")
@click.option("--model", "-m", help="Which model to ask.  [default: the first it lists]")
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the key.")
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
    only: tuple[str, ...],
    timeout: float,
    as_json: bool,
) -> None:
    """Run a set of test cases against the Responses server at URL.

    Every stream is checked against the whole grammar of events; a failure shows the rule that
    was broken and the event that broke it. Only protocol conformance is checked, not answer
    quality. What the server reports as unsupported is skipped. Exit code 1: a case failed; 2:
    the server cannot be reached, or does not have the Responses API.
    """
    import asyncio

    from antiphon.cli.remote import Remote
    from antiphon.transport.http import Limits

    cases = _chosen(only)
    remote = Remote(
        _server(url, key_env),
        # The cases keep the time themselves; these only must not be shorter.
        Limits(first_byte=timeout + 60, idle=timeout + 60, wall=timeout + 60),
    )
    model, results = asyncio.run(_run(remote, cases, model, timeout, as_json=as_json))
    if as_json:
        _print_json(remote.server.base_url, model, results)
    else:
        _print_sum(results)
    if any(result.verdict == "fail" for result in results):
        raise SystemExit(1)


def _chosen(only: Sequence[str]) -> list[Case]:
    from antiphon.cli.check.cases import CASES

    names = [case.name for case in CASES]
    for name in only:
        if name not in names:
            raise BadSettings(f"there is no case {name!r}; the cases are {', '.join(names)}")
    return [case for case in CASES if not only or case.name in only]


def _server(url: str, key_env: str | None) -> Server:
    from antiphon.cli.remote import Server, named_key
    from antiphon.gateway.address import read_server_url

    base_url = read_server_url(url, "URL")
    if key_env is None:
        return Server(base_url, key_source="pass --key-env NAME")
    key = named_key(key_env, "--key-env")
    return Server(base_url, key, key_source=f"the key is read from {key_env}")


async def _run(
    remote: Remote, cases: Sequence[Case], model: str | None, timeout: float, *, as_json: bool
) -> tuple[str | None, list[Result]]:
    from antiphon.cli.check.run import run_case

    results = []
    async with remote:
        listed = await _first_listed(remote.server, timeout)
        await _require_responses(remote, timeout)
        model = model or listed
        if not as_json:
            _print(f"Checking {remote.server.base_url}{f' with {model}' if model else ''}")
        for case in cases:
            result = await run_case(case, remote, model, timeout)
            results.append(result)
            if not as_json:
                _print_row(result)
    return model, results


async def _first_listed(server: Server, timeout: float) -> str | None:
    """Return the first model the server lists, if it lists any; raise if it is not there."""
    import asyncio

    from antiphon.cli.remote import explain, list_models
    from antiphon.client.errors import ClientError

    try:
        async with asyncio.timeout(timeout):
            names = await list_models(server)
    except ClientError as error:
        if _may_be_checked(error):
            return None
        raise NoServer(explain(error, server)) from None
    except TimeoutError:
        raise NoServer(f"{server.base_url} did not answer within {timeout:g} s") from None
    return names[0] if names else None


async def _require_responses(remote: Remote, timeout: float) -> None:
    """Raise NoServer if the server does not have the path of the Responses API at all.

    The request is empty, so every server that has the path refuses it for another reason.
    """
    import asyncio

    from antiphon.cli.remote import ServerFault, lacks_path
    from antiphon.client.errors import error_from_answer

    try:
        async with asyncio.timeout(timeout):
            reply = await remote.fetch("POST", "/responses", b"{}")
    except (ServerFault, TimeoutError):
        return  # the cases report it
    status, url = reply.head.status, remote.server.base_url
    if status == 405 or lacks_path(error_from_answer(status, reply.body, {})):
        raise NoServer(
            f"{url} has no /responses (HTTP {status}), so there is nothing to check; if it speaks "
            f"chat completions, `antiphon serve --upstream {url}` gives it the Responses API"
        )


def _may_be_checked(error: ClientError) -> bool:
    """Return whether the server answers and accepts the key, and lacks only the list."""
    from antiphon.client.errors import InvalidAnswer

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
    from antiphon.cli.terminal import harmless

    click.secho(harmless(" ".join(line.splitlines()), sys.stdout), dim=dim)


def _counts(results: Sequence[Result]) -> dict[str, int]:
    verdicts = [result.verdict for result in results]
    return {
        "passed": verdicts.count("pass"),
        "failed": verdicts.count("fail"),
        "skipped": verdicts.count("skip"),
    }


def _print_sum(results: Sequence[Result]) -> None:
    click.echo(", ".join(f"{count} {what}" for what, count in _counts(results).items()))


def _print_json(base_url: str, model: str | None, results: Sequence[Result]) -> None:
    import msgspec

    report = {"url": base_url, "model": model, **_counts(results), "results": results}
    click.echo(msgspec.json.format(msgspec.json.encode(report)))
