"""The pages about the client and the host keep their word.

Every example is a whole program. It is run as it stands, against servers whose model has just
enough wit for the examples, and must print what the page says it prints. The reference pages
must list what the code has, no more and no less.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import antiphon.client
import antiphon.host
from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.client import (
    AsyncClient,
    AsyncConversations,
    AsyncFiles,
    AsyncStream,
    AsyncVectorStores,
    AttachedFileObject,
    BatchObject,
    Client,
    Compaction,
    Conversation,
    ConversationCache,
    Conversations,
    Deleted,
    FileObject,
    Files,
    FoundText,
    FunctionTool,
    InputTokens,
    ItemPage,
    Model,
    Page,
    Stream,
    Thread,
    Timeouts,
    ToolLimits,
    VectorStoreObject,
    VectorStores,
    tool_loop,
)
from antiphon.client import errors as client_errors
from antiphon.client import items as client_items
from antiphon.client.client import ClientOptions
from antiphon.client.tool_loop import run_tools, run_tools_sync
from antiphon.host import (
    RESPONSES_API_MODELS,
    DataPart,
    GateConfig,
    ModelDescription,
    Outcome,
    Provider,
    ProviderSettings,
    RespondOptions,
    StreamAdapter,
    SyncProvider,
    TextPart,
    ThinkingPart,
    TokenCounter,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
    UsageTracker,
)
from antiphon.host import errors as host_errors
from antiphon.host.model_table import ModelFacts
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Delta,
    ReasoningGrew,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import EVENT_CLASSES
from antiphon.protocol.items import text_of
from antiphon.protocol.response import Usage
from antiphon.testing import Script as ChatScript
from antiphon.testing import ScriptedUpstream, serve_gateway
from antiphon.transport.retry import WAIT_BUDGET, retry_delay

DOCS = Path(__file__).parent.parent / "docs"
HOWTOS = (
    *("client", "conversations", "tools", "migrate", "host"),
    *("background", "conversations-api", "files", "compact", "websocket"),
)
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
GATEWAY = "http://127.0.0.1:4680/v1"
CHAT_SERVER = "http://127.0.0.1:8000/v1"
# What the synchronous client has beside the methods of the other.
CLIENTS_OWN = {"is_closed", "run(work)"}


# A model for the examples.


def speak(plan: Plan) -> Script:
    """Answer as the pages say: greet, remember names, call for the weather, tell its result."""
    last = plan.items[-1]
    if last.get("type") == "function_call_output":
        yield from _say(plan, f"It is {text_of(last['output'])}.")
        return
    asked = text_of(last.get("content"))
    if asked.startswith("Think"):
        yield ReasoningGrew("Hm.")
    if "story" in asked:
        yield TextGrew("Once upon a time")
        yield asyncio.Event()  # nobody sets it: this story has no end
    elif plan.toolbox.offers and (city := re.search(r"weather in (\w+)", asked)):
        yield from (
            CallOpened(0, "weather"),
            CallGrew(0, '{"city":'),
            CallGrew(0, f'"{city[1]}"}}'),
        )
        yield [_count(plan, 2), Stopped("stop")]
    else:
        yield from _say(plan, _answer(plan, asked))


def _answer(plan: Plan, asked: str) -> str:
    if repeat := re.match(r"Repeat: (.*)", asked):
        return repeat[1]
    if name := re.match(r"My name is (\w+)", asked):
        return f"Hello, {name[1]}."
    if asked == "What is my name?":
        heard = " ".join(text_of(item.get("content")) for item in plan.items)
        names = re.findall(r"My name is (\w+)", heard)
        return f"Your name is {names[-1]}." if names else "I do not know."
    return "Hello there!"


def _say(plan: Plan, text: str) -> Script:
    words = re.findall(r"\s*\S+", text)
    said = words[: plan.max_output_tokens]
    yield from (TextGrew(word) for word in said)
    yield [_count(plan, len(said)), Stopped("stop" if said == words else "length")]


def _count(plan: Plan, output: int) -> Delta:
    heard = sum(len(text_of(item.get("content")).split()) for item in plan.items)
    return UsageKnown(Usage(input_tokens=heard, output_tokens=output, total_tokens=heard + output))


# The examples.


class Example(msgspec.Struct, frozen=True):
    """A program of a page, and what the page says that it prints."""

    page: str
    number: int
    program: str
    output: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"


def _blocks(page: Path) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page: their language and their text."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


def _examples(name: str) -> Iterator[Example]:
    blocks = _blocks(DOCS / f"howto/{name}.md")
    programs = [number for number, (language, _) in enumerate(blocks) if language == "python"]
    for count, number in enumerate(programs):
        language, output = [*blocks, ("", "")][number + 1]
        yield Example(name, count, blocks[number][1], output if language == "text" else "")


EXAMPLES = [example for name in HOWTOS for example in _examples(name)]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "BASE_URL", "ORG_ID", "PROJECT_ID", "RESPONSES_DISABLE"):
        monkeypatch.delenv(f"OPENAI_{name}", raising=False)


@pytest.mark.requirement("22-E1", "22-A5")
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
async def test_an_example_prints_what_its_page_says(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = await run(example.program, monkeypatch)
    assert printed == example.output != ""


async def run(program: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a program as it stands, but for the addresses; return what it prints."""
    async with (
        serve_gateway(ScriptedBackend(speak, models=["smollm2-135m"])) as gateway,
        ScriptedUpstream(ChatScript(text="Hello there!")) as upstream,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", gateway.base_url)
        program = program.replace(GATEWAY, gateway.base_url)
        program = program.replace(CHAT_SERVER, upstream.base_url)
        buffer = io.StringIO()
        await asyncio.to_thread(exec, program, {"__name__": "__main__", "print": _printer(buffer)})
    return buffer.getvalue()


def _printer(buffer: io.StringIO) -> Callable[..., None]:
    def write(*values: object, **options: Any) -> None:
        print(*values, **options, file=buffer)

    return write


def test_every_page_has_examples() -> None:
    assert {example.page for example in EXAMPLES} == set(HOWTOS)


# What the examples are made of.


@pytest.mark.requirement("REQ-007.1")
def test_the_tool_round_trip_is_shown_as_items() -> None:
    (first, without_state, *_) = [example.program for example in _examples("tools")]
    for program in (first, without_state):
        assert '"function_call"' in program
        assert '"function_call_output"' in program
        assert "call_id" in program


@pytest.mark.requirement("REQ-007.1")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_example_puts_calls_into_an_assistant_message(page: Path) -> None:
    wrong = [text for _, text in _blocks(page) if re.search(r"\btool_call(s|_id)\b", text)]
    assert wrong == []


@pytest.mark.requirement("REQ-007.2")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_event_in_an_example_is_one_of_responses(page: Path) -> None:
    code = "\n".join(text for _, text in _blocks(page))
    named = re.findall(
        r"^event: (\S+)|\"type\": ?\"(response\.[\w.]+)|^(response\.[\w.]+)", code, re.M
    )
    unknown = {name for names in named for name in names if name} - EVENT_CLASSES.keys()
    assert unknown <= {"response.create"}  # what a client says over a WebSocket
    assert "chat.completion" not in code
    assert '"choices"' not in code


@pytest.mark.requirement("REQ-007.2")
@pytest.mark.parametrize("name", ["client", "tools", "migrate"])
def test_streams_are_shown_with_their_events(name: str) -> None:
    code = "\n".join(text for _, text in _blocks(DOCS / f"howto/{name}.md"))
    assert len(set(re.findall(r"\bresponse(?:\.\w+)+", code)) & EVENT_CLASSES.keys()) >= 2


# What the text promises.


@pytest.mark.requirement("22-E1", "22-A5")
def test_every_variable_is_documented_and_every_documented_one_is_read() -> None:
    rooms = [Path(room.__file__ or "").parent for room in (antiphon.client, antiphon.host)]
    source = "".join(path.read_text() for room in rooms for path in room.glob("*.py"))
    read = set(re.findall(r'"(OPENAI_[A-Z_]+)"', source))
    pages = "".join((DOCS / f"howto/{name}.md").read_text() for name in ("client", "host"))
    assert set(re.findall(r"`(OPENAI_[A-Z_]+)`", pages)) == read
    assert "OPENAI_RESPONSES_DISABLE" in read


def test_the_documented_retries_are_the_retries() -> None:
    page = (DOCS / "howto/client.md").read_text()
    (row,) = re.findall(r"^\| no connection; (.*?);", page, re.M)
    tried = {s for s in range(400, 600) if retry_delay(s, 1, None, jitter=0.0) is not None}
    assert {int(status) for status in row.split(", ")} == tried
    assert f"more than {WAIT_BUDGET:.0f} seconds" in page
    assert (retry_delay(503, 1, None, jitter=0.0), retry_delay(503, 1, None, jitter=1.0)) == (
        0.5,
        1,
    )


def test_the_documented_timeouts_are_the_timeouts() -> None:
    rows = _rows("howto/client", "### Timeouts")
    assert [(name, float(value)) for name, value, _ in rows] == [
        (field.name, field.default) for field in msgspec.structs.fields(Timeouts)
    ]


# The reference.


def _section(page: str, heading: str) -> str:
    text = (DOCS / f"{page}.md").read_text()
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"{page} has no {heading}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.M)[0]


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of a section's tables, without the heads and the marks of code."""
    tables = re.findall(r"^\|-[-|]+\n((?:\| .* \|\n)+)", _section(page, heading), re.M)
    lines = [line[2:-2] for table in tables for line in table.splitlines()]
    return [[cell.strip("`") for cell in line.split(" | ")] for line in lines]


def _shown(value: object) -> str:
    """Return a default as the pages write it: plain values as they are, others by name."""
    if isinstance(value, str | int | float | tuple | None):
        return repr(value)
    return "…"


def _signature(name: str, function: Callable[..., object]) -> str:
    words = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        default = "" if parameter.default is parameter.empty else f"={_shown(parameter.default)}"
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        words.append(f"{stars}{parameter.name}{default}")
    return f"{name}({', '.join(words)})"


def _members(kind: type) -> list[str]:
    """Return the public methods of a class with their signatures, and its properties."""
    return [
        name if isinstance(member, property) else _signature(name, member)
        for name, member in vars(kind).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    ]


def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Return the fields of a value with their defaults, as the pages write them."""
    rows = []
    for field in msgspec.structs.fields(kind):
        default = "required" if field.required else _shown(field.default)
        if field.default_factory is dict:
            default = "{}"
        rows.append((field.name, default))
    return rows


@pytest.mark.requirement("22-E1")
@pytest.mark.parametrize(
    ("page", "names"),
    [("client", antiphon.client.__all__), ("host", antiphon.host.__all__)],
)
def test_the_reference_names_what_a_room_offers(page: str, names: list[str]) -> None:
    assert [row[0] for row in _rows(f"reference/{page}", f"## antiphon.{page}")] == names


def test_the_reference_has_every_option_of_a_client() -> None:
    places = {"environ": "os.environ", "sleep": "asyncio.sleep", "jitter": "random.random"}
    given = inspect.signature(AsyncClient).parameters.values()
    rows = [(p.name, places.get(p.name) or _shown(p.default)) for p in given]
    assert [(row[0], row[1]) for row in _rows("reference/client", "## Options")] == rows
    assert [name for name, _ in rows] == list(ClientOptions.__annotations__)


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        ("client", [AsyncClient, Client]),
        ("client", [AsyncStream, Stream]),
        ("client", [AsyncConversations, Conversations]),
        ("client", [AsyncFiles, Files]),
        ("client", [AsyncVectorStores, VectorStores]),
        ("client", [FunctionTool]),
        ("client", [ConversationCache]),
        ("host", [Provider]),
        ("host", [SyncProvider]),
        ("host", [UsageTracker]),
        ("host", [TokenCounter]),
        ("host", [StreamAdapter]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].__name__,
)
def test_the_reference_has_every_method(page: str, kinds: list[type]) -> None:
    listed = [row[0] for row in _rows(f"reference/{page}", f"## {kinds[0].__name__}")]
    for kind in kinds:
        own = CLIENTS_OWN if kind is Client else set()
        assert sorted(listed) == sorted(set(_members(kind)) - own)


@pytest.mark.parametrize(
    ("page", "heading", "kinds"),
    [
        ("client", "Timeouts", [Timeouts]),
        ("client", "ToolLimits", [ToolLimits]),
        ("client", "Thread", [Thread]),
        ("host", "ProviderSettings", [ProviderSettings]),
        ("host", "RespondOptions", [RespondOptions]),
        ("host", "GateConfig", [GateConfig]),
        ("host", "Models", [ModelDescription, ModelFacts]),
    ],
)
def test_the_reference_has_every_field_and_its_default(
    page: str, heading: str, kinds: list[type[msgspec.Struct]]
) -> None:
    rows = [(row[0], row[1]) for row in _rows(f"reference/{page}", f"## {heading}")]
    expected = [field for kind in kinds for field in _fields(kind)]
    assert [(name, _default(text)) for name, text in rows] == expected


def _default(text: str) -> str:
    return "…" if text == "GateConfig()" else text


@pytest.mark.parametrize(
    ("page", "heading", "kinds"),
    [
        (
            "client",
            "Other values",
            [
                *(Model, ItemPage, Page, Deleted, FileObject, VectorStoreObject),
                *(AttachedFileObject, BatchObject, FoundText),
                *(Conversation, InputTokens, Compaction),
            ],
        ),
        (
            "host",
            "Parts",
            [TextPart, ThinkingPart, ToolCallPart, ToolResultPart, DataPart, UrlPart],
        ),
    ],
)
def test_the_reference_has_the_fields_of_values(
    page: str, heading: str, kinds: list[type[msgspec.Struct]]
) -> None:
    rows = {row[0]: row[1] for row in _rows(f"reference/{page}", f"## {heading}")}
    expected = {kind.__name__: "`, `".join(kind.__struct_fields__) for kind in kinds}
    assert rows == expected


def test_the_reference_has_every_typed_item() -> None:
    rows = {row[0]: row[1] for row in _rows("reference/client", "## antiphon.client.items")}
    kinds = [kind for kind in vars(client_items).values() if _is_typed_item(kind)]
    assert list(rows) == [kind.__name__ for kind in get_args(client_items.TypedItem)]
    assert sorted(rows) == sorted(kind.__name__ for kind in kinds)
    for kind in kinds:
        listed = re.findall(r"`(\w+(?:\(\w+\))?)`", f"`{rows[kind.__name__]}`")
        bases = [base for base in kind.__mro__ if base.__module__ == client_items.__name__]
        members = {name for base in bases for name in _members(base)}
        assert set(listed) == members - {"id", "type", "status"}


def _is_typed_item(value: object) -> bool:
    return isinstance(value, type) and value.__name__.endswith("Item") and value.__name__ != "_Item"


def test_the_reference_has_all_of_an_outcome() -> None:
    listed = [row[0] for row in _rows("reference/host", "## Outcome")]
    assert listed == [*Outcome.__struct_fields__, *_members(Outcome)]


def test_the_reference_has_the_tool_loop() -> None:
    listed = [row[0] for row in _rows("reference/client", "## antiphon.client.tool_loop")]
    loops: dict[str, Callable[..., object]] = {
        "run_tools": run_tools,
        "run_tools_sync": run_tools_sync,
    }
    shown = [_signature(name, loops[name]) if name in loops else name for name in tool_loop.__all__]
    assert listed == shown
    assert f"at most, {tool_loop.MAX_ROUNDS}" in _section(
        "reference/client", "## antiphon.client.tool_loop"
    )


@pytest.mark.requirement("REQ-007.2")
def test_the_reference_has_every_event_with_what_it_holds() -> None:
    rows = _rows("reference/client", "## Events")
    assert {row[0]: row[1] for row in rows} == {n: k.__name__ for n, k in EVENT_CLASSES.items()}
    for name, _, held in rows:
        fields = set(re.findall(r"\w+", held.partition(":")[0]))
        assert fields <= set(EVENT_CLASSES[name].__struct_fields__)


@pytest.mark.parametrize(("page", "module"), [("client", client_errors), ("host", host_errors)])
def test_the_reference_has_the_tree_of_errors(page: str, module: Any) -> None:
    """The page has the tree of the docstring, and that has every class below its parent."""
    (tree,) = re.findall(r"```\n(.*?)\n```", _section(f"reference/{page}", "## Errors"), re.S)
    assert textwrap.indent(tree, "    ") in module.__doc__
    listed = re.findall(r"^((?:│   |    )*[├└]── )(\w+)", tree, re.M)
    above: list[type] = [AntiphonError]
    for indent, name in listed:
        kind = getattr(module, name)
        del above[len(indent) // 4 :]
        assert kind.__mro__[1] is above[-1]
        above.append(kind)
    raised = [name for name in module.__all__ if isinstance(getattr(module, name), type)]
    assert sorted(name for _, name in listed) == sorted(raised)


def test_the_reference_has_the_models_of_the_gate() -> None:
    (listed,) = re.findall(r"```\n(.*?)```", _section("reference/host", "## GateConfig"), re.S)
    assert listed.split() == list(RESPONSES_API_MODELS)


# Links.


@pytest.mark.requirement("22-E1")
@pytest.mark.parametrize(
    "page",
    [*(f"howto/{name}" for name in HOWTOS), "reference/client", "reference/host"],
)
def test_links_to_a_heading_find_it(page: str) -> None:
    path = DOCS / f"{page}.md"
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text()):
        found = (path.parent / target if target else path).read_text()
        headings = re.findall(r"^#+ (.*)$", found, re.M)
        assert anchor in {_anchor(heading) for heading in headings}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
