"""However an answer is cut into pieces, the same files are cited at the same places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.citations import CitationFilter, Marks, ShownSources, WebSource
from antiphon.protocol.container_paths import ContainerPaths
from antiphon.protocol.deltas import TextGrew

WORDS = st.sampled_from(
    (
        *("sandbox:", "/mnt/data/", "/mnt/data/a.csv", "/mnt/data/a.c", "/mnt/data/a b", "/mnt"),
        *("a", "b", "c", "x", "sv", ".", " ", "/", "%20", "(", ")", "`", "\n", "【1】", "【"),
    )
)
TEXTS = st.lists(WORDS, max_size=24).map("".join)


def filtered(pieces: list[str]) -> tuple[str, list[tuple[int, int, str]]]:
    """Return the text that comes out, and the places and names of what is cited."""
    paths, sources = ContainerPaths(), ShownSources()
    paths.show("c", [(f"/mnt/data/{name}", name) for name in ("a.csv", "a.c", "a b", "a", "a b.c")])
    sources.show(WebSource("https://example.com", "Example"))
    looks = CitationFilter(Marks(sources), paths)
    text, notes = "", []
    for delta in [one for piece in pieces for one in looks.feed(piece)] + list(looks.finish()):
        if isinstance(delta, TextGrew):
            text += delta.text
        else:
            assert delta.covers is not None
            name = str(delta.annotation.get("file_id", "web"))
            notes.append((len(text) - delta.covers, len(text), name))
    return text, notes


@given(TEXTS, st.data())
def test_any_split_of_a_text_cites_the_same(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert filtered(pieces) == filtered([text]) == filtered(list(text))


@given(TEXTS)
def test_what_is_cited_is_a_path_of_the_file_that_is_named(text: str) -> None:
    shown, notes = filtered([text])
    for begin, end, name in notes:
        if name != "web":
            words = shown[begin:end].removeprefix("sandbox:").replace("%20", " ")
            assert words == f"/mnt/data/{name}"
