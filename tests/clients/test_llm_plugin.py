"""llm with the plugin of plugins/llm: what it prints and logs, and what the upstream was sent.

The program runs the commands of llm in one process, which is what costs time; the tests that need
another gateway than that of `perform` run the real command.
"""

from __future__ import annotations

import ast
import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

from antiphon.host import DataPart, TextPart, ThinkingPart, ToolCallPart
from antiphon.testing import Call, Script, Stall, Status
from tests.clients.house import Done, House, environment, open_house, run
from tests.clients.install import LLM_PLUGIN_LOCK, ROOT, python
from tests.clients.stage import Performance, Scripts, perform, roles, tool_messages
from tests.clients.turns import CUT_OFF, OUTPUTS

_PATIENCE: Final = 60.0
_BOTH: Final = Script(
    calls=[
        Call("weather", '{"city": "Rome"}', "call_rome"),
        Call("weather", '{"city": "Oslo"}', "call_oslo"),
    ]
)
_NAMES: Final = (Script(text="Hello, Ada."), Script(text="Ada."))
SCRIPTS: Final[Scripts] = {
    "models": [],
    "keys": [],
    "text": [Script(text="Hello there.")],
    "no-stream": [Script(text="Hello there.")],
    "continued": _NAMES,
    "forgotten": _NAMES,
    "edited": _NAMES,
    "chat": _NAMES,
    "tool-loop": [_BOTH, Script(text="Sun in both.")],
    "async-tools": [_BOTH, Script(text="Sun in both.")],
    "schema": [Script(text='{"name": "Ada", "age": 36}')],
    "shape": [Script(text="A square.")],
    "pdf": [Script(text="A page.")],
    "shape-url": [Script(text="A square.")],
    "async": [Script(text=["one", " two", " three"])],
    "async-early": [Script(text=["one", " two", " three"])],
    "usage": [
        Script(
            text="Hello.",
            usage={
                "prompt_tokens": 30,
                "completion_tokens": 12,
                "total_tokens": 42,
                "prompt_tokens_details": {"cached_tokens": 20},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
        )
    ],
    "reasoning": [Script(reasoning="Hm, yes.", text="Done.")],
    "foreign": [Script(text="Sun in both.")],
    "hosted": [],
    "options": [Script(text="Hello.")],
    "cut-off": [CUT_OFF],
    "refused": [Script(faults=[Status(400, "the question is too odd")])],
    "unreachable": [],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    folder = tmp_path_factory.mktemp("llm-plugin")
    return perform("llm_plugin.py", SCRIPTS, folder, LLM_PLUGIN_LOCK)


@pytest.mark.turn("llm-plugin", "models in `llm models`, and `llm antiphon models|refresh`")
def test_the_models_of_the_gateway_are_listed(played: Performance) -> None:
    seen = played.seen("models")
    assert {f"Antiphon: antiphon/{name}" for name in SCRIPTS} < set(seen["listed"])
    assert seen["shown"] == [f"antiphon/{name}" for name in SCRIPTS]
    assert seen["refreshed"].startswith(f"{len(SCRIPTS)} models from http://127.0.0.1:")
    assert "reasoning_effort" in seen["options"]
    assert not seen["imported"], "the list is read without antiphon, which takes time"
    assert seen["repaired"], "a list that cannot be read is asked for again"


def test_only_the_key_of_the_gateway_is_sent(played: Performance) -> None:
    assert played.seen("keys") == [None, "Bearer ak_ours"]


@pytest.mark.turn("llm-plugin", "beside the models of `antiphon connect llm`, under the same names")
@pytest.mark.turn("llm-plugin", "a prompt with a system prompt, streamed or not", transport="http")
@pytest.mark.parametrize("turn", ["text", "no-stream"])
def test_a_prompt_is_answered(played: Performance, turn: str) -> None:
    assert played.seen(turn) == "Hello there."
    (body,) = played.bodies(turn)
    assert body["messages"][-1] == {"role": "user", "content": "Say hello."}
    assert roles(body) == (["system", "user"] if turn == "text" else ["user"])


@pytest.mark.turn("llm-plugin", "-c continues by `previous_response_id`", transport="http")
def test_a_conversation_goes_on_from_the_last_response(played: Performance) -> None:
    said, (first, second, _), continued = played.seen("continued")
    assert said == ["Hello, Ada.", "Ada.", "Ada."]
    assert continued == [None, first, second]
    assert roles(played.bodies("continued")[-1]) == ["system", *["user", "assistant"] * 2, "user"]


@pytest.mark.turn("llm-plugin", "a conversation that the gateway has lost", transport="http")
def test_a_conversation_that_the_gateway_lost_is_sent_again(played: Performance) -> None:
    assert played.seen("forgotten") == [["Hello, Ada.", "Ada."], None]
    _, second = played.bodies("forgotten")
    assert roles(second) == ["user", "assistant", "user"]


def test_a_history_that_was_edited_is_sent_whole(played: Performance) -> None:
    assert played.seen("edited") == ["Ada.", None]
    _, second = played.bodies("edited")
    assert second["messages"][0]["content"] == "My name is Eve."
    assert roles(second) == ["user", "assistant", "user"]


@pytest.mark.turn("llm-plugin", "llm chat", transport="http")
def test_a_chat_goes_on_from_the_last_response(played: Performance) -> None:
    output, is_continued = played.seen("chat")
    assert "Hello, Ada." in output and "Ada." in output
    assert is_continued


@pytest.mark.turn("llm-plugin", "two parallel tools (--functions), each once", transport="http")
def test_each_of_two_calls_runs_once(played: Performance) -> None:
    said, ran, ids, is_continued = played.seen("tool-loop")
    assert said.endswith("Sun in both.")
    assert sorted(ran.split(",")) == ["", "Oslo", "Rome"]
    assert sorted(ids) == ["call_oslo", "call_rome"]
    assert is_continued
    first, second = played.bodies("tool-loop")
    tools = {tool["function"]["name"]: tool["function"] for tool in first["tools"]}
    assert tools["weather"]["parameters"]["properties"].keys() == {"city"}
    # llm makes a tool of everything that can be called; this one has a long description.
    assert len(tools["Path"]["description"]) > 256
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn("llm-plugin", "tools in an event loop", transport="http")
def test_tools_of_an_event_loop_run_once(played: Performance) -> None:
    assert played.seen("async-tools") == ["Sun in both.", ["Oslo", "Rome"]]
    assert tool_messages(played.bodies("async-tools")[1]) == OUTPUTS


@pytest.mark.turn("llm-plugin", "structured output (--schema)", transport="http")
def test_a_schema_is_kept(played: Performance) -> None:
    assert played.seen("schema") == {"name": "Ada", "age": 36}
    asked = played.bodies("schema")[0]["response_format"]["json_schema"]
    assert asked["schema"]["properties"].keys() == {"name", "age"}


@pytest.mark.turn("llm-plugin", "images and PDFs as files (-a, --at)", transport="http")
def test_files_are_sent_by_their_kind(played: Performance) -> None:
    assert played.seen("shape") == [["A square.", "A square."], True]
    _, image = played.bodies("shape")[0]["messages"][0]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    said, page, _ = played.seen("pdf")
    assert said == "A page."
    assert page["file_data"].startswith("data:application/pdf;base64,JVBER")


def test_what_the_gateway_cannot_honour_is_printed_as_a_warning(played: Performance) -> None:
    _, _, warning = played.seen("pdf")
    assert warning.startswith("The gateway could not honour: ") and "(input_file)" in warning
    assert "Traceback" not in warning


@pytest.mark.turn("llm-plugin", "an image by its URL (-a)", transport="http")
def test_an_image_at_an_address_is_sent_as_the_address(played: Performance) -> None:
    said, url = played.seen("shape-url")
    assert said == "A square."
    _, image = played.bodies("shape-url")[0]["messages"][0]["content"]
    assert image["image_url"]["url"] == url


@pytest.mark.turn("llm-plugin", "asynchronous models, streamed", transport="http")
def test_an_event_loop_gets_the_answer_in_pieces(played: Performance) -> None:
    pieces, read, written = played.seen("async")
    assert "".join(pieces) == "one two three"
    assert len(pieces) > 1
    assert read > 0 and written > 0


def test_an_answer_that_was_left_early_does_not_disturb_the_next(played: Performance) -> None:
    assert played.seen("async-early") == ["one", "one two three"]


@pytest.mark.turn("llm-plugin", "logged usage, with cached and reasoning tokens", transport="http")
def test_the_usage_of_the_server_is_logged(played: Performance) -> None:
    details = {"cached_tokens": 20, "reasoning_tokens": 5}
    assert played.seen("usage") == ["Hello.", 30, 12, details]


@pytest.mark.turn("llm-plugin", "reasoning in the log (-R hides it)", transport="http")
def test_reasoning_is_logged_and_not_taken_for_the_answer(played: Performance) -> None:
    assert played.seen("reasoning") == ["Done.", "Hm, yes.", "Done."]


@pytest.mark.turn("llm-plugin", "a conversation that another provider began", transport="http")
def test_calls_without_ids_keep_their_results(played: Performance) -> None:
    assert played.seen("foreign") == "Sun in both."
    (body,) = played.bodies("foreign")
    assert roles(body) == ["user", "assistant", "tool", "tool", "user"]
    calls = body["messages"][1]["tool_calls"]
    cities = {call["id"]: call["function"]["arguments"] for call in calls}
    told = tool_messages(body)
    assert [("Rome" in cities[call], told[call]) for call in cities] == [
        (True, "sun in Rome"),
        (False, "sun in Oslo"),
    ]


def test_what_llm_keeps_of_an_answer_goes_back_as_it_came(played: Performance) -> None:
    parts, called = played.seen("hosted")
    sealed = ThinkingPart("ab", "rs_1", {"encrypted_content": "x"})
    item = b'{"type":"web_search_call","id":"ws_1","status":"completed"}'
    wanted = [
        sealed,
        ThinkingPart("c", "rs_2"),
        DataPart(item, "application/vnd.openresponses.item+json"),
        ToolCallPart("c1", "exec", {"input": "ls"}, "custom"),
        TextPart("Yes."),
    ]
    assert parts == [str(part) for part in wanted]
    assert called == ["exec"], "llm ran what the server had run"


@pytest.mark.turn("llm-plugin", "options (-o), with wrong values refused", transport="http")
def test_options_reach_the_upstream(played: Performance) -> None:
    said, refused = played.seen("options")
    assert said == "Hello."
    assert "temperature" in refused and "less than or equal to 2" in refused
    (body,) = played.bodies("options")
    assert body["temperature"] == 0.5
    assert body["stop"] in ("END", ["END"])
    assert body["seed"] == 7
    assert 20 in (body.get("max_tokens"), body.get("max_completion_tokens"))


@pytest.mark.turn("llm-plugin", "an error for an answer that is cut off", transport="http")
def test_an_answer_that_is_cut_off_is_an_error(played: Performance) -> None:
    shown, error = played.seen("cut-off")
    assert shown.startswith("Half of")
    assert "its answer is cut off" in error
    assert "Traceback" not in error
    assert len(played.bodies("cut-off")) == 1, "the question was sent again"


def test_what_the_upstream_refuses_is_an_error_with_its_sentence(played: Performance) -> None:
    _, error = played.seen("refused")
    assert error.startswith("Error: ") and "the question is too odd" in error


@pytest.mark.turn("llm-plugin", "models listed and a clear error while the gateway is down")
def test_a_gateway_that_is_down_is_named(played: Performance) -> None:
    listed, (_, error), refreshed = played.seen("unreachable")
    assert "antiphon/text" in listed
    for text in (error, refreshed):
        assert "the gateway at http://127.0.0.1:9/v1 cannot be reached" in text
        assert "antiphon serve" in text


# The real command, before gateways that the program does not have.


async def _llm(house: House, home: Path, *arguments: str) -> Done:
    command = python(LLM_PLUGIN_LOCK).parent / "llm"
    return await run(command, *arguments, cwd=home, env=_environment(house, home))


def _environment(house: House, home: Path) -> dict[str, str]:
    paths = {"LLM_USER_PATH": str(home / "llm"), "LLM_ANTIPHON_URL": house.base_url}
    return environment(home, **paths, OPENAI_API_KEY="sk-of-another-service")


async def _make_key(house: House) -> str:
    """Return a new key of the gateway, as its administrator makes it."""
    store = f"sqlite:{house.folder / 'antiphon.db'}"
    command = (sys.executable, "-m", "antiphon", "keys", "create", "--store", store)
    done = await run(*command, cwd=house.folder, env=environment(house.folder))
    assert done.code == 0, done
    (key,) = [word for word in done.out.split() if word.startswith("ak_")]
    return key


@pytest.mark.slow
@pytest.mark.turn("llm-plugin", "a key from `llm keys set antiphon`; 401 without one")
async def test_a_gateway_that_needs_a_key_gets_the_one_that_llm_keeps(
    tmp_path: Path, home: Path
) -> None:
    folder, script, settings = tmp_path / "house", Script(text="Hello."), "require_keys = true"
    async with open_house(folder, script, store="sqlite:", settings=settings) as house:
        refused = await _llm(house, home, "antiphon", "refresh")
        assert refused.code == 1
        assert "llm keys set antiphon" in refused.err
        key = await _make_key(house)
        await _llm(house, home, "keys", "set", "antiphon", "--value", key)
        answer = await _llm(house, home, "-m", "antiphon/scripted-model", "Say hello.")
        assert answer.out.strip() == "Hello.", answer
        wrong = await _llm(house, home, "-m", "antiphon/scripted-model", "Hi", "--key", "ak_no")
        assert wrong.code == 1
        assert "llm keys set antiphon" in wrong.err and "Traceback" not in wrong.err


@pytest.mark.slow
async def test_a_list_that_cannot_be_kept_does_not_stop_llm(tmp_path: Path, home: Path) -> None:
    (home / "llm" / "antiphon-models.json").mkdir(parents=True)  # so that no file can be there
    async with open_house(tmp_path / "house", Script(text="Hello.")) as house:
        listed = await _llm(house, home, "models")
        assert listed.code == 0 and "antiphon/scripted-model" in listed.out, listed
        answer = await _llm(house, home, "-m", "antiphon/scripted-model", "Say hello.")
        assert answer.out.strip() == "Hello.", answer
        refreshed = await _llm(house, home, "antiphon", "refresh")
    assert refreshed.code == 1
    assert "cannot be kept in" in refreshed.err and "Traceback" not in refreshed.err


@pytest.mark.slow
@pytest.mark.turn("llm-plugin", "Ctrl-C stops the model", transport="http")
async def test_ctrl_c_closes_the_upstream(tmp_path: Path, home: Path) -> None:
    script = Script(text=["one", " two", " three"], faults=[Stall(after=2)])
    async with open_house(tmp_path / "house", script) as house:
        process = await asyncio.create_subprocess_exec(
            str(python(LLM_PLUGIN_LOCK).parent / "llm"),
            *("-m", "antiphon/scripted-model", "Count."),
            cwd=home,
            env=_environment(house, home),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            request = await asyncio.wait_for(house.upstream.received(), _PATIENCE)
            await asyncio.wait_for(request.stalled.wait(), _PATIENCE)
            assert process.stdout is not None
            await asyncio.wait_for(process.stdout.readexactly(3), _PATIENCE)
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(request.client_left.wait(), _PATIENCE)
            await asyncio.wait_for(process.wait(), _PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
            _, error = await process.communicate()
        assert b"Traceback" not in error


@pytest.mark.slow
@pytest.mark.turn("llm-plugin", "a conversation across a restart of the gateway", transport="http")
async def test_a_conversation_survives_a_restart(tmp_path: Path, home: Path) -> None:
    async with open_house(tmp_path / "house", *_NAMES) as house:
        model = "antiphon/scripted-model"
        await _llm(house, home, "-m", model, "My name is Ada.")
        await house.restart()
        answer = await _llm(house, home, "-m", model, "-c", "My name?")
        assert answer.out.strip() == "Ada.", answer
        assert roles(house.asked[-1]) == ["user", "assistant", "user"]


def test_the_plugin_reaches_the_server_through_the_host_alone() -> None:
    allowed = {"antiphon", "antiphon.client", "antiphon.client.client", "antiphon.client.errors"}
    allowed |= {"antiphon.host"}
    for path in (ROOT / "plugins/llm/llm_antiphon").glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        names = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        names |= {
            name.name for node in nodes if isinstance(node, ast.Import) for name in node.names
        }
        ours = {name for name in names if name and name.partition(".")[0] == "antiphon"}
        assert ours <= allowed, path.name
