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
from antiphon.gateway.tools import check_tools
from antiphon.store.vectors import numpy_engine
from antiphon.tools.containers.settings import ContainerSettings
from antiphon.tools.images import ImageSettings
from antiphon.tools.index.settings import FileSearchSettings
from antiphon.tools.mcp.definitions import Definition
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault
from antiphon.tools.mcp.loading import has_library
from antiphon.tools.mcp.pool import McpPool
from antiphon.tools.programs.sandboxed import find_library
from antiphon.tools.sandbox.engines import missing_parts
from antiphon.tools.sandbox.probe import find_engine
from antiphon.tools.sandbox.settings import SandboxSettings
from antiphon.tools.web.pages import can_read_html
from antiphon.tools.web.settings import WebSearchSettings

__all__ = ["command"]

_OWNER = "antiphon tools"
_MAX_ABOUT = 80
_MIB = 1024 * 1024


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
    limits = settings.mcp
    library = "installed" if has_library() else "not installed: pip install '.[mcp]'"
    yield f"mcp  {len(endpoints)} servers, library {library}"
    for endpoint in endpoints.values():
        yield f"  {endpoint.label}  {_terms(endpoint)}"
    allowed = ", ".join(limits.allow_urls) or "none"
    yield f"  URLs that requests may name: {allowed}"
    yield f"web_search  {_search_terms(settings.web_search)}"
    yield f"file_search  {_file_terms(settings.file_search)}"
    yield f"image_generation  {_image_terms(settings.images)}"
    yield f"code_interpreter  {_code_terms(settings)}"
    yield f"shell  {_shell_terms(settings)}"
    yield f"programmatic_tool_calling  {_program_terms(settings)}"
    yield f"  sandbox  {_sandbox_terms(settings.sandbox)}"
    if missing := _missing_parts(settings.sandbox):
        yield f"    no program is run: {missing} is not installed"
    yield f"  containers  {_container_terms(settings.containers)}"
    yield "tool_search  always on"


def _search_terms(search: WebSearchSettings) -> str:
    """Return who searches and which pages are read, without anything secret."""
    if search.provider is None:
        return "not configured: [web_search] has no provider"
    place = (
        f"{search.server}.{search.tool}" if search.provider == "mcp" else _place(search.base_url)
    )
    facts = [search.provider, place, _key_fact(search.key_env), f"pages: {search.open_pages}"]
    if search.open_pages != "off" and not can_read_html():
        facts.append("HTML is not read: pip install '.[documents]'")
    return ", ".join(fact for fact in facts if fact)


def _file_terms(search: FileSearchSettings) -> str:
    """Return what makes vectors, without anything secret."""
    if search.embedding == "none":
        return "words alone: [file_search] embedding = 'none'"
    facts = [
        f"words, and vectors of embedding {search.embedding}",
        _place(search.base_url),
        search.model or "",
        _key_fact(search.key_env),
    ]
    return ", ".join(fact for fact in facts if fact)


async def _vector_engine(settings: Settings) -> str:
    """Return what compares vectors. Only a database is asked: a file is not opened for this."""
    url = store_url(settings.store) if settings.store else "sqlite:"
    if url.startswith("sqlite:"):
        return numpy_engine()
    async with using_store(url) as store:
        return await store.vector_stores.engine()


def _image_terms(images: ImageSettings) -> str:
    if images.base_url is None:
        return "not configured: [images] has no base_url"
    facts = [_place(images.base_url), images.model, _key_fact(images.key_env)]
    return ", ".join(fact for fact in facts if fact)


def _code_terms(settings: Settings) -> str:
    if not settings.code_interpreter.enabled:
        return "off: [code_interpreter] enabled = false"
    return f"{settings.sandbox.cell_seconds:g} s for a call"


def _shell_terms(settings: Settings) -> str:
    if not settings.shell.enabled:
        return "off: [shell] enabled = false"
    return f"{settings.shell.seconds:g} s for a call, {settings.shell.commands} commands"


def _program_terms(settings: Settings) -> str:
    programs = settings.programs
    if not programs.enabled:
        return "off: [programs] enabled = false"
    facts = [f"{programs.seconds:g} s for a run", f"{programs.calls} calls of tools"]
    if find_library() is None:
        facts.append("not run: pip install '.[sandbox]'")
    return ", ".join(facts)


def _sandbox_terms(sandbox: SandboxSettings) -> str:
    """Return which sandbox is used and what it allows; whether it holds is found by --check."""
    facts = [
        f"engine {sandbox.engine}",
        f"Python {sandbox.python or 'of the gateway, standard library only'}",
        f"{sandbox.memory_bytes // _MIB} MiB of memory",
        f"{sandbox.disk_bytes // _MIB} MiB of files",
        f"{sandbox.processes} processes",
    ]
    return ", ".join(facts)


def _missing_parts(sandbox: SandboxSettings) -> str:
    """Return what the sandbox that needs least of those in question lacks here, or nothing."""
    if sandbox.engine == "off":
        return ""
    return missing_parts("bwrap" if sandbox.engine == "auto" else sandbox.engine)


def _container_terms(containers: ContainerSettings) -> str:
    return (
        f"{containers.running} run at once, {containers.running_per_owner} for one owner; "
        f"they expire after {containers.idle_minutes} minutes"
    )


async def _attack(settings: Settings) -> list[str]:
    """Return how the sandboxes of this machine do against attacks."""
    report = await find_engine(settings.sandbox)
    if report.engine is not None:
        await report.engine.close()
    used = report.engine.name if report.engine is not None else "none: no program is run"
    return [*(f"sandbox {line}" for line in report.lines), f"sandbox in use: {used}"]


def _place(url: str | None) -> str:
    """Return an address without its query, which may hold a key."""
    return (url or "").partition("?")[0]


def _key_fact(name: str | None) -> str:
    return f"key from {name}" if name else ""


def _terms(endpoint: Endpoint) -> str:
    """Return where a server is and what applies to it, without anything secret."""
    place = _place(endpoint.url) or endpoint.command[0]
    facts = [place, "process" if endpoint.url is None else endpoint.transport]
    if endpoint.headers:
        facts.append(f"sends {', '.join(sorted(endpoint.headers))}")
    if endpoint.allowed is not None:
        facts.append(f"tools {', '.join(sorted(endpoint.allowed)) or 'none'}")
    if endpoint.trusts_read_only:
        facts.append("read-only tools are trusted")
    if endpoint.takes_headers:
        facts.append("takes credentials of callers")
    return ", ".join([*facts, f"{endpoint.call_seconds:g} s for a call"])


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
