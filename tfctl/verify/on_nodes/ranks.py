"""A rank of Horovod on each host: all-reduce over all of them, and over every pair. The sum and the speed are told."""

import os

from rounds import BYTES, rounds, timed
from telling import Failed, names, tell

MOST_HOSTS = 24  # of which every pair is tried: each is a group of Horovod's own, made by all ranks together


def prove():
    import horovod.tensorflow as hvd

    hvd.init()
    size, own = hvd.size(), hvd.rank()
    if size != len(names()):
        raise Failed(f"Horovod counts {size} ranks, and there are {len(names())}")
    told = {"all": dict(reduce(hvd, range(size), "all"), ranks=size), "pairs": []}
    if hasattr(hvd, "add_process_set") and 2 < size <= MOST_HOSTS:
        told["pairs"] = [pair for pair in over_pairs(hvd, own, size) if pair]
    elif size == 2:
        told["pairs"] = [dict(told["all"], partner=1 - own)]
    reduce(hvd, range(size), "end")  # the first to leave takes all others with it
    hvd.shutdown()
    return told


def over_pairs(hvd, own, size):
    """Round by round, so that the pairs of one round are at work together. All ranks make each of their groups."""
    partners = [list(rounds(size, rank)) for rank in range(size)]
    for number in range(len(partners[0])):
        pairs = sorted({tuple(sorted((rank, partners[rank][number]))) for rank in range(size)
                        if partners[rank][number] is not None})  # fmt: skip
        groups = {pair: hvd.add_process_set(list(pair)) for pair in pairs}
        for pair, group in groups.items():
            if own in pair:
                found = reduce(hvd, pair, "pair.{}.{}".format(*pair), process_set=group)
                yield dict(found, partner=sum(pair) - own)


def reduce(hvd, ranks, name, **more):
    """Each gives its rank and one; the last number of many tells whether all of them came."""
    import tensorflow as tf

    value = [float(hvd.rank() + 1)] * (BYTES // 4)
    wanted = float(sum(ranks) + len(ranks))
    if hasattr(hvd, "add_process_set"):
        more.update(op=hvd.Sum, name=name)
    elif hasattr(hvd, "Sum"):  # before 0.20, where a reduction got a name
        more.update(op=hvd.Sum)
    else:  # before 0.19
        more.update(average=False)
    if tf.executing_eagerly():
        tensor = tf.constant(value)
        step = lambda: hvd.allreduce(tensor, **more)  # noqa: E731
    else:
        # A variable, for what comes of constants is computed once, before the first step.
        variable = tf.compat.v1.Variable(value)
        summed = hvd.allreduce(variable, **more)
        session = tf.compat.v1.Session()
        session.run(variable.initializer)
        step = lambda: session.run(summed)  # noqa: E731
    total = float(step()[-1])
    if total != wanted:
        raise Failed(f"the sum over {len(ranks)} ranks is {total}, not {wanted}")
    return timed(step)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    tell(prove)
