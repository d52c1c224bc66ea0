"""Test TensorFlow's all-reduce over NCCL: every GPU of every host takes part. Reports the sum and the speed."""

import os

from collective import over_all, strategy_over
from result import report


def main():
    import tensorflow as tf

    return {"all": over_all(tf, strategy_over(tf, "NCCL"))}


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    report(main)
