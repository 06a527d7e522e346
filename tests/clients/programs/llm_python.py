"""llm at its command line. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

USER = Path(os.environ["HOME"]) / "llm"
TURNS = ("text", "no-stream", "continued", "tool-loop", "schema", "image")
PNG = b"\x89PNG\r\n\x1a\n"
WEATHER = (
    'def weather(city: str) -> str:\n    "Say how the weather is."\n    return f"sun in {city}"\n'
)


def set_up() -> None:
    """Write what a user writes: a file with the models. llm reads it when it is imported."""
    USER.mkdir(parents=True)
    os.environ["LLM_USER_PATH"] = str(USER)
    models = [
        {
            "model_id": f"my-{turn}",
            "model_name": turn,
            "api_base": os.environ["ANTIPHON_URL"],
            "responses": True,
            "supports_schema": True,
            "supports_tools": True,
            "vision": True,
        }
        for turn in TURNS
    ]
    # JSON is YAML.
    (USER / "extra-openai-models.yaml").write_text(json.dumps(models), "utf-8")


def ask(model: str, *arguments: str) -> str:
    """Return what the command prints."""
    from click.testing import CliRunner
    from llm.cli import cli

    done = CliRunner().invoke(cli, ["-m", f"my-{model}", *arguments], catch_exceptions=False)
    if done.exit_code != 0:
        raise RuntimeError(done.output)
    return done.output.strip()


async def text(model: str) -> Any:
    return ask(model, "Say hello.", "-s", "Be short.")


async def no_stream(model: str) -> Any:
    return ask(model, "Say hello.", "--no-stream")


async def continued(model: str) -> Any:
    return [ask(model, "My name is Ada."), ask(model, "What is my name?", "-c")]


async def tool_loop(model: str) -> Any:
    return ask(model, "The weather in Rome?", "--functions", WEATHER)


async def schema(model: str) -> Any:
    return json.loads(ask(model, "Invent a person.", "--schema", "name, age int"))


async def image(model: str) -> Any:
    path = USER / "shape.png"
    path.write_bytes(PNG)
    return ask(model, "Which shape is this?", "--at", str(path), "image/png")


async def main() -> None:
    """Play every turn."""
    from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file

    set_up()
    acts = (text, no_stream, continued, tool_loop, schema, image)
    for name, act in zip(TURNS, acts, strict=True):
        await turn(name, act)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
