"""Run shell commands for a model in a container: the runner of the hosted `shell`.

A request with the environment `container_auto` or `container_reference` is run here; with `local`
the caller runs the commands itself. The model is shown one function with a list of commands, which
run one after the other in /mnt/data of the container. A call is two items:

    | item              | has                                                                    |
    |-------------------|------------------------------------------------------------------------|
    | shell_call        | the commands; it is done when they begin to run                        |
    | shell_call_output | for each command that ran: what it printed, and how it ended           |

What commands print is reported while they run, up to the place where a long output is cut in the
middle; the rest comes when the command has ended. After a timeout the commands that are left are
not run. A call whose sandbox cannot be used is incomplete and has no outcomes but the reason, as
what was printed by no command. Skills of the environment are read-only folders of the sandbox, and
the model is shown what they are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.protocol.families import payload_of
from antiphon.protocol.items import Item
from antiphon.tools.base import (
    Decision,
    Decline,
    Follow,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.code_interpreter import describe_files, not_here, show_files
from antiphon.tools.containers.request import TurnContainer, find_container
from antiphon.tools.containers.running import NoRoom
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.containers.settings import ShellSettings
from antiphon.tools.containers.skills import describe_skills
from antiphon.tools.containers.workspace import Collected, Workspace
from antiphon.tools.sandbox.base import SandboxFailed, ShellEnd

__all__ = ["HostedShell"]

_KIND: Final = "shell"
_FIELDS: Final = frozenset({"type", "environment", "allowed_callers"})
_MAX_COMMAND: Final = 64 * 1024
_AROUND_SECONDS: Final = 30.0
_KILLED: Final = 137
_NOT_RUN: Final = 126
_PRINTED: Final = "response.shell_call_output_content"
_MAX_NOTE: Final = 64  # characters of the note on what is left out
_ABOUT: Final = (
    "Run shell commands in a Linux sandbox and get what they print. They run one after the other "
    "with /bin/sh in /mnt/data: files of the user are there, and files that you write there are "
    "kept for the user. To give a file to the user, link it as [name](sandbox:/mnt/data/name). "
    "Every command begins in /mnt/data with a fresh shell. There is no network."
)
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "commands": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The commands, in the order in which they run.",
        },
        "timeout_ms": {"type": "integer", "description": "For all commands together."},
        "max_output_length": {
            "type": "integer",
            "description": "How many characters of the output of each command are returned.",
        },
    },
    "required": ["commands"],
}


class HostedShell:
    """Runs commands for all turns."""

    kinds: Final = frozenset({_KIND})
    includes: Final[frozenset[str]] = frozenset()

    def __init__(self, containers: ContainerService, settings: ShellSettings | None = None) -> None:
        self.containers = containers
        self.settings = settings or ShellSettings()

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn. Raise NotFound or InvalidRequest for its environment."""
        (tool, where), *others = request.tools
        param = f"{where}.environment"
        container = await find_container(
            self.containers,
            request.owner,
            _place_of(tool.get("environment"), param),
            request.items,
            param,
        )
        if why := await self.containers.why_not():
            return not_here(request, why)
        session = _Session(self, request, container)
        session.degraded = [
            *(f"{other.where}: there is one shell already" for other in others),
            *(f"{where}.{name}" for name in tool if name not in _FIELDS and tool[name]),
        ]
        return session

    async def close(self) -> None:
        """Close all sandboxes."""
        await self.containers.close()


