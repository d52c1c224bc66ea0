"""Test Horovod's all-reduce, with a rank per host, over all hosts and every pair. Reports the sum and the speed."""

import os

from result import ProofFailed, names, report
from rounds import BYTES, rounds, timed

MOST_HOSTS = 24  # test pairs up to this many hosts: each pair is a process set that all ranks create together


def main():
    import horovod.tensorflow as hvd

    hvd.init()
    size, own = hvd.size(), hvd.rank()
    if size != len(names()):
        raise ProofFailed(f"Horovod counts {size} ranks, but there are {len(names())}")
    found = {"all": dict(reduce(hvd, range(size), "all"), ranks=size), "pairs": []}
    if hasattr(hvd, "add_process_set") and 2 < size <= MOST_HOSTS:
        found["pairs"] = [pair for pair in over_pairs(hvd, own, size) if pair]
    elif size == 2:
        found["pairs"] = [dict(found["all"], partner=1 - own)]
    reduce(hvd, range(size), "end")  # the first rank to leave would take down the others
    hvd.shutdown()
    return found


def over_pairs(hvd, own, size):
    """Test pairs round by round, those of a round in parallel. All ranks create every pair's process set."""
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
    """Sum rank + 1 over all ranks, and check the tensor's last element, which shows that all of it arrived."""
    import tensorflow as tf

    value = [float(hvd.rank() + 1)] * (BYTES // 4)
    wanted = float(sum(ranks) + len(ranks))
    if hasattr(hvd, "add_process_set"):
        more.update(op=hvd.Sum, name=name)
    elif hasattr(hvd, "Sum"):  # before 0.20, which named reductions
        more.update(op=hvd.Sum)
    else:  # before 0.19
        more.update(average=False)
    if tf.executing_eagerly():
        tensor = tf.constant(value)
        step = lambda: hvd.allreduce(tensor, **more)  # noqa: E731
    else:
        # A variable, because results of constants are computed only once, before the first step.
        variable = tf.compat.v1.Variable(value)
        summed = hvd.allreduce(variable, **more)
        session = tf.compat.v1.Session()
        session.run(variable.initializer)
        step = lambda: session.run(summed)  # noqa: E731
    total = float(step()[-1])
    if total != wanted:
        raise ProofFailed(f"the sum over {len(ranks)} ranks is {total}, not {wanted}")
    return timed(step)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    report(main)
