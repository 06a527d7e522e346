"""What Gemini is asked, and what is reported because it cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.plans.assess import assess
from antiphon.plans.plan import Plan, make_plan
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tools import ToolPolicy
from antiphon.wires.gemini.exchange import GeminiExchange
from antiphon.wires.gemini.profiles import PROFILES, capabilities_of, generation_of, profile_for
from antiphon.wires.profiles import UnknownProfile
from tests.building import plan_with
from tests.wires.gemini.answers import chunk, finish, sse
from tests.wires.gemini.judge import GEMINI, VERTEX, request

HI = [{"type": "message", "role": "user", "content": "hi"}]
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"n": {"type": ["integer", "null"], "exclusiveMinimum": 0}},
    "additionalProperties": False,
}
LOOK = {"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA}
GO = {"type": "function", "name": "go"}


def config(**fields: Any) -> tuple[dict[str, Any], list[str]]:
    body, report = request(plan_with(items=HI, **{"model": "gemini-3-flash", **fields}))
    return body.get("generationConfig", {}), report


def tools(*given: Any, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    return request(plan_with([*given], items=HI, **{"model": "gemini-3-flash", **fields}))


def test_path_depends_on_the_model_and_on_streaming() -> None:
    streamed = GeminiExchange(plan_with(items=HI, model="gemini-3-pro"), GEMINI)
    at_once = GeminiExchange(plan_with(items=HI, model="tunedModels/a b", stream=False), GEMINI)
    assert streamed.path == "/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert at_once.path == "/tunedModels/a%20b:generateContent"


def test_long_request_has_the_same_bytes() -> None:
    small = plan_with([LOOK], items=HI, model="gemini-3-pro", temperature=0.5)
    large = plan_with([LOOK], items=HI, model="gemini-3-pro", temperature=0.5, is_large=True)
    bodies = [json.loads(GeminiExchange(plan, GEMINI).body) for plan in (small, large)]
    assert bodies[0] == bodies[1]


def test_sampling_has_the_names_of_gemini() -> None:
    found, report = config(
        temperature=0.5,
        top_p=0.9,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        max_output_tokens=7,
        logprobs=True,
        top_logprobs=3,
        extra={"top_k": 5, "seed": 1, "stop": "x", "n": 1, "wrong": 1},
    )
    assert found == {
        "temperature": 0.5,
        "topP": 0.9,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "maxOutputTokens": 7,
        "responseLogprobs": True,
        "logprobs": 3,
        "thinkingConfig": {"includeThoughts": True},
        "topK": 5,
        "seed": 1,
        "stopSequences": ["x"],
    }
    assert [note.partition(":")[0] for note in report] == ["wrong"]


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "notes"),
    [
        ("gemini-3-flash-preview", "minimal", {"thinkingLevel": "minimal"}, 0),
        ("gemini-3-flash-preview", "none", {"thinkingLevel": "minimal"}, 1),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "high"}, 1),
        ("gemini-3-pro-preview", "low", {"thinkingLevel": "low"}, 0),
        ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "medium"}, 0),
        ("gemini-4-flash", "xhigh", {"thinkingLevel": "high"}, 1),
        ("gemini-4-flash", None, {}, 0),
        ("my-tuned-model", "high", {"thinkingLevel": "high"}, 0),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024}, 0),
        ("gemini-2.5-flash", "xhigh", {"thinkingBudget": 24_576}, 0),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}, 1),
        ("models/gemini-2.5-pro", "xhigh", {"thinkingBudget": 32_768}, 0),
        ("gemini-3-flash-preview", "odd", {}, 1),
    ],
)
def test_effort_is_a_level_or_a_budget_never_both(
    model: str, effort: str | None, thinking: dict[str, Any], notes: int
) -> None:
    found, report = config(model=model, reasoning_effort=effort)
    assert found["thinkingConfig"] == {"includeThoughts": True} | thinking
    assert len(report) == notes


def test_thinking_is_off_where_it_can_be() -> None:
    found, report = config(model="gemini-2.5-flash", reasoning_effort="none")
    assert found["thinkingConfig"] == {"thinkingBudget": 0}
    assert report == []


def test_model_that_does_not_think_is_not_asked_to() -> None:
    found, report = config(model="gemini-2.0-flash", reasoning_effort="high")
    assert "thinkingConfig" not in found
    assert report == ["reasoning.effort: this model does not think"]


def test_format_is_a_schema() -> None:
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA}
    found, report = config(format=form)
    assert found["responseMimeType"] == "application/json"
    assert found["responseJsonSchema"] == SCHEMA
    found, _ = config(format={"type": "json_object"})
    assert "responseJsonSchema" not in found
    assert report == []


def test_format_beside_tools_is_an_instruction_on_older_models() -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "array"}}
    body, _ = tools(LOOK, model="gemini-2.5-flash", format=form)
    assert "responseJsonSchema" not in body["generationConfig"]
    assert '{"type":"array"}' in body["systemInstruction"]["parts"][0]["text"]
    body, _ = tools(LOOK, format=form)
    assert body["generationConfig"]["responseJsonSchema"] == {"type": "array"}


def test_tiers_and_verbosity() -> None:
    body, report = request(
        plan_with(items=HI, model="gemini-3-flash", service_tier="flex", verbosity="low")
    )
    assert body["serviceTier"] == "flex"
    assert report == ["text.verbosity: this server has no such setting"]
    _, report = request(plan_with(items=HI, model="gemini-3-flash", service_tier="flex"), VERTEX)
    assert report == ["service_tier (flex): this server has no such tier"]


# Tools.


def test_functions_have_their_json_schema_without_its_dialect() -> None:
    body, report = tools(LOOK, GO)
    look, go = body["tools"][0]["functionDeclarations"]
    assert look == {
        "name": "look",
        "description": "Look.",
        "parametersJsonSchema": {key: SCHEMA[key] for key in SCHEMA if key != "$schema"},
    }
    assert go == {"name": "go"}
    assert report == []


def test_functions_of_vertex_have_parameters_of_openapi() -> None:
    body, report = request(plan_with([LOOK, GO], items=HI, model="gemini-3-flash"), VERTEX)
    look, go = body["tools"][0]["functionDeclarations"]
    number = {"type": "integer", "minimum": 1, "nullable": True}
    assert look["parameters"] == {"type": "object", "properties": {"n": number}}
    assert go == {"name": "go"}
    assert report == []


def test_name_that_begins_with_a_digit_comes_back_as_the_callers() -> None:
    plan = plan_with(
        [{"type": "function", "name": "3d"}, {"type": "function", "name": "_3d"}],
        items=HI,
        model="gemini-3-flash",
    )
    exchange = GeminiExchange(plan, GEMINI)
    names = [one["name"] for one in json.loads(exchange.body)["tools"][0]["functionDeclarations"]]
    assert names == ["__3d", "_3d"]
    call = [{"functionCall": {"name": name, "args": {}}} for name in names]
    deltas = [*exchange.feed(sse(chunk(*call), finish())), *exchange.end()]
    assert [delta.name for delta in deltas if hasattr(delta, "name")] == ["3d", "_3d"]


def test_tools_of_other_kinds_are_lifted_back() -> None:
    custom = {"type": "custom", "name": "patch"}
    space = {"type": "namespace", "name": "files", "tools": [LOOK]}
    exchange = GeminiExchange(plan_with([custom, space], items=HI, model="gemini-3"), GEMINI)
    calls = [
        {"functionCall": {"name": "patch", "args": {"input": "x"}}},
        {"functionCall": {"name": "files__look", "args": {"n": 1}}},
    ]
    deltas = exchange.feed(sse(chunk(*calls)))
    found = [(one.kind, one.namespace, one.name, one.said) for one in deltas]  # type: ignore[union-attr]  # calls
    assert found == [("custom", None, "patch", "x"), ("function", "files", "look", '{"n":1}')]


@pytest.mark.parametrize(
    ("policy", "calling"),
    [
        (ToolPolicy(), {"mode": "AUTO"}),
        (ToolPolicy("none"), {"mode": "NONE"}),
        (ToolPolicy("required"), {"mode": "ANY"}),
        (
            ToolPolicy("required", frozenset({"go"})),
            {"mode": "ANY", "allowedFunctionNames": ["go"]},
        ),
        (
            ToolPolicy("auto", frozenset({"go"})),
            {"mode": "VALIDATED", "allowedFunctionNames": ["go"]},
        ),
        (ToolPolicy("auto", frozenset({"web_search"})), {"mode": "NONE"}),
    ],
)
def test_policy_is_a_mode(policy: ToolPolicy, calling: dict[str, Any]) -> None:
    body, _ = tools(LOOK, GO, policy=policy)
    assert body["toolConfig"] == {"functionCallingConfig": calling}


def test_strict_functions_are_validated() -> None:
    body, _ = tools(LOOK | {"strict": True})
    assert body["toolConfig"]["functionCallingConfig"]["mode"] == "VALIDATED"


def test_parallel_calls_cannot_be_forbidden() -> None:
    _, report = tools(LOOK, parallel_tool_calls=False)
    assert report == ["parallel_tool_calls: this server may still call several at once"]


def hosted_plan(model: str, *given: Any) -> Plan:
    asked = CreateResponse(model=model, input="hi", tools=[*given])
    able = capabilities_of(profile_for("gemini", ("web_search", "code_interpreter")))
    return make_plan(asked, assess(asked, HI, able), HI, model)


def test_hosted_tools_are_those_of_the_server_and_their_calls_are_asked_for() -> None:
    search = {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}
    python = {"type": "code_interpreter", "container": {"type": "auto"}}
    body, report = request(hosted_plan("gemini-3-flash", search, python, LOOK))
    assert body["tools"][1:] == [{"googleSearch": {}}, {"codeExecution": {}}]
    assert body["toolConfig"]["includeServerSideToolInvocations"] is True
    assert len(report) == 2, "settings that Gemini's tools do not have"


def test_older_models_take_hosted_tools_only_without_functions() -> None:
    search = {"type": "web_search"}
    body, report = request(hosted_plan("gemini-2.5-flash", search, LOOK))
    assert len(body["tools"]) == 1
    assert report == ["tools (googleSearch): this model takes it only without functions"]
    body, report = request(hosted_plan("gemini-2.5-flash", search))
    assert body["tools"] == [{"googleSearch": {}}]
    assert "toolConfig" not in body
    assert report == []


def test_kinds_that_are_not_hosted_are_not_the_servers() -> None:
    assert capabilities_of(GEMINI).tool_kinds == frozenset()


@pytest.mark.parametrize(
    ("which", "name"),
    [
        ("https://generativelanguage.googleapis.com/v1beta", "gemini"),
        ("https://europe-west4-aiplatform.googleapis.com/v1/projects/p", "vertex"),
        ("https://aiplatform.googleapis.com/v1/projects/p", "vertex"),
        ("http://127.0.0.1:8080/v1beta", "generic"),
        ("vertex", "vertex"),
    ],
)
def test_profile_is_found_by_name_or_host(which: str, name: str) -> None:
    assert profile_for(which) is PROFILES[name]


def test_profile_must_exist() -> None:
    with pytest.raises(UnknownProfile):
        profile_for("vllm")


def test_unknown_model_is_taken_for_a_new_one() -> None:
    assert generation_of("tunedModels/mine").needs_signatures
    assert not generation_of("models/gemini-2.5-pro").needs_signatures
