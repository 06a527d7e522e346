"""A plan as a request of the Messages API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.items import Item
from antiphon.protocol.tools import ToolPolicy
from antiphon.wires.messages.profiles import ANTHROPIC, GENERIC
from antiphon.wires.messages.request import (
    ASSUMED_LENGTH,
    Terms,
    Written,
    count_body,
    encode_body,
    write_request,
)
from antiphon.wires.messages.traits import traits_of
from tests.wires.messages.accepting import accepted
from tests.wires.messages.test_conversation import assistant, call, output, thought, user

NEW = "claude-opus-4-8"
OLD = "claude-sonnet-4-5"
FABLE = "claude-fable-5"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}},
    "required": ["n"],
    "additionalProperties": False,
}
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Look at a place.",
    "parameters": {"$schema": "http://json-schema.org/draft-07/schema#", **SCHEMA},
}

# What the types do not name: fields of betas, and those that only older models take.
UNNAMED = ("mcp_servers", "context_management", "temperature", "top_p", "top_k")


def write(
    model: str = NEW, tools: Any = (), terms: Terms | None = None, hosted: Any = (), **fields: Any
) -> Written:
    """Return the request; Anthropic's own types must accept it."""
    toolbox = gather_tools(tools, (), frozenset(hosted))[0]
    given = {"items": [user("Hi.")], **fields}
    plan = Plan(model=model, toolbox=toolbox, **given)
    written = write_request(plan, traits_of(model), terms or Terms(profile=ANTHROPIC))
    body = msgspec.json.decode(encode_body(written.body, is_large=False))
    plain = {name: value for name, value in body.items() if name not in UNNAMED}
    toolset = [one for one in plain.get("tools", ()) if one.get("type") != "mcp_toolset"]
    if "tools" in plain:
        plain["tools"] = toolset
    assert accepted(plain) == plain
    return Written(body, written.report, written.has_server_tools)


def test_the_body_is_small_and_the_length_is_never_4096() -> None:
    written = write("claude-new-9")

    assert written.body["max_tokens"] == ASSUMED_LENGTH == 32_000
    assert written.report == []


def test_the_length_comes_from_the_caller_then_the_model_then_the_settings() -> None:
    terms = Terms(profile=ANTHROPIC, max_tokens=555)

    assert write(max_output_tokens=7).body["max_tokens"] == 7
    assert write(OLD, terms=terms).body["max_tokens"] == 64_000
    assert write("claude-new-9", terms=terms).body["max_tokens"] == 555


def test_instructions_come_before_the_system_items() -> None:
    rule: Item = {"type": "message", "role": "system", "content": "Be kind."}

    body = write(items=[rule, user("Hi.")], instructions="Be brief.").body

    assert [block["text"] for block in body["system"]] == ["Be brief.", "Be kind."]


# Effort.


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "level"),
    [
        (NEW, None, None, None),
        (NEW, "none", {"type": "disabled"}, None),
        (NEW, "minimal", {"type": "adaptive"}, "low"),
        (NEW, "high", {"type": "adaptive"}, "high"),
        (NEW, "xhigh", {"type": "adaptive"}, "xhigh"),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive"}, "max"),
        (OLD, "low", {"type": "enabled", "budget_tokens": 2048}, None),
        (OLD, "xhigh", {"type": "enabled", "budget_tokens": 32_768}, None),
        ("claude-opus-4-5", "medium", {"type": "enabled", "budget_tokens": 10_000}, "medium"),
        ("llama-3", "medium", {"type": "enabled", "budget_tokens": 10_000}, None),
    ],
)
def test_effort(model: str, effort: str | None, thinking: Any, level: str | None) -> None:
    body = write(model, reasoning_effort=effort).body

    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == level


def test_who_wants_the_thinking_and_states_no_effort_lets_the_model_choose() -> None:
    wanted: dict[str, Any] = {"include": ("reasoning.encrypted_content",)}

    assert write(NEW, **wanted).body["thinking"] == {"type": "adaptive"}
    assert "thinking" not in write(OLD, **wanted).body


def test_a_budget_stays_below_the_length() -> None:
    body = write(OLD, reasoning_effort="high", max_output_tokens=2000).body
    short = write(OLD, reasoning_effort="high", max_output_tokens=1000)

    assert body["thinking"]["budget_tokens"] == 1999
    assert "thinking" not in short.body
    assert "no room" in short.report[0]


