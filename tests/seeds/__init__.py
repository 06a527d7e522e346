"""The five documents that antiphon began with, requirement by requirement.

One module per document, in the order of its lines: a reader of the document finds every
numbered or tabled demand here. `tests/requirements.py` finds which tests prove what.
"""

from __future__ import annotations

from typing import Final

from tests.seeds.base import Requirement, Section, Seed
from tests.seeds.seed_000 import SEED_000
from tests.seeds.seed_001 import SEED_001
from tests.seeds.seed_002 import SEED_002
from tests.seeds.seed_003 import SEED_003
from tests.seeds.seed_004 import SEED_004

__all__ = ["SEEDS", "Requirement", "Section", "Seed"]

SEEDS: Final = (SEED_000, SEED_001, SEED_002, SEED_003, SEED_004)
