# SPDX-License-Identifier: Apache-2.0
"""Diffusers: an unconditional UNet learns to remove noise, by the loop of its documentation."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch.nn import functional
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

torch.manual_seed(1)
preprocess = transforms.Compose(
    [
        transforms.Resize((32, 32)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.5], [0.5]),
    ]
)
pictures = ImageFolder("data/pictures", preprocess)
loader = DataLoader(pictures, batch_size=8, shuffle=True)
model = UNet2DModel(
    sample_size=32,
    block_out_channels=(32, 32, 64),
    layers_per_block=1,
    norm_num_groups=8,
    down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
)
noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
schedule = get_cosine_schedule_with_warmup(
    optimizer=optimizer, num_warmup_steps=10, num_training_steps=100 * len(loader)
)
accelerator = Accelerator()
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for _ in range(100):
    for clean, _ in loader:
        noise = torch.randn_like(clean)
        steps = torch.randint(0, 1000, (len(clean),), device=clean.device)
        noisy = noise_scheduler.add_noise(clean, noise, steps)
        with accelerator.accumulate(model):
            predicted = model(noisy, steps, return_dict=False)[0]
            loss = functional.mse_loss(predicted, noise)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
