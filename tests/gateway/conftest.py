"""Each test runs in a directory of its own, as those of the commands do."""

from __future__ import annotations

from tests.cli.conftest import own_place

__all__ = ["own_place"]
