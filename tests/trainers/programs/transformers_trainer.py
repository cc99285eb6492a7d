# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ANN001, ANN204 - as people write such programs
"""Transformers' Trainer: two epochs of a random language model of 20 thousand parameters, with
accumulation and evaluation.
"""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Sentences(Dataset):
    def __init__(self, size):
        self.tokens = torch.randint(
            0, 64, (size, 16), generator=torch.Generator().manual_seed(size)
        )

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


result = {"weights": {}, "losses": []}
for optimizer in ("adamw_torch", "adamw_torch_fused"):
    set_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    )
    arguments = TrainingArguments(
        output_dir="output",
        optim=optimizer,
        use_cpu=True,
        num_train_epochs=2 if optimizer == "adamw_torch" else 1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        dataloader_num_workers=2,
        dataloader_persistent_workers=True,
        eval_strategy="epoch",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Sentences(24), eval_dataset=Sentences(8)
    )
    trainer.train()
    for entry in trainer.state.log_history:
        result["losses"] += [
            entry[key] for key in ("loss", "grad_norm", "eval_loss") if key in entry
        ]
    result["weights"].update(
        {f"{optimizer}.{name}": value for name, value in model.state_dict().items()}
    )
