"""What a gateway reports to have left out of a request, in the header of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.cli.check.case import Answer, Finding, Skip

__all__ = ["DEGRADED", "took_the_image"]

DEGRADED: Final = "x-antiphon-degraded"


def took_the_image(answer: Answer) -> Iterator[Finding]:
    """The image was not left out; a gateway that reports it is believed."""
    if "image" in answer.degraded:
        raise Skip(f"the server reports that it left the image out: {answer.degraded}")
    return iter(())
