"""What a configuration of the LiteLLM proxy means here: our TOML, and what it could not express.

`model_list` becomes providers (one for each server and key) and routes (one for each group of
entries with the same name). Nothing is dropped in silence: what has no counterpart is listed by its
name. A key that stands in the file itself is never copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

import msgspec

from antiphon.gateway.config import ProviderSettings
from antiphon.gateway.errors import BadSettings

__all__ = ["Imported", "import_litellm"]

# Any: what YAML holds.
Table = Mapping[str, Any]

_ENV: Final = "os.environ/"
_READ: Final = frozenset({"model", "api_base", "api_key", "weight"})


class _Kind(NamedTuple):
    """How servers behind a prefix of LiteLLM are reached."""

    wire_api: str = "chat"
    base_url: str | None = None
    profile: str | None = None


_KINDS: Final = {
    "openai": _Kind("chat", "https://api.openai.com/v1", "openai"),
    "text-completion-openai": _Kind("chat", "https://api.openai.com/v1", "openai"),
    "hosted_vllm": _Kind(profile="vllm"),
    "vllm": _Kind(profile="vllm"),
    "openai_like": _Kind(),
    "custom_openai": _Kind(),
    "lm_studio": _Kind(base_url="http://127.0.0.1:1234/v1"),
    "ollama": _Kind(base_url="http://127.0.0.1:11434/v1", profile="ollama"),
    "ollama_chat": _Kind(base_url="http://127.0.0.1:11434/v1", profile="ollama"),
    "groq": _Kind(base_url="https://api.groq.com/openai/v1", profile="groq"),
    "deepseek": _Kind(base_url="https://api.deepseek.com/v1", profile="deepseek"),
    "mistral": _Kind(base_url="https://api.mistral.ai/v1", profile="mistral"),
    "openrouter": _Kind(base_url="https://openrouter.ai/api/v1", profile="openrouter"),
    "xai": _Kind(base_url="https://api.x.ai/v1"),
    "anthropic": _Kind("messages", "https://api.anthropic.com"),
    "gemini": _Kind("gemini", "https://generativelanguage.googleapis.com/v1beta"),
}
_KEYS: Final = {
    "openai": "OPENAI_API_KEY",
    "groq": "GROQ_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "xai": "XAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""The variable that LiteLLM reads for a vendor where the entry names none."""
_VENDORS: Final = {"claude": "anthropic", "gemini": "vertex_ai", "command": "cohere"}
"""Whose models begin with these words, if they have no prefix."""

_BY_HAND: Final = {
    "azure": (
        'add a provider by hand, with wire_api = "responses" and '
        'base_url = "https://RESOURCE.openai.azure.com/openai/v1"'
    ),
    "vertex_ai": (
        'add a provider by hand, with wire_api = "gemini", '
        "the URL of the project as base_url, and auth"
    ),
}
"""What to do about servers whose URL or key cannot be read out of an entry."""


class Imported(NamedTuple):
    """The text of a configuration, and what of the other one is not in it."""

    toml: str
    unmapped: list[str]


def import_litellm(table: object) -> Imported:
    """Return our configuration for a decoded file. Raise BadSettings if it is none of LiteLLM's."""
    if not isinstance(table, dict) or not isinstance(table.get("model_list"), list):
        raise BadSettings("this is no configuration of LiteLLM: it has no model_list")
    reading = _Reading()
    for index, entry in enumerate(table["model_list"]):
        reading.read_entry(entry, f"model_list[{index}]")
    for name in ("router_settings", "litellm_settings", "general_settings"):
        reading.read_settings(name, _as_table(table.get(name)))
    known = {"model_list", "router_settings", "litellm_settings", "general_settings"}
    reading.unmapped += [name for name in table if name not in known]
    return Imported(reading.write(), reading.unmapped)


