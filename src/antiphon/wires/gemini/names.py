"""Under which name does Gemini know a function?

Aliases have letters, digits, `_` and `-`, up to 64 of them. Gemini takes these, but a name must
begin with a letter or `_`: an alias that does not gets a `_` in front, more if that is taken.
"""

from __future__ import annotations

from collections.abc import Container

__all__ = ["alias_for", "name_for"]


def name_for(alias: str, aliases: Container[str]) -> str:
    """Return the name of a function, which no other alias is."""
    if alias[:1].isalpha() or alias.startswith("_"):
        return alias
    name = f"_{alias}"
    while name in aliases:
        name = f"_{name}"
    return name


def alias_for(name: str, aliases: Container[str]) -> str:
    """Return the alias of the function that the model calls by this name."""
    if name in aliases or not name.startswith("_"):
        return name
    plain = name.lstrip("_")
    return plain if plain in aliases and name_for(plain, aliases) == name else name
