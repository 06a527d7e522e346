"""Claude Code on any model: which variables it is started with.

They are in its environment and in a file for `--settings`: variables in the user's own settings
override the environment, and that flag overrides them. The user's settings are read but not
changed, and logins are left out of the environment. What stands in ARGS comes later on the line
and wins.

A model that takes little gets one tool and 600 tokens before the question, where it would be
20,000: Claude Code's own bare mode, with a prompt of ours.
"""

from __future__ import annotations

import json
from typing import Final

from antiphon.cli.claude_code import LOGINS, gateway_variables
from antiphon.cli.run.client import Client, Launch, Order, local_environment

__all__ = ["CLIENT"]

_SMALL_INSTRUCTIONS: Final = (
    "You are a coding assistant in a terminal. Run shell commands with the tool Bash; give it only "
    "the argument command. Look at files, change files and run programs this way. Call one tool at "
    "a time and wait for its output. When the task is done, answer the user in one or two "
    "sentences."
)


def _prepare(program: str, order: Order) -> Launch:
    variables = gateway_variables(order.base_url, order.model, order.context)
    variables["ANTHROPIC_AUTH_TOKEN"] = "unused"  # noqa: S105 - it insists on one
    flags = []
    if order.is_small:
        variables["CLAUDE_CODE_SIMPLE"] = "1"
        # With a space in between, the first of ARGS would be taken for another tool.
        flags = ["--tools=Bash", "--system-prompt", _SMALL_INSTRUCTIONS]
    settings = order.directory / "settings.json"
    settings.write_text(json.dumps({"env": variables}))
    environ = {name: value for name, value in local_environment().items() if name not in LOGINS}
    arguments = [program, "--settings", str(settings), *flags, *order.arguments]
    return Launch(arguments, environ | variables)


CLIENT: Final = Client(
    "claude",
    "@anthropic-ai/claude-code",
    _prepare,
    small="one tool and a prompt of 600 tokens",
)
