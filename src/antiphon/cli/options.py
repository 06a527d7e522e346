"""Options that several commands have, so that they read and behave the same in all of them.

Imported with every command, and so it imports nothing large but click.
"""

from __future__ import annotations

import re
from typing import Any, Final

import click

from antiphon.gateway.errors import BadSettings

__all__ = [
    "DEFAULT_URL",
    "OLD_NAMES",
    "base_url",
    "check_text",
    "config",
    "instructions",
    "key_env",
    "model",
    "model_to_ask",
    "previous",
    "profile",
    "prompt",
    "show_thinking",
    "store_config",
    "upstream_key_env",
]

DEFAULT_URL: Final = "http://127.0.0.1:4680/v1"
_BYTES: Final = re.compile("[\udc80-\udcff]")


def check_text(text: str, what: str) -> str:
    """Return the text. Raise BadSettings if it holds bytes that are not UTF-8.

    Python carries a byte that it cannot decode as half a surrogate pair (PEP 383), which cannot
    be sent as JSON. In the locale C those are all bytes that are not ASCII, so they are read
    as UTF-8 first.
    """
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    found = _BYTES.search(text)
    if found is None:
        return text
    byte, line = ord(found[0]) - 0xDC00, text.count("\n", 0, found.start()) + 1
    where = f" in line {line}" if "\n" in text else ""
    raise BadSettings(f"{what} is not valid UTF-8 (byte 0x{byte:02x}{where}); convert it first")


def _check_value(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    what = parameter.opts[0] if isinstance(parameter, click.Option) else "the question"
    return value if value is None else check_text(value, what)


base_url: Final = click.option(
    "--base-url",
    metavar="URL",
    envvar="ANTIPHON_BASE_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="The URL of the server.",
)
model: Final = click.option(
    "--model",
    "-m",
    callback=_check_value,
    help="Which model; the server's default if left out.",
)
instructions: Final = click.option(
    "--instructions", "-i", callback=_check_value, help="Instructions for the model."
)
previous: Final = click.option(
    "--previous", "-p", metavar="ID", callback=_check_value, help="Continue from this response."
)
prompt: Final = click.argument("prompt", required=False, callback=_check_value)
show_thinking: Final = click.option(
    "--show-thinking", is_flag=True, help="Show the model's thinking on stderr."
)
model_to_ask: Final = click.option(
    "--model", "-m", help="Which model to ask.  [default: the first it lists]"
)
key_env: Final = click.option(
    "--key-env", metavar="NAME", help="The environment variable that holds the key."
)
config: Final = click.option(
    "--config",
    metavar="FILE",
    help="A TOML file with settings.  [default: antiphon.toml in this directory, if it exists]",
)
store_config: Final = click.option(
    "--config", metavar="FILE", help="The file that names the store, as for serve."
)
upstream_key_env: Final = click.option(
    "--upstream-key-env",
    metavar="NAME",
    help="The environment variable that holds the upstream's key.",
)
profile: Final = click.option(
    "--profile", metavar="NAME", help="The kind of server that the upstream is, such as ollama."
)
OLD_NAMES: Final[dict[str, Any]] = {  # Any: what click calls settings
    "token_normalize_func": lambda name: {"show-reasoning": "show-thinking"}.get(name, name)
}
"""Settings of a command whose flags had other names once; those still work, unseen."""
