"""Test TensorFlow's all-reduce over NCCL: every GPU of every host takes part. Reports the sum and the speed."""

import os

from collective import over_all
from result import report


def prove():
    import tensorflow as tf

    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.NCCL
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    return {"all": over_all(tf, strategy)}


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    report(prove)
