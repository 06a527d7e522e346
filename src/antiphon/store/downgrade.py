"""May a gateway of an older version start on this database?

It refuses a database whose level it does not know (see `versions`). The tables of this version
still serve older gateways that run while others are upgraded, down to `oldest_level`. But older
gateways do not know what limits a key or a project, so to let them start is the decision of the
operator, who sees first what they would ignore.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from antiphon.store.copy import open_place

__all__ = ["LevelRefused", "Levels", "allow_older", "read_levels"]

_IGNORED: Final = {
    "keys with a role, models, a rotation, budgets of runs or no storage": (
        "SELECT count(*) FROM keys WHERE revoked_at IS NULL AND (role <> 'user'"
        " OR models IS NOT NULL OR never_store <> 0 OR previous_digest IS NOT NULL"
        " OR run_budget IS NOT NULL OR max_run_budget IS NOT NULL)"
    ),
    "projects with settings": "SELECT count(*) FROM projects",
    "budgets": "SELECT count(*) FROM budgets",
    "rate limits": "SELECT count(*) FROM rate_limits",
    "requests to upstreams, which outlive a response that it deletes": (
        "SELECT count(*) FROM rounds"
    ),
}


class LevelRefused(ValueError):
    """No gateway of the asked version can work on this database."""

    def __init__(self, level: int, oldest: int, now: int) -> None:
        super().__init__(
            f"gateways that know version {level} cannot use this database: name a version from"
            f" {oldest} to {now}"
        )
        self.level = level


class Levels(NamedTuple):
    """Which gateways may start, and what the older ones would ignore, with its count."""

    now: int
    oldest: int
    ignored: dict[str, int]


async def read_levels(url: str) -> Levels:
    """Return which gateways may start on the database of a URL, which is up to date."""
    async with open_place(url, is_target=False) as place:
        counts = {what: await place.number(question) for what, question in _IGNORED.items()}
        ignored = {what: count for what, count in counts.items() if count}
        return Levels(await place.level(), place.oldest_level, ignored)


async def allow_older(url: str, level: int) -> None:
    """Let gateways that know versions up to `level` start. Raise LevelRefused if none can work."""
    found = await read_levels(url)
    if not found.oldest <= level <= found.now:
        raise LevelRefused(level, found.oldest, found.now)
    async with open_place(url, is_target=True) as place:
        await place.lower_level(level)
