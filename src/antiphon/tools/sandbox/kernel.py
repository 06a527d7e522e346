"""The program inside a sandbox: it runs cells in one interpreter, and shell commands beside it.

It is started as a file by the interpreter of the sandbox and needs the standard library only; the
gateway never imports it. Its standard input is a socket to the gateway: requests come in, the ends
of cells and displayed images go out. Standard output and error are pipes that the gateway reads.
Programs of models run in this very process and may change everything in it: the gateway trusts
nothing that it sends. What is done here for safety is to set the limits of the process.

    python kernel.py memory_bytes=1073741824 file_bytes=268435456 ...
"""

from __future__ import annotations

import _ast
import builtins
import fcntl
import io
import os
import resource
import signal
import struct
import sys
import types

# The rest of the standard library is imported where it is used: it must be ready in milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Kernel", "main"]

HOME = "/mnt/data"
PNG = b"\x89PNG\r\n\x1a\n"
MAX_TRACEBACK = 32 * 1024
BACKEND = "antiphon_figures"
_CO_COROUTINE = 0x80
_ALLOW_AWAIT = 0x2000
_HEADER = struct.Struct(">cI")


class Control:
    """The socket to the gateway: frames of a kind, a length and so many bytes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def receive(self) -> tuple[bytes, str]:
        """Return the next request: C and a cell, or S and a shell command.

        Raise EOFError when the gateway has closed the socket.
        """
        kind, length = _HEADER.unpack(self._read(_HEADER.size))
        return kind, self._read(length).decode("utf-8", "surrogatepass")

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame: R ready, I an image, and three ends.

        D is a cell that is done, E one that has failed, with its traceback, and S a shell
        command that has ended, with its exit code as a byte.
        """
        rest = memoryview(_HEADER.pack(kind, len(payload)) + payload)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _read(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            piece = os.read(self._fd, min(length - len(parts), 1 << 16))
            if not piece:
                raise EOFError
            parts += piece
        return bytes(parts)


class Kernel:
    """Keeps the variables, and runs one request at a time."""

    def __init__(self, control: Control, image_bytes: int) -> None:
        self._control = control
        self._image_bytes = image_bytes
        self._pid = os.getpid()
        self._outputs = [_keep(os.dup(fd)) for fd in (1, 2)]
        self._environ = dict(os.environ)
        self._cells = 0
        self._loop: Any = None
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        for name, value in (("display", self.display), ("exit", sys.exit), ("quit", sys.exit)):
            setattr(builtins, name, value)

    def serve(self) -> None:
        """Answer requests until the gateway goes away."""
        self._control.send(b"R", b"")
        while True:
            kind, text = self._control.receive()
            self._restore()
            if kind == b"S":
                self._control.send(b"S", bytes([self._shell(text)]))
            else:
                words = self._cell(text)
                self._control.send(b"E" if words else b"D", words.encode("utf-8", "replace"))

    def display(self, *values: object) -> None:
        """Show values: PNG bytes and what can draw itself as an image, else its repr."""
        for value in values:
            png = _png_of(value)
            if png is None:
                print(repr(value))
            else:
                self.show(png)

    def show(self, png: bytes) -> None:
        """Send an image to the gateway."""
        if len(png) > self._image_bytes:
            print(f"an image of {len(png)} bytes is too large to be shown", file=sys.stderr)
            return
        _flush()
        self._control.send(b"I", png)

    def show_figures(self) -> None:
        """Show and close the open figures of matplotlib."""
        pyplot: Any = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        for number in pyplot.get_fignums():
            buffer = io.BytesIO()
            pyplot.figure(number).savefig(buffer, format="png", bbox_inches="tight")
            self.show(buffer.getvalue())
        pyplot.close("all")

    def _cell(self, source: str) -> str:
        """Run a cell. Return nothing, or the traceback of its failure."""
        import linecache

        self._cells += 1
        name = f"<cell {self._cells}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            self._run(source, name)
            self.show_figures()
            words = ""
        except SystemExit as error:
            words = _describe(error) if error.code else ""
        except BaseException as error:  # noqa: BLE001 - reported to the gateway
            words = _describe(error)
        _flush()
        if os.getpid() != self._pid:
            # A fork of the cell came here too: only the first process answers the gateway.
            os._exit(0)
        return words

    def _run(self, source: str, name: str) -> None:
        """Run the statements, and show the value of the last one if it is an expression."""
        flags = _ast.PyCF_ONLY_AST | _ALLOW_AWAIT
        tree: Any = compile(source, name, "exec", flags, dont_inherit=True)
        last: Any = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr) and not _is_muted(source):
            last = _ast.Expression(tree.body.pop().value)
        self._execute(tree, name, "exec")
        if last is None:
            return
        value = self._execute(last, name, "eval")
        if value is not None:
            self._module.__dict__["_"] = value
            self.display(value)

    def _execute(self, tree: Any, name: str, mode: str) -> object:
        code = compile(tree, name, mode, _ALLOW_AWAIT, dont_inherit=True)
        result = eval(code, self._module.__dict__)  # noqa: S307 - what this program is for
        if code.co_flags & _CO_COROUTINE:
            return self._await(result)
        return result

    def _await(self, result: Any) -> object:
        # Slow to import, and few cells need it.
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(result)

    def _shell(self, command: str) -> int:
        import subprocess

        try:
            process = subprocess.Popen(  # noqa: S603 - what this program is for
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=self._outputs[0],
                stderr=self._outputs[1],
                cwd=HOME,
                env=self._environ,
                start_new_session=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"/bin/sh cannot be started: {error}", file=sys.stderr, flush=True)
            return 126
        code = process.wait()
        return (code if code >= 0 else 128 - code) % 256

    def _restore(self) -> None:
        """Undo what the cell before may have done to the streams and signals."""
        signal.alarm(0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing != 0:
            os.dup2(nothing, 0)
            os.close(nothing)
        for fd, kept in zip((1, 2), self._outputs):  # noqa: B905 - two and two
            os.dup2(kept, fd)
        sys.stdout, sys.stderr = _open_text(1), _open_text(2)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open as long as the process runs


class Figures:
    """Makes the drawing backend of matplotlib when matplotlib imports it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Find the backend, and nothing else."""
        if name != BACKEND:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        """Leave it to the import system to make the module."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Fill the module: matplotlib draws with Agg, and shows figures by sending them."""
        import importlib

        agg: Any = importlib.import_module("matplotlib.backends.backend_agg")

        class Canvas(agg.FigureCanvasAgg):  # type: ignore[misc]
            """Draws as Agg does."""

        class Manager(agg.FigureCanvasAgg.manager_class):  # type: ignore[misc]
            """Shows figures by sending them to the gateway."""

            @classmethod
            def pyplot_show(cls, *, block: object = None) -> None:
                kernel.show_figures()

        kernel = self._kernel
        Canvas.manager_class = Manager
        vars(module).update(FigureCanvas=Canvas, FigureManager=Manager)


def main() -> None:
    """Set the limits, take the socket, serve."""
    limits = {name: int(value) for name, value in (word.split("=") for word in sys.argv[1:])}
    sys.argv = [""]
    control = Control(_keep(os.dup(0)))
    _limit(limits)
    os.chdir(HOME)
    sys.path.append(HOME)
    kernel = Kernel(control, limits["image_bytes"])
    sys.meta_path.append(Figures(kernel))
    try:
        kernel.serve()
    except (EOFError, OSError):
        os._exit(0)


def _limit(limits: dict[str, int]) -> None:
    for kind, name in (
        (resource.RLIMIT_CORE, ""),
        (resource.RLIMIT_AS, "memory_bytes"),
        (resource.RLIMIT_FSIZE, "file_bytes"),
        (resource.RLIMIT_NOFILE, "open_files"),
        (resource.RLIMIT_NPROC, "processes"),
    ):
        wanted, (_, most) = limits.get(name, 0), resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            wanted = min(wanted, most)
        resource.setrlimit(kind, (wanted, wanted))


def _keep(fd: int) -> int:
    """Return a copy of the descriptor at a high number that children do not inherit."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(fd)
    return high


def _open_text(fd: int) -> io.TextIOWrapper:
    raw = open(fd, "wb", closefd=False)  # noqa: SIM115 - open as long as the process runs
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib is slow to import
            stream.flush()
        except Exception:  # noqa: BLE001, S110 - the cell may have closed or replaced it
            pass


def _is_muted(source: str) -> bool:
    """Whether the cell ends with a semicolon: in notebooks this mutes its value."""
    return source.rstrip().endswith(";")


def _png_of(value: object) -> bytes | None:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value) if value.startswith(PNG) else None
    draw = getattr(type(value), "_repr_png_", None)
    png = draw(value) if draw is not None else None
    return png if isinstance(png, bytes) and png.startswith(PNG) else None


def _describe(error: BaseException) -> str:
    """Return the traceback without the frames of this program."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        words = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException:  # noqa: BLE001 - the error itself is code of the model
        words = f"{type(error).__name__}: its description failed\n"
    if len(words) <= MAX_TRACEBACK:
        return words
    half = MAX_TRACEBACK // 2
    return f"{words[:half]}\n[{len(words) - 2 * half} characters left out]\n{words[-half:]}"


if __name__ == "__main__":
    main()
