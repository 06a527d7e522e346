"""Which of the ordinary traces are kept? As `OTEL_TRACES_SAMPLER` says.

Decided when a trace is complete, from its id alone or from what the caller has decided, so all
services that see the id decide alike. The default keeps all that the caller does not leave out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from antiphon.transport.tracing import Trace

__all__ = ["sampler_of"]

_log = logging.getLogger(__name__)
_DEFAULT: Final = "parentbased_always_on"
_PARENT: Final = "parentbased_"
_LOW: Final = (1 << 64) - 1

Sampler = Callable[[Trace], bool]


def sampler_of(environ: Mapping[str, str]) -> Sampler:
    """Return the sampler that the environment names."""
    name = environ.get("OTEL_TRACES_SAMPLER") or _DEFAULT
    own = _root_sampler(name.removeprefix(_PARENT), environ)
    if own is None:
        _log.warning("OTEL_TRACES_SAMPLER: %r is not known; %s is used", name[:100], _DEFAULT)
        name, own = _DEFAULT, _always
    if not name.startswith(_PARENT):
        return own
    return lambda trace: own(trace) if trace.is_sampled is None else trace.is_sampled


def _root_sampler(name: str, environ: Mapping[str, str]) -> Sampler | None:
    match name:
        case "always_on":
            return _always
        case "always_off":
            return lambda trace: False
        case "traceidratio":
            bound = _bound(environ.get("OTEL_TRACES_SAMPLER_ARG"))
            return lambda trace: trace.trace_id & _LOW < bound
    return None


def _always(trace: Trace) -> bool:
    return True


def _bound(given: str | None) -> int:
    """Return below which number the low half of a trace id is kept."""
    try:
        ratio = float(given or 1.0)
    except ValueError:
        _log.warning("OTEL_TRACES_SAMPLER_ARG is not a number; all traces are kept")
        ratio = 1.0
    return round(min(max(ratio, 0.0), 1.0) * (_LOW + 1))
