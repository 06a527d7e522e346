"""Which names are public, and the page that lists them.

    python -m tests.public_api            prints docs/reference/api.md
    python -m tests.public_api --write    writes it

A module in `MODULES` is public as far as its `__all__`; of a module of errors, the classes. Of the
modules in `PARTS` only the names given here are public.
"""

from __future__ import annotations

import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Final

from antiphon.protocol.events import EVENT_CLASSES

__all__ = ["MODULES", "PAGE", "PARTS", "main", "page", "public_names"]

PAGE: Final = Path(__file__).parent.parent / "docs/reference/api.md"
MODULES: Final = {
    "antiphon": "The main classes, imported on first use, and the version.",
    "antiphon.client": "The [client](client.md).",
    "antiphon.client.errors": "What a call can [raise](client.md#errors).",
    "antiphon.host": "The [provider](host.md) for chat applications.",
    "antiphon.host.bridge.client": "A client of the [bridge](bridge.md).",
    "antiphon.host.errors": "What an answer can [raise](host.md#errors).",
    "antiphon.testing": "Fakes and judges for [your tests](../howto/testing.md).",
}
PARTS: Final = {
    "antiphon.protocol.events": (
        "The [events](client.md) of a stream.",
        [
            *sorted({cls.__name__ for cls in EVENT_CLASSES.values()}),
            "Event",
            "UnknownEvent",
            "event_type",
            "is_terminal",
        ],
    ),
    "antiphon.protocol.deltas": (
        "What a script of `ScriptedBackend` consists of.",
        [
            *("TextGrew", "ReasoningGrew", "RefusalGrew", "CallOpened", "CallGrew", "CallClosed"),
            *("UsageKnown", "Stopped"),
        ],
    ),
    "antiphon.protocol.response": ("A response and its token counts.", ["Response", "Usage"]),
    "antiphon.protocol.errors": (
        "The base of all errors, its three branches, and those without a better place.",
        ["AntiphonError", "BackendError", "CallerError", "OurFault", "OutOfFiles", "PeerFault"],
    ),
}
_INTRODUCTION: Final = """\
# The public API

These names are stable: a release that removes one, or changes what it does in an incompatible way,
changes the first number of the version that is not zero, and the changelog lists it. A name may get
new optional arguments, attributes and subclasses at any time.

Every other name is internal, also if it has no underscore: other modules of `antiphon`, the modules
in which the names below are defined, and everything that a module imports for itself. The
[commands](cli.md), the [settings](config.md), the [HTTP interface](http.md) and the fields of the
[log](log.md) have pages of their own.

A test compares this page with the code; `python -m tests.public_api --write` writes it."""


def public_names(module: str) -> list[str]:
    """Return the public names of a module; of a module of errors, the classes alone."""
    if module in PARTS:
        return PARTS[module][1]
    exporting = import_module(module)
    names: list[str] = list(exporting.__all__)
    if not module.endswith(".errors"):
        return names
    return [name for name in names if isinstance(getattr(exporting, name), type)]


def page() -> str:
    """Return what docs/reference/api.md must contain."""
    parts = [(name, *part) for name, part in PARTS.items()]
    modules = [(name, about, public_names(name)) for name, about in MODULES.items()]
    sections = [
        f"## {name}\n\n{about}\n\n{_listed(names)}" for name, about, names in [*modules, *parts]
    ]
    return "\n\n".join([_INTRODUCTION, *sections]) + "\n"


def _listed(names: list[str]) -> str:
    text = ", ".join(f"`{name}`" for name in names)
    return textwrap.fill(text + ".", width=100, break_on_hyphens=False)


def main() -> None:
    """Print the page, or write it."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), "utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
