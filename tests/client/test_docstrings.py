"""Docstrings: what they describe, in the forms that people write."""

from __future__ import annotations

import pytest

from antiphon.client.docstrings import read_docstring

GOOGLE = """Return the weather of a city.

    It may be a guess.

    Args:
        city (str): Where: the name
            of the city.
        days (tuple(int, int), optional): How many days.
        *rest: Ignored.

    Returns:
        text: The weather.

    Raises:
        KeyError: If there is no city.
    """
NUMPY = """Return the weather of a city.

    It may be a guess.

    Parameters
    ----------
    city : str
        Where: the name
        of the city.
    days : int, optional
        How many days.
    *rest
        Ignored.

    Returns
    -------
    text
        The weather.
    """
SPHINX = """Return the weather of a city.

    It may be a guess.

    :param city: Where: the name
        of the city.
    :param int days: How many days.
    :param rest: Ignored.
    :type city: str
    :returns: The weather.
    :raises KeyError: If there is no city.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_every_usual_form_is_read(docstring: str) -> None:
    described = read_docstring(docstring)
    assert described.text == "Return the weather of a city.\n\nIt may be a guess."
    assert described.parameters == {
        "city": "Where: the name of the city.",
        "days": "How many days.",
        "rest": "Ignored.",
    }


@pytest.mark.parametrize(
    ("docstring", "text"),
    [
        (None, ""),
        ("", ""),
        ("One line.", "One line."),
        ("A line\n    that goes on.", "A line that goes on."),
        ("Note: this is text.", "Note: this is text."),
        ("Uses args: a and b.", "Uses args: a and b."),
        ("Parameters matter.\n\n    Really.", "Parameters matter.\n\nReally."),
    ],
)
def test_what_is_in_no_section_is_the_description(docstring: str | None, text: str) -> None:
    described = read_docstring(docstring)
    assert (described.text, described.parameters) == (text, {})


def test_text_after_a_section_belongs_to_the_description() -> None:
    described = read_docstring("Add.\n\n    Args:\n        a: One.\n\n    More text.\n    ")
    assert described.text == "Add.\n\nMore text."
    assert described.parameters == {"a": "One."}


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("", ""),
        ("\n    Returns:\n        The weather.\n    ", ""),
        ("\n    More text.\n    ", "More text."),
    ],
)
def test_a_docstring_may_begin_with_its_parameters(ending: str, text: str) -> None:
    entries = "\n        city: Where: the name\n            of it.\n        days: How many.\n"
    described = read_docstring(f"Args:{entries}{ending}")
    assert described.text == text
    assert described.parameters == {"city": "Where: the name of it.", "days": "How many."}


@pytest.mark.parametrize(
    "docstring",
    [
        "Parameters\n    ----------\n    city : str\n        Where.\n    ",
        ":param city: Where.\n    :returns: Text.\n    ",
        "\n    Args:\n        city: Where.\n    ",
    ],
)
def test_the_other_forms_may_begin_with_their_parameters_too(docstring: str) -> None:
    described = read_docstring(docstring)
    assert (described.text, described.parameters) == ("", {"city": "Where."})


def test_two_names_in_one_entry_share_its_text() -> None:
    described = read_docstring(
        "Add.\n\n    Parameters\n    ----------\n    a, b : int\n        N.\n"
    )
    assert described.parameters == {"a": "N.", "b": "N."}
