"""Train a model on digits that pandas reads. pandas is not in the stack: the job's requirements file names it."""

import numpy as np
import pandas as pd
import tensorflow as tf
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
frame = pd.DataFrame(images / 16).assign(label=labels).sample(frac=1, random_state=1)
model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
history = model.fit(frame.drop(columns="label").to_numpy(), frame["label"].to_numpy(), epochs=10, verbose=0)
print(f"pandas {pd.__version__} at {pd.__file__}")
print(f"numpy {np.__version__} at {np.__file__}")
print(f"accuracy {history.history['accuracy'][-1]:.2f}", flush=True)
