"""Settings for every test: hypothesis never judges by time, and CI repeats what it finds."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "antiphon",
    deadline=None,
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("antiphon")
