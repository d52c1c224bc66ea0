"""Test TensorFlow's all-reduce over all hosts and over every pair. Reports the sum and the speed.

A broken or hung ring does not say which host is at fault, and TensorFlow's collectives stay dead after the first error.
So every pair first exchanges bytes over plain TCP, and the result is reported at once.
"""

import contextlib
import itertools
import os

from pairs import lost
from result import ProofFailed, addresses, index, names, note, report
from rounds import BYTES, rounds, timed

PAIR_SECONDS = 30.0
GROUP = 1000  # the strategy uses the group keys below this


def main():
    own, places, hosts = index(), addresses(), names()
    unmet = lost(own, places, os.environ["VERIFY_NONCE"])
    note(lost=unmet)
    if unmet:
        raise ProofFailed("nothing passes over TCP to or from " + ", ".join(hosts[each["partner"]] for each in unmet))
    import tensorflow as tf

    strategy = strategy_over(tf, "AUTO")
    found = {"all": over_all(tf, strategy), "pairs": []}
    for number, partner in enumerate(rounds(len(places), own)):
        if partner is None:
            continue
        pair = sorted((own, partner))
        try:
            found["pairs"].append(over_pair(tf, own, pair, GROUP + number * len(places) + pair[0]))
        except (tf.errors.OpError, ProofFailed) as fault:
            why = getattr(fault, "message", str(fault))
            broken = {"partner": partner, "message": why}
            raise ProofFailed(f"with {hosts[partner]}: {why}", broken=broken, **found) from None
    part(tf, strategy)
    return found


def strategy_over(tf, implementation):
    """Return the strategy over all hosts. ``implementation``: AUTO, RING or NCCL."""
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation[implementation]
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def over_all(tf, strategy):
    """Sum a tensor of ones from every replica: the result is the number of replicas."""
    values, count = tf.ones([BYTES // 4]), strategy.num_replicas_in_sync

    @tf.function
    def step():
        def each():
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)

        return strategy.experimental_local_results(strategy.run(each))[0]

    first = step()
    if float(first[0]) != count or float(first[-1]) != count:
        raise ProofFailed(f"the sum over {count} replicas is {float(first[0])}")
    return {"replicas": count, **timed(lambda: float(step()[0]))}


def over_pair(tf, own, pair, key):
    values = tf.fill([BYTES // 4], float(own + 1))
    device = f"/job:worker/replica:0/task:{own}/device:CPU:0"
    instances = itertools.count()

    def step():
        with tf.device(device):
            return tf.raw_ops.CollectiveReduce(
                input=values, group_size=2, group_key=key, instance_key=next(instances), merge_op="Add", final_op="Id",
                subdiv_offsets=[0], communication_hint="ring", timeout_seconds=PAIR_SECONDS,
            )  # fmt: skip

    total, partner = step(), sum(pair) - own
    if float(total[0]) != sum(pair) + 2.0 or float(total[-1]) != float(total[0]):
        raise ProofFailed(f"the sum with {names()[partner]} is {float(total[0])}")
    return dict(timed(lambda: float(step()[0]), 1), partner=partner)


def part(tf, strategy):
    """Wait until all hosts are done: one that has its sum must not leave while its partner still receives."""
    with contextlib.suppress(tf.errors.OpError):  # another host left during this very step
        over_all(tf, strategy)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    report(main)
