"""Which models does the gateway have, as far as it was asked?

The list is kept in a file of llm's own folder, by the address of the gateway. `llm antiphon
refresh` asks again. Otherwise the gateway is asked only if there is no list yet, and a
gateway that does not answer then has no models; it is no error, since llm loads all its plugins
whichever model is meant. Nor is it one if the list cannot be kept, as in a read-only folder.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import llm

from llm_antiphon.errors import as_llm_errors
from llm_antiphon.server import base_url, find_key, open_sync

if TYPE_CHECKING:
    from antiphon.host import ModelDescription

__all__ = ["KnownModel", "known_models", "refresh"]

_FILE: Final = "antiphon-models.json"


@dataclass(frozen=True)
class KnownModel:
    """A model, with what matters to llm. None: the gateway does not state it."""

    id: str
    tools: bool | None = None
    images: bool | None = None
    reasoning: bool | None = None
    context_window: int | None = None


def known_models() -> list[KnownModel]:
    """Return the models of the gateway: those of the last list, else it is asked for one."""
    kept = _read().get(base_url())
    if kept is not None:
        return kept
    try:
        models = _ask()
    except llm.ModelError:
        return []
    with suppress(OSError):  # the next command asks again
        _keep(models)
    return models


def refresh() -> list[KnownModel]:
    """Ask the gateway for its models, and keep the list. Raise ModelError if that fails."""
    models = _ask()
    try:
        _keep(models)
    except OSError as error:
        raise llm.ModelError(
            f"the list of models cannot be kept in {_path()}: {error.strerror}"
        ) from error
    return models


def _ask() -> list[KnownModel]:
    with as_llm_errors(), open_sync(find_key()) as provider:
        return [_known(model) for model in provider.models(silent=False)]


def _keep(models: list[KnownModel]) -> None:
    _write({**_read(), base_url(): models})


def _known(model: ModelDescription) -> KnownModel:
    can = model.capabilities
    return KnownModel(
        model.id, can.tool_calling, can.image_input, can.reasoning, model.context_window
    )


def _path() -> Path:
    return Path(llm.user_dir()) / _FILE


def _read() -> dict[str, list[KnownModel]]:
    """Return the lists by address. A file that cannot be read counts as none: it is replaced."""
    try:
        lists: Any = json.loads(_path().read_text("utf-8"))
        return {url: [KnownModel(**model) for model in models] for url, models in lists.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(lists: dict[str, list[KnownModel]]) -> None:
    """Replace the file in one step, so that another llm never reads half of it."""
    plain = {url: [asdict(model) for model in models] for url, models in lists.items()}
    path = _path()
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f"{_FILE}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(plain, file, indent=2)
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
