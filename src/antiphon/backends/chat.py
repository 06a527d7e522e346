"""A model behind a chat completions server: an `HttpBackend` with the chat wire."""

from __future__ import annotations

from typing import Any

from antiphon.backends.http import HttpBackend
from antiphon.wires.chat.profiles import Profile, profile_for
from antiphon.wires.chat.wire import ChatWire

__all__ = ["ChatBackend"]


class ChatBackend(HttpBackend):
    """Any server that speaks `POST {base_url}/chat/completions`.

    `profile` is what the server takes; without one it is guessed from the URL. `settings` are
    those of HttpBackend.
    """

    def __init__(
        self,
        base_url: str,
        *,
        profile: Profile | str | None = None,
        **settings: Any,  # checked by HttpBackend
    ) -> None:
        if not isinstance(profile, Profile):
            profile = profile_for(profile or (base_url if "://" in base_url else None))
        super().__init__(base_url, ChatWire(profile), **settings)
