"""How Gemini servers and models differ, as data.

A profile lists what a server takes, a `Generation` what a model takes; no code branches on a
name. A model that is in no table is taken for one of the newest generation: tuned models have
names of their own.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from antiphon.plans.capabilities import Capabilities
from antiphon.wires.gemini.parts import READABLE
from antiphon.wires.profiles import find_profile

__all__ = [
    "HOSTED",
    "PROFILES",
    "Generation",
    "Profile",
    "capabilities_of",
    "generation_of",
    "profile_for",
]

HOSTED: Final = {
    "web_search": "googleSearch",
    "web_search_preview": "googleSearch",
    "url_context": "urlContext",
    "code_interpreter": "codeExecution",
}
"""Kinds of tools that Gemini runs itself, and what it calls them."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of Gemini server takes."""

    name: str
    json_schema: bool = True
    """Whether functions have `parametersJsonSchema`; otherwise `parameters`, a part of OpenAPI."""
    counts_by: Literal["request", "contents"] = "request"
    """What `:countTokens` is given: a whole request, or its parts."""
    service_tier: bool = True
    hosted: frozenset[str] = frozenset()
    """Kinds of tools that it is given to run itself."""


PROFILES: Final = {
    profile.name: profile
    for profile in (
        Profile(name="generic"),
        Profile(name="gemini"),
        Profile(name="vertex", json_schema=False, counts_by="contents", service_tier=False),
    )
}

_PLACES: Final = {
    "generativelanguage.googleapis.com": "gemini",
    "aiplatform.googleapis.com": "vertex",
}


def profile_for(which: str, hosted: tuple[str, ...] | None = None) -> Profile:
    """Return the profile of a name or of a base URL, with other hosted tools if they are given.

    Raise UnknownProfile for a name that there is no profile of.
    """
    profile = find_profile(_plain_place(which), PROFILES, _PLACES)
    if hosted is None:
        return profile
    return msgspec.structs.replace(profile, hosted=frozenset(hosted))


def _plain_place(which: str) -> str:
    """Return a URL of Vertex without its region, which is the beginning of the host."""
    return re.sub(r"//[a-z0-9-]+-aiplatform\.", "//aiplatform.", which)


def capabilities_of(profile: Profile) -> Capabilities:
    """Return what a server of this profile does by itself."""
    return Capabilities(
        tool_kinds=profile.hosted & HOSTED.keys(),
        parts=frozenset({"image", "pdf"}),
        file_urls=READABLE,
        counts=True,
        pauses=True,
    )


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What the models of one generation take."""

    thinking: Literal["none", "budget", "level"] = "level"
    """How the effort of thinking is set, if the model thinks."""
    levels: tuple[str, ...] = ("minimal", "low", "medium", "high")
    budgets: tuple[int, int] = (0, 24_576)
    """The least and the most tokens of a thinking budget; 0 turns thinking off."""
    needs_signatures: bool = True
    """Whether a call of the history is refused without its signature."""
    part_media: bool = True
    """Whether a part has a `mediaResolution`, and a `functionResponse` may hold images."""
    format_with_tools: bool = True
    """Whether a format of the text binds the model beside functions."""
    mixes_tools: bool = True
    """Whether hosted tools and functions go into one request, and calls of the former are shown."""


_TWO_FIVE: Final = Generation(
    thinking="budget",
    needs_signatures=False,
    part_media=False,
    format_with_tools=False,
    mixes_tools=False,
)
_NEWEST: Final = Generation()
_OLD: Final = msgspec.structs.replace(_TWO_FIVE, thinking="none")

# The first that matches decides.
_GENERATIONS: Final = tuple(
    (re.compile(pattern), generation)
    for pattern, generation in (
        (r"gemma|learnlm|gemini-(?:pro|ultra|1|2\.0)|gemini-2.*(?:image|tts)", _OLD),
        (r"gemini-2\.5-pro", msgspec.structs.replace(_TWO_FIVE, budgets=(128, 32_768))),
        (r"gemini-2", _TWO_FIVE),
        (r"gemini-3-pro-image", msgspec.structs.replace(_NEWEST, thinking="none")),
        (r"gemini-3-pro", msgspec.structs.replace(_NEWEST, levels=("low", "high"))),
        (r"gemini-3\.\d-pro", msgspec.structs.replace(_NEWEST, levels=("low", "medium", "high"))),
    )
)


def generation_of(model: str) -> Generation:
    """Return what a model of this name takes."""
    name = model.rpartition("/")[2].lower()
    for pattern, generation in _GENERATIONS:
        if pattern.match(name):
            return generation
    return _NEWEST
