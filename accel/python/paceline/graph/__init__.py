# SPDX-License-Identifier: Apache-2.0
"""A whole training step as one CUDA graph: forward, backward and update in a single launch, for
steps whose time is in launching.

    def train(batch, labels):
        optimizer.zero_grad()
        loss = loss_of(model(batch), labels)
        loss.backward()
        optimizer.step()
        return loss

    step = paceline.graph.WholeStep(train, model=model, optimizer=optimizer)
    for batch, labels in loader:
        loss = step(batch, labels)

Every call makes one step. The first ones (`warmup`) are made as always, and looked at; then the
step is captured, and each further call copies its tensors into those of the capture and replays it.
Numerics class Bitwise: the same kernels on the same values.

A capture repeats what it saw. What cannot be repeated so is Refused before anything of that step
has happened, with what changed and what to do: the host reading a value, a path or a shape that
changes, a Python number that does, inputs on the CPU, parameters or modes that are others. The
program may then call its function itself, which makes the step as always:

    try:
        loss = step(batch, labels)
    except paceline.graph.Refused as reason:
        loss = train(batch, labels)

With PACELINE_CUDA_GRAPH=Disabled (spec.acceleration.cudaGraph of a job) every step is made as
always.

Not for several threads at once. What a step does besides asking the device (counting, logging)
happens in the first calls and never again.
"""

from __future__ import annotations

from paceline.graph._report import Refused
from paceline.graph._step import WholeStep

__all__ = ["Refused", "WholeStep"]
