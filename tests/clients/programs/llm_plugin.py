"""llm with the plugin of plugins/llm: its commands and its Python API. Each turn has its model."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

URL = os.environ["ANTIPHON_URL"]
USER = Path(os.environ["HOME"]) / "llm"
PNG = b"\x89PNG\r\n\x1a\n"
TOOLS = """
from pathlib import Path

def weather(city: str) -> str:
    "Say how the weather is."
    with Path({log!r}).open("a") as file:
        file.write(city + ",")
    return f"sun in {{city}}"
"""
# Under the names of the plugin's models, as `antiphon connect llm` writes them.
CONNECTED = [{"model_id": "antiphon/text", "model_name": "text", "api_base": "http://127.0.0.1:9"}]


def set_up() -> None:
    """Choose a folder for llm, which it reads when it is imported, and name the gateway."""
    USER.mkdir(parents=True)
    os.environ.update(LLM_USER_PATH=str(USER), LLM_ANTIPHON_URL=URL)
    # JSON is YAML.
    (USER / "extra-openai-models.yaml").write_text(json.dumps(CONNECTED), "utf-8")


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on loopback, and give the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def run(*arguments: str, text: str | None = None) -> Any:
    """Return what is left of a command of llm: its exit code and what it printed."""
    from click.testing import CliRunner
    from llm.cli import cli

    return CliRunner().invoke(cli, arguments, input=text)


def ask(model: str, *arguments: str, text: str | None = None) -> str:
    """Return what a prompt prints."""
    done = run("-m", f"antiphon/{model}", *arguments, text=text)
    if done.exit_code != 0:
        raise RuntimeError(done.output)
    return str(done.stdout).strip()


def fail(model: str, *arguments: str) -> list[str]:
    """Return what a prompt that fails prints, and its error."""
    done = run("-m", f"antiphon/{model}", *arguments)
    assert done.exit_code == 1, done
    assert isinstance(done.exception, SystemExit), done.exception
    return [done.stdout, done.stderr]


def logged(count: int = 1) -> list[Any]:
    """Return the last entries of the log, oldest first."""
    entries: list[Any] = json.loads(run("logs", "--json", "-n", str(count)).output)
    return entries


def continues(entry: Any) -> Any:
    """Return what the gateway says that a logged response continues."""
    return entry["response_json"]["previous_response_id"]


def imports_antiphon() -> bool:
    """Return whether a fresh llm imports antiphon to list its models."""
    program = "import sys, llm; llm.get_models(); print('antiphon' in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.lower()) is True


async def models(model: str) -> Any:
    listed = run("models").output.splitlines()
    shown = run("antiphon", "models").output.splitlines()
    count = run("antiphon", "refresh").output
    options = run("models", "--options", "-m", f"antiphon/{model}").output
    imported = imports_antiphon()
    (USER / "antiphon-models.json").write_text("{")
    again = run("antiphon", "models").output.splitlines()
    return {
        "listed": listed,
        "shown": shown,
        "refreshed": count,
        "options": options,
        "imported": imported,
        "repaired": again == shown,
    }


class Locked(BaseHTTPRequestHandler):
    """A gateway that has no models, and remembers the keys it was sent."""

    keys: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.keys.append(self.headers["authorization"])
        body = b'{"object": "list", "data": []}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Do not log."""


async def keys(model: str) -> Any:
    """Send no key, then the one of llm; the one of another service is there all the time."""
    with serving(Locked) as url:
        os.environ.update(LLM_ANTIPHON_URL=f"{url}/v1/", OPENAI_API_KEY="sk-of-another")
        try:
            run("antiphon", "refresh")
            run("keys", "set", "antiphon", "--value", "ak_ours")
            run("antiphon", "refresh")
        finally:
            (USER / "keys.json").unlink()
            os.environ["LLM_ANTIPHON_URL"] = URL
    return Locked.keys


async def text(model: str) -> Any:
    return ask(model, "Say hello.", "-s", "Be short.")


async def no_stream(model: str) -> Any:
    return ask(model, "Say hello.", "--no-stream")


async def continued(model: str) -> Any:
    said = [ask(model, "My name is Ada.", "-s", "Be short."), ask(model, "My name?", "-c")]
    said.append(ask(model, "Sure?", "-c"))
    entries = logged(3)
    ids = [entry["response_json"]["id"] for entry in entries]
    return said, ids, [continues(entry) for entry in entries]


