from __future__ import annotations

from hypothesis import settings

# The first call loads what the others then have, so no deadline; and a run is like the one before it.
settings.register_profile("tfctl", deadline=None, derandomize=True)
settings.load_profile("tfctl")
