"""How does native state get from one turn to the next, if its caller does not carry it?

With the stored item: an output item whose caller is not given the seal has it under the private
key `NATIVE` when it is stored, and the history of the next turn has it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import KeptState
from antiphon.protocol.native_state import NATIVE

__all__ = ["keep_states"]


def keep_states(output: Iterable[Item], states: Mapping[str, KeptState]) -> list[Item]:
    """Return the output as it is stored: with the seals that its caller is not given."""
    return [_with_state(item, states) for item in output]


def _with_state(item: Item, states: Mapping[str, KeptState]) -> Item:
    state = states.get(item.get("id", ""))
    if state is None or item.get("encrypted_content"):
        return item
    return {**item, NATIVE: state.seal}
