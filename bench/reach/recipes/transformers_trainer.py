# SPDX-License-Identifier: Apache-2.0
"""Transformers' Trainer with its default arguments: a small GPT-2 from random weights."""

from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Sentences(Dataset):
    def __init__(self):
        tokenizer = AutoTokenizer.from_pretrained("data/tokenizer")
        lines = Path("data/sentences.txt").read_text().splitlines()
        self.tokens = tokenizer(
            lines, padding="max_length", truncation=True, max_length=64, return_tensors="pt"
        )["input_ids"]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


torch.manual_seed(1)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=1004, n_positions=64, n_embd=128, n_layer=4, n_head=4)
)
arguments = TrainingArguments(output_dir="output", max_steps=5000, save_strategy="no")
trainer = Trainer(model=model, args=arguments, train_dataset=Sentences())
trainer.train()
torch.save(model.state_dict(), "model.pt")
