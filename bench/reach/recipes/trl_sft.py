# SPDX-License-Identifier: Apache-2.0
"""TRL's SFTTrainer on a text file, with a small Llama from random weights."""

import torch
from datasets import load_dataset
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer

torch.manual_seed(1)
tokenizer = AutoTokenizer.from_pretrained("data/tokenizer")
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
)
texts = load_dataset("text", data_files="data/sentences.txt", split="train")
arguments = SFTConfig(
    output_dir="output",
    max_steps=5000,
    max_length=64,
    save_strategy="no",
    bf16=torch.cuda.is_available(),  # TRL refuses its default where there is no GPU
)
trainer = SFTTrainer(model=model, args=arguments, train_dataset=texts, processing_class=tokenizer)
trainer.train()
torch.save(model.state_dict(), "model.pt")
