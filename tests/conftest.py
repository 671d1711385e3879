"""Settings of the tests as a whole."""

from hypothesis import HealthCheck, settings

# A busy machine is slow at making examples, too; that says nothing about the code.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
