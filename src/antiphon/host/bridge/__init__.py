"""How does a chat application in another language see it? Lines of JSON over stdin and stdout.

docs/reference/bridge.md describes the protocol, `wires/host` has its messages. `bridge` answers
them with a `Provider`; `pipes` reads and writes without stopping the event loop; `faults` words
what went wrong; `usage` and `logs` report what nobody asked for. `client` is the other side, for
programs in Python.
"""

from __future__ import annotations

__all__: list[str] = []
