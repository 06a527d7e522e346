"""Where streams of real services are, for tests that compare with them. They may be absent."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

__all__ = ["RECORDINGS", "needs_recordings"]

_FOLDER: Final = Path(__file__).parents[4] / "shared" / "recordings" / "gemini"

RECORDINGS: Final = sorted(_FOLDER.glob("*.sse"))

needs_recordings = pytest.mark.skipif(not RECORDINGS, reason=f"no recordings in {_FOLDER}")
