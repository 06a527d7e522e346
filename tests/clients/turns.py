"""The turns that every agent framework is shown with, and what the model answers in them.

A framework's test adds the turns that only this framework has. The tool is named `weather` by
every program; some frameworks put a word of their own before it.
"""

from __future__ import annotations

from typing import Final

from antiphon.testing import Call, Reset, Script
from tests.clients.stage import Json, Performance, Scripts, tool_named

__all__ = ["COMMON", "CUT_OFF", "OUTPUTS", "answers_after_result", "check_cut_off"]

_CITIES: Final = {"call_rome": '{"city": "Rome"}', "call_oslo": '{"city": "Oslo"}'}
OUTPUTS: Final = {"call_rome": "sun in Rome", "call_oslo": "sun in Oslo"}
CUT_OFF: Final = Script(text=["Half", " of", " an", " answer."], faults=[Reset(after=3)])


def _asks_both(body: Json) -> Script:
    """Call the tool for both cities at once."""
    name = tool_named("weather", body) or "missing"
    return Script(calls=[Call(name, city, call_id) for call_id, city in _CITIES.items()])


COMMON: Final[Scripts] = {
    "text": [Script(text="Hello there.")],
    "streaming": [Script(text=["one", " two", " three"])],
    "tool-loop": [_asks_both, Script(text="Sun in both.")],
    "cut-off": [CUT_OFF],
}


def answers_after_result(body: Json) -> Script:
    """Answer if a tool's result is the last message; otherwise call the tool, once more.

    Models do so: a question that stands last is a question that is still to be answered.
    """
    if body["messages"][-1]["role"] == "tool":
        return Script(text="Sun in Rome.")
    count = sum(message["role"] == "tool" for message in body["messages"])
    name = tool_named("weather", body) or "missing"
    return Script(calls=[Call(name, _CITIES["call_rome"], f"call_{count}")])


def check_cut_off(played: Performance) -> None:
    """Fail unless the client raised the error of the answer that was cut off in mid-stream.

    The error must name the cause, and the response that holds what was produced.
    """
    error = played.raised("cut-off")
    assert "its answer is cut off" in error
    assert "resp_" in error
    assert len(played.bodies("cut-off")) == 1, "the question was sent again"
