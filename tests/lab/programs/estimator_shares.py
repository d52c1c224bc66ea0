"""train_and_evaluate by RunConfig's train_distribute, in step or on a ps; a context tells each worker its share."""

import json
import os

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

tf.compat.v1.disable_eager_execution()  # else Estimator cannot copy the strategy
told = json.loads(os.environ["TF_CONFIG"])
images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = (images / 16).astype("float32")


def train_input(input_context):
    shares, mine = input_context.num_input_pipelines, input_context.input_pipeline_id
    print(f"share {mine} of {shares}", flush=True)
    data = tf.data.Dataset.from_tensor_slices((images[:1400], labels[:1400])).shard(shares, mine)
    return data.shuffle(1400).repeat().batch(32)


def test_input():
    return tf.data.Dataset.from_tensor_slices((images[1400:], labels[1400:])).batch(100)


def model_fn(features, labels, mode):
    v1 = tf.compat.v1
    weights = v1.get_variable("weights", [64, 10])
    logits = tf.matmul(features, weights) + v1.get_variable("biases", [10])
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    accuracy = v1.metrics.accuracy(labels, tf.argmax(logits, 1))
    train_op = v1.train.AdamOptimizer(0.01).minimize(loss, global_step=v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy})


distribute = tf.distribute.MultiWorkerMirroredStrategy
if "ps" in told["cluster"]:
    distribute = tf.compat.v1.distribute.experimental.ParameterServerStrategy
config = tf.estimator.RunConfig(
    model_dir=os.environ["TFCTL_OUTPUT"],
    save_checkpoints_steps=200,
    experimental_max_worker_delay_secs=1,
    train_distribute=distribute(),
)
estimator = tf.estimator.Estimator(model_fn, config=config)
tf.estimator.train_and_evaluate(
    estimator,
    tf.estimator.TrainSpec(train_input, max_steps=200),
    tf.estimator.EvalSpec(test_input, steps=None, start_delay_secs=1, throttle_secs=1),
)
if told["task"]["type"] == "evaluator":
    metrics = estimator.evaluate(test_input)
    print(f"test accuracy {metrics['accuracy']:.4f} at step {metrics['global_step']}", flush=True)
