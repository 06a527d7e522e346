"""Which APIs of OpenAI are not answered here, and why?

The answer to their paths is a 404 as to any other; the sentence keeps a caller from looking for
a mistake in the path.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ABSENT", "why_absent"]

_PEOPLE: Final = "There are no accounts of people here; projects have keys, and keys have roles."

ABSENT: Final = {
    "/v1/audio": "Speech and transcription are not served here; ask their provider.",
    "/v1/images": "Images are not generated here; ask their provider.",
    "/v1/videos": "Videos are not generated here; ask their provider.",
    "/v1/moderations": "Moderation is not served here; ask its provider.",
    "/v1/rerank": "Reranking is not served here; ask its provider.",
    "/v1/batches": "There are no batches here; send requests with background: true.",
    "/v1/messages/batches": "There are no batches here; send each message by itself.",
    "/v1/fine_tuning": "Models are not tuned here; ask their provider.",
    "/v1/realtime": "Sessions of speech are not served here; GET /v1/responses is a WebSocket.",
    "/v1/organization/users": _PEOPLE,
    "/v1/organization/invites": _PEOPLE,
    "/v1/organization/groups": _PEOPLE,
    "/v1/organization/roles": _PEOPLE,
    "/v1/assistants": "The Assistants API is not served here; use POST /v1/responses.",
    "/v1/threads": "The Assistants API is not served here; use POST /v1/conversations.",
}
"""The beginnings of paths that are not answered, and what to do instead."""


def why_absent(path: str) -> str | None:
    """Return the sentence about a path that is not answered, if it is of a known API."""
    for start, sentence in ABSENT.items():
        if path == start or path.startswith(f"{start}/"):
            return sentence
    return None
