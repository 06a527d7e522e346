"""Install what the tests of the dashboard need: a browser, and what drives it.

python -m tests.ui.install    prints the folder of what drives it
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.clients.install import node_modules
from tests.vscode.install import Missing, need_browser

__all__ = ["NPM"]

NPM: Final = Path("tests/ui/npm")


def main() -> int:
    """Install, and print where. Return the exit code."""
    try:
        need_browser(lambda line: print(line, file=sys.stderr, flush=True))
    except Missing as error:
        print(error, file=sys.stderr)
        return 1
    print(node_modules(NPM))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
