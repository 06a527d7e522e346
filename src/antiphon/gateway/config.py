"""The settings: a flag overrides the environment, which overrides the file, then the default.

Every top-level key that is not a table has an environment variable: `ANTIPHON_` and its name in
capitals; a list is written there with commas. The file is TOML: that of `--config` or
ANTIPHON_CONFIG, otherwise `antiphon.toml` in the working directory if it exists. Unknown keys in
the file are refused by name, because a typo must not silently mean the default. Nothing here
opens or starts anything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from antiphon.engine.keep.webhooks import EVENTS, EventType
from antiphon.engine.prepare.input_files import InputFileSettings
from antiphon.engine.prepare.prompts import PromptTemplate
from antiphon.engine.run.reader import OnDisconnect
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.log_lines import LogFormat
from antiphon.protocol.codec import Dialect
from antiphon.protocol.machines.builder import ReasoningAs
from antiphon.routing.describe import ModelSettings
from antiphon.routing.settings import DeploymentSettings, RetrySettings, RouteSettings
from antiphon.server.doors import DoorSettings
from antiphon.server.ids import DEFAULT_MARK, MARK_PATTERN, MARK_WORDS
from antiphon.server.issuers import IssuerSettings
from antiphon.server.limits import FileLimits, ServerLimits
from antiphon.telemetry.settings import TelemetrySettings
from antiphon.tools.base import ToolLimits
from antiphon.tools.containers.settings import CodeSettings, ContainerSettings, ShellSettings
from antiphon.tools.documents.settings import DocumentSettings
from antiphon.tools.images import ImageSettings
from antiphon.tools.index.settings import FileSearchSettings
from antiphon.tools.mcp.settings import McpServer, McpSettings
from antiphon.tools.programs.settings import ProgramSettings
from antiphon.tools.sandbox.settings import SandboxSettings
from antiphon.tools.web.settings import WebSearchSettings
from antiphon.transport.http import Limits

__all__ = [
    "SCALARS",
    "TABLES",
    "Loaded",
    "LogLevel",
    "ModelOverrides",
    "ProviderSettings",
    "Settings",
    "TokenCommand",
    "UpstreamLimits",
    "Webhook",
    "WireApi",
    "load",
    "variable",
]

_DEFAULT_FILE: Final = "antiphon.toml"
_MAX_FILE_BYTES: Final = 1024 * 1024
_PLAIN: Final = {
    f"str matching regex {MARK_PATTERN!r}": MARK_WORDS,
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    " | null": "",
}

_OLD_PROVIDER_KEYS: Final = {"env_key": "key_env"}

WireApi = Literal["chat", "responses", "messages", "gemini", "host", "local", "scripted"]
LogLevel = Literal["debug", "info", "warning", "error"]


class UpstreamLimits(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long we wait for an upstream, in seconds, and how much we take, in bytes."""


class TokenCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to get a key that expires: a command prints it."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """The program and its arguments. No shell reads them."""
    refresh_seconds: Annotated[float, msgspec.Meta(gt=0)] = 1800.0


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where models are.

    `threads` and `context` are for the embedded model; `path` is its file, or that of an editor.
    """

    wire_api: WireApi = "chat"
    base_url: str | None = None
    key_env: str | None = None
    """The name of the environment variable that holds the key, never the key itself."""
    auth: TokenCommand | None = None
    profile: str | None = None
    account: str | None = None
    """Whose state the upstream keeps: providers of one account can read each other's."""
    max_inflight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    """How many requests may run there at once."""
    hosted: tuple[str, ...] | None = None
    """Kinds of tools that the upstream runs itself, instead of those that its profile lists."""
    cache: Literal["auto", "off"] | None = None
    """`messages`: whether prompts are cached where the caller sets no breakpoints."""
    betas: tuple[str, ...] | None = None
    """`messages`: betas of the API to use."""
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """`messages`: how long an answer may be if neither the caller nor the upstream states it."""
    path: str | None = None
    threads: Annotated[int, msgspec.Meta(ge=1)] | None = None
    context: Annotated[int, msgspec.Meta(ge=256)] | None = None


