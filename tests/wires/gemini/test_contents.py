"""A conversation as Gemini gets it: who speaks, what answers what, and where signatures are."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE, paused_item
from antiphon.wires.gemini.signatures import DUMMY
from tests.building import plan_with
from tests.wires.gemini.answers import Sealed, chunk, finish, items_of, read, sse
from tests.wires.gemini.judge import request

NEW = "gemini-3-flash-preview"
OLD = "gemini-2.5-flash"
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PNG = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
INLINE = {"mimeType": "image/png", "data": "iVBORw0KGgo="}

Json = dict[str, Any]


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def said(text: str) -> Item:
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part]}


def call(call_id: str, name: str = "look", arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, what: Any = "seen", **more: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": what, **more}


def contents(*items: Item, model: str = OLD, **fields: Any) -> tuple[list[Json], list[str]]:
    body, report = request(plan_with([LOOK], items=list(items), model=model, **fields))
    return body["contents"], report


def responses(content: Json) -> list[Json]:
    return [part["functionResponse"] for part in content["parts"]]


def test_system_texts_that_lead_are_the_system_instruction_one_part_each() -> None:
    items = [{"type": "message", "role": "developer", "content": "b"}, user("hi")]
    body, report = request(plan_with(items=items, instructions="a", model=OLD))
    assert body["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert report == []


@pytest.mark.parametrize("calls", [[], [call("a"), output("a")]], ids=["alone", "before a call"])
def test_a_call_that_came_as_a_part_is_signed_and_its_item_stays_as_it_is(
    calls: list[Item],
) -> None:
    item = {"type": "google:part", "part": {"functionCall": {"name": "look", "args": {}}}}
    found, _ = contents(user("hi"), item, *calls, model=NEW)
    assert found[1]["parts"][0]["thoughtSignature"] == DUMMY
    assert item == {"type": "google:part", "part": {"functionCall": {"name": "look", "args": {}}}}


def test_late_system_text_stays_in_its_place_as_a_user_text() -> None:
    late = {"type": "message", "role": "system", "content": "be brief"}
    found, report = contents(user("a"), said("b"), late, user("c"))
    assert found[-1] == {"role": "user", "parts": [{"text": "be brief"}, {"text": "c"}]}
    assert report == ["input[2] (system message): sent as a user message"]


def test_neighbours_of_one_role_are_merged() -> None:
    found, _ = contents(user("a"), user("b"), said("c"), said("d"), user("e"))
    assert [(one["role"], len(one["parts"])) for one in found] == [
        ("user", 2),
        ("model", 2),
        ("user", 1),
    ]


@pytest.mark.parametrize("items", [[], [said("hi")]])
def test_conversation_begins_with_the_user(items: list[Item]) -> None:
    found, report = contents(*items)
    assert found[0]["role"] == "user"
    assert any("does not begin with a user" in note for note in report)


def test_results_of_a_turn_are_in_one_content_in_the_order_of_the_calls() -> None:
    found, report = contents(
        user("go"),
        call("call_1", arguments='{"n":1}'),
        call("call_2"),
        output("call_2", "two"),
        output("call_1", "one"),
    )
    assert [part["functionCall"]["args"] for part in found[1]["parts"]] == [{"n": 1}, {}]
    assert [one["response"] for one in responses(found[2])] == [
        {"output": "one"},
        {"output": "two"},
    ]
    assert len(found) == 3
    assert report == []


def test_ids_are_sent_only_if_the_model_gave_them() -> None:
    found, _ = contents(user("go"), call("toolu_1"), output("toolu_1"), model=NEW)
    assert "id" not in found[1]["parts"][0]["functionCall"]
    assert "id" not in responses(found[2])[0]


def test_missing_result_is_made_up_and_reported() -> None:
    found, report = contents(user("go"), call("c1"), call("c2"), output("c1"), user("and?"))
    assert "no output" in responses({"parts": found[2]["parts"][:2]})[1]["response"]["output"]
    assert found[2]["parts"][2] == {"text": "and?"}
    assert report == ["input[2] (function_call): no output was provided for c2"]


def test_result_that_failed_is_an_error() -> None:
    found, _ = contents(user("go"), call("c1"), output("c1", "boom", status="incomplete"))
    assert responses(found[2])[0]["response"] == {"error": "boom"}


def test_images_of_a_result_are_inside_it() -> None:
    result = output("c1", [{"type": "input_text", "text": "here"}, PNG])
    found, report = contents(user("go"), call("c1"), result, model=NEW)
    [answer] = responses(found[2])
    assert answer["response"] == {"output": "here"}
    assert answer["parts"] == [{"inlineData": INLINE}]
    assert len(report) == 1, "only the dummy signature"


def test_images_of_a_result_follow_in_a_content_of_their_own_where_they_cannot_be_inside() -> None:
    found, report = contents(user("go"), call("c1"), call("c2"), output("c1", [PNG]), output("c2"))
    assert len(responses(found[2])) == 2
    assert found[3]["parts"][1] == {"inlineData": INLINE}
    assert report == ["input[1] (function_call): its images are in a user message"]


def test_image_of_the_user_never_stands_beside_a_result() -> None:
    shown = {"type": "message", "role": "user", "content": [PNG]}
    found, _ = contents(user("go"), call("c1"), output("c1"), shown)
    assert [len(one["parts"]) for one in found[2:]] == [1, 1]


def test_result_without_a_call_is_a_user_text() -> None:
    found, report = contents(user("go"), output("c9", "late"))
    assert found[0]["parts"][1:] == [{"text": "Output of a tool call (c9):"}, {"text": "late"}]
    assert report


def test_arguments_that_are_no_object_are_quoted_and_reported() -> None:
    found, report = contents(user("go"), call("c1", arguments='{"a'), output("c1"))
    assert found[1]["parts"][0]["functionCall"]["args"] == {"arguments": '{"a'}
    assert report == ["input[1].arguments: no JSON object; sent as a text in one"]


def test_custom_tools_and_shells_are_functions_here() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "x"}
    done = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
    body, _ = request(
        plan_with(
            [{"type": "custom", "name": "patch"}], items=[user("go"), custom, done], model=OLD
        )
    )
    assert body["contents"][1]["parts"][0]["functionCall"]["args"] == {"input": "x"}
    assert body["tools"][0]["functionDeclarations"][0]["name"] == "patch"


# Parts.


@pytest.mark.parametrize(
    ("part", "written"),
    [
        (PNG, {"inlineData": INLINE}),
        (
            {"type": "input_image", "image_url": "gs://b/x.png"},
            {"fileData": {"fileUri": "gs://b/x.png"}},
        ),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": "JVBE"},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}},
        ),
        (
            {"type": "input_file", "filename": "a.txt", "file_data": "aGk="},
            {"text": "File a.txt:\nhi"},
        ),
        (
            {"type": "input_file", "file_url": "https://youtu.be/abc"},
            {"fileData": {"fileUri": "https://youtu.be/abc"}},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
            {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
        ),
    ],
)
def test_part_of_a_message(part: Json, written: Json) -> None:
    found, report = contents({"type": "message", "role": "user", "content": [part]})
    assert found == [{"role": "user", "parts": [written]}]
    assert report == []


def test_detail_of_an_image_is_its_resolution_where_the_model_has_one() -> None:
    item = {"type": "message", "role": "user", "content": [PNG | {"detail": "high"}]}
    found, _ = contents(item, model=NEW)
    assert found[0]["parts"][0]["mediaResolution"] == {"level": "MEDIA_RESOLUTION_HIGH"}
    found, report = contents(item)
    assert "mediaResolution" not in found[0]["parts"][0]
    assert report == ["input[0].content[0] (input_image).detail: this model has no such setting"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "https://a.example/x.png"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "filename": "a.bin", "file_data": "AAAA"},
        {"type": "something_new"},
    ],
)
def test_what_cannot_be_sent_is_replaced_by_a_note_and_reported(part: Json) -> None:
    found, report = contents({"type": "message", "role": "user", "content": [part]})
    assert "left out" in found[0]["parts"][0]["text"]
    assert len(report) == 1


# Signatures: what an answer had comes back in the very same part.


def replayed(*answers: Json, model: str = NEW, account: str = "me") -> tuple[list[Json], list[str]]:
    """Return the contents after an answer with these chunks, as the next request has them."""
    seal = Sealed()
    deltas, _ = read(sse(*answers), account=account)
    items = seal.open(items_of(deltas, seal))
    results = [output(item["call_id"]) for item in items if item["type"] == "function_call"]
    return contents(user("go"), *items, *results, model=model)


def test_calls_come_back_with_signature_and_ids() -> None:
    one = {
        "functionCall": {"name": "look", "args": {"a": 1}, "id": "x1"},
        "thoughtSignature": "Ab+/wA==",
    }
    two = {"functionCall": {"name": "look", "args": {}, "id": "x2"}}
    found, report = replayed(chunk({"text": "hm", "thought": True}), chunk(one, two), finish())
    assert found[1]["parts"] == [one, two]
    assert [one["id"] for one in responses(found[2])] == ["x1", "x2"]
    assert report == ["input[1] (reasoning): this model does not take it back"]


def test_calls_without_ids_come_back_without() -> None:
    one = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "AAAA"}
    two = {"functionCall": {"name": "look", "args": {"n": 2}}}
    found, report = replayed(chunk(one, two), finish())
    assert found[1]["parts"] == [one, two]
    assert all("id" not in one for one in responses(found[2]))
    assert report == []


@pytest.mark.parametrize(
    ("chunks", "parts"),
    [
        (
            [chunk({"text": "ab"}), finish({"text": "", "thoughtSignature": "AAAA"})],
            [{"text": "ab"}, {"text": "", "thoughtSignature": "AAAA"}],
        ),
        (
            [chunk({"text": "ab", "thoughtSignature": "AAAA"}), finish({"text": "cd"})],
            [{"text": "ab", "thoughtSignature": "AAAA"}, {"text": "cd"}],
        ),
        (
            [chunk({"text": "a"}), chunk({"text": "b", "thoughtSignature": "AAAA"}), finish()],
            [{"text": "a"}, {"text": "b", "thoughtSignature": "AAAA"}],
        ),
        (
            [
                chunk({"text": "hm", "thought": True, "thoughtSignature": "AAAA"}),
                finish({"text": "b"}),
            ],
            [{"text": "hm", "thought": True, "thoughtSignature": "AAAA"}, {"text": "b"}],
        ),
        (
            [
                chunk({"toolCall": {"id": "t"}, "thoughtSignature": "AAAA"}),
                chunk({"toolResponse": {"id": "t"}}),
                finish({"text": "b"}),
            ],
            [
                {"toolCall": {"id": "t"}, "thoughtSignature": "AAAA"},
                {"toolResponse": {"id": "t"}},
                {"text": "b"},
            ],
        ),
        (
            [finish({"inlineData": INLINE, "thoughtSignature": "AAAA"})],
            [{"inlineData": INLINE, "thoughtSignature": "AAAA"}],
        ),
        (
            [
                chunk({"text": "hm", "thought": True}),
                finish({"text": "", "thoughtSignature": "AA=="}),
            ],
            [{"text": "", "thoughtSignature": "AA=="}],
        ),
    ],
)
def test_signature_is_in_the_part_that_it_came_in(chunks: list[Json], parts: list[Json]) -> None:
    found, _ = replayed(*chunks)
    assert found[1] == {"role": "model", "parts": parts}


def test_first_call_of_every_turn_of_another_model_gets_the_documented_dummy() -> None:
    found, report = contents(
        *(user("go"), call("c1"), call("c2"), output("c1"), output("c2")),
        *(call("c3"), output("c3"), user("and?")),
        model=NEW,
    )
    signatures = [
        part.get("thoughtSignature")
        for content in found
        for part in content["parts"]
        if "functionCall" in part
    ]
    assert signatures == [DUMMY, None, DUMMY]
    assert report == [
        "input[1] (function_call): it has no signature of this model; a dummy is sent (and 1 more)"
    ]


def test_older_models_need_no_dummy() -> None:
    found, report = contents(user("go"), call("c1"), output("c1"))
    assert "thoughtSignature" not in found[1]["parts"][0]
    assert report == []


@pytest.mark.parametrize(
    "state",
    [
        NativeState("messages", b"claude", "next", "me"),
        NativeState("gemini", b'{"kind":"part","parts":[[0,0,"S"]]}', "next", "another"),
    ],
)
def test_foreign_signature_is_never_sent_and_reported(state: NativeState) -> None:
    thought: Item = {"type": "reasoning", "summary": [], NATIVE: state}
    found, report = contents(user("go"), thought, call("toolu_01"), output("toolu_01"), model=NEW)
    assert found[1]["parts"][0]["thoughtSignature"] == DUMMY
    assert "id" not in found[1]["parts"][0]["functionCall"]
    assert any("another provider or account" in note for note in report)


def test_paused_answer_goes_on_with_its_token() -> None:
    paused = paused_item(NativeState("gemini", b"dG9rZW4=", account="me"))
    body, report = request(plan_with(items=[user("go"), paused], model=NEW))
    assert body["continuationToken"] == "dG9rZW4="
    assert body["contents"] == [{"role": "user", "parts": [{"text": "go"}]}]
    assert report == []
