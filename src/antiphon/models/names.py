"""What does the name of a model stand for?

Names are compared in a plain form: small letters, without a path before them or `.gguf` after
them, and with single dashes for dots, colons, underscores and the like. Another version number
is another model; a date, a size or a variant is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["END_OF_NAME", "bare_name", "is_chat_model", "plain_name", "spellings"]

END_OF_NAME: Final = r"(?:(?=-(?:0[1-9]|1[0-2])-\d{4}(?!-?\d))|(?![^\W_])(?!-\d{1,2}(?:-|$)))"
"""Where the plain name of a family ends.

A dash and one or two digits start another version ("qwen3-5"), unless they are the month before
a year ("command-r-08-2024"). A year with a month and a day after it belongs to a date.
"""

# In a size the dot separates no version: "1.5b" is one word.
_SIZE: Final = re.compile(r"(\d)\.(\d+b)(?![a-z0-9])")
_SEPARATORS: Final = re.compile(r"[\W_]+")
# Models that only embed, draw, speak, listen or read pages, and OpenAI's three that only
# complete a text.
_NOT_CHAT: Final = re.compile(
    r"(?:^|[^a-z])(?:dall-e|embed|embedding|embeddings|image|moderation|ocr|realtime|rerank|"
    r"reranker|sora|transcribe|tts|whisper)(?:$|[^a-z])"
    r"|^(?:babbage-002|davinci-002|gpt-3\.5-turbo-instruct)"
)


def bare_name(name: str) -> str:
    """Return the name in small letters, without what stands before its last slash."""
    return name.lower().rstrip("/").rpartition("/")[2]


def plain_name(name: str) -> str:
    """Return the plain form of a whole name."""
    joined = _SIZE.sub(r"\1\2", name.lower().removesuffix(".gguf"))
    return _SEPARATORS.sub("-", joined).strip("-")


def spellings(name: str) -> Iterator[str]:
    """Yield the plain forms that a family may begin: the bare name, then that after a colon.

    The second is for `openai:gpt-5` and for tuned models, such as `ft:gpt-4o:acme::1`.
    """
    bare = bare_name(name)
    yield plain_name(bare)
    _, colon, rest = bare.partition(":")
    if colon:
        yield plain_name(rest)


def is_chat_model(name: str) -> bool:
    """Return whether the name is not that of a model for something else than chat."""
    return _NOT_CHAT.search(bare_name(name)) is None
