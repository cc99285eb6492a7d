# SPDX-License-Identifier: Apache-2.0
"""Linear regression with JAX, data parallel over all processes of the job.

JAX does not read how many processes there are, and which one this is, so they are arguments here.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import paceline
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS, BATCH, FEATURES = 4000, 64, 16

jax.distributed.initialize(
    coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
)
rank, ranks = jax.process_index(), jax.process_count()
mesh = Mesh(jax.devices(), ("data",))
split, same = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


@jax.jit
def train_step(weights, inputs, targets):
    """The mean is over the batches of all processes, so JAX sums their gradients."""
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((inputs @ w - targets) ** 2))(weights)
    return loss, weights - 0.1 * gradient


truth = np.linspace(-1, 1, FEATURES, dtype=np.float32)
random = np.random.default_rng(rank)  # each process has data of its own
weights = jax.device_put(np.zeros(FEATURES, np.float32), same)


def batches():
    for _ in range(STEPS):
        inputs = random.standard_normal((BATCH, FEATURES), dtype=np.float32)
        yield inputs, inputs @ truth


for step, (inputs, targets) in enumerate(paceline.steps(batches())):
    loss, weights = train_step(
        weights,
        jax.make_array_from_process_local_data(split, inputs),
        jax.make_array_from_process_local_data(split, targets),
    )
    if rank == 0 and step % 100 == 0:
        print(f"step {step}: loss {float(loss):.6f}", flush=True)

everyone = multihost_utils.process_allgather(np.append(np.asarray(weights), rank))
assert sorted(everyone[:, -1]) == list(range(ranks)), "a process is missing"
assert np.ptp(everyone[:, :-1], axis=0).max() == 0, "processes have different weights"
assert np.abs(everyone[0, :-1] - truth).max() < 0.01, "the model has not learned"
if rank == 0:
    print(f"trained by {ranks} processes: loss {float(loss):.6f}", flush=True)
