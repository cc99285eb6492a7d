# SPDX-License-Identifier: Apache-2.0
"""Tokens of batches for language models, counted where a loader delivers them."""

from __future__ import annotations

import pytest
from programs import Train

LOOP = """
class Texts(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return {item}

model = nn.Embedding(100, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{collate}
for batch in DataLoader(Texts(), batch_size=8, collate_fn=collate):
    optimizer.zero_grad()
    model({ids}).sum().backward()
    optimizer.step()
    with torch.no_grad():
        for _ in DataLoader(Texts(), batch_size=8, collate_fn=collate):
            pass
"""
PLAIN = "collate = None"
AS_TRANSFORMERS = """
from collections import UserDict
def collate(items):
    return UserDict({"labels": torch.zeros(8), "input_ids": torch.stack(items)})
"""
IDS = "torch.full((12,), index)"

CASES = {
    "dict": ("{'input_ids': " + IDS + "}", PLAIN, "batch['input_ids']", 96),
    "torchtune": ("{'tokens': " + IDS + ", 'labels': 1}", PLAIN, "batch['tokens']", 96),
    "BatchEncoding": (IDS, AS_TRANSFORMERS, "batch['input_ids']", 96),
    "pictures": ("(" + IDS + ", 1)", PLAIN, "batch[0]", None),
    "one number each": (
        "{'input_ids': torch.tensor(index)}",
        PLAIN,
        "batch['input_ids']",
        None,
    ),
}


@pytest.mark.parametrize("case", CASES, ids=list(CASES))
def test_tokens_are_those_of_the_batches_trained_on(train_by_fork: Train, case: str) -> None:
    item, collate, ids, tokens = CASES[case]
    ring = train_by_fork(LOOP.format(item=item, collate=collate, ids=ids)).only()
    assert [record.tokens for record in ring.steps] == [tokens] * 5, "evaluation does not count"
    assert all(record.samples == 8 for record in ring.steps)


def test_a_mapping_that_raises_harms_nothing(train_by_fork: Train) -> None:
    collate = """
from collections import UserDict
class Odd(UserDict):
    def __contains__(self, key):
        raise RuntimeError("odd")
def collate(items):
    return Odd({"ids": torch.stack(items)})
"""
    run = train_by_fork(LOOP.format(item=IDS, collate=collate, ids="batch.data['ids']"))
    assert all(record.tokens is None for record in run.only().steps)
