"""Pair up hosts in rounds, and measure the speed of an all-reduce."""

import time

BYTES = 4 << 20  # per host and all-reduce: a small model's gradients


def rounds(count, index):
    """Yield the partner of ``index`` in each round of a round-robin tournament, or None for a round without one.

    Uses the circle method: one place stays fixed, and the others rotate by one.
    """
    places = count + count % 2
    for number in range(places - 1):
        order = [0] + [1 + (place + number) % (places - 1) for place in range(places - 1)]
        partner = order[places - 1 - order.index(index)]
        yield partner if partner < count else None


def timed(step, times=3):
    """Return the seconds per step and the MB/s: nccl-tests' algorithm bandwidth, i.e. one host's bytes per time."""
    began = time.perf_counter()
    for _ in range(times):
        step()
    seconds = (time.perf_counter() - began) / times
    return {"seconds": round(seconds, 4), "mb_per_s": round(BYTES / seconds / 1e6, 1)}
