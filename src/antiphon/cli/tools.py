"""`antiphon tools`: which hosted tools the settings configure, and whether they work."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.gateway.config import Settings, load
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.mcp import read_directory
from antiphon.gateway.places import store_url, using_store
from antiphon.gateway.tool_terms import tool_terms
from antiphon.gateway.tools import check_tools
from antiphon.store.vectors import numpy_engine
from antiphon.tools.mcp.definitions import Definition
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault
from antiphon.tools.mcp.pool import McpPool
from antiphon.tools.sandbox.probe import find_engine

__all__ = ["command"]

_OWNER = "antiphon tools"
_MAX_ABOUT = 80


@click.command("tools", epilog="Example:  antiphon tools --check")
@options.config
@click.option("--check", is_flag=True, help="Connect to every server, attack the sandbox.")
@click.option("--call", metavar="LABEL.TOOL", help="Call this tool once, and print its result.")
@click.option(
    "--arguments", metavar="JSON", default="{}", show_default=True, help="Arguments for --call."
)
def command(config: str | None, check: bool, call: str | None, arguments: str) -> None:
    """Show which hosted tools the settings configure, and on which terms.

    Nothing is connected or started unless --check or --call is given, and no tool is called
    without --call. --check connects to MCP servers, attacks the sandbox, and asks a PostgreSQL
    store what compares vectors; --call is about MCP.
    """
    settings = load({"config": config}, os.environ, Path.cwd()).settings
    asyncio.run(check_tools(settings, os.environ))
    endpoints = read_directory(settings.mcp, os.environ).endpoints
    if call is not None:
        click.echo(asyncio.run(_call(settings, *_meant(call, endpoints), _read(arguments))))
        return
    for line in _overview(settings, endpoints):
        click.echo(line)
    if check:
        click.echo("\n".join(asyncio.run(_attack(settings))))
        click.echo(f"file_search vectors: {asyncio.run(_vector_engine(settings))}")
    if check and not asyncio.run(_check(settings, list(endpoints.values()))):
        raise CliError("not every server could be used")


def _overview(settings: Settings, endpoints: Mapping[str, Endpoint]) -> Iterator[str]:
    for tool in tool_terms(settings, endpoints):
        yield f"{tool.type}  {tool.terms}"
        for server in tool.servers:
            yield f"  {server.label}  {server.terms}"
        for line in tool.details:
            yield f"  {line}"


async def _vector_engine(settings: Settings) -> str:
    """Return what compares vectors. Only a database is asked: a file is not opened for this."""
    url = store_url(settings.store) if settings.store else "sqlite:"
    if url.startswith("sqlite:"):
        return numpy_engine()
    async with using_store(url) as store:
        return await store.vector_stores.engine()


async def _attack(settings: Settings) -> list[str]:
    """Return how the sandboxes of this machine do against attacks."""
    report = await find_engine(settings.sandbox)
    if report.engine is not None:
        await report.engine.close()
    used = report.engine.name if report.engine is not None else "none: no program is run"
    return [*(f"sandbox {line}" for line in report.lines), f"sandbox in use: {used}"]


async def _check(settings: Settings, endpoints: list[Endpoint]) -> bool:
    """List the tools of every server; return whether all of them answered."""
    pool = McpPool(settings.mcp)
    has_worked = True
    try:
        for endpoint in endpoints:
            try:
                async with pool.lease(_OWNER, endpoint) as connection:
                    listing = await connection.list_tools()
            except McpFault as fault:
                has_worked = False
                click.echo(f"{endpoint.label}: {fault.message}")
                continue
            click.echo(f"{endpoint.label}: {len(listing.tools)} tools")
            for tool in listing.tools.values():
                click.echo(f"  {_about(tool, endpoint)}")
            for note in listing.notes:
                click.echo(f"  note: {note}")
    finally:
        await pool.close()
    return has_worked


def _about(tool: Definition, endpoint: Endpoint) -> str:
    is_closed = endpoint.allowed is not None and tool.name not in endpoint.allowed
    marks = [mark for mark in ("not allowed" * is_closed, "read-only" * tool.is_read_only) if mark]
    text = " ".join(tool.description.split())
    about = text if len(text) <= _MAX_ABOUT else f"{text[: _MAX_ABOUT - 1]}…"
    marked = f" ({', '.join(marks)})" if marks else ""
    return f"{tool.name}{marked}  {about}".rstrip()


def _meant(call: str, endpoints: Mapping[str, Endpoint]) -> tuple[Endpoint, str]:
    label, _, name = call.partition(".")
    endpoint = endpoints.get(label)
    if endpoint is None or not name:
        known = ", ".join(endpoints) or "none"
        raise BadSettings(f"--call must be LABEL.TOOL of a configured server ({known})")
    return endpoint, name


def _read(arguments: str) -> dict[str, Any]:
    try:
        found = json.loads(arguments)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadSettings("--arguments must be a JSON object")
    return found


async def _call(
    settings: Settings, endpoint: Endpoint, name: str, arguments: dict[str, Any]
) -> str:
    pool = McpPool(settings.mcp)
    try:
        async with pool.lease(_OWNER, endpoint) as connection:
            result = await connection.call(name, arguments, endpoint.call_seconds)
    except McpFault as fault:
        raise CliError(f"{endpoint.label}: {fault.message}") from None
    finally:
        await pool.close()
    if result.error is not None:
        raise CliError(f"{endpoint.label}.{name} failed: {result.output}")
    return result.output
