"""What is a requirement?

A demand of one of the five documents that antiphon began with, in our own words. Its proof is
the tests that carry its id as a marker. `see` names other requirements whose tests prove this
one too, because the documents often state a thing twice: as a goal, as a task and as a rule.
"""

from __future__ import annotations

import msgspec

__all__ = ["Requirement", "Section", "Seed"]


class Requirement(msgspec.Struct, frozen=True):
    """One demand: its id, what it asks for, and how we read it today."""

    id: str
    what: str
    reads: str = ""
    """How it reads today, where that is not to the letter, and why."""
    see: tuple[str, ...] = ()
    """Requirements whose tests prove this one as well."""
    reason_without_test: str = ""
    """Why no test proves it: only for what is no behaviour, such as a schedule or a speed."""
    not_shown: str = ""
    """The part of it that nothing here shows; the page states it beside the proof."""


class Section(msgspec.Struct, frozen=True):
    """The requirements of one part of a document."""

    title: str
    requirements: tuple[Requirement, ...]


class Seed(msgspec.Struct, frozen=True):
    """One document."""

    number: str
    title: str
    about: str
    sections: tuple[Section, ...]

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Every requirement, in the order of the document."""
        return tuple(one for section in self.sections for one in section.requirements)
