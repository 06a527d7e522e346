"""Run Python for a model: the runner of `code_interpreter`.

The model is shown one function that takes code. It runs in the container that the request names,
or in one that is made for the response and found again by the next responses of the conversation.
Variables are kept between cells as long as the interpreter lives; the model is informed when they
are lost. Files in /mnt/data are kept in the store, and what a cell makes can be cited by its path.

    | end of a cell           | status       | the model gets                            |
    |-------------------------|--------------|-------------------------------------------|
    | it ran                  | completed    | what it printed, new files                |
    | it raised               | completed    | the same, with the traceback              |
    | it took too long        | incomplete   | the same, and that variables are lost     |
    | it was killed           | failed       | the same, with the reason                 |
    | it could not be started | failed       | the reason                                |

Displayed images are data URLs in the item, so that every client can show them without a key. One
that is larger than `inline_image_bytes` is a file of the container instead, and the logs name it.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from antiphon.protocol.container_paths import ContainerPaths
from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.protocol.items import Item, Part
from antiphon.store.base import ContainerFile
from antiphon.tools.base import (
    Decision,
    Decline,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.containers.request import TurnContainer, find_container
from antiphon.tools.containers.running import NoRoom
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.containers.settings import CodeSettings
from antiphon.tools.containers.workspace import Collected, Workspace
from antiphon.tools.sandbox.base import CellEnd, CellOutput, SandboxFailed

__all__ = ["LOST_STATE", "CodeInterpreter", "describe_files", "not_here", "show_files"]

_KIND: Final = "code_interpreter"
_OUTPUTS: Final = "code_interpreter_call.outputs"
_INTERPRETING: Final = "response.code_interpreter_call.interpreting"
_FIELDS: Final = frozenset({"type", "container", "allowed_callers"})
_MAX_CODE: Final = 256 * 1024
_AROUND_SECONDS: Final = 30.0
"""For starting a sandbox, and for storing files after a cell."""
_FENCES: Final = ("```python", "```py", "```")
_ABOUT: Final = (
    "Run Python code in a sandbox and get what it prints. Use it for calculations, data, files and "
    "plots. Variables, imports and functions are kept between calls. The value of the last "
    "expression is shown, anything else has to be printed. The working directory is /mnt/data: "
    "files of the user are there, and files that you write there are kept for the user. To give a "
    "file to the user, link it as [name](sandbox:/mnt/data/name). Images are shown with "
    "matplotlib's show() or display(). There is no network, and packages cannot be installed."
)
LOST_STATE: Final = (
    "[the interpreter was restarted: variables and imports of earlier calls are lost, "
    "the files in /mnt/data are still there]"
)
_STATUS: Final = {"ok": "completed", "error": "completed", "timeout": "incomplete"}


class CodeInterpreter:
    """Runs code for all turns."""

    kinds: Final = frozenset({_KIND})
    includes: Final = frozenset({_OUTPUTS})

    def __init__(self, containers: ContainerService, settings: CodeSettings | None = None) -> None:
        self.containers = containers
        self.settings = settings or CodeSettings()

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn. Raise NotFound or InvalidRequest for its container."""
        (tool, where), *others = request.tools
        given = tool.get("container")
        if given is None:
            param = f"{where}.container"
            raise InvalidRequest(
                f"{param} is missing: send an id, or {{'type': 'auto'}}",
                code="missing_required_parameter",
                param=param,
            )
        _check_auto(given, f"{where}.container")
        container = await find_container(
            self.containers, request.owner, given, request.items, f"{where}.container"
        )
        if why := await self.containers.why_not():
            return not_here(request, why)
        session = _Session(self, request, container)
        session.degraded = [
            *(f"{other.where}: there is one code interpreter already" for other in others),
            *(f"{where}.{name}" for name in tool if name not in _FIELDS and tool[name]),
        ]
        return session

    async def close(self) -> None:
        """Close all sandboxes."""
        await self.containers.close()


class _Session(ToolSession):
    def __init__(
        self, runner: CodeInterpreter, request: ToolRequest, container: TurnContainer
    ) -> None:
        self._runner = runner
        self._container = container
        self._sees_images = request.sees_images
        self._paths = runner.containers.paths_for(request.owner, request.response_id)
        self.patterns = [self._paths]

    async def prepare(self) -> AsyncIterator[HostedFunction]:
        """Yield the function that the model may call."""
        code = {"type": "string", "description": "The Python code to run."}
        schema = {"type": "object", "properties": {"code": code}, "required": ["code"]}
        yield HostedFunction(kind=_KIND, name=_KIND, description=_ABOUT, parameters=schema)

    def decide(self, call: HostedCall) -> Decision:
        """Start a call that has code."""
        code = _read_code(call.arguments)
        if not code.strip():
            return Decline(result='error: call it with a JSON object {"code": "..."}')
        if len(code) > _MAX_CODE:
            return Decline(result=f"error: the code is longer than {_MAX_CODE} characters")
        item = {
            "type": "code_interpreter_call",
            "container_id": self._container.id,
            "code": code,
        }
        service = self._runner.containers
        waits = 2 * service.settings.wait_seconds + _AROUND_SECONDS
        return Start(item=item, has_effects=True, seconds=service.limits.cell_seconds + waits)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        """Run the code, and store the files that it made."""
        yield Progress(_INTERPRETING)
        service = self._runner.containers
        try:
            async with self._container.use() as workspace:
                cell = _Cell(self._runner.settings.inline_image_bytes, sees=self._sees_images)
                has_lost_state = workspace.has_lost_state
                await cell.run(workspace, start.item["code"], service.limits.cell_seconds)
                made = await workspace.collect(service.mint, service.now())
                images = await self._keep_images(workspace, cell)
                show_files(self._paths, workspace)
        except (NoRoom, SandboxFailed, NotFound) as error:
            raise ToolFailed(str(error)) from None
        yield cell.outcome(start.item, made, images, has_lost_state=has_lost_state)

    async def _keep_images(self, workspace: Workspace, cell: _Cell) -> list[ContainerFile]:
        """Store the images that are too large for the item, as files."""
        service = self._runner.containers
        kept = [
            await workspace.add_image(image, service.mint, service.now()) for image in cell.large
        ]
        return [file for file in kept if file is not None]

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        """Return a failed item, whose logs have the reason."""
        logs = [{"type": "logs", "logs": f"error: {why}"}]
        item = {**start.item, "status": "failed", "outputs": logs}
        return Outcome(item=item, result=f"error: {why}", has_failed=True)