class _Session(ToolSession):
    def __init__(self, runner: HostedShell, request: ToolRequest, container: TurnContainer) -> None:
        self._runner = runner
        self._container = container
        self._paths = runner.containers.paths_for(request.owner, request.response_id)
        self._ended: dict[str, list[dict[str, Any]]] = {}  # outputs by call, once it runs
        self.patterns = [self._paths]

    async def prepare(self) -> AsyncIterator[HostedFunction]:
        """Yield the function that the model may call."""
        about = _ABOUT + describe_skills(self._container.skills)
        yield HostedFunction(kind=_KIND, name=_KIND, description=about, parameters=_SCHEMA)

    def decide(self, call: HostedCall) -> Decision:
        """Start a call that has commands."""
        action = payload_of("shell", call.arguments)
        settings = self._runner.settings
        if action is None:
            return Decline(result='error: call it with a JSON object {"commands": ["..."]}')
        if len(action["commands"]) > settings.commands:
            return Decline(result=f"error: there are more than {settings.commands} commands")
        if any(len(command) > _MAX_COMMAND for command in action["commands"]):
            return Decline(result=f"error: a command is longer than {_MAX_COMMAND} characters")
        for name in ("timeout_ms", "max_output_length"):
            if type(action.get(name)) is not int or action[name] <= 0:
                action[name] = None
        item = {
            "type": "shell_call",
            "call_id": call.call_id,
            "action": action,
            "environment": {"type": "container_reference", "container_id": self._container.id},
        }
        waits = 2 * self._runner.containers.settings.wait_seconds + _AROUND_SECONDS
        return Start(item=item, has_effects=True, seconds=self._seconds(action) + waits)

    def _seconds(self, action: Mapping[str, Any]) -> float:
        most = self._runner.settings.seconds
        return min(most, action["timeout_ms"] / 1000) if action["timeout_ms"] else most

    async def run(
        self, call: HostedCall, start: Start
    ) -> AsyncIterator[Progress | Follow | Outcome]:
        """Run the commands, and store the files that they made."""
        service, action = self._runner.containers, start.item["action"]
        length = min(
            action["max_output_length"] or self._runner.settings.output_chars,
            self._runner.settings.output_chars,
        )
        try:
            async with self._container.use() as workspace:
                outputs = self._ended[call.call_id] = []
                yield Follow(
                    {**start.item, "status": "completed"}, _output_item(start.item, [], "")
                )
                running = _run_all(workspace, action, self._seconds(action), length, outputs)
                async with aclosing(running) as given:
                    async for one in given:
                        yield one
                made = await workspace.collect(service.mint, service.now())
                show_files(self._paths, workspace)
        except (NoRoom, SandboxFailed, NotFound) as error:
            raise ToolFailed(str(error)) from None
        yield _outcome(start.item, outputs, made)

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        """Return a call that did not come to its end, with the reason as its output."""
        ended = self._ended.get(call.call_id)
        if ended is not None:
            item = _output_item(start.item, ended, "incomplete")
            return Outcome(item=item, result=f"error: {why}", has_failed=True)
        output = {
            "stdout": "",
            "stderr": f"error: {why}",
            "outcome": {"type": "exit", "exit_code": _NOT_RUN},
        }
        item = {**start.item, "status": "incomplete"}
        after = _output_item(start.item, [output], "incomplete")
        return Outcome(item=item, result=f"error: {why}", has_failed=True, also=[after])


