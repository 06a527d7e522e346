"""A plan as a request of the Gemini API.

Pure: a plan and what is known about server and model go in, a body and a report come out. The
report names every field of the request that cannot be honoured, under its name in the Responses
API. `cachedContents` are never made: the API refuses them beside tools and system texts, and it
caches prefixes by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.items import item_type
from antiphon.protocol.native_state import PAUSED, native_of
from antiphon.protocol.pieces import encode_long
from antiphon.protocol.response import MOST_NOTES
from antiphon.protocol.unknown import MOST_HINTS, explain_unknown
from antiphon.wires.gemini.contents import write_contents
from antiphon.wires.gemini.profiles import Generation, Profile, generation_of
from antiphon.wires.gemini.signatures import WIRE
from antiphon.wires.gemini.tools import put_tools

__all__ = ["encode_request", "write_request"]

Body = dict[str, Any]
"""A JSON object in the words of Gemini."""

_ORDER: Final = "Answer only with JSON that matches this JSON Schema: "
_CANNOT: Final = "this backend cannot send it"
# Fields beyond the Responses API, and where Gemini has them.
_CONFIG_FIELDS: Final = {
    "top_k": "topK",
    "seed": "seed",
    "modalities": "responseModalities",
    "response_modalities": "responseModalities",
    "image_config": "imageConfig",
    "speech_config": "speechConfig",
    "media_resolution": "mediaResolution",
}
_BODY_FIELDS: Final = {"safety_settings": "safetySettings", "labels": "labels"}
_EXTRA: Final = frozenset({*_CONFIG_FIELDS, *_BODY_FIELDS, "stop", "n"})
_ANY_TIER: Final = frozenset({"auto", "default"})
_TIERS: Final = frozenset({"flex", "priority"})
_MOST_LOGPROBS: Final = 20
# What the API itself takes these words for where it has a budget.
_BUDGETS: Final = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576, "xhigh": 32_768}
_RANKS: Final = ("minimal", "low", "medium", "high", "xhigh")


def encode_request(plan: Plan, profile: Profile, account: str) -> tuple[bytes, list[str]]:
    """Return the request as JSON, and what it cannot express of the plan."""
    body, report = write_request(plan, profile, account)
    if not plan.is_large:
        return msgspec.json.encode(body), report
    # One by one: encoding all of them in one step would hold up every other thread.
    contents = [encode_long(content) for content in body.pop("contents")]
    rest = msgspec.json.encode(body)[1:]
    end = b"]," + rest if len(body) else b"]" + rest
    return b'{"contents":[' + b",".join(contents) + end, report


def write_request(plan: Plan, profile: Profile, account: str) -> tuple[Body, list[str]]:
    """Return the same as an object."""
    generation = generation_of(plan.model)
    system, contents, report = write_contents(plan, generation, account)
    body: Body = {"contents": contents}
    config: Body = {}
    orders = [plan.instructions] if plan.instructions else []
    put_tools(plan, profile, generation, body, report)
    order = _put_format(plan, generation, body, config, report)
    texts = [*orders, *system, *([order] if order else [])]
    if texts:
        body["systemInstruction"] = {"parts": [{"text": text} for text in texts]}
    _put_sampling(plan, config, report)
    _put_thinking(plan.reasoning_effort, generation, config, report)
    _put_hints(plan, profile, body, report)
    _put_extra(plan.extra, body, config, report)
    if config:
        body["generationConfig"] = config
    _put_continuation(plan, account, body)
    return body, report


def _put_format(
    plan: Plan, generation: Generation, body: Body, config: Body, report: list[str]
) -> str | None:
    """Put the format of the text into the configuration; return an instruction if it cannot be."""
    form = plan.format
    if form is None:
        return None
    kind = form.get("type")
    if kind not in ("json_schema", "json_object"):
        report.append(f"text.format ({kind}): {_CANNOT}")
        return None
    schema = form.get("schema") if kind == "json_schema" else None
    if "tools" in body and not generation.format_with_tools:
        # The answer is checked here in any case.
        return _ORDER + msgspec.json.encode(schema or {"type": "object"}).decode()
    config["responseMimeType"] = "application/json"
    if schema is not None:
        config["responseJsonSchema"] = schema
    return None


def _put_sampling(plan: Plan, config: Body, report: list[str]) -> None:
    given = {
        "temperature": plan.temperature,
        "topP": plan.top_p,
        "presencePenalty": plan.presence_penalty,
        "frequencyPenalty": plan.frequency_penalty,
        "maxOutputTokens": plan.max_output_tokens,
    }
    config |= {name: value for name, value in given.items() if value is not None}
    if not (plan.logprobs or plan.top_logprobs):
        return
    config["responseLogprobs"] = True
    if plan.top_logprobs:
        config["logprobs"] = min(plan.top_logprobs, _MOST_LOGPROBS)
        if plan.top_logprobs > _MOST_LOGPROBS:
            report.append(f"top_logprobs: this server returns at most {_MOST_LOGPROBS}")


def _put_thinking(
    effort: str | None, generation: Generation, config: Body, report: list[str]
) -> None:
    """Ask for thoughts, with the effort in the words of the model's generation, never in both."""
    if generation.thinking == "none":
        if effort not in (None, "none"):
            report.append("reasoning.effort: this model does not think")
        return
    thinking: Body = {"includeThoughts": True}
    if effort is not None and effort != "none" and effort not in _RANKS:
        report.append(f"reasoning.effort ({effort}): this model has no such level")
    elif effort is not None and generation.thinking == "budget":
        thinking |= {"thinkingBudget": _budget(effort, generation, report)}
    elif effort is not None:
        thinking |= {"thinkingLevel": _level(effort, generation, report)}
    if thinking.get("thinkingBudget") == 0:
        del thinking["includeThoughts"]
    config["thinkingConfig"] = thinking


