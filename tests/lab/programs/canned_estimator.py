"""A canned estimator on feature columns by train_and_evaluate: it has heard of TF_CONFIG through RunConfig alone."""

import argparse

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="/tmp/digits_model")
parser.add_argument("--batch_size", default=100, type=int)
parser.add_argument("--train_steps", default=600, type=int)
args = parser.parse_args()

images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
features = {f"pixel{column}": images[:, column] / 16 for column in range(64)}


def part(rows):
    return tf.data.Dataset.from_tensor_slices(({name: cells[rows] for name, cells in features.items()}, labels[rows]))


def train_input_fn():
    return part(slice(None, 1400)).shuffle(1400).repeat().batch(args.batch_size)


def eval_input_fn():
    return part(slice(1400, None)).batch(args.batch_size)


def main():
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    config = tf.estimator.RunConfig(args.model_dir, save_checkpoints_steps=300, experimental_max_worker_delay_secs=1)
    classifier = tf.estimator.DNNClassifier(
        feature_columns=[tf.feature_column.numeric_column(name) for name in features],
        hidden_units=[32],
        n_classes=10,
        optimizer=lambda: tf.keras.optimizers.legacy.Adam(0.01),
        config=config,
    )
    train_spec = tf.estimator.TrainSpec(train_input_fn, max_steps=args.train_steps)
    eval_spec = tf.estimator.EvalSpec(eval_input_fn, steps=None, start_delay_secs=1, throttle_secs=1)
    tf.estimator.train_and_evaluate(classifier, train_spec, eval_spec)
    if config.task_type == "evaluator":
        print("test accuracy {accuracy:.4f} at step {global_step}".format(**classifier.evaluate(eval_input_fn)))


main()