class _Cell:
    """What a cell puts out, in the form of the item and of the model."""

    def __init__(self, most_inline: int, *, sees: bool) -> None:
        self.outputs: list[dict[str, str]] = []
        self.large: list[bytes] = []
        self._left = most_inline
        self._sees = sees
        self._images: list[Part] = []
        self._end = CellEnd("killed", why="it ended without a result")

    async def run(self, workspace: Workspace, code: str, seconds: float) -> None:
        """Run the code and gather what it puts out."""
        async with aclosing(workspace.run(code, seconds)) as given:  # type: ignore[type-var]  # a generator
            async for one in given:
                if isinstance(one, CellEnd):
                    self._end = one
                elif one.kind == "image":
                    self._show(one)
                else:
                    self._log(one.text)
        self._log(self._end.traceback)
        if self._end.cut_bytes:
            self._log(f"\n[{self._end.cut_bytes} more bytes of output were not kept]")

    def _log(self, text: str) -> None:
        if not text:
            return
        last = self.outputs[-1] if self.outputs else {}
        if last.get("type") == "logs":
            last["logs"] += text
        else:
            self.outputs.append({"type": "logs", "logs": text})

    def _show(self, output: CellOutput) -> None:
        if len(output.image) > self._left:
            self.large.append(output.image)
            return
        self._left -= len(output.image)
        url = f"data:image/png;base64,{base64.b64encode(output.image).decode()}"
        self.outputs.append({"type": "image", "url": url})
        self._images.append({"type": "input_image", "image_url": url})

    def outcome(
        self, item: Item, made: Collected, images: list[ContainerFile], *, has_lost_state: bool
    ) -> Outcome:
        """Return the end of the call."""
        for file in images:
            self._log(f"\n[image: {file.path}, {file.blob.size} bytes]\n")
        status = _STATUS.get(self._end.outcome, "failed")
        final = {**item, "status": status, "outputs": self.outputs}
        notes = [LOST_STATE] if has_lost_state else []
        notes += [one["logs"] for one in self.outputs if one["type"] == "logs"]
        if self._images:
            notes.append(f"[images shown to the user: {len(self._images)}]")
        notes += [*self._ending(), *describe_files(made)]
        text = "\n".join(note.rstrip("\n") for note in notes) or "(no output)"
        parts: list[Part] = [{"type": "input_text", "text": text}, *self._images]
        result = parts if self._images and self._sees else text
        return Outcome(item=final, result=result, has_failed=status == "failed")

    def _ending(self) -> list[str]:
        match self._end.outcome:
            case "timeout":
                return ["[it took too long and was stopped; all variables are lost]"]
            case "killed":
                why = self._end.why or "it ended"
                return [f"[the interpreter was killed: {why}; all variables are lost]"]
        return []


def not_here(request: ToolRequest, why: str) -> ToolSession:
    """Return a session that offers nothing, and reports why."""
    session = ToolSession()
    session.degraded = [f"{where} ({tool['type']}): {why}" for tool, where in request.tools]
    return session


def show_files(paths: ContainerPaths, workspace: Workspace) -> None:
    """Let the answer cite what programs have made in this container."""
    files = [(file.path, file.id) for file in workspace.made_files]
    paths.show(workspace.container_id, files)


def describe_files(made: Collected) -> list[str]:
    """Return what the model is shown about the files that a program has made or removed."""
    notes: list[str] = []
    if made.changed:
        names = ", ".join(f"{file.path} ({file.blob.size} bytes)" for file in made.changed[:20])
        more = f" and {len(made.changed) - 20} more" if len(made.changed) > 20 else ""
        notes.append(f"[files written: {names}{more}]")
    if made.removed:
        notes.append(f"[files removed: {', '.join(made.removed[:20])}]")
    if made.left_out:
        notes.append(f"[not kept: {'; '.join(made.left_out[:20])}]")
    return notes


def _check_auto(given: object, param: str) -> None:
    if isinstance(given, dict) and given.get("type") != "auto":
        raise InvalidRequest(f"{param}.type: must be auto", code="invalid_value", param=param)


def _read_code(arguments: str) -> str:
    """Return the code of a call: a field of an object, or the text itself if it is no JSON."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        given = arguments
    if isinstance(given, Mapping):
        given = given.get("code")
    return _without_fence(given) if isinstance(given, str) else ""


def _without_fence(code: str) -> str:
    """Return code without the Markdown around it that some models write."""
    text = code.strip()
    for fence in _FENCES:
        if text.startswith(f"{fence}\n") and text.endswith("```"):
            return text[len(fence) + 1 : -3].rstrip("\n")
    return code
