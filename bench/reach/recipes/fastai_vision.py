# SPDX-License-Identifier: Apache-2.0
"""fastai: a vision learner on a folder of pictures."""

import torch
from fastai.vision.all import (
    ImageDataLoaders,
    Learner,
    Resize,
    accuracy,
    set_seed,
    xresnet18,
)

set_seed(1)
data = ImageDataLoaders.from_folder(
    "data/pictures", valid_pct=0.1, seed=1, item_tfms=Resize(64), bs=16, num_workers=1
)
learner = Learner(data, xresnet18(n_out=8), metrics=accuracy)
learner.fit_one_cycle(100)
torch.save(learner.model.state_dict(), "model.pt")
