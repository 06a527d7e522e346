"""How is a caller told that a budget or a limit has no room?

`refusal_of` makes the error of a reservation that was refused, `limit_headers` the headers that
OpenAI's clients read. The words name the scope, the limit and what is used of it, in units that
a person understands. What the callers of other projects have used is never in them: a limit of
the organization is named without its figures.
"""

from __future__ import annotations

from antiphon.models.prices import dollars_of
from antiphon.protocol.errors import LimitReached
from antiphon.store.base.ledger import LimitState, Refused

__all__ = ["describe_refusal", "limit_headers", "refusal_of", "reset_text"]

_BUDGETS = frozenset({"budget", "unpriced"})


def refusal_of(refused: Refused) -> LimitReached:
    """Return the error that answers a request for which there is no room."""
    headers = limit_headers(refused.requests, refused.tokens)
    is_budget = refused.by in _BUDGETS
    waits = not is_budget and refused.by != "too_large"
    retry_after = refused.retry_after if waits else None
    if waits and retry_after is None:
        retry_after = 1.0
    if retry_after is None:
        headers["x-should-retry"] = "false"
    else:
        headers["retry-after-ms"] = str(max(1, round(retry_after * 1000)))
    return LimitReached(
        describe_refusal(refused),
        code="insufficient_quota" if is_budget else "rate_limit_exceeded",
        retry_after=retry_after,
        headers=headers,
    )


def describe_refusal(refused: Refused) -> str:
    """Return in words which limit has no room, and how much of it is used."""
    whose = _scope_of(refused)
    match refused.by:
        case "unpriced":
            return (
                f"budget {refused.id} of {whose} is in US dollars, and the price of this model is "
                "not known: state its price in the settings, or let the budget allow it"
            )
        case "budget":
            rest = "" if refused.scope == "organization" else _rest(refused)
            return f"budget {refused.id} of {whose}: {_figures(refused)}{rest}"
        case "concurrent":
            return f"limit {refused.id} of {whose}: {refused.limit:,} responses at once"
        case "too_large":
            return (
                f"limit {refused.id} of {whose}: {refused.limit:,} {refused.unit} per minute; "
                "this request alone needs more"
            )
        case _:
            return f"limit {refused.id} of {whose}: {_figures(refused)}"


def _scope_of(refused: Refused) -> str:
    if refused.scope == "organization":
        return "the organization"
    # What callers name themselves stands after the project, which they know.
    name = refused.scope_id
    if refused.scope in ("user", "conversation", "run"):
        name = name.partition("/")[2]
    return f"{refused.scope} {name}"


def _figures(refused: Refused) -> str:
    period = "" if refused.period == "total" else f" per {refused.period}"
    limit = _amount(refused.limit, refused.unit)
    if refused.scope == "organization":
        return f"{limit}{period}, no room left"
    used = _amount(refused.used, refused.unit, has_unit=False)
    return f"{limit}{period}, {used} used"


def _rest(refused: Refused) -> str:
    """Return why a budget that is not used up refuses."""
    return "; this request may need more than the rest" if refused.used < refused.limit else ""


def _amount(value: int, unit: str, *, has_unit: bool = True) -> str:
    if unit == "usd":
        text = dollars_of(value)
        return f"{text} USD" if has_unit else text
    return f"{value:,} {unit}" if has_unit else f"{value:,}"


def limit_headers(requests: LimitState | None, tokens: LimitState | None) -> dict[str, str]:
    """Return what the headers of an answer state about the limits that apply."""
    if requests is None and tokens is None:
        return {}
    headers: dict[str, str] = {}
    for name, state in (("requests", requests), ("tokens", tokens)):
        if state is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(state.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, state.remaining))
            headers[f"x-ratelimit-reset-{name}"] = reset_text(state.reset_seconds)
    return headers


def reset_text(seconds: float) -> str:
    """Return a time as OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h2m3s`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < 60:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"
