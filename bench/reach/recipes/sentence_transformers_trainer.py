# SPDX-License-Identifier: Apache-2.0
"""Sentence Transformers: a small BERT trained on pairs of sentences."""

from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from transformers import AutoTokenizer, BertConfig, BertModel

torch.manual_seed(1)
config = BertConfig(
    vocab_size=1004,
    hidden_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=64,
)
BertModel(config).save_pretrained("bert")
AutoTokenizer.from_pretrained("data/tokenizer").save_pretrained("bert")
words = models.Transformer("bert", max_seq_length=64)
model = SentenceTransformer(modules=[words, models.Pooling(words.get_word_embedding_dimension())])
lines = Path("data/sentences.txt").read_text().splitlines()
pairs = Dataset.from_dict({"anchor": lines[0::2], "positive": lines[1::2]})
arguments = SentenceTransformerTrainingArguments(
    output_dir="output", max_steps=5000, per_device_train_batch_size=16, save_strategy="no"
)
trainer = SentenceTransformerTrainer(
    model=model,
    args=arguments,
    train_dataset=pairs,
    loss=losses.MultipleNegativesRankingLoss(model),
)
trainer.train()
torch.save(model.state_dict(), "model.pt")