class _Reading:
    """Collects what the file means, entry by entry."""

    def __init__(self) -> None:
        self.unmapped: list[str] = []
        self._top: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}
        self._providers: dict[tuple[str, str, str | None], tuple[str, dict[str, Any]]] = {}
        self._routes: dict[str, dict[str, Any]] = {}
        self._retry: dict[str, Any] = {}

    # Models.

    def read_entry(self, entry: object, where: str) -> None:
        given = _as_table(entry)
        name, params = given.get("model_name"), _as_table(given.get("litellm_params"))
        if not isinstance(name, str) or not isinstance(params.get("model"), str):
            self.unmapped.append(f"{where}: it has no model_name or no litellm_params.model")
            return
        where = f"{where} ({name})"
        prefix, model = _split(params["model"])
        provider = self._provider(prefix, params, where)
        if provider is None:
            return
        if "*" in name or "*" in model:
            self.unmapped.append(f"{where}: patterns; the models of a provider are served by name")
            return
        deployment: dict[str, Any] = {"provider": provider, "model": model}
        if _is_weight(params.get("weight")):
            deployment["weight"] = params["weight"]
        elif "weight" in params:
            self.unmapped.append(f"{where}: litellm_params.weight")
        route = self._routes.setdefault(name, {"deployments": []})
        if deployment in route["deployments"]:
            self.unmapped.append(f"{where}: the same deployment is listed twice")
        else:
            route["deployments"].append(deployment)
        self.unmapped += [f"{where}: litellm_params.{key}" for key in params if key not in _READ]
        known = ("model_name", "litellm_params")
        self.unmapped += [f"{where}: {key}" for key in given if key not in known]

    def _provider(self, prefix: str, params: Table, where: str) -> str | None:
        """Return the name of the provider of an entry; None if there is no way to reach it."""
        kind = _KINDS.get(prefix)
        wires = get_args(_type_of(ProviderSettings, "wire_api"))
        base = params.get("api_base") or (kind.base_url if kind else None)
        if kind is None or kind.wire_api not in wires or not isinstance(base, str):
            hint = _BY_HAND.get(prefix, "there is no way to reach it here")
            self.unmapped.append(f"{where}: {params['model']}: {hint}")
            return None
        if not base.startswith(("http://", "https://")):
            self.unmapped.append(f"{where}: api_base {base} is no URL; write it as a base_url")
            return None
        key = self._key(prefix, params, where)
        found = self._providers.get((prefix, base, key))
        if found is None:
            taken = {name for name, _ in self._providers.values()}
            settings = {
                "wire_api": kind.wire_api if kind.wire_api != "chat" else None,
                "base_url": _with_version(base, kind),
                "key_env": key,
                "profile": kind.profile if "api_base" not in params or prefix != "openai" else None,
            }
            kept = {name: value for name, value in settings.items() if value is not None}
            found = _free_name(prefix, base, taken), kept
            self._providers[prefix, base, key] = found
        return found[0]

    def _key(self, prefix: str, params: Table, where: str) -> str | None:
        given = params.get("api_key")
        if given is None:
            return _KEYS.get(prefix) if "api_base" not in params else None
        if isinstance(given, str) and given.startswith(_ENV):
            return given.removeprefix(_ENV)
        self.unmapped.append(
            f"{where}: litellm_params.api_key holds a key; put it into an environment variable, "
            "and name that in key_env"
        )
        return None

    # Settings.

    def read_settings(self, section: str, settings: Table) -> None:
        for key, value in settings.items():
            read = _SETTINGS.get(key)
            if read is None or not read(self, value):
                self.unmapped.append(f"{section}.{key}")

    def _read_fallbacks(self, value: object) -> bool:
        return self._put_fallbacks(value, "fallbacks")

    def _read_context_window_fallbacks(self, value: object) -> bool:
        return self._put_fallbacks(value, "on_overflow")

    def _put_fallbacks(self, value: object, key: str) -> bool:
        if not isinstance(value, list):
            return False
        for table in value:
            for name, others in _as_table(table).items():
                self._put_fallback(name, others, key)
        return True

    def _put_fallback(self, name: str, others: object, key: str) -> None:
        wanted = others if isinstance(others, list) else []
        known = [one for one in wanted if one in self._routes and one != name]
        route = self._routes.get(name)
        if route is None or not known or route.get(key):
            self.unmapped.append(f"{key} of {name}: {others}")
            return
        route[key] = known if key == "fallbacks" else known[0]
        if isinstance(others, list) and len(others) > (len(known) if key == "fallbacks" else 1):
            self.unmapped.append(f"{key} of {name}: not all of {others}")

    def _read_model_group_alias(self, value: object) -> bool:
        for alias, name in _as_table(value).items():
            if isinstance(name, str) and name in self._routes and alias not in self._routes:
                self._routes[str(alias)] = {"to": name}
            else:
                self.unmapped.append(f"model_group_alias.{alias}")
        return isinstance(value, dict)

    def _read_num_retries(self, value: object) -> bool:
        if isinstance(value, int) and 0 <= value < 20:
            self._retry = {"attempts": value + 1}
            return True
        return False

    def _read_request_timeout(self, value: object) -> bool:
        if isinstance(value, int | float) and value > 0:
            self._limits["wall"] = float(value)
            return True
        return False

    def _read_drop_params(self, value: object) -> bool:
        if value is False:
            self._top["strict"] = True
        return isinstance(value, bool)

    def _read_master_key(self, value: object) -> bool:
        self._top["require_keys"] = True
        return True

    def _read_database_url(self, value: object) -> bool:
        if isinstance(value, str) and value.startswith(_ENV):
            self._top["store"] = f"env:{value.removeprefix(_ENV)}"
            return True
        return False

    # TOML.

    def write(self) -> str:
        blocks = [_lines(self._top)] if self._top else []
        if self._limits:
            blocks.append(["[upstream_limits]", *_lines(self._limits)])
        for name, settings in self._providers.values():
            blocks.append([f"[providers.{_key_of(name)}]", *_lines(settings)])
        for name, route in self._routes.items():
            if self._retry and "to" not in route:
                route["retry"] = self._retry
            blocks.append([f"[routes.{_key_of(name)}]", *_lines(route)])
        return "\n\n".join("\n".join(block) for block in blocks) + "\n"