def _budget(effort: str, generation: Generation, report: list[str]) -> int:
    least, most = generation.budgets
    if effort == "none" and least:
        report.append("reasoning.effort (none): this model always thinks; it thinks least")
    return min(max(_BUDGETS.get(effort, 0), least), most)


def _level(effort: str, generation: Generation, report: list[str]) -> str:
    """Return the level of the model that is nearest to the effort, the higher of two."""
    levels = generation.levels
    if effort == "none":
        report.append("reasoning.effort (none): this model always thinks; it thinks least")
        return levels[0]
    if effort in levels:
        return effort
    above = [level for level in levels if _RANKS.index(level) > _RANKS.index(effort)]
    taken = above[0] if above else levels[-1]
    report.append(f"reasoning.effort ({effort}): this model has no such level; {taken} is sent")
    return taken


def _put_hints(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    if plan.verbosity not in (None, "medium"):
        report.append("text.verbosity: this server has no such setting")
    tier = plan.service_tier
    if tier is None or tier in _ANY_TIER:
        return
    if profile.service_tier and tier in _TIERS:
        body["serviceTier"] = tier
    else:
        report.append(f"service_tier ({tier}): this server has no such tier")


def _put_extra(extra: Mapping[str, Any], body: Body, config: Body, report: list[str]) -> None:
    known = _EXTRA if len(extra) <= MOST_HINTS else None
    for name, value in extra.items():
        if value is None or name == "stream_options.include_usage" or (name == "n" and value == 1):
            continue  # every stream ends with its usage, every answer has one candidate
        if name == "stop":
            config["stopSequences"] = value if isinstance(value, list) else [value]
        elif name in _CONFIG_FIELDS:
            config[_CONFIG_FIELDS[name]] = value
        elif name in _BODY_FIELDS:
            body[_BODY_FIELDS[name]] = value
        elif len(report) <= MOST_NOTES:  # a response lists only so many
            hint = _CANNOT if known is None else explain_unknown(name, known)
            report.append(f"{name}: {hint}")


def _put_continuation(plan: Plan, account: str, body: Body) -> None:
    """Ask the model to go on with an answer that the server paused."""
    last = plan.items[-1] if plan.items else None
    if last is None or item_type(last) != PAUSED:
        return
    state = native_of(last, WIRE, account)
    if state is not None:
        body["continuationToken"] = state.data.decode()