async def _run_all(
    workspace: Workspace,
    action: Mapping[str, Any],
    seconds: float,
    length: int,
    outputs: list[dict[str, Any]],
) -> AsyncGenerator[Progress, None]:
    """Run commands one after the other, and report what they print. Fill the outputs."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    for index, command in enumerate(action["commands"]):
        left = deadline - loop.time()
        if left <= 0:
            break
        printed = _Printed(index, length)
        async with aclosing(workspace.shell(command, left, length * 4)) as given:  # type: ignore[type-var]  # a generator
            async for one in given:
                if isinstance(one, ShellEnd):
                    printed.end = one
                elif progress := printed.grow(one.kind, one.text):
                    yield progress
        for progress in printed.finish():
            yield progress
        outputs.append(printed.output)
        if printed.output["outcome"]["type"] == "timeout":
            break


class _Printed:
    """What a command has printed, and how much of it was reported."""

    def __init__(self, index: int, length: int) -> None:
        self.end = ShellEnd(None, why="exit")
        self.output: dict[str, Any] = {}
        self._index = index
        self._length = length
        self._sure = max(0, length - _MAX_NOTE) // 2  # this beginning is never cut
        self._texts = {"stdout": "", "stderr": ""}
        self._shown = {"stdout": 0, "stderr": 0}

    def grow(self, stream: str, text: str) -> Progress | None:
        """Take a piece of output; return what can be reported of it now."""
        if stream not in self._texts:
            return None
        self._texts[stream] += text
        return self._show(stream, self._texts[stream][: self._sure])

    def finish(self) -> list[Progress]:
        """Make the output of the command; return the reports that are left."""
        texts = {name: _cut(text, self._length) for name, text in self._texts.items()}
        outcome: dict[str, Any] = {"type": "exit", "exit_code": self.end.exit_code}
        if self.end.exit_code is None and self.end.why not in ("", "timeout"):
            texts["stderr"] += f"\n[killed: {self.end.why}]"
            outcome["exit_code"] = _KILLED
        elif self.end.exit_code is None:
            outcome = {"type": "timeout"}
        self.output = {**texts, "outcome": outcome}
        done = Progress(f"{_PRINTED}.done", {"command_index": self._index, "output": [self.output]})
        rest = [self._show(name, text) for name, text in texts.items()]
        return [*filter(None, rest), done]

    def _show(self, stream: str, whole: str) -> Progress | None:
        piece = whole[self._shown[stream] :]
        self._shown[stream] += len(piece)
        fields = {"command_index": self._index, "delta": {stream: piece}}
        return Progress(f"{_PRINTED}.delta", fields) if piece else None


def _cut(text: str, length: int) -> str:
    """Return a text in so many characters; the middle is left out, which is stated."""
    if len(text) <= length:
        return text
    note = f"\n[{len(text) - length} characters left out]\n"
    half = max(0, length - len(note)) // 2
    return f"{text[:half]}{note}{text[len(text) - half :] if half else ''}"[:length]


def _outcome(item: Item, outputs: list[dict[str, Any]], made: Collected) -> Outcome:
    missing = len(item["action"]["commands"]) - len(outputs)
    notes = [f"$ {command}\n{_in_words(output)}" for command, output in _pairs(item, outputs)]
    if missing:
        notes.append(f"[{missing} more commands were not run]")
    result = "\n".join([*notes, *describe_files(made)])
    return Outcome(item=_output_item(item, outputs, "completed"), result=result)


def _pairs(item: Item, outputs: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return list(zip(item["action"]["commands"], outputs, strict=False))


def _in_words(output: Mapping[str, Any]) -> str:
    outcome = output["outcome"]
    ended = (
        "[it took too long and was stopped]"
        if outcome["type"] == "timeout"
        else f"[exit code {outcome['exit_code']}]"
    )
    texts = (output["stdout"].rstrip("\n"), output["stderr"].rstrip("\n"), ended)
    return "\n".join(text for text in texts if text)


def _output_item(item: Item, outputs: list[dict[str, Any]], status: str) -> Item:
    caller = {"caller": item["caller"]} if "caller" in item else {}
    return {
        "type": "shell_call_output",
        "call_id": item["call_id"],
        **caller,
        "max_output_length": item["action"]["max_output_length"],
        "output": outputs,
        "status": status,
    }


def _place_of(given: object, param: str) -> object:
    """Return the container that an environment names: its id, or the fields of a new one."""
    if isinstance(given, dict) and given.get("type") == "container_reference":
        name = given.get("container_id")
        if not isinstance(name, str):
            raise _wrong(f"{param}.container_id", "must be the id of a container")
        return name
    if isinstance(given, dict) and given.get("type") == "container_auto":
        return given
    raise _wrong(f"{param}.type", "must be local, container_auto or container_reference")


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_value", param=param)
