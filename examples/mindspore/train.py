# SPDX-License-Identifier: Apache-2.0
"""Linear regression with MindSpore: workers sum their gradients by AllReduce.

The scheduler runs this program too. It brings the workers together and stays within `init`.
"""

import mindspore as ms
import numpy as np
import paceline
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init

STEPS, BATCH, FEATURES = 300, 32, 16

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
init()
rank, ranks = get_rank(), get_group_size()
truth = np.linspace(-1, 1, FEATURES, dtype=np.float32)
random = np.random.default_rng(rank)  # each process has data of its own
network = nn.Dense(FEATURES, 1, weight_init="zeros", has_bias=False)
optimizer = nn.SGD(network.trainable_params(), 0.1)
loss_of = nn.MSELoss()
gradients_of = ms.value_and_grad(
    lambda inputs, targets: loss_of(network(inputs), targets), None, optimizer.parameters
)
all_reduce, all_gather = ops.AllReduce(), ops.AllGather()
for step in range(STEPS):
    inputs = random.standard_normal((BATCH, FEATURES), dtype=np.float32)
    loss, gradients = gradients_of(ms.Tensor(inputs), ms.Tensor(inputs @ truth[:, None]))
    optimizer(tuple(all_reduce(gradient) / ranks for gradient in gradients))
    paceline.step(step)
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {float(loss.asnumpy()):.6f}", flush=True)

weights = network.weight.asnumpy()
everyone = all_gather(ms.Tensor(weights)).asnumpy()
assert len(everyone) == ranks > 1, "a process is missing"
assert np.ptp(everyone, axis=0).max() == 0, "processes have different weights"
assert np.abs(weights[0] - truth).max() < 0.01, "the model has not learned"
if rank == 0:
    print(f"trained by {ranks} processes", flush=True)
