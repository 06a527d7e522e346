"""How does a chat application in another language see it? Lines of JSON over stdin and stdout.

docs/reference/bridge.md describes the protocol, `wires/host` has its messages. `bridge` answers
them with a `Provider`; `pipes` reads and writes without stopping the event loop; `faults` words
errors; `usage` and `logs` send what answers no request. `client` is the other side, for
programs in Python.
"""

from __future__ import annotations

__all__: list[str] = []
