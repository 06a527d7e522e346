"""What servers of the Responses API take: the page about them is as the profiles are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from antiphon.wires.responses.profiles import PROFILES, Profile

_PAGE = Path(__file__).parents[3] / "docs" / "howto" / "native-responses.md"


def _lost(profile: Profile) -> set[str]:
    """Return the names on the page of what a server of this profile cannot do."""
    can = {
        "files": "input_file" in profile.parts,
        "logprobs": profile.logprobs,
        "penalties": profile.penalties,
        "`verbosity`": profile.verbosity,
        "`service_tier`": profile.service_tier,
        "`parallel_tool_calls`": profile.parallel_tool_calls,
        "`reasoning.effort`": profile.effort,
        "`reasoning.summary`": profile.summary,
        "`text.format`": profile.json_schema,
    }
    return {name for name, is_so in can.items() if not is_so}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_the_page_names_what_is_lost(profile: Profile) -> None:
    row = re.search(
        rf"^\| `{profile.name}` \|.*\| (.+) \|$", _PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert row is not None
    named = set(re.findall(r"files|logprobs|penalties|`[a-z_.]+`", row[1])) - {"`seed`", "`stop`"}
    assert named == _lost(profile)
    seals = profile.reasoning == "encrypted"
    assert ("encrypted reasoning" in row[1]) == (not seals or profile.name == "azure")
