# SPDX-License-Identifier: Apache-2.0
"""The recipes of bench/reach, and what is said of each before it is measured.

`bound` names what limits the recipe's step on a machine without much room:

- LOADER: the training waits for batches that workers or the training process itself prepare
- GRADIENTS: ranks wait for sums of gradients that little computing hides
- SMALL: many small operations, whose overhead outweighs their arithmetic
- PRODUCT: few large matrix products or convolutions
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RECIPES = Path(__file__).parent / "recipes"

LOADER = "a loader that waits"
GRADIENTS = "exposed gradients"
SMALL = "many small operations"
PRODUCT = "one large product"
# What acceleration is judged by: a large product leaves nothing to gain.
HELPED = (LOADER, GRADIENTS, SMALL)


WARM_UP = 16  # steps of each run that are not measured
PAIRS = 10  # windows of each run


@dataclass(frozen=True)
class Recipe:
    """One script of recipes/."""

    name: str  # of the file, without .py
    package: str  # whose trainer or loop it is
    bound: str
    ranks: int
    batch: int  # samples a step and rank
    # Steps of a window. What was kept is looked at again 128 steps after it was, with windows that
    # leave it out: ten windows must end before.
    window: int
    # What ends a step: the step of the first optimizer of torch.optim, or a backward pass where the
    # package has optimizers of its own.
    mark: str = "optimizer"

    @property
    def script(self) -> Path:
        return RECIPES / f"{self.name}.py"


CATALOGUE = (
    Recipe("transformers_trainer", "Transformers", SMALL, 1, 8, 8),
    Recipe("peft_lora", "PEFT", SMALL, 1, 8, 8),
    Recipe("trl_sft", "TRL", SMALL, 1, 8, 8),
    Recipe("sentence_transformers_trainer", "Sentence Transformers", SMALL, 1, 16, 8),
    Recipe("diffusers_unet", "Diffusers", SMALL, 1, 8, 10),
    Recipe("keras_torch", "Keras on PyTorch", SMALL, 1, 32, 10, mark="backward"),
    Recipe("skorch_classifier", "skorch", SMALL, 1, 128, 10),
    Recipe("metric_learning", "PyTorch Metric Learning", SMALL, 1, 32, 10),
    Recipe("timm_training", "timm", LOADER, 1, 16, 8),
    Recipe("fastai_vision", "fastai", LOADER, 1, 16, 8, mark="backward"),
    Recipe("mmengine_runner", "MMEngine", LOADER, 1, 16, 8),
    Recipe("torchvision_reference", "torchvision", LOADER, 1, 16, 8),
    Recipe("datasets_loop", "datasets", LOADER, 1, 16, 10),
    Recipe("accelerate_loop", "Accelerate", GRADIENTS, 2, 4, 8),
    Recipe("lightning_trainer", "Lightning", GRADIENTS, 2, 16, 10),
    Recipe("fabric_loop", "Lightning Fabric", GRADIENTS, 2, 4, 8),
    Recipe("ddp_loop", "our own loop, DDP", GRADIENTS, 2, 4, 8),
    Recipe("fsdp2_loop", "our own loop, FSDP2", GRADIENTS, 2, 4, 8),
    Recipe("ignite_trainer", "Ignite", PRODUCT, 1, 256, 8),
    Recipe("segmentation_unet", "Segmentation Models", PRODUCT, 1, 4, 10),
)
