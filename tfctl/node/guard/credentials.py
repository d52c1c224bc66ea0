"""What root passes to the guard as a credential."""

from typing import NamedTuple, Optional

from .. import wire


class Credentials(NamedTuple):
    """``host``: this host's name in the inventory. ``key``, ``notify``: as in tfctl.node.wire.PlannedGuard."""

    host: str
    key: str
    notify: Optional[wire.Notify] = None
