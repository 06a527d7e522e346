"""Read what /metrics answers, with the parser of Prometheus' own library."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

__all__ = ["samples_of", "scraped", "value_of"]


def samples_of(text: str | bytes) -> Iterator[Sample]:
    """Yield every sample."""
    text = text.decode() if isinstance(text, bytes) else text
    for family in text_string_to_metric_families(text):
        yield from family.samples


def value_of(text: str | bytes, name: str, **labels: str) -> float:
    """Return the sum of the samples of this name that have these labels, whatever else."""
    found = (one for one in samples_of(text) if one.name == name)
    return sum(one.value for one in found if labels.items() <= one.labels.items())


def scraped(text: str | bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return all samples by name and labels; each is there once."""
    found = [((one.name, tuple(sorted(one.labels.items()))), one.value) for one in samples_of(text)]
    assert len(dict(found)) == len(found)
    return dict(found)
