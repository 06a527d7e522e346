"""What follows from a failed request: who is asked next, and what does the breaker learn?

One table, decided for each error. It is about failures before the model has produced anything:
after that nothing is asked again, because what was shown must not be produced twice. Only the
columns `breaker` and `continues` are about failures in mid-stream too.

    | class      | same again    | next deployment | fallbacks | breaker        |
    |------------|---------------|-----------------|-----------|----------------|
    | transport  | never         | yes             | yes       | counts         |
    | busy       | after a wait  | yes             | yes       | opens          |
    | overloaded | once if alone | yes             | yes       | counts         |
    | quota      | never         | yes             | yes       | opens          |
    | refused    | never         | yes             | yes       | opens          |
    | nonsense   | never         | yes             | yes       | counts         |
    | slip       | once if alone | yes             | yes       | counts         |
    | overflow   | never         | larger ones     | no        | learns nothing |
    | no_model   | never         | yes             | yes       | opens          |
    | caller     | never         | no              | no        | learns nothing |
    | policy     | never         | no              | no        | learns nothing |
    | unusable   | never         | no              | no        | learns nothing |

A caller who leaves raises no error of a backend, so there is no class for it.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from antiphon.protocol.errors import BackendError, ContextOverflow

__all__ = ["CLASSES", "FaultClass", "FaultName", "classify"]

FaultName = Literal[
    "transport",
    "busy",
    "overloaded",
    "quota",
    "refused",
    "nonsense",
    "slip",
    "overflow",
    "no_model",
    "caller",
    "policy",
    "unusable",
]


class FaultClass(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from errors of one kind."""

    name: FaultName
    again: Literal["never", "if_alone", "after_wait"] = "never"
    """Whether the same deployment is asked again: once if there is no other, or after a wait."""
    moves: Literal["no", "yes", "if_larger"] = "no"
    """Whether another deployment of the model is asked."""
    falls_back: bool = False
    """Whether another model is asked."""
    breaker: Literal["none", "counts", "opens"] = "none"
    first_seconds: float = 0.0
    """How long it opens the breaker, if the server does not state that."""
    longest_seconds: float = 0.0
    """The same when it happens again and again."""
    continues: bool = False
    """Whether an answer that broke off for this may be continued elsewhere."""


CLASSES: Final[dict[FaultName, FaultClass]] = {
    one.name: one
    for one in (
        FaultClass(
            name="transport", moves="yes", falls_back=True, breaker="counts", continues=True
        ),
        FaultClass(
            name="busy",
            again="after_wait",
            moves="yes",
            falls_back=True,
            breaker="opens",
            first_seconds=1.0,
            longest_seconds=1.0,
        ),
        FaultClass(
            name="overloaded",
            again="if_alone",
            moves="yes",
            falls_back=True,
            breaker="counts",
            continues=True,
        ),
        FaultClass(
            name="quota",
            moves="yes",
            falls_back=True,
            breaker="opens",
            first_seconds=60.0,
            longest_seconds=900.0,
        ),
        FaultClass(
            name="refused",
            moves="yes",
            falls_back=True,
            breaker="opens",
            first_seconds=60.0,
            longest_seconds=60.0,
        ),
        FaultClass(name="nonsense", moves="yes", falls_back=True, breaker="counts"),
        # A call that the model wrote wrongly, and may write rightly the next time.
        FaultClass(name="slip", again="if_alone", moves="yes", falls_back=True, breaker="counts"),
        FaultClass(name="overflow", moves="if_larger"),
        FaultClass(
            name="no_model",
            moves="yes",
            falls_back=True,
            breaker="opens",
            first_seconds=300.0,
            longest_seconds=300.0,
        ),
        FaultClass(name="caller"),
        FaultClass(name="policy"),
        # The server works; what its model wrote cannot be used.
        FaultClass(name="unusable"),
    )
}

# What an error code means, whatever the status is.
_BY_CODE: Final[dict[str, FaultName]] = {
    "insufficient_quota": "quota",
    "model_not_found": "no_model",
    "upstream_auth": "refused",
    "upstream_invalid_response": "nonsense",
    "upstream_unreachable": "transport",
    "upstream_timeout": "transport",
    "upstream_closed": "transport",
    "rate_limit_exceeded": "busy",
    "tool_choice_violated": "unusable",
    "tool_call_invalid": "unusable",
    "output_format_violated": "unusable",
    "content_filter": "policy",
    "content_policy": "policy",
    "content_policy_violation": "policy",
    "prompt_blocked": "policy",
    "refusal": "policy",
}
_TOO_MANY: Final = 429


def classify(error: BackendError) -> FaultClass:
    """Return the class of an error."""
    return CLASSES[_name_of(error)]


def _name_of(error: BackendError) -> FaultName:
    if isinstance(error, ContextOverflow):
        return "overflow"
    if error.is_slip:
        return "slip"
    if error.code == "upstream_closed" and error.ended_in_order:
        return "nonsense"
    named = _BY_CODE.get(error.code or "")
    if named is not None:
        return named
    if error.status == _TOO_MANY:
        return "busy"
    if error.status < 500:
        return "caller"
    # An unknown 4xx of the upstream is a 502 for the caller, who did nothing wrong.
    return "refused" if error.code == "upstream_refused" else "overloaded"
