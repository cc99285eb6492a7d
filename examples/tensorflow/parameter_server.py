# SPDX-License-Identifier: Apache-2.0
"""Asynchronous training with TensorFlow's ParameterServerStrategy, which reads TF_CONFIG.

The coordinator (chief) hands out the steps, workers compute them, parameter servers hold the
weights. A restarted job goes on at the coordinator's last checkpoint.
"""

import os
import shutil
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["GRPC_FAIL_FAST"] = "use_caller"

import paceline
import tensorflow as tf

STEPS, EVERY, BATCH, FEATURES = 600, 20, 32, 16
CHECKPOINTS = sys.argv[1]

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    server.join()  # until the job ends

strategy = tf.distribute.ParameterServerStrategy(
    resolver, variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner()
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
truth = tf.reshape(tf.linspace(-1.0, 1.0, FEATURES), (FEATURES, 1))
with strategy.scope():
    weights = tf.Variable(tf.zeros((FEATURES, 1)))
    done = tf.Variable(0, dtype=tf.int64)


@tf.function
def train_step():
    inputs = tf.random.normal((BATCH, FEATURES))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((inputs @ weights - inputs @ truth) ** 2)
    weights.assign_sub(0.05 * tape.gradient(loss, weights))
    done.assign_add(1)
    return loss


checkpoint = tf.train.Checkpoint(weights=weights, done=done)
manager = tf.train.CheckpointManager(checkpoint, CHECKPOINTS, max_to_keep=2)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint)
    print(f"resumed after step {int(done.numpy())}", flush=True)
while (step := int(done.numpy())) < STEPS:
    losses = [coordinator.schedule(train_step) for _ in range(EVERY)]
    coordinator.join()
    manager.save()
    paceline.step(step)
    print(f"step {step}: loss {float(losses[-1].fetch()):.6f}", flush=True)

assert float(tf.reduce_max(tf.abs(weights.read_value() - truth))) < 0.01, "it has not learned"
shutil.rmtree(CHECKPOINTS)  # the next run starts anew
workers = len(resolver.cluster_spec().as_dict()["worker"])
print(f"trained by {workers} workers: {int(done.numpy())} steps", flush=True)