def test_a_summary_is_displayed_only_if_the_caller_asks_for_one() -> None:
    silent = write(reasoning_effort="high").body["thinking"]
    shown = write(reasoning_effort="high", reasoning_summary="auto").body["thinking"]

    assert "display" not in silent
    assert shown["display"] == "summarized"


def test_calls_without_their_thinking_switch_a_budget_off() -> None:
    items = [user("a"), call("1"), output("1")]

    written = write(OLD, items=items, reasoning_effort="high")
    signed = write(OLD, items=[user("a"), thought(), *items[1:]], reasoning_effort="high")
    adaptive = write(NEW, items=items, reasoning_effort="high")

    assert written.body["thinking"] == {"type": "disabled"}
    assert "thinking before the last calls" in written.report[-1]
    assert adaptive.body["thinking"] == {"type": "adaptive"}
    assert "state of another" in " ".join(signed.report)  # its account is another here


# Sampling.


def test_sampling_is_sent_where_the_model_takes_it() -> None:
    body = write("claude-3-5-haiku", temperature=0.5, top_p=0.5, extra={"top_k": 4}).body

    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.5, 0.5, 4)


@pytest.mark.parametrize(
    ("model", "fields", "left_out"),
    [
        (NEW, {"temperature": 0.5}, ["temperature"]),
        ("claude-sonnet-5", {"top_p": 0.5, "extra": {"top_k": 3}}, ["top_p", "top_k"]),
        (OLD, {"temperature": 0.5, "reasoning_effort": "high"}, ["temperature"]),
        (OLD, {"temperature": 0.5, "top_p": 0.5}, ["top_p"]),
        (OLD, {"presence_penalty": 0.5, "frequency_penalty": 1.0}, ["presence", "frequency"]),
        (OLD, {"logprobs": True, "verbosity": "low"}, ["top_logprobs", "text.verbosity"]),
        (OLD, {"extra": {"seed": 7}}, ["seed"]),
    ],
)
def test_what_a_model_refuses_is_left_out_and_reported(
    model: str, fields: dict[str, Any], left_out: list[str]
) -> None:
    written = write(model, **fields)

    assert not set(left_out) & set(written.body)
    for name, note in zip(left_out, written.report, strict=True):
        assert note.startswith(name)


def test_a_temperature_above_one_is_one_and_reported() -> None:
    written = write(OLD, temperature=1.7)

    assert written.body["temperature"] == 1
    assert written.report == ["temperature: at most 1 is taken"]


def test_stop_sequences() -> None:
    written = write(extra={"stop": ["END", " \n"]})

    assert written.body["stop_sequences"] == ["END"]
    assert "white space" in written.report[0]


# Tools.


def test_tools_have_no_dialect_and_are_objects() -> None:
    bare = {"type": "function", "name": "now"}

    tools = write(tools=[LOOK, bare]).body["tools"]

    schema = {"type": "object", "properties": {}}
    assert tools[0] == {"name": "look", "description": "Look at a place.", "input_schema": SCHEMA}
    assert tools[1] == {"name": "now", "input_schema": schema}


def test_strict_tools_are_bound_if_every_object_is_closed() -> None:
    opened = {**SCHEMA, "additionalProperties": True}
    free = {"type": "function", "name": "free", "strict": True, "parameters": opened}

    written = write(tools=[{**LOOK, "strict": True}, free])
    looked, freed = written.body["tools"]

    assert looked["strict"] is True
    assert "minimum" not in looked["input_schema"]["properties"]["n"]
    assert "strict" not in freed
    assert len(written.report) == 2


@pytest.mark.parametrize(
    ("policy", "parallel", "choice"),
    [
        (ToolPolicy(), None, None),
        (ToolPolicy(), False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolPolicy("none"), None, {"type": "none"}),
        (ToolPolicy("required"), None, {"type": "any"}),
        (ToolPolicy("required", frozenset({"look"})), None, {"type": "tool", "name": "look"}),
        (
            ToolPolicy("required"),
            False,
            {"type": "any", "disable_parallel_tool_use": True},
        ),
        (ToolPolicy("auto", frozenset({"look"})), None, None),
    ],
)
def test_tool_choice(policy: ToolPolicy, parallel: bool | None, choice: Any) -> None:
    body = write(tools=[LOOK], policy=policy, parallel_tool_calls=parallel).body

    assert body.get("tool_choice") == choice


