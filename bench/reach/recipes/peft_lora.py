# SPDX-License-Identifier: Apache-2.0
"""PEFT: LoRA on a small Llama, with Transformers' Trainer."""

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(Dataset):
    def __init__(self):
        self.rows = torch.randint(0, 1000, (2048, 64))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


torch.manual_seed(1)
base = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=1000,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
)
lora = LoraConfig(
    task_type=TaskType.CAUSAL_LM, r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]
)
model = get_peft_model(base, lora)
arguments = TrainingArguments(
    output_dir="output", max_steps=5000, learning_rate=1e-3, save_strategy="no"
)
trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
trainer.train()
torch.save(model.state_dict(), "model.pt")
