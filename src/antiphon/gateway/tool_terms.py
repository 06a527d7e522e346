"""In words: which hosted tools do the settings configure, and on which terms?

For `antiphon tools` and for the dashboard. Nothing is connected or started, and nothing secret is
in it: of an address, the part before its query, and of a key, the variable that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.gateway.config import Settings
from antiphon.tools.containers.settings import ContainerSettings
from antiphon.tools.images import ImageSettings
from antiphon.tools.index.settings import FileSearchSettings
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.loading import has_library
from antiphon.tools.programs.sandboxed import find_library
from antiphon.tools.sandbox.engines import missing_parts
from antiphon.tools.sandbox.settings import SandboxSettings
from antiphon.tools.terms import ServerTerms, ToolTerms
from antiphon.tools.web.pages import can_read_html
from antiphon.tools.web.settings import WebSearchSettings

__all__ = ["tool_terms"]

_MIB: Final = 1024 * 1024


def tool_terms(settings: Settings, endpoints: Mapping[str, Endpoint]) -> tuple[ToolTerms, ...]:
    """Return every type of hosted tools; `endpoints` are the MCP servers of the settings."""
    can_run = not _missing_parts(settings.sandbox) and settings.sandbox.engine != "off"
    search, images = settings.web_search, settings.images
    return (
        _mcp(settings, endpoints),
        ToolTerms("web_search", search.provider is not None, _search_terms(search)),
        ToolTerms("file_search", is_configured=True, terms=_file_terms(settings.file_search)),
        ToolTerms("image_generation", images.base_url is not None, _image_terms(images)),
        ToolTerms(
            "code_interpreter",
            settings.code_interpreter.enabled and can_run,
            _code_terms(settings),
        ),
        ToolTerms(
            "shell",
            settings.shell.enabled and can_run,
            _shell_terms(settings),
        ),
        ToolTerms(
            "programmatic_tool_calling",
            settings.programs.enabled and can_run and find_library() is not None,
            _program_terms(settings),
            details=tuple(_place_terms(settings)),
        ),
        ToolTerms("tool_search", is_configured=True, terms="always on"),
    )


def _mcp(settings: Settings, endpoints: Mapping[str, Endpoint]) -> ToolTerms:
    library = "installed" if has_library() else "not installed: pip install '.[mcp]'"
    allowed = ", ".join(settings.mcp.allow_urls) or "none"
    servers = "1 server" if len(endpoints) == 1 else f"{len(endpoints)} servers"
    return ToolTerms(
        "mcp",
        settings.mcp.is_used and has_library(),
        f"{servers}, library {library}",
        tuple(ServerTerms(one.label, _terms(one)) for one in endpoints.values()),
        (f"URLs that requests may name: {allowed}",),
    )


def _place_terms(settings: Settings) -> list[str]:
    """Return where programs run."""
    lines = [f"sandbox  {_sandbox_terms(settings.sandbox)}"]
    if missing := _missing_parts(settings.sandbox):
        lines.append(f"  no program is run: {missing} is not installed")
    return [*lines, f"containers  {_container_terms(settings.containers)}"]


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
