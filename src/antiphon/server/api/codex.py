"""What does Codex need to know about a model?

Codex reads `models` beside `data` in the answer of `GET /v1/models`. If it cannot read one entry,
it drops all of them. So an entry has every field that any version requires, and no value that
only newer versions know. Where Codex requires a value that no source states, the entry has a
cautious one and names it in `assumed`, which Codex ignores.

What an entry chooses: `exec_command` as the shell; `apply_patch` as a free text tool, because
the gateway checks its grammar before it passes a call on, and cannot check a patch inside a
shell command; no search for tools, so that the model sees all of them; no sub-agents where the
window is small, because their tools alone take 2,400 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.models.facts import ASSUMED_WINDOW, ModelInfo

__all__ = ["codex_entries"]

_BIG_WINDOW: Final = 100_000
_MOST_OUTPUT: Final = 10_000
_LEAST_OUTPUT: Final = 1_000
# What every version of Codex knows besides text. Any other word makes it drop the whole list.
_MODALITIES: Final = ("image",)
_MAX_ENTRIES: Final = 1_000

# Codex has no instructions of its own for a model in a catalog.
_INSTRUCTIONS: Final = """\
You are a coding agent. You work on the user's machine through the tools of this session: you \
run commands, read and change files, and then say what you did.

How to work
- Carry the task through to its end before you answer. Do not ask for what you can find out.
- Look before you act: list and search files and read what matters before you change anything.
- One step at a time: call a tool, read its result, decide. If a command fails, read the error \
and try another way.
- Do what was asked and nothing beside it. Keep to the style of the code around yours. Leave \
changes that are not yours alone, and do not commit unless you are told to.
- Check your work where that is possible: run the tests, the build or the program.
- What a file AGENTS.md says holds for its directory and all below it. What the user says \
comes first.

How to use the tools
- Only a call of a tool does anything: text that describes a command runs nothing. Use the \
names and arguments of the tools exactly as they are given.
- Run a command with exec_command; name the directory in workdir instead of using cd. Prefer rg \
for searching. If a command goes on running, write_stdin reads more of it or types into it.
- Change files with apply_patch if there is such a tool. A patch looks like this:
*** Begin Patch
*** Update File: src/greet.py
@@ def greet():
     name = ask()
-    print("Hi " + name)
+    print("Hello " + name)
*** Add File: notes.txt
+a new line
*** Delete File: old.txt
*** End Patch
  Paths are relative. Lines begin with a space if they stay, with - if they go and with + if \
they are new; around a change stand some lines that stay, word for word as they are in the file.

How to answer
- Short and plain: what you did, which files it concerns, what is left to do. No long extracts \
of files, no praise.
"""


def codex_entries(
    models: Sequence[ModelInfo], default_model: str | None = None
) -> list[dict[str, Any]]:
    """Return the entries for Codex, for the models that can chat.

    Codex uses the first one if the user names none; so the default model comes first.
    """
    chatting = [model for model in models if model.is_chat]
    chatting.sort(key=lambda model: model.id != default_model)
    return [_entry(model, place) for place, model in enumerate(chatting[:_MAX_ENTRIES])]


def _entry(model: ModelInfo, place: int) -> dict[str, Any]:
    window = model.context_length or ASSUMED_WINDOW
    levels = model.reasoning_levels or ()
    has_tools = model.supports_tools is not False
    entry = {
        "slug": model.id,
        "display_name": model.display_name or model.id,
        "description": None,
        "supported_reasoning_levels": [_preset(level) for level in levels],
        "shell_type": "unified_exec" if has_tools else "disabled",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "base_instructions": _INSTRUCTIONS,
        "supports_reasoning_summaries": True,
        "support_verbosity": False,
        "apply_patch_tool_type": "freeform" if has_tools else None,
        "truncation_policy": {"mode": "tokens", "limit": _tool_output(window)},
        "supports_parallel_tool_calls": True,
        "supports_search_tool": False,
        "context_window": window,
        "experimental_supported_tools": [],
        "input_modalities": ["text", *_others(model.modalities or ())],
        "assumed": _assumed(model),
    }
    if levels:
        entry["default_reasoning_level"] = _default_level(levels)
    if window < _BIG_WINDOW:
        entry["multi_agent_version"] = "disabled"
    return entry


def _preset(level: str) -> dict[str, str]:
    return {"effort": level, "description": f"{level} reasoning effort"}


def _others(modalities: Sequence[str]) -> list[str]:
    return [modality for modality in _MODALITIES if modality in modalities]


def _tool_output(window: int) -> int:
    """Return how many tokens of a command's output are kept: an eighth of the window."""
    return max(_LEAST_OUTPUT, min(_MOST_OUTPUT, window // 8))


def _default_level(levels: Sequence[str]) -> str:
    """Return the level for requests without one: a middle one."""
    return "medium" if "medium" in levels else levels[len(levels) // 2]


def _assumed(model: ModelInfo) -> list[str]:
    """Return the fields of the entry that no source states."""
    sources = {
        "context_window": model.context_length,
        "supported_reasoning_levels": model.reasoning_levels,
        "input_modalities": model.modalities,
    }
    return [field for field, value in sources.items() if value is None]
