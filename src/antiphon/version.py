"""The version of the package, in a module that every room may import.

The package itself names its main classes, so a room that imports it would close a cycle.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.2.0"
