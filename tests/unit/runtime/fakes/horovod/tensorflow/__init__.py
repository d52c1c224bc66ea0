"""The rank, and what rank 0 broadcasts. As in the real one, nothing works before init()."""

from typing import Any

#: Set by a test: the rank, the number of ranks, the rank on its host, and what rank 0 broadcasts to this rank.
RANK, SIZE, LOCAL_RANK = 0, 2, 0
BROADCAST: Any = None
#: The calls of init, and what this rank has broadcast.
INITIALIZED: "list[bool]" = []
SENT: "list[Any]" = []


def init() -> None:
    INITIALIZED.append(True)


def rank() -> int:
    assert INITIALIZED, "Horovod has not been initialized; use hvd.init()."
    return RANK


def size() -> int:
    assert INITIALIZED, "Horovod has not been initialized; use hvd.init()."
    return SIZE


def local_rank() -> int:
    assert INITIALIZED, "Horovod has not been initialized; use hvd.init()."
    return LOCAL_RANK


def broadcast_object(value: Any, root_rank: int) -> Any:
    """Return the value on the root rank; on another, what the test says that the root rank sends."""
    if rank() != root_rank:
        return BROADCAST
    SENT.append(value)
    return value
