"""What a server keeps: read as it stands, refused if it is something else."""

from __future__ import annotations

import pytest

from antiphon.client.errors import InvalidAnswer
from antiphon.client.resources import Deleted, read_deleted, read_models, read_page


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"id":"resp_1","deleted":true}', Deleted("resp_1", True)),
        (b'{"id":"resp_1","deleted":false}', Deleted("resp_1", False)),
        (b"{}", Deleted("resp_1", True)),
        (b"", Deleted("resp_1", True)),
    ],
)
def test_a_deletion(body: bytes, expected: Deleted) -> None:
    assert read_deleted(body, "resp_1") == expected


def test_models_keep_what_only_their_server_says() -> None:
    body = b'{"data":[{"id":"m","max_model_len":9},{"id":1},"x",{"id":"n","created":"?"}]}'
    models = read_models(body)
    assert [(model.id, model.owned_by, model.created) for model in models] == [
        ("m", "", 0),
        ("n", "", 0),
    ]
    assert models[0].fields["max_model_len"] == 9


def test_a_page_without_cursors_is_the_last() -> None:
    page = read_page(b'{"data":[{"id":"a"},7]}')
    assert page.items == [{"id": "a"}]
    assert (page.first_id, page.last_id, page.has_more) == (None, None, False)


@pytest.mark.parametrize("body", [b"<html>", b"7", b"{}", b'{"data":{}}', b"\xff"])
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        read_models(body)
    with pytest.raises(InvalidAnswer):
        read_page(body)


@pytest.mark.parametrize("body", [b'{"data":null}', b"[]"])
def test_no_models_in_any_form_are_no_models(body: bytes) -> None:
    assert read_models(body) == []


def test_a_bare_list_of_models_is_one() -> None:
    assert [model.id for model in read_models(b'[{"id":"m"}]')] == ["m"]
