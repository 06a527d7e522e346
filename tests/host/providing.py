"""A provider on a server of a test, and what an application showed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from antiphon.client import AsyncClient
from antiphon.host import RESPONSES_FOR_ALL, Provider, ProviderSettings, TextPart, ToolCallPart
from antiphon.wires.host.parts import ResponsePart

__all__ = ["Shown", "provider"]


@asynccontextmanager
async def provider(
    base_url: str, environ: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Provider]:
    """Run a provider that asks for Responses and never tries again."""
    async with (
        AsyncClient(base_url=base_url, environ={}, max_retries=0) as client,
        Provider(
            client,
            ProviderSettings(**({"gate": RESPONSES_FOR_ALL} | settings)),
            environ=environ or {},
        ) as host,
    ):
        yield host


class Shown:
    """What an application showed."""

    def __init__(self) -> None:
        self.parts: list[ResponsePart] = []

    def __call__(self, part: ResponsePart) -> None:
        self.parts.append(part)

    @property
    def text(self) -> str:
        return "".join(part.value for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> list[ToolCallPart]:
        return [part for part in self.parts if isinstance(part, ToolCallPart)]
