# SPDX-License-Identifier: Apache-2.0
"""Accelerate on two ranks: a small GPT-2 by the loop of its documentation."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

set_seed(1)
accelerator = Accelerator(cpu=not torch.cuda.is_available())  # else two CPU ranks train apart
tokens = torch.randint(0, 4000, (2048, 16))
loader = DataLoader(TensorDataset(tokens), batch_size=4, shuffle=True)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=4000, n_positions=16, n_embd=256, n_layer=6, n_head=4)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model.train()
for _ in range(100):
    for (inputs,) in loader:
        loss = model(input_ids=inputs, labels=inputs).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
if accelerator.is_main_process:
    torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
accelerator.end_training()
