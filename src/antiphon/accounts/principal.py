"""Who asks: the identity that auth finds, and that a turn carries to its log.

`owner` is what rows in the store belong to: no request sees another owner's data. It is also the
project that pays. Everything else says which of the owner's credentials was used and what it
allows, so that a turn can be ended when its key is revoked, and charged to it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.errors import NotFound
from antiphon.store.base.keys import Role

__all__ = ["LOCAL", "Principal", "Role", "check_model"]


class Principal(msgspec.Struct, frozen=True):
    """Who asks. `key_id` is None without a key, and for a turn that another process began."""

    owner: str
    key_id: str | None = None
    role: Role = "user"
    user: str | None = None
    """The person or service behind the credential, if it names one."""
    models: tuple[str, ...] | None = None
    """The only models that may be asked for; None for all."""
    never_store: bool = False
    """Whether nothing of its requests may be stored, whatever they ask for."""
    secret: bytes | None = None
    """The digest of the secret that was sent, so that a turn ends with it."""
    run_budget: int | None = None
    """Nano-dollars that a run may cost whose requests name no budget."""
    max_run_budget: int | None = None
    """The most that a run may cost."""

    def may_ask(self, model: str) -> bool:
        """Return whether this model, as a caller names it, may be asked for."""
        return self.models is None or model in self.models


LOCAL: Final = Principal("local")
"""On localhost no API key is needed; such requests belong to this principal."""


def check_model(principal: Principal, model: str) -> None:
    """Raise NotFound if this model may not be asked for. The words are those of OpenAI."""
    if not principal.may_ask(model):
        raise NotFound(
            f"The model '{model}' does not exist or you do not have access to it.",
            code="model_not_found",
            param="model",
        )
