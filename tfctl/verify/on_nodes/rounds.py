"""Who meets whom, and how fast an all-reduce was."""

import time

BYTES = 4 << 20  # per host and all-reduce: a small model's gradients


def rounds(count, index):
    """The partner of ``index`` in each round of a tournament in which everybody meets everybody once; None: rests.

    The circle method: one place stands still, the others move on by one.
    """
    places = count + count % 2
    for number in range(places - 1):
        order = [0] + [1 + (place + number) % (places - 1) for place in range(places - 1)]
        partner = order[places - 1 - order.index(index)]
        yield partner if partner < count else None


def timed(step, times=3):
    """Bytes that each host sends and receives in a second: algorithm bandwidth, as nccl-tests has it."""
    began = time.perf_counter()
    for _ in range(times):
        step()
    seconds = (time.perf_counter() - began) / times
    return {"seconds": round(seconds, 4), "mb_per_s": round(BYTES / seconds / 1e6, 1)}
