"""Modules with a small change in their source, as somebody might make it by mistake."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Sequence

__all__ = ["plant"]


def plant(modules: Sequence[types.ModuleType], old: str, new: str) -> types.ModuleType:
    """Return the last of these modules, with this change made wherever the text occurs.

    The modules stand in the order of their imports, and each imports the changed ones before
    it. A change that applies nowhere fails, so lists of bugs stay true.
    """
    sources = [inspect.getsource(module) for module in modules]
    assert any(old in source for source in sources), "the bug no longer applies: write it again"
    names = [module.__name__ for module in modules]
    known = {name: sys.modules[name] for name in names}
    try:
        for name, source in zip(names, sources, strict=True):
            planted = sys.modules[name] = types.ModuleType(name)
            exec(source.replace(old, new), planted.__dict__)
        return sys.modules[names[-1]]
    finally:
        sys.modules.update(known)
