"""Which endpoint for which model: Responses or chat completions?

A pure function of the model, the base URL, the configuration and the environment; nothing is
tried out over the network. A new model is one line in `RESPONSES_API_MODELS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

import msgspec

from antiphon.client.settings import OPENAI_BASE_URL, WireApi

__all__ = [
    "CHAT_ONLY_MODELS",
    "DISABLE_VARIABLE",
    "RESPONSES_API_MODELS",
    "RESPONSES_FOR_ALL",
    "GateConfig",
    "choose_wire",
    "is_listed",
]

DISABLE_VARIABLE: Final = "OPENAI_RESPONSES_DISABLE"
_YES: Final = frozenset({"1", "true", "yes", "on"})

# Names, or beginnings of names with a star. Everything older than gpt-4o stays out.
RESPONSES_API_MODELS: Final[tuple[str, ...]] = (
    "gpt-6*",
    "gpt-5*",
    "gpt-daybreak*",
    "gpt-rosalind*",
    "gpt-4.1*",
    "gpt-4o",
    "gpt-4o-20*",
    "gpt-4o-mini",
    "gpt-4o-mini-20*",
    "o1",
    "o1-20*",
    "o1-pro*",
    "o3*",
    "o4-mini*",
    "codex-mini-latest",
    "computer-use-preview*",
)

# What a name above covers and the Responses endpoint does not serve: it searches, speaks,
# listens or draws. A star stands for anything, here in any place.
CHAT_ONLY_MODELS: Final[tuple[str, ...]] = (
    "*-search-api*",
    "*-search-preview*",
    "*-audio*",
    "*-realtime*",
    "*-transcribe*",
    "*-tts*",
    "*-image*",
)


class GateConfig(msgspec.Struct, frozen=True):
    """What the user decided.

    `responses_enabled` is None until the user decides. `models` are further models for
    the Responses endpoint: names, beginnings of names with a star, `*` for every model.
    """

    responses_enabled: bool | None = None
    models: tuple[str, ...] = ()


RESPONSES_FOR_ALL: Final = GateConfig(responses_enabled=True, models=("*",))
"""For a server that speaks Responses for every model, such as an antiphon gateway."""


def choose_wire(
    model: str, base_url: str | None, config: GateConfig, environ: Mapping[str, str]
) -> WireApi:
    """Return the endpoint to ask for this model. The first line that applies decides.

    | # | if                                                                   | then      |
    |---|----------------------------------------------------------------------|-----------|
    | 1 | `OPENAI_RESPONSES_DISABLE` is 1, true, yes or on, in any case        | chat      |
    | 2 | `responses_enabled` is False                                         | chat      |
    | 3 | the base URL is not OpenAI's own and `responses_enabled` is not True | chat      |
    | 4 | the model is in the config's `models`                                | responses |
    | 5 | the model is in `CHAT_ONLY_MODELS`                                   | chat      |
    | 6 | the model is in `RESPONSES_API_MODELS`                               | responses |
    | 7 | otherwise                                                            | chat      |

    No base URL means the one in `OPENAI_BASE_URL`, else OpenAI's own, as for the client: hand
    over the environment that the client gets. `openai/gpt-5` counts as `gpt-5`; the config may
    name a model with its provider or without.
    """
    if environ.get(DISABLE_VARIABLE, "").strip().lower() in _YES:
        return "chat"
    if config.responses_enabled is False:
        return "chat"
    url = base_url or environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_BASE_URL
    if config.responses_enabled is None and not _is_official(url):
        return "chat"
    if is_listed(config.models, model):
        return "responses"
    name = model.rpartition("/")[2].lower()
    if any(fnmatchcase(name, pattern) for pattern in CHAT_ONLY_MODELS):
        return "chat"
    return "responses" if is_listed(RESPONSES_API_MODELS, name) else "chat"


def is_listed(entries: Iterable[str], model: str) -> bool:
    """Return whether a model is among the entries, by its whole name or by that after the slash.

    Entries are names, or beginnings of names with a star; case makes no difference.
    """
    name = model.lower()
    names = (name, name.rpartition("/")[2])
    return any(_covers(entry.lower(), name) for entry in entries for name in names)


def _covers(entry: str, name: str) -> bool:
    return name.startswith(entry[:-1]) if entry.endswith("*") else name == entry


def _is_official(base_url: str) -> bool:
    try:
        return _place(base_url) == _place(OPENAI_BASE_URL)
    except ValueError:  # not a URL
        return False


def _place(base_url: str) -> tuple[object, ...]:
    """Return what a URL points to, the same for all its spellings. Raise ValueError."""
    url = urlsplit(base_url)
    return url.scheme, url.hostname, url.port or 443, url.path.rstrip("/"), url.query
