"""Make images for a model: the runner of `image_generation`, a proxy to an images upstream.

The upstream speaks OpenAI's Images API (`POST …/images/generations` and `…/images/edits`). It is
named in the settings, so it is not guarded. The model is shown one function; where the
conversation has an image, the function can also edit the latest one. Partial images pass as they
arrive. What the tool asks for (size, quality, …) goes to the upstream as it is, and its own
`model` only if the settings name none. A failure is an item with `status: failed`, an empty
result and the error: clients read `result` as text in every case.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Final

import msgspec

from antiphon.protocol.errors import BackendError, BrokenStream, InvalidRequest
from antiphon.protocol.tool_usage import image_usage
from antiphon.tools.base import (
    Decision,
    Decline,
    Fee,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.image_api import ImageFailed, ImagesUpstream, ImageWish, InputImage, find_image

__all__ = ["ImageGeneration", "ImageSettings"]

_KIND: Final = "image_generation"
_PARTIAL: Final = "response.image_generation_call.partial_image"
_GENERATING: Final = "response.image_generation_call.generating"
_PASSED: Final = (
    "size",
    "quality",
    "background",
    "output_format",
    "output_compression",
    "moderation",
)
_FIELDS: Final = frozenset(
    {"type", "action", "model", "partial_images", "input_fidelity", *_PASSED}
)
_SHOWN: Final = ("size", "quality", "background", "output_format")
_ABOUT: Final = "Make an image from a description, and show it to the user."
_MAX_PROMPT: Final = 32_000


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who makes images: `[images]`. Without a base URL there are none."""

    base_url: str | None = None
    """Where the Images API is, up to and with `/v1`."""
    key_env: str | None = None
    """The name of the environment variable that holds the key, never the key itself."""
    model: str | None = None
    """The model that makes images; None for the one that the caller names."""
    response_format: str | None = None
    """Sent as it is if set: some servers return addresses unless it is `b64_json`."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 180.0
    price: Decimal | None = None
    """US dollars for one image."""
    bytes: Annotated[int, msgspec.Meta(gt=0)] = 32 * 1024 * 1024
    """How much an answer of the upstream may be."""


class ImageGeneration:
    """Makes images for all turns."""

    kinds: Final = frozenset({_KIND})
    includes: Final[frozenset[str]] = frozenset()

    def __init__(
        self, upstream: ImagesUpstream, *, seconds: float, price: int | None = None
    ) -> None:
        self.upstream = upstream
        self.seconds = seconds
        self.fee = Fee(kind="image", name=_KIND, provider="images", cost=price)

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn. Raise InvalidRequest for a wrong tool."""
        return _Session(self, request)

    async def close(self) -> None:
        """Close all connections."""
        await self.upstream.close()


class _Session(ToolSession):
    def __init__(self, runner: ImageGeneration, request: ToolRequest) -> None:
        (tool, where), *others = request.tools
        self._runner = runner
        self._tool = tool
        self._action = _action(tool, where)
        self._partial = _partial_images(tool, where)
        self._input = find_image(request.items) if self._action != "generate" else None
        self.degraded = [f"{other.where}: there is one image tool already" for other in others]
        self.degraded += [
            f"{where}.{name}" for name, value in tool.items() if value and name not in _FIELDS
        ]
        if self._action == "edit" and self._input is None:
            self.degraded.append(f"{where}.action (edit): the conversation has no image to edit")

    async def prepare(self) -> AsyncIterator[HostedFunction]:
        """Yield the function that the model may call."""
        fields: dict[str, Any] = {
            "prompt": {"type": "string", "description": "What the image shows, in detail."}
        }
        if self._input is not None and self._action == "auto":
            about = "Whether to change the latest image of the conversation."
            fields["edit"] = {"type": "boolean", "description": about}
        schema = {"type": "object", "properties": fields, "required": ["prompt"]}
        yield HostedFunction(kind=_KIND, name=_KIND, description=_ABOUT, parameters=schema)

    def decide(self, call: HostedCall) -> Decision:
        """Start a call that has a prompt."""
        arguments = _read(call.arguments)
        prompt = arguments.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            return Decline(result="error: image_generation needs a JSON object with a prompt")
        shown = {name: self._tool[name] for name in _SHOWN if self._tool.get(name)}
        action = "edit" if self._edited(arguments) else "generate"
        item = {
            "type": "image_generation_call",
            **shown,
            "action": action,
            "revised_prompt": prompt[:_MAX_PROMPT],
        }
        runner = self._runner
        return Start(item=item, has_effects=True, seconds=runner.seconds, fee=runner.fee)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        """Make the image; partial ones come as progress."""
        yield Progress(_GENERATING)
        arguments = _read(call.arguments)
        wish = ImageWish(
            prompt=start.item["revised_prompt"],
            fields={name: self._tool[name] for name in _PASSED if self._tool.get(name) is not None},
            model=self._tool.get("model"),
            partial_images=self._partial,
            edits=self._edited(arguments),
            input_fidelity=self._tool.get("input_fidelity"),
        )
        made: dict[str, Any] = {}
        try:
            async for image in self._runner.upstream.make(wish):
                if image.pop("is_partial"):
                    yield Progress(_PARTIAL, image)
                else:
                    made = image
        except ImageFailed as failure:
            raise ToolFailed(str(failure)) from None
        except (BackendError, BrokenStream) as error:
            why = error.message.replace("the upstream", "the images upstream")
            raise ToolFailed(self._runner.upstream.redact(why)) from None
        yield self._outcome(start, made)

    def _outcome(self, start: Start, made: Mapping[str, Any]) -> Outcome:
        shown = {name: made[name] for name in (*_SHOWN, "revised_prompt") if made.get(name)}
        item = {**start.item, **shown, "status": "completed", "result": made["b64_json"]}
        done = "The image was made, and the user sees it. Do not repeat it in words."
        return Outcome(item=item, result=done, usage=image_usage(made.get("usage")))

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        """Return a failed item: clients expect its result to be a text."""
        error = {"type": "image_generation_error", "code": "image_generation_failed"}
        item = {**start.item, "status": "failed", "result": "", "error": {**error, "message": why}}
        return Outcome(item=item, result=f"error: {why}", has_failed=True)

    def _edited(self, arguments: Mapping[str, Any]) -> InputImage | None:
        """Return the image to edit, if this call is to edit one."""
        wants = self._action == "edit" or arguments.get("edit") is True
        return self._input if wants else None


def _action(tool: Mapping[str, Any], where: str) -> str:
    action = tool.get("action") or "auto"
    if action not in ("auto", "generate", "edit"):
        raise _wrong(f"{where}.action", "must be auto, generate or edit")
    return str(action)


def _partial_images(tool: Mapping[str, Any], where: str) -> int:
    count = tool.get("partial_images")
    if count is None:
        return 0
    if type(count) is not int or not 0 <= count <= 3:
        raise _wrong(f"{where}.partial_images", "must be a whole number from 0 to 3")
    return count


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_value", param=param)


def _read(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
