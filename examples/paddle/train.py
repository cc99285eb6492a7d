# SPDX-License-Identifier: Apache-2.0
"""A small model with PaddlePaddle's DataParallel and its high-level API."""

import numpy as np
import paddle
import paddle.distributed as dist

EPOCHS, STEPS, BATCH, FEATURES = 4, 100, 32, 16

rank, ranks = dist.get_rank(), dist.get_world_size()
truth = np.linspace(-1, 1, FEATURES, dtype=np.float32)
inputs = np.random.default_rng(rank).standard_normal((STEPS * BATCH, FEATURES), dtype=np.float32)
rows = paddle.io.TensorDataset(
    [paddle.to_tensor(inputs), paddle.to_tensor(inputs @ truth[:, None])]
)


class Progress(paddle.callbacks.Callback):
    def on_train_batch_end(self, step, logs=None):
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {float(logs['loss'][0]):.6f}", flush=True)


paddle.seed(1)
network = paddle.nn.Linear(FEATURES, 1)
model = paddle.Model(network)
model.prepare(paddle.optimizer.SGD(0.1, parameters=network.parameters()), paddle.nn.MSELoss())
# A loader of its own: the rows of each process are its own already.
loader = paddle.io.DataLoader(rows, batch_size=BATCH, drop_last=True)
model.fit(loader, epochs=EPOCHS, verbose=0, callbacks=[Progress()])

everyone = []
dist.all_gather(everyone, network.weight)
weights = network.weight.numpy()
assert len(everyone) == ranks > 1, "a process is missing"
assert all((each.numpy() == weights).all() for each in everyone), "processes differ"
assert np.abs(weights[:, 0] - truth).max() < 0.01, "the model has not learned"
if rank == 0:
    print(f"trained by {ranks} processes", flush=True)