async def forgotten(model: str) -> Any:
    from antiphon.client import Client

    said = [ask(model, "My name is Ada.")]
    with Client(base_url=URL, api_key="none") as client:
        client.delete(logged()[0]["response_json"]["id"])
    said.append(ask(model, "My name?", "-c"))
    return said, continues(logged()[0])


async def edited(model: str) -> Any:
    """Change what the user said first, as a program may; the gateway must get the change."""
    import llm

    asked = llm.get_model(f"antiphon/{model}")
    history = asked.prompt("My name is Ada.")
    history.text()
    messages = [llm.user("My name is Eve."), *history.messages(), llm.user("My name?")]
    answer = asked.prompt(messages=messages)
    return answer.text(), answer.response_json["previous_response_id"]


async def chat(model: str) -> Any:
    done = run("chat", "-m", f"antiphon/{model}", text="My name is Ada.\nMy name?\nquit\n")
    first, second = logged(2)
    return done.output, continues(second) == first["response_json"]["id"]


async def tool_loop(model: str) -> Any:
    log = USER / "calls"
    said = ask(model, "The weather?", "--functions", TOOLS.format(log=str(log)))
    first, second = logged(2)
    ids = [call["tool_call_id"] for call in first["tool_calls"]]
    return said, log.read_text(), ids, continues(second) == first["response_json"]["id"]


async def async_tools(model: str) -> Any:
    import llm

    ran = []

    async def weather(city: str) -> str:
        ran.append(city)
        return f"sun in {city}"

    chain = llm.get_async_model(f"antiphon/{model}").chain("The weather?", tools=[weather])
    return await chain.text(), sorted(ran)


async def schema(model: str) -> Any:
    return json.loads(ask(model, "Invent a person.", "--schema", "name, age int"))


async def image(model: str) -> Any:
    path = USER / "shape.png"
    path.write_bytes(PNG)
    said = ask(model, "Which shape is this?", "--at", str(path), "image/png")
    again = ask(model, "Sure?", "-c")
    first, second = logged(2)
    return [said, again], continues(second) == first["response_json"]["id"]


def make_pdf(text: str) -> bytes:
    """Return a PDF file of one page."""
    drawn = f"BT /F 9 Tf 9 9 Td ({text}) Tj ET"
    font = "<</Type /Font /Subtype /Type1 /BaseFont /Courier>>"
    objects = [
        "<</Type /Catalog /Pages 2 0 R>>",
        "<</Type /Pages /Kids [3 0 R] /Count 1>>",
        "<</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R"
        f" /Resources <</Font <</F {font}>>>>>>",
        f"<</Length {len(drawn)}>>\nstream\n{drawn}\nendstream",
    ]
    made, places = "%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{one}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 5\n0000000000 65535 f \n{table}trailer\n<</Size 5 /Root 1 0 R>>\n"
    return f"{made}{end}startxref\n{len(made)}\n%%EOF\n".encode()


async def pdf(model: str) -> Any:
    from antiphon.client import Client

    path = USER / "page.pdf"
    path.write_bytes(make_pdf("Words of a page"))
    done = run("-m", f"antiphon/{model}", "What does it say?", "--at", str(path), "application/pdf")
    with Client(base_url=URL, api_key="none") as client:
        page = client.input_items(logged()[0]["response_json"]["id"])
    return done.stdout.strip(), page.items[0]["content"][1], done.stderr


