"""Are the streams that a benchmark produces right? The referee of the project judges them.

A figure of a server that says something wrong is worth nothing, so one stream of each test is
kept and judged as `antiphon check` judges a server: the shape of each event, the order of all,
and that what was streamed is what the response says at its end.
"""

from __future__ import annotations

from pathlib import Path

from antiphon.cli.check.responses.rules import judge_frames
from antiphon.protocol.sse import SseDecoder

__all__ = ["judge_file"]


def judge_file(path: Path) -> list[str]:
    """Return what is wrong with the stream in this file: nothing, if all is well."""
    decoder = SseDecoder()
    frames = [*decoder.feed(path.read_bytes()), *decoder.end()]
    response, findings = judge_frames(frames)
    said = [f"{finding.rule}: {finding.detail}" for finding in findings]
    if response is None or response.status != "completed":
        said.append("the response is not complete")
    return said
