"""Events are made in one place: by the builder, and by the codecs that read them back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import antiphon
from antiphon.protocol.events import EVENT_CLASSES

SOURCE: Final = Path(antiphon.__file__).parent
# The builder and its writers make events. The codec reads them from a wire, the log from a store.
MAKERS: Final = frozenset(
    {
        "protocol/machines/builder.py",
        "protocol/machines/call_writer.py",
        "protocol/machines/event_writer.py",
        "protocol/machines/prose_writer.py",
        "protocol/machines/log.py",
        "protocol/codec.py",
    }
)
NAMES: Final = frozenset({*(cls.__name__ for cls in EVENT_CLASSES.values()), "UnknownEvent"})


def made_events(source: str) -> Iterator[str]:
    """Yield the event classes that a module calls, however it has imported them."""
    known: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "antiphon.protocol.events":
            known |= {name.asname or name.name: name.name for name in node.names}
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and known.get(called.id) in NAMES:
                yield known[called.id]
            elif isinstance(called, ast.Attribute) and called.attr in NAMES:
                owner = called.value
                if isinstance(owner, ast.Name) and owner.id == "events":
                    yield called.attr
            elif isinstance(called, ast.Subscript) and ast.unparse(called).startswith("EVENT_CLA"):
                yield "EVENT_CLASSES"


def test_no_other_module_makes_events() -> None:
    found = {
        str(path.relative_to(SOURCE)): sorted(set(made_events(path.read_text())))
        for path in SOURCE.rglob("*.py")
    }
    assert {path for path, names in found.items() if names} <= MAKERS


@pytest.mark.parametrize(
    "source",
    [
        "from antiphon.protocol.events import ErrorEvent\nErrorEvent(message='x')",
        "from antiphon.protocol.events import ErrorEvent as E\ndef f():\n    return [E()]",
        "from antiphon.protocol import events\nevents.ResponseFailed(response=None)",
        "from antiphon.protocol.events import EVENT_CLASSES\nEVENT_CLASSES['error']()",
    ],
)
def test_a_module_that_makes_an_event_would_be_found(source: str) -> None:
    assert list(made_events(source))


def test_naming_an_event_in_a_pattern_is_not_making_one() -> None:
    source = "from antiphon.protocol.events import ErrorEvent\nmatch x:\n    case ErrorEvent(): ..."
    assert not list(made_events(source))
