"""Why an ordinary run of the tests leaves these out.

They need real proxies, which are fetched from Debian where the system has none, so they are
collected only with `--proxies`:

    pytest tests/proxies --proxies
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs real proxies."""
    parser.addoption("--proxies", action="store_true", help="run the tests with real proxies")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out without the option."""
    return None if config.getoption("--proxies", False) else True