@pytest.mark.parametrize(("model", "effort"), [(FABLE, None), (OLD, "high"), (NEW, "high")])
def test_a_choice_that_cannot_be_forced_is_left_to_the_model(
    model: str, effort: str | None
) -> None:
    policy = ToolPolicy("required")

    written = write(model, tools=[LOOK], policy=policy, reasoning_effort=effort)

    assert "tool_choice" not in written.body
    assert "tool_choice" in written.report[-1]


def test_tools_that_the_provider_runs_are_its_own() -> None:
    place = {"type": "approximate", "country": "PT"}
    search = {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}
    code = {"type": "code_interpreter", "container": {"type": "auto"}}
    own = {"type": "web_fetch_20260318", "name": "web_fetch"}
    kinds = ("web_search", "code_interpreter", "web_fetch_20260318")

    written = write(tools=[{**search, "user_location": place}, code, own], hosted=kinds)

    found = {"name": "web_search", "allowed_domains": ["a.example"], "user_location": place}
    assert written.body["tools"] == [
        {"type": "web_search_20260318", **found},
        {"type": "code_execution_20260521", "name": "code_execution"},
        own,
    ]
    assert written.has_server_tools
    assert written.report == []


def test_an_mcp_server_is_a_server_with_a_set_of_tools() -> None:
    tool = {
        "type": "mcp",
        "server_label": "wiki",
        "server_url": "https://wiki.example/mcp",
        "authorization": "token",
        "allowed_tools": ["ask"],
        "require_approval": "always",
    }

    written = write(tools=[tool], hosted=["mcp"])

    server = {"type": "url", "name": "wiki", "url": "https://wiki.example/mcp"}
    assert written.body["mcp_servers"] == [{**server, "authorization_token": "token"}]
    toolset = written.body["tools"][0]
    assert (toolset["type"], toolset["mcp_server_name"]) == ("mcp_toolset", "wiki")
    assert toolset["configs"] == {"ask": {"enabled": True}}
    assert "require_approval" in written.report[0]


# Format.


def test_a_closed_schema_binds_the_answer() -> None:
    form = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}

    written = write(format=form)

    sent = written.body["output_config"]["format"]
    assert sent["schema"]["properties"]["n"] == {"type": "integer"}
    assert written.report == ["text.format: minimum cannot be sent; checked here"]


@pytest.mark.parametrize(
    ("model", "form", "order"),
    [
        ("llama-3", {"type": "json_schema", "schema": SCHEMA}, "JSON Schema"),
        (NEW, {"type": "json_schema", "schema": {"type": "object"}}, "JSON Schema"),
        (NEW, {"type": "json_object"}, "a JSON object"),
        (NEW, {"type": "grammar", "definition": "start: /x/"}, "start: /x/"),
    ],
)
def test_any_other_format_is_an_instruction(model: str, form: Any, order: str) -> None:
    written = write(model, format=form)

    assert order in written.body["system"][-1]["text"]
    assert "instruction only" in written.report[-1]


# Labels and what is not of the protocol.


def test_the_end_user_is_a_hash_and_only_told_to_anthropic() -> None:
    body = write(end_user="ann@example.org").body
    other = write(end_user="ann@example.org", terms=Terms(profile=GENERIC)).body

    user_id = body["metadata"]["user_id"]
    assert len(user_id) == 32 and "ann" not in user_id
    assert "metadata" not in other


@pytest.mark.parametrize(("tier", "sent"), [("auto", "auto"), ("default", "standard_only")])
def test_service_tiers(tier: str, sent: str) -> None:
    assert write(service_tier=tier).body["service_tier"] == sent
    assert "service_tier" in write(service_tier="flex").report[0]


def test_fields_of_a_beta_need_it() -> None:
    extra = {"context_management": {"edits": []}, "unheard_of": 1}
    terms = Terms(profile=ANTHROPIC, betas=("context-management-2025-06-27",))

    without, having = write(extra=extra), write(extra=extra, terms=terms)

    assert "context_management" not in without.body
    assert "needs a beta" in without.report[0]
    assert having.body["context_management"] == {"edits": []}
    assert having.report == ["unheard_of: this backend cannot send it"]


def test_counting_takes_the_prompt_alone() -> None:
    written = write(tools=[LOOK], temperature=1.0)

    assert set(count_body(written.body)) == {"model", "messages", "tools"}


def test_a_large_body_has_the_same_value() -> None:
    written = write(tools=[LOOK], items=[user("x" * 600_000), assistant("b"), user("c")])

    large = encode_body(written.body, is_large=True)

    assert msgspec.json.decode(large) == written.body
