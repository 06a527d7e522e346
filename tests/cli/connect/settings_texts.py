"""Settings files as people write them: JSON and TOML, with comments in every place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

__all__ = ["JSON_VALUES", "TOML_TEXTS", "commented", "newlines", "read_entries"]

_KEYS = st.sampled_from(
    ["model", "provider", "antiphon x", "language_models", "openai_compatible", "a", "ü", 'q"']
)
_SCALARS = st.sampled_from([None, True, 0, -1.5, "", "antiphone", "// no comment", "{", "é\n"])
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=8,
)
_GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // c }]\n", "/* , { */", "\n    // c\n  "])


@st.composite
def commented(draw: st.DrawFn, value: Any) -> tuple[Any, str]:
    """Return a value, and a text that says it with gaps and comments everywhere."""

    def write(value: Any) -> str:
        if isinstance(value, dict):
            parts = [
                json.dumps(key) + draw(_GAPS) + ":" + draw(_GAPS) + write(item)
                for key, item in value.items()
            ]
            return "{" + join(parts) + "}"
        if isinstance(value, list):
            return "[" + join([write(item) for item in value]) + "]"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def join(parts: list[str]) -> str:
        text = draw(_GAPS)
        for at, part in enumerate(parts):
            has_comma = at + 1 < len(parts) or draw(st.booleans())
            text += part + draw(_GAPS) + ("," if has_comma else "") + draw(_GAPS)
        return text

    return value, draw(_GAPS) + write(value) + draw(_GAPS)


def newlines(text: str, newline: str) -> str:
    """Return the text with other ends of lines."""
    return text.replace("\n", newline)


def read_entries(text: str) -> list[dict[str, Any]]:
    """Return the entries of a list in YAML, of the plain kind that is written here."""
    entries: list[dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("-"):
            entries.append({})
        key, _, value = line[2:].partition(": ")
        if key:
            entries[-1][key] = json.loads(value) if value[0] in '"tf' else value
    return entries


_ROOT = st.sampled_from(
    [
        'model = "mine"  # best',
        "\"model_provider\" = 'openai'",
        'x = [ # [no.table]\n  "[b]",\n  1,\n]',
        't = """\n[not.a.table]\nmodel = 1\n"""',
        "l = '''a\n[x]''''",
        'e = "a#b\\"["',
        "i = { a = 1, b = [2] }",
        "when = 2026-11-16",
        "n = nan",
        "# only a comment",
        "  indented = 1",
        "",
    ]
)
_TABLES = st.sampled_from(
    [
        "[mcp_servers.a]\ncommand = 'x'",
        "# about it\n[model_providers.other]\nname = 'o'",
        "[[many]]\nmodel = 'inner'",
        "[profiles.work]\nmodel = 'w'\n",
        "[ model_providers . third ]  # c",
    ]
)


@st.composite
def _toml(draw: st.DrawFn) -> str:
    lines = [*draw(st.lists(_ROOT, unique=True)), *draw(st.lists(_TABLES, unique=True))]
    text = newlines("\n".join(lines), draw(st.sampled_from(["\n", "\r\n"])))
    return text + draw(st.sampled_from(["", "\n", "\n\n"]))


TOML_TEXTS: st.SearchStrategy[str] = _toml()