class Pictures(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "image/png")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Do not log."""


async def image_url(model: str) -> Any:
    with serving(Pictures) as url:
        return ask(model, "Which shape is this?", "-a", f"{url}/shape.png"), f"{url}/shape.png"


async def asynchronous(model: str) -> Any:
    import llm

    answer = llm.get_async_model(f"antiphon/{model}").prompt("Count.")
    pieces = [piece async for piece in answer]
    usage = await answer.usage()
    return pieces, usage.input, usage.output


async def async_early(model: str) -> Any:
    """Leave an answer of an event loop in the middle, and ask again."""
    import llm

    asked = llm.get_async_model(f"antiphon/{model}")
    left = asked.prompt("Count.")
    first = await anext(aiter(left))
    return first, await asked.prompt("Count.").text()


async def usage(model: str) -> Any:
    said = ask(model, "Say hello.")
    entry = logged()[0]
    details = json.loads(entry["token_details"])
    return said, entry["input_tokens"], entry["output_tokens"], details


async def reasoning(model: str) -> Any:
    said = ask(model, "Think.", "-R")
    return said, logged()[0]["reasoning"], ask(model, "Again.", "-c", "-R")


async def foreign(model: str) -> Any:
    """Continue what another provider began, which gave its calls no ids."""
    import llm
    from llm.parts import ReasoningPart, ToolCallPart, ToolResultPart

    calls = [ToolCallPart("weather", {"city": city}) for city in ("Rome", "Oslo")]
    results = [ToolResultPart("weather", f"sun in {city}") for city in ("Rome", "Oslo")]
    thought = ReasoningPart("Hm.", provider_metadata={"openai": {"id": "rs_1"}})
    history = [llm.user("Hi"), llm.assistant(thought, *calls), llm.tool_message(*results)]
    asked = llm.get_model(f"antiphon/{model}")
    return asked.prompt("And?", messages=history).text()


async def hosted(model: str) -> Any:
    """Show thoughts and what a server ran itself, as llm keeps them, and hand them back."""
    import llm

    from antiphon.host import DataPart, ResponsePart, TextPart, ThinkingPart, ToolCallPart
    from llm_antiphon.messages import translate_messages
    from llm_antiphon.turn import Turn

    item = b'{"type":"web_search_call","id":"ws_1","status":"completed"}'
    shown: list[ResponsePart] = [
        ThinkingPart("a", "rs_1"),
        ThinkingPart("b", "rs_1", {"encrypted_content": "x"}),
        ThinkingPart("c", "rs_2"),
        DataPart(item, "application/vnd.openresponses.item+json"),
        ToolCallPart("c1", "exec", {"input": "ls"}, "custom"),
        TextPart("Yes."),
    ]
    asked = llm.get_model(f"antiphon/{model}")
    response = asked.prompt("Hi")
    turn = Turn(asked, response.prompt, response)
    for event in (event for part in shown for event in turn.show(part)):
        response._process_chunk(event)
    (message,) = translate_messages(response._messages_now())
    return [str(part) for part in message.content], [call.name for call in response._tool_calls]


async def options(model: str) -> Any:
    given = {"temperature": "0.5", "max_tokens": "20", "stop": "END", "seed": "7"}
    flags = [word for name, value in given.items() for word in ("-o", name, value)]
    refused = run("-m", f"antiphon/{model}", "Hi", "-o", "temperature", "3").output
    return ask(model, "Say hello.", *flags), refused


async def cut_off(model: str) -> Any:
    return fail(model, "Say hello.")


async def refused(model: str) -> Any:
    return fail(model, "Say hello.")


async def unreachable(model: str) -> Any:
    """Ask an address where nothing is, with the list of models that was kept for it."""
    kept = USER / "antiphon-models.json"
    lists = json.loads(kept.read_text())
    gone = "http://127.0.0.1:9/v1"
    kept.write_text(json.dumps({**lists, gone: lists[URL]}))
    os.environ["LLM_ANTIPHON_URL"] = gone
    try:
        return run("models").output, fail(model, "Hi"), run("antiphon", "refresh").output
    finally:
        os.environ["LLM_ANTIPHON_URL"] = URL


TURNS = {
    "models": models,
    "keys": keys,
    "text": text,
    "no-stream": no_stream,
    "continued": continued,
    "forgotten": forgotten,
    "edited": edited,
    "chat": chat,
    "tool-loop": tool_loop,
    "async-tools": async_tools,
    "schema": schema,
    "shape": image,
    "pdf": pdf,
    "shape-url": image_url,
    "async": asynchronous,
    "async-early": async_early,
    "usage": usage,
    "reasoning": reasoning,
    "foreign": foreign,
    "hosted": hosted,
    "options": options,
    "cut-off": cut_off,
    "refused": refused,
    "unreachable": unreachable,
}


async def main() -> None:
    """Play every turn."""
    from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file

    set_up()
    for name, act in TURNS.items():
        await turn(name, act)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
