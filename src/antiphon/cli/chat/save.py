"""A conversation as a file: Markdown for people, or JSON with every item for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from antiphon.host.outcome import spoken_text
from antiphon.protocol.items import Item, item_type, text_of

__all__ = ["as_json", "as_markdown", "default_name", "write_file"]

_BAD_NAME: Final = re.compile(r"[^0-9A-Za-z-]")


def default_name(now: str) -> str:
    """Return the name of the file for a conversation saved at this ISO time."""
    return f"chat-{_BAD_NAME.sub('', now.replace('T', '-'))}.md"


def write_file(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Write the file. Raise FileExistsError if there is one and it is not to be replaced."""
    with path.open("wb" if overwrite else "xb") as file:
        file.write(content)


def as_json(items: Sequence[Item], about: dict[str, Any]) -> bytes:
    """Return everything, as one JSON object."""
    text = json.dumps({**about, "items": list(items)}, ensure_ascii=False, indent=2)
    # Half an emoji is the one thing that JSON can hold and UTF-8 cannot; this escapes it.
    return (text + "\n").encode("utf-8", "backslashreplace")


def as_markdown(items: Sequence[Item], *, title: str, instructions: str | None) -> bytes:
    """Return messages and tool calls as Markdown, without reasoning."""
    blocks = [f"# {title}"]
    if instructions:
        blocks.append("\n".join(f"> {line}".rstrip() for line in instructions.splitlines()))
    speaker = ""
    for item in items:
        for who, block in _blocks(item):
            if who != speaker:
                blocks.append(f"## {who}")
                speaker = who
            blocks.append(block)
    return ("\n\n".join(blocks) + "\n").encode("utf-8", "replace")


def _blocks(item: Item) -> Iterator[tuple[str, str]]:
    """Yield the readable parts of an item as Markdown, each with its role."""
    kind = item_type(item)
    if kind == "message" and item.get("role") == "assistant":
        text = spoken_text(item)
        if text.strip():
            yield "Model", text.strip()
    elif kind == "message":
        yield "You", text_of(item.get("content")).strip()
    elif kind.endswith("_call") and "call_id" in item:
        said = item.get("arguments") or item.get("input") or ""
        yield "Model", f"Calls `{item.get('name')}`:\n\n{_fenced(str(said))}"
    elif kind.endswith("_call_output"):
        yield "You", f"Result:\n\n{_fenced(text_of(item.get('output')))}"


def _fenced(text: str) -> str:
    """Return the text as a block of code that nothing in it can end."""
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
