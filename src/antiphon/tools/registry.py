"""Which runner runs which kind of tool?

One registry per process, made from the settings by `gateway.assemble`. A kind has one runner.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.tools.base import ToolLimits, ToolRunner
from antiphon.tools.documents.reader import Documents

__all__ = ["NO_TOOLS", "ToolRegistry"]


class ToolRegistry:
    """The runners of this process, by the kinds of tools that they run."""

    def __init__(
        self,
        runners: Sequence[ToolRunner] = (),
        limits: ToolLimits | None = None,
        documents: Documents | None = None,
    ) -> None:
        self.limits = limits or ToolLimits()
        self.documents = documents
        """What reads documents for the runners; the engine uses and closes it too."""
        self._by_kind: dict[str, ToolRunner] = {}
        for runner in runners:
            for kind in runner.kinds:
                if kind in self._by_kind:
                    raise ValueError(f"two runners want to run tools of type {kind!r}")
                self._by_kind[kind] = runner
        self.runners = tuple(runners)
        self.kinds = frozenset(self._by_kind)
        """The types of tools that are run here."""
        self.includes = frozenset(name for runner in runners for name in runner.includes)
        """The values of `include` that are honoured here."""

    def runner_of(self, kind: str) -> ToolRunner:
        """Return the runner of this kind, which must be one of `kinds`."""
        return self._by_kind[kind]

    async def close(self) -> None:
        """Close all runners."""
        for runner in self.runners:
            await runner.close()


NO_TOOLS = ToolRegistry()
