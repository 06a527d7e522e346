"""How long does a gateway leave a small request unanswered?

Asks `GET /healthz` over one kept connection every few milliseconds until stdin is closed, and
prints the waits as JSON. A wait is counted twice: as wall time, and as the CPU time that the
gateway itself used meanwhile, which other programs on the machine cannot make longer.

    python bench/pinger.py PORT PID
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from typing import Final

from processes import cpu_seconds

__all__ = ["ping_until_closed"]

_PAUSE: Final = 0.004
_SLOW: Final = 0.05
_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def ping_until_closed(port: int, pid: int) -> dict[str, float]:
    """Ask until stdin is closed; return the longest waits in seconds, and how many were slow."""
    longest = longest_cpu = 0.0
    count = slow = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not select.select([sys.stdin], [], [], _PAUSE)[0]:
            cpu, began = cpu_seconds(pid), time.monotonic()
            wire.sendall(_REQUEST)
            answer = b""
            while b"\r\n\r\n" not in answer:
                piece = wire.recv(4096)
                if not piece:
                    raise ConnectionError("the gateway closed the connection")
                answer += piece
            wait, used = time.monotonic() - began, cpu_seconds(pid) - cpu
            longest, longest_cpu = max(longest, wait), max(longest_cpu, min(used, wait))
            count, slow = count + 1, slow + (min(used, wait) > _SLOW)
    return {"longest": longest, "longest_cpu": longest_cpu, "count": count, "slow": slow}


if __name__ == "__main__":
    result = ping_until_closed(int(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(json.dumps(result) + "\n")
