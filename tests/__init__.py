"""Tests, in the folders of what they test.

Hypothesis is told here, for all of them, not to mind how busy the machine is.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ekiden", deadline=None, max_examples=60, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ekiden")
