"""The outer sandbox: bubblewrap.

New namespaces for everything, no capability, no further user namespace, an empty environment. The
file system is made of read-only mounts of what Python and a shell need, small file systems in
memory for /tmp and /dev/shm, and the folder of the container at /mnt/data. Nothing else exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from antiphon.tools.sandbox.base import SandboxLimits

__all__ = ["HOME", "INSIDE", "SYSTEM_LINKS", "environment", "wrap"]

HOME: Final = "/mnt/data"
INSIDE: Final = "/run/antiphon"
"""Where our own programs are inside."""
_ENVIRONMENT: Final = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "MPLBACKEND": "module://antiphon_figures",
    "MPLCONFIGDIR": "/tmp/matplotlib",  # noqa: S108 - inside
    "OMP_NUM_THREADS": "4",
    "OPENBLAS_NUM_THREADS": "4",
    "TMPDIR": "/tmp",  # noqa: S108 - inside
    "USER": "sandbox",
    "XDG_CACHE_HOME": "/tmp/cache",  # noqa: S108 - inside
}
_NOBODY: Final = "65534"
_ISOLATION: Final = (
    "--unshare-all",
    "--unshare-user",
    "--disable-userns",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--hostname",
    "sandbox",
    "--uid",
    _NOBODY,
    "--gid",
    _NOBODY,
    "--clearenv",
)
SYSTEM_LINKS: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Parts of /usr where it is merged, folders of their own elsewhere, or not there at all."""
_SYSTEM_FILES: Final = ("/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache", "/etc/localtime")
_MEMORY_SHARE: Final = 4
"""The files in memory may take a quarter of the memory limit, at each of two places."""


def environment(python: str) -> dict[str, str]:
    """Return the variables inside. Commands find the interpreter first, with its programs."""
    return {**_ENVIRONMENT, "PATH": f"{Path(python).parent}:/usr/bin:/bin"}


def wrap(
    program: str,
    python: str,
    folder: Path,
    limits: SandboxLimits,
    *,
    folders: Iterable[str],
    hidden: Iterable[str],
    files: Mapping[str, Path],
    readable: Mapping[str, Path],
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line up to the program that runs inside.

    `folders` are read-only at their own paths, `files` in `INSIDE`, `readable` where they want.
    """
    return [
        program,
        *_ISOLATION,
        *(word for item in environment(python).items() for word in ("--setenv", *item)),
        *_own_file_systems(limits),
        *_system(folders),
        *(word for path in hidden for word in ("--tmpfs", path, "--remount-ro", path)),
        *(word for name, path in files.items() for word in _bound(path, f"{INSIDE}/{name}")),
        *("--bind", str(folder), HOME),
        *(word for inside, path in readable.items() for word in _bound(path, inside)),
        *("--remount-ro", "/"),
        *("--chdir", HOME),
        *options,
        "--",
    ]


def _system(folders: Iterable[str]) -> list[str]:
    """Return mounts of /usr and the interpreters. /usr/local is hidden unless one is there."""
    wanted = [path for path in dict.fromkeys(folders) if path not in ("/", "/usr")]
    words = ["--ro-bind", "/usr", "/usr"]
    if Path("/usr/local").is_dir():
        words += ["--tmpfs", "/usr/local"]
    for link in SYSTEM_LINKS:
        if Path(link).is_symlink():
            words += ["--symlink", str(Path(link).readlink()), link]
        elif Path(link).is_dir():
            words += _bound(link, link)
    words += ["--dir", "/etc"]
    for path in _SYSTEM_FILES:
        words += ["--ro-bind-try", path, path]
    for path in wanted:
        words += _bound(path, path)
    if "/usr/local" not in wanted and Path("/usr/local").is_dir():
        words += ["--remount-ro", "/usr/local"]
    return words


def _own_file_systems(limits: SandboxLimits) -> list[str]:
    size = str(max(1, limits.memory_bytes // _MEMORY_SHARE))
    return [
        # Where the gateway is root, settings of the whole system in it could be written.
        *("--proc", "/proc", "--remount-ro", "/proc"),
        *("--dev", "/dev"),
        *("--size", size, "--tmpfs", "/dev/shm"),  # noqa: S108 - inside
        *("--remount-ro", "/dev"),
        *("--size", size, "--tmpfs", "/tmp"),  # noqa: S108 - inside
    ]


def _bound(path: str | os.PathLike[str], inside: str) -> list[str]:
    return ["--ro-bind", os.fspath(path), inside]