class ModelOverrides(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a model. This overrides the upstream and the bundled table."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to send a notice when a background response has ended."""

    url: str
    secret_env: str
    """The name of the environment variable that holds the secret, never the secret itself."""
    events: tuple[EventType, ...] = EVENTS
    allow_private: bool = False


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may ask, beside those with a key."""

    issuers: tuple[IssuerSettings, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 4680
    store: str | None = None
    upstream: str | None = None
    upstream_key_env: str | None = None
    profile: str | None = None
    use_proxies: bool = False
    """Whether upstreams are reached through the proxies that the environment names."""
    local_model: str | None = None
    """A GGUF file to serve in this process: a path, or `hf:OWNER/REPO/FILE.gguf`."""
    default_model: str | None = None
    dialect: Dialect = "openai"
    strict: bool = False
    reasoning_as: ReasoningAs = "content"
    require_keys: bool = False
    auth: AuthSettings = AuthSettings()
    allowed_origins: tuple[str, ...] = ()
    """Pages that may use the gateway; in the environment they are separated by commas."""
    ui: bool | None = None
    """Whether the dashboard is served; on loopback, if it is not set."""
    keep_upstream_requests: bool | None = None
    """Whether what upstreams are sent is stored; where no keys are required, if it is not set."""
    rerun_background: bool = False
    on_disconnect: OnDisconnect = "cancel"
    """What becomes of a turn whose client leaves: `finish` lets the model end its answer."""
    seal_keys_env: str = "ANTIPHON_SEAL_KEYS"
    """The name of the environment variable that holds the keys, never a key itself."""
    id_mark: Annotated[str, msgspec.Meta(pattern=MARK_PATTERN)] = DEFAULT_MARK
    workers: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    tls_cert: str | None = None
    """A file with the certificate and those that vouch for it, in PEM format."""
    tls_key: str | None = None
    """A file with its key; without one the key is in the file of the certificate."""
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    telemetry: TelemetrySettings = TelemetrySettings()
    doors: DoorSettings = DoorSettings()
    limits: ServerLimits = ServerLimits()
    files: FileLimits = FileLimits()
    upstream_limits: UpstreamLimits = UpstreamLimits()
    mcp: McpSettings = McpSettings()
    providers: dict[str, ProviderSettings] = {}
    models: dict[str, ModelOverrides] = {}
    routes: dict[str, RouteSettings] = {}
    prompts: dict[str, PromptTemplate] = {}
    tools: ToolLimits = ToolLimits()
    web_search: WebSearchSettings = WebSearchSettings()
    file_search: FileSearchSettings = FileSearchSettings()
    images: ImageSettings = ImageSettings()
    input_files: InputFileSettings = InputFileSettings()
    documents: DocumentSettings = DocumentSettings()
    code_interpreter: CodeSettings = CodeSettings()
    shell: ShellSettings = ShellSettings()
    programs: ProgramSettings = ProgramSettings()
    containers: ContainerSettings = ContainerSettings()
    sandbox: SandboxSettings = SandboxSettings()
    webhooks: tuple[Webhook, ...] = ()

    @property
    def keeps_upstream_requests(self) -> bool:
        """Whether what upstreams are sent is stored: only on request where keys are required."""
        wish = self.keep_upstream_requests
        return not self.require_keys if wish is None else wish


TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "auth": AuthSettings,
    "doors": DoorSettings,
    "limits": ServerLimits,
    "files": FileLimits,
    "upstream_limits": UpstreamLimits,
    "telemetry": TelemetrySettings,
    "mcp": McpSettings,
    "providers": ProviderSettings,
    "models": ModelOverrides,
    "routes": RouteSettings,
    "prompts": PromptTemplate,
    "tools": ToolLimits,
    "web_search": WebSearchSettings,
    "file_search": FileSearchSettings,
    "images": ImageSettings,
    "input_files": InputFileSettings,
    "documents": DocumentSettings,
    "code_interpreter": CodeSettings,
    "shell": ShellSettings,
    "programs": ProgramSettings,
    "containers": ContainerSettings,
    "sandbox": SandboxSettings,
    "webhooks": Webhook,
}
_INNER: Final[Mapping[str, type[msgspec.Struct]]] = {
    **TABLES,
    "issuers": IssuerSettings,
    "servers": McpServer,
    "deployments": DeploymentSettings,
    "retry": RetrySettings,
}
_EACH: Final = "each with its own heading"
SCALARS: Final = tuple(name for name in Settings.__struct_fields__ if name not in TABLES)


class Loaded(NamedTuple):
    """The settings, and the file that some of them came from."""

    settings: Settings
    path: Path | None


def variable(key: str) -> str:
    """Return the environment variable of a key."""
    return f"ANTIPHON_{key.upper()}"


def load(flags: Mapping[str, Any], environ: Mapping[str, str], directory: Path) -> Loaded:
    """Return what is set. Raise BadSettings with the place and the name of what is wrong.

    A flag that was not given is None; the flag `config` names the file.
    """
    path = _file_path(flags, environ, directory)
    layers = _read_file(path) if path else {}
    layers |= _read_environment(environ)
    layers |= {key: flags[key] for key in SCALARS if flags.get(key) is not None}
    return Loaded(msgspec.convert(layers, Settings), path)


def _file_path(
    flags: Mapping[str, Any], environ: Mapping[str, str], directory: Path
) -> Path | None:
    named = flags.get("config") or environ.get(variable("config"))
    if named:
        return Path(named).expanduser()
    found = directory / _DEFAULT_FILE
    return found if found.is_file() else None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadSettings(f"{path} cannot be read: {(error.strerror or '').lower()}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise BadSettings(
            f"{path} is larger than {_MAX_FILE_BYTES} bytes, which is too large for a configuration"
        )
    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from None
    _rename_old_keys(table, str(path))
    _check_table(table, Settings, str(path))
    return table


def _rename_old_keys(table: Mapping[str, Any], where: str) -> None:
    """Give the keys of providers their present names. Raise BadSettings if both are there."""
    providers = table.get("providers")
    for name, provider in providers.items() if isinstance(providers, dict) else ():
        for old, new in _OLD_PROVIDER_KEYS.items():
            if not isinstance(provider, dict) or old not in provider:
                continue
            if new in provider:
                raise BadSettings(
                    f"{where}, [providers.{name}]: {old} is the old name of {new}; set only {new}"
                )
            provider[new] = provider.pop(old)


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys that the environment sets; an empty variable sets nothing."""
    types = _types(Settings)
    found: dict[str, Any] = {}
    for key in SCALARS:
        text = environ.get(variable(key), "")
        if text:
            is_list = get_origin(types[key]) is tuple
            value = _words(text) if is_list else text
            found[key] = _convert(value, types[key], variable(key), strict=False)
    return found


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _check_table(table: Mapping[str, Any], struct: type[msgspec.Struct], where: str) -> None:
    """Raise BadSettings for the first key that is not known, or whose value cannot be used."""
    types = _types(struct)
    for key, value in table.items():
        if key not in types:
            close = get_close_matches(key, types, n=1)
            hint = f" did you mean {close[0]}?" if close else ""
            raise BadSettings(
                f"{where}: there is no key {key!r};{hint} the keys are {', '.join(types)}"
            )
        inner = _struct_in(types[key])
        # `auth` is a table of the file, and of a provider another one.
        if key in _INNER and inner in (None, _INNER[key]):
            _check_inner_tables(key, value, where)
        elif inner is not None:
            _check_whole(value, inner, f"{where}: {key}")
        else:
            _convert(value, types[key], f"{where}: {key}")
            if struct in (ServerLimits, FileLimits, UpstreamLimits, ToolLimits) and not value > 0:
                raise BadSettings(f"{where}: {key} must be above 0, not {value!r}")


def _check_inner_tables(key: str, value: object, where: str) -> None:
    struct = _INNER[key]
    if key == "prompts" and isinstance(value, dict):
        for name, table in value.items():
            _check_whole(table, struct, f"{where}, [{key}.{name}]")
    elif key in ("providers", "models", "routes") and isinstance(value, dict):
        for name, table in value.items():
            heading = name if key == "providers" else f'"{name}"'
            _check_inner(table, struct, f"{where}, [{key}.{heading}]")
    elif key == "servers" and isinstance(value, dict):
        for name, table in value.items():
            _check_inner(table, struct, f"{where.removesuffix(']')}.servers.{name}]")
    elif key == "webhooks":
        _check_list(value, struct, f"{where}, [[{key}]]", _EACH)
    elif key == "issuers":
        _check_list(value, struct, f"{where.removesuffix(', [auth]')}, [[auth.issuers]]", _EACH)
    elif key == "deployments":
        _check_list(value, struct, f"{where}: {key}", '{ provider = "…", model = "…" }')
    else:
        _check_inner(value, struct, f"{where}, [{key}]")


def _check_list(value: object, struct: type[msgspec.Struct], where: str, form: str) -> None:
    """Check tables that come one after the other, each with all that it needs."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise BadSettings(f"{where} must be tables, {form}")
    for table in value:
        _check_whole(table, struct, where)


def _check_whole(value: object, struct: type[msgspec.Struct], where: str) -> None:
    """Check a table that must have all that it needs."""
    _check_inner(value, struct, where)
    for field in msgspec.structs.fields(struct):
        if field.required and field.name not in value:  # type: ignore[operator]  # it is a table
            raise BadSettings(f"{where}: {field.name} is missing")


def _check_inner(value: object, struct: type[msgspec.Struct], where: str) -> None:
    if not isinstance(value, dict):
        raise BadSettings(f"{where} must be a table")
    _check_table(value, struct, where)


def _convert(value: object, kind: Any, where: str, *, strict: bool = True) -> Any:  # any type
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise BadSettings(f"{where} must be {_expected(kind, error)}, not {value!r}") from None


def _expected(kind: Any, error: msgspec.ValidationError) -> str:  # any type
    """Return what a value of this type looks like."""
    if NoneType in get_args(kind):
        kind = next(member for member in get_args(kind) if member is not NoneType)
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        choice = get_args(element) if get_origin(element) is Literal else ("words",)
        return f"a list of {', '.join(choice)}"
    if kind is bool:
        return "true or false"
    if get_origin(kind) is dict:
        return "a table of texts"
    # What is left are numbers and strings: "Expected `int` >= 1".
    words = str(error).removeprefix("Expected ").partition(", got")[0].replace("`", "")
    for name, plain in _PLAIN.items():
        words = words.replace(name, plain)
    return words


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:  # any type
    """Return the table that a key of this type holds, if it holds one."""
    for member in get_args(kind):
        if isinstance(member, type) and issubclass(member, msgspec.Struct):
            return member
    return None


def _types(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}
