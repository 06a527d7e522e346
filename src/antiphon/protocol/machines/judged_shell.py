"""The events of a hosted shell as the referee sees them: commands, and what they printed.

Each command of a `shell_call` is added, grows and is done; then the `shell_call_output` has for
each command what it printed, and its outcome. The items hold exactly what was streamed. A call
without such events is one that its caller runs: it is not judged here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.items import Item

__all__ = ["JudgedShell", "commands_of"]

_COMMAND: Final = "shell_call_command"
_PRINTED: Final = "shell_call_output_content"
_STREAMS: Final = ("stdout", "stderr")


class JudgedShell:
    """What was streamed of a shell call, or of its output."""

    def __init__(self) -> None:
        self._commands: list[str] = []
        self._growing: str | None = None
        self._outputs: list[dict[str, Any]] = []
        self._printed = dict.fromkeys(_STREAMS, "")
        self._has_events = False

    def judge(self, kind: str, name: str, fields: dict[str, Any]) -> str:
        """Return what is wrong with an event inside the item, or nothing."""
        family, _, step = name.removeprefix("response.").rpartition(".")
        if (kind, family) not in (("shell_call", _COMMAND), ("shell_call_output", _PRINTED)):
            return f"{name} inside a {kind}"
        self._has_events = True
        done = self._commands if family == _COMMAND else self._outputs
        index = fields.get("command_index")
        if index != len(done):
            return f"command_index {index} where {len(done)} was due"
        return self._command(step, fields) if family == _COMMAND else self._print(step, fields)

    def _command(self, step: str, fields: dict[str, Any]) -> str:
        is_open = self._growing is not None
        if is_open == (step == "added"):
            return f"a command was {step} out of order"
        if step == "added":
            self._growing = str(fields.get("command"))
        elif step == "delta":
            self._growing = f"{self._growing}{fields.get('delta')}"
        else:
            told, grown, self._growing = fields.get("command"), self._growing, None
            self._commands.append(str(told))
            return "" if told == grown else "a command is not that of its deltas"
        return ""

    def _print(self, step: str, fields: dict[str, Any]) -> str:
        if step == "delta":
            for stream, text in (fields.get("delta") or {}).items():
                self._printed[stream] = self._printed.get(stream, "") + str(text)
            return ""
        outputs = msgspec.to_builtins(fields.get("output") or [])
        told = {name: "".join(one.get(name) or "" for one in outputs) for name in _STREAMS}
        printed, self._printed = self._printed, dict.fromkeys(_STREAMS, "")
        self._outputs += outputs
        return "" if told == printed else "the output is not that of its deltas"

    def judge_end(self, told: Item) -> str:
        """Return what is wrong with the item as it is done, or nothing."""
        commands = commands_of(told)
        if not self._has_events:
            return "it was never streamed" if told.get("output") or commands else ""
        if told.get("type") == "shell_call":
            is_equal = commands == self._commands
            return "" if is_equal else "its commands are not those that were streamed"
        is_equal = told.get("output") == self._outputs
        return "" if is_equal else "its output is not what was streamed"


def commands_of(item: Item) -> list[Any]:
    """Return the commands of a shell call that a server runs; nothing for another item."""
    place, action = item.get("environment"), item.get("action")
    if not isinstance(place, dict) or place.get("type") != "container_reference":
        return []
    return (action.get("commands") or []) if isinstance(action, dict) else []
