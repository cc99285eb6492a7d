# SPDX-License-Identifier: Apache-2.0
"""A small Keras model with TensorFlow's MultiWorkerMirroredStrategy, which reads TF_CONFIG.

`fit` of Keras 3 does not know this strategy, so the model is one of tf_keras.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tf_keras as keras

EPOCHS, STEPS, BATCH, FEATURES = 4, 100, 32, 16

strategy = tf.distribute.MultiWorkerMirroredStrategy()
ranks = strategy.num_replicas_in_sync
task = strategy.cluster_resolver.task_id
first = strategy.cluster_resolver.task_type == "chief" or task == 0


class Progress(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if first and batch % 20 == 0:
            print(f"step {batch}: loss {logs['loss']:.6f}", flush=True)


truth = np.linspace(-1, 1, FEATURES, dtype=np.float32)
inputs = np.random.default_rng(task).standard_normal((STEPS * BATCH, FEATURES), dtype=np.float32)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
data = tf.data.Dataset.from_tensor_slices((inputs, inputs @ truth[:, None])).batch(BATCH).repeat()
data = data.with_options(options)  # each process has data of its own already

with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(FEATURES,))])
    model.compile(keras.optimizers.SGD(0.1), "mse")
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[Progress()])

weights = model.get_weights()[0]


@tf.function
def over_all(values):
    """The values of all processes, one beside the other."""
    return strategy.gather(strategy.run(lambda: tf.identity(values)), axis=0)


everyone = np.array(over_all(tf.constant(weights.T)))
assert len(everyone) == ranks > 1, "a process is missing"
assert np.ptp(everyone, axis=0).max() == 0, "processes have different weights"
assert np.abs(weights[:, 0] - truth).max() < 0.01, "the model has not learned"
if first:
    print(f"trained by {ranks} processes", flush=True)
