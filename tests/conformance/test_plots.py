"""A plot of matplotlib, made in a sandbox with an environment of its own, through the gateway.

The environment takes minutes to install: scripts/test-more sets ANTIPHON_TEST_PLOTS=1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.tools.sandbox.pythons import Interpreter, read_interpreter
from tests.asking import ask
from tests.containers import make_service, read_blob, serve_code
from tests.sandboxes import engine

STOP = Stopped("stop")
CODE = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.savefig("plot.png")
plt.show()
print("plotted")
"""


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    if not os.environ.get("ANTIPHON_TEST_PLOTS"):
        pytest.skip("ANTIPHON_TEST_PLOTS is not set: matplotlib takes minutes to install")
    folder: Path = tmp_path_factory.mktemp("plots") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "matplotlib"], check=True)
    return read_interpreter(str(python))


async def test_a_plot_is_shown_and_saved(interpreter: Interpreter) -> None:
    arguments = msgspec.json.encode({"code": CODE}).decode()
    backend = ScriptedBackend(
        [
            [CallMade("code_interpreter", arguments, "a"), STOP],
            [TextGrew("[plot](sandbox:/mnt/data/plot.png)"), STOP],
        ]
    )
    service = make_service(engine=engine("bwrap+sandlock", interpreter))
    tool: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
    async with serve_code(backend, service) as gateway:
        answer = await ask(gateway, tools=[tool], include=["code_interpreter_call.outputs"])
        call, message = answer.json["output"]
        files = await service.store.containers.files(
            "local", call["container_id"], limit=10, is_descending=False
        )
        images = [await read_blob(service.store, file.blob.id) for file in files]
    assert call["status"] == "completed", call["outputs"]
    assert "plotted\n" in call["outputs"][0]["logs"]
    (note,) = message["content"][0]["annotations"]
    assert note["filename"] == "plot.png"
    # The one that was saved, and the one that was shown, which is too large for the item.
    assert [file.path for file in files] == ["/mnt/data/plot.png", "/mnt/data/image-1.png"]
    assert all(image.startswith(b"\x89PNG") for image in images)
