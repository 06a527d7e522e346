"""Start the kernel inside sandlock, and wait for it.

This program runs in an interpreter of its own, inside bubblewrap. Its standard
streams are those of the kernel. It needs the standard library and sandlock only; the gateway never
imports it.

    python launch.py '{"sandlock": FOLDER, "sandbox": {...}, "command": [...]}'
"""

import ctypes
import json
import os
import signal
import sys
import warnings

__all__ = ["main"]

_SET_DEATH_SIGNAL = 1


def main() -> None:
    """Read the plan, start the command, exit as it does."""
    plan = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    sys.path.append(plan["sandlock"])
    warnings.simplefilter("ignore")
    import sandlock

    # An older kernel lacks some rules of Landlock; bubblewrap outside covers what they do.
    policy = {**plan["sandbox"], "allow_degraded": list(sandlock.Protection)}
    process = sandlock.Sandbox(**policy).popen(plan["command"])
    code = process.wait().exit_code
    os._exit(code if code >= 0 else 137)


if __name__ == "__main__":
    main()
