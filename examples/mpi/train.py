# SPDX-License-Identifier: Apache-2.0
"""Linear regression with NumPy and MPI: each process has data of its own, gradients are summed."""

import numpy as np
import paceline
from mpi4py import MPI

STEPS, BATCH, FEATURES = 3000, 256, 64

world = MPI.COMM_WORLD
rank, ranks = world.Get_rank(), world.Get_size()
assert ranks > 1, "mpirun started this process alone"
truth = np.linspace(-1, 1, FEATURES)
random = np.random.default_rng(rank)
weights, total = np.zeros(FEATURES), np.zeros(FEATURES)
for step in range(STEPS):
    inputs = random.standard_normal((BATCH, FEATURES))
    error = inputs @ weights - inputs @ truth
    world.Allreduce(inputs.T @ error / BATCH, total, MPI.SUM)
    weights -= 0.1 * total / ranks
    paceline.step(step)
    if rank == 0 and step % 100 == 0:
        print(f"step {step}: loss {np.mean(error**2):.6f}", flush=True)

everyone = world.allgather(weights)
assert all(np.array_equal(each, weights) for each in everyone), "processes have different weights"
assert np.abs(weights - truth).max() < 0.01, "the model has not learned"
if rank == 0:
    print(f"trained by {ranks} processes", flush=True)