_SETTINGS: Final[Mapping[str, Callable[[_Reading, object], bool]]] = {
    "fallbacks": _Reading._read_fallbacks,
    "context_window_fallbacks": _Reading._read_context_window_fallbacks,
    "model_group_alias": _Reading._read_model_group_alias,
    "num_retries": _Reading._read_num_retries,
    "request_timeout": _Reading._read_request_timeout,
    "drop_params": _Reading._read_drop_params,
    "master_key": _Reading._read_master_key,
    "database_url": _Reading._read_database_url,
}
"""What reads a setting; it returns whether it could."""


def _as_table(value: object) -> Table:
    return value if isinstance(value, dict) else {}


def _type_of(struct: type[msgspec.Struct], field: str) -> Any:  # any type
    return next(one.type for one in msgspec.structs.fields(struct) if one.name == field)


def _split(model: str) -> tuple[str, str]:
    """Return the prefix and the name of a model; LiteLLM knows some vendors by their names."""
    prefix, slash, name = model.partition("/")
    if slash:
        return prefix, name
    found = next((vendor for begin, vendor in _VENDORS.items() if model.startswith(begin)), None)
    return found or "openai", model


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1000


def _with_version(base: str, kind: _Kind) -> str:
    """Return the base URL as our settings want it: LiteLLM adds /v1 for Ollama by itself."""
    base = base.rstrip("/")
    return f"{base}/v1" if kind.profile == "ollama" and not base.endswith("/v1") else base


def _free_name(prefix: str, base: str, taken: set[str]) -> str:
    """Return a name for a provider that none has yet: the vendor's, else that of the host."""
    host = re.sub(r"[^A-Za-z0-9]+", "_", base.partition("://")[2].partition("/")[0]).strip("_")
    names = [prefix, f"{prefix}_{host}", *(f"{prefix}_{number}" for number in range(2, 1000))]
    return next(name for name in names if name not in taken)


def _lines(table: Table) -> list[str]:
    return [f"{_key_of(key)} = {_value(value)}" for key, value in table.items()]


def _key_of(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: object) -> str:
    """Return a string or a number for TOML, which has no pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:  # Any: what TOML holds
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"{{ {', '.join(_lines(value))} }}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + "".join(f"  {_value(one)},\n" for one in value) + "]"
    return _text(value)
