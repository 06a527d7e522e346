"""Options that several commands have, so that they read and behave the same in all of them.

Imported with every command, and so it imports nothing but click.
"""

from __future__ import annotations

from typing import Any, Final

import click

__all__ = [
    "DEFAULT_URL",
    "OLD_NAMES",
    "base_url",
    "instructions",
    "model",
    "previous",
    "show_thinking",
]

DEFAULT_URL: Final = "http://127.0.0.1:4680/v1"

base_url: Final = click.option(
    "--base-url",
    metavar="URL",
    envvar="ANTIPHON_BASE_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="Where the server is.",
)
model: Final = click.option("--model", "-m", help="Which model; the server's default if left out.")
instructions: Final = click.option(
    "--instructions", "-i", help="What the model is to keep in mind."
)
previous: Final = click.option("--previous", "-p", metavar="ID", help="Go on from this response.")
show_thinking: Final = click.option(
    "--show-thinking", is_flag=True, help="Show the model's thinking on stderr."
)
OLD_NAMES: Final[dict[str, Any]] = {  # Any: what click calls settings
    "token_normalize_func": lambda name: {"show-reasoning": "show-thinking"}.get(name, name)
}
"""Settings of a command whose flags had other names once; those still work, unseen."""
