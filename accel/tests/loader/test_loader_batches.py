# SPDX-License-Identifier: Apache-2.0
"""paceline.loader.TokenBatches: through both loaders and over records, how alike the ranks' work is
beside that of random batches, and places that are gone on from. What the batches are is the
library's, and tested there (batches_test.cpp).
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from paceline.loader import (
    DataLoader,
    RecordShards,
    ShardSampler,
    TokenBatches,
    _report,
)


def lengths_like_texts(count: int = 6000) -> list[int]:
    """Most are short, a few are long."""
    draw = random.Random(2)
    return [1 + int(511 * draw.random() ** 3) for _ in range(count)]


def of_all(ranks: int, states: Any = None, epoch: int = 0, **options: Any) -> list[TokenBatches]:
    samplers = [TokenBatches(rank=rank, ranks=ranks, **options) for rank in range(ranks)]
    for sampler in samplers:
        if states is not None:
            sampler.load_state_dict(states)
        sampler.set_epoch(epoch)
    return samplers


def cost(batch: list[int], lengths: list[int], padded: bool) -> int:
    return max(lengths[i] for i in batch) * len(batch) if padded else sum(lengths[i] for i in batch)


def waiting(ranks: list[list[list[int]]], lengths: list[int], padded: bool) -> float:
    """The share of all ranks' time in which they wait for the dearest batch of their step."""
    taken = used = 0
    for step in zip(*ranks, strict=True):
        costs = [cost(batch, lengths, padded) for batch in step]
        taken, used = taken + max(costs) * len(costs), used + sum(costs)
    return 1 - used / taken


@pytest.mark.parametrize("padded", [True, False])
def test_ranks_have_as_much_where_random_batches_do_not(padded: bool) -> None:
    lengths = lengths_like_texts()
    samplers = of_all(4, lengths=lengths, max_tokens=4096, padded=padded, seed=1)
    ours = [list(sampler) for sampler in samplers]
    assert len({len(batches) for batches in ours}) == 1 and len(ours[0]) == len(samplers[0])
    flat = [sample for batches in ours for batch in batches for sample in batch]
    assert set(flat) == set(range(len(lengths))) and len(flat) < len(lengths) + 4
    assert max(cost(batch, lengths, padded) for batches in ours for batch in batches) <= 4096
    # PyTorch's, with as many samples a batch as ours have on average, on as many ranks.
    size = len(flat) // (4 * len(ours[0]))
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    drawn = [order[at : at + size] for at in range(0, len(order) - 4 * size, size)]
    theirs = [drawn[rank : len(drawn) // 4 * 4 : 4] for rank in range(4)]
    told = samplers[0].balance()
    assert (
        told["waiting"] == pytest.approx(waiting(ours, lengths, padded)) and told["waiting"] < 0.02
    )
    assert (
        waiting(theirs, lengths, padded) > 5 * told["waiting"]
        and waiting(theirs, lengths, padded) > 0.06
    )
    assert told["padding"] < 0.05 if padded else told["padding"] == 0


def test_epochs_and_seeds_differ_and_repeat() -> None:
    lengths = lengths_like_texts(400)
    options: dict[str, Any] = {"lengths": lengths, "max_tokens": 1024}
    first = list(TokenBatches(seed=1, **options))
    sampler = TokenBatches(seed=1, **options)
    assert list(sampler) == first == list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first and list(TokenBatches(seed=2, **options)) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(TokenBatches(shuffle=False, **options)) == list(
        TokenBatches(shuffle=False, seed=9, **options)
    )
    before = torch.get_rng_state(), random.getstate()
    list(TokenBatches(seed=3, **options))
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


def pad(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def test_through_both_loaders_and_workers_over_records(tmp_path: Path) -> None:
    """Rows of a record file are as long as the longest text; how long each text is, is its first
    number.
    """
    draw = random.Random(5)
    lengths = [draw.randrange(1, 20) for _ in range(90)]
    for number in range(3):
        rows = numpy.zeros((30, 20), dtype=numpy.int64)
        for at in range(30):
            length = lengths[30 * number + at]
            rows[at, 0], rows[at, 1 : length + 1] = length, 30 * number + at
        numpy.save(tmp_path / f"{number}.npy", rows)
    shards = RecordShards(
        [tmp_path / f"{number}.npy" for number in range(3)],
        decode=lambda row: row[1 : int(row[0]) + 1],
    )
    for given in (shards, None):
        batches = TokenBatches(lengths, 64, shards=given, window=1, pool=2, seed=4)
        expected = [pad([shards[sample] for sample in batch]) for batch in batches]
        assert sum(len(batch) for batch in expected) == 90
        for kind in (torch.utils.data.DataLoader, DataLoader):
            for workers in (0, 2):
                loader = kind(shards, batch_sampler=batches, collate_fn=pad, num_workers=workers)
                found = list(loader)
                assert len(loader) == len(found) == len(expected)
                assert all(torch.equal(one, other) for one, other in zip(found, expected))
    near = TokenBatches(lengths, 64, shards=shards, window=1, pool=1, seed=4)
    files = [{sample // 30 for sample in batch} for batch in near]
    assert sum(map(len, files)) < 1.5 * len(files), "a batch is of neighbouring shards"


def test_an_epoch_is_gone_on_from_at_any_batch() -> None:
    options: dict[str, Any] = {
        "lengths": lengths_like_texts(500),
        "max_tokens": 700,
        "seed": 6,
        "rank": 1,
        "ranks": 3,
    }
    sampler = TokenBatches(**options)
    sampler.set_epoch(2)
    whole = list(sampler)
    for delivered in (0, 1, 5, len(whole)):
        resumed = TokenBatches(**options)
        resumed.load_state_dict(pickle.loads(pickle.dumps(sampler.state_dict(delivered))))
        resumed.set_epoch(2)  # as every trainer calls it
        assert list(resumed) == whole[delivered:] and len(resumed) == len(whole) - delivered
        again = TokenBatches(**options)
        again.load_state_dict(resumed.state_dict(len(resumed)))
        assert list(again) == []


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("worlds", [(4, 2), (2, 5, 3), (3, 1, 1, 7)])
def test_other_ranks_go_on_with_what_is_left(worlds: tuple[int, ...], drop_last: bool) -> None:
    """Each number of ranks has its part, unevenly far, and hands over to the next."""
    options: dict[str, Any] = {
        "lengths": lengths_like_texts(600),
        "max_tokens": 600,
        "seed": 5,
        "drop_last": drop_last,
    }
    seen: list[int] = []
    states: Any = None
    for turn, ranks in enumerate(worlds):
        samplers = of_all(ranks, states, epoch=3, **options)
        assert len({len(sampler) for sampler in samplers}) == 1
        left, last = len(samplers[0]), turn + 1 == len(worlds)
        had = [left if last else min(left, rank % 3 + 1) for rank in range(ranks)]
        for sampler, count in zip(samplers, had):
            seen += sum(list(sampler)[:count], [])
        states = [sampler.state_dict(count) for sampler, count in zip(samplers, had)]
    assert len(seen) > 590 and len(seen) - len(set(seen)) < (1 if drop_last else worlds[-1])
    assert drop_last or set(seen) == set(range(600))


def test_a_state_of_other_batches_is_refused() -> None:
    lengths = [5, 9, 2, 7]
    sampler = TokenBatches(lengths, 20)
    state = sampler.state_dict(1)
    for other, why in (
        (TokenBatches(lengths, 21), "max_tokens was 20 and is 21"),
        (TokenBatches([*lengths[:3], 8], 20), "lengths was"),
        (TokenBatches(lengths, 20, padded=False), "flags was"),
        (TokenBatches(lengths, 20, pool=3), "pool was 64 and is 3"),
    ):
        with pytest.raises(ValueError, match=why):
            other.load_state_dict(state)
    for wrong, why in (
        ({**state, "first": 9}, "first is 9: this rank has 2 batches"),
        ({**state, "ranks": 2, "first": 3}, "first is 3: rank 0 of 2 had 1 batches"),
        ({**state, "past": [[1, "a"]]}, "past is"),
    ):
        with pytest.raises(ValueError, match=why):
            sampler.load_state_dict(wrong)
    with pytest.raises(ValueError, match="delivered is 3: this pass has 2 batches"):
        sampler.state_dict(3)
    assert len(sampler) == 2, "and nothing has changed"


def test_wrong_arguments_are_named_with_a_remedy(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.arange(5))
    rows = RecordShards([tmp_path / "a.npy"])
    good = [3, 4, 5]
    for arguments, options, error, why in (
        (
            ([3, 5000, 9], 4096),
            {},
            ValueError,
            r"lengths\[1\] is 5000, and max_tokens is 4096: raise it, or cut",
        ),
        (([3, 50, 90], 9), {}, ValueError, r"lengths\[1\] is 50 \(and 1 more\)"),
        (
            ([3, 0, 9], 4096),
            {},
            ValueError,
            r"lengths\[1\] is 0, and it must be at least 1: leave out empty",
        ),
        (([1.5, 2.0], 10), {}, TypeError, "of torch.float32: it must be a list of whole numbers"),
        (([[1, 2]], 10), {}, TypeError, r"shape \(1, 2\)"),
        (("abc", 10), {}, TypeError, "lengths is str"),
        ((good, 0), {}, ValueError, "max_tokens is 0"),
        ((good, 9), {"max_samples": 0}, ValueError, "max_samples is 0"),
        ((good, 9), {"pool": 0}, ValueError, "pool is 0"),
        ((good, 9), {"rank": 2, "ranks": 2}, ValueError, "rank is 2: it must be below ranks"),
        (
            (good, 9),
            {"shards": rows},
            ValueError,
            "lengths has 3 numbers, and the shards 5 samples",
        ),
    ):
        with pytest.raises(error, match=why):
            TokenBatches(*arguments, **options)
    assert list(TokenBatches([], 9)) == [] and TokenBatches([], 9).balance()["waiting"] == 0
    assert list(TokenBatches(numpy.array([2, 2]), 9)) in ([[0, 1]], [[1, 0]])


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8192,), float(index))


@pytest.mark.parametrize("tells", [True, False])
def test_the_next_epoch_is_prefetched(tmp_path: Path, tells: bool) -> None:
    """Of both orders that follow from the epoch; a state that is loaded between two epochs makes
    one that was begun in vain.
    """
    for number in range(4):
        numpy.save(tmp_path / f"{number}.npy", numpy.arange(10))
    shards = RecordShards([tmp_path / f"{number}.npy" for number in range(4)])

    def passes(kind: Any, made: Any, **options: Any) -> tuple[list[Any], str]:
        loader = kind(Rows(), num_workers=2, persistent_workers=True, **options)
        seen = []
        for epoch in range(4):
            if tells or epoch == 3:
                made.set_epoch(epoch)
            if epoch == 3:
                made.load_state_dict(made.state_dict(2))
            seen.append([batch[:, 0].tolist() for batch in loader])
        return seen, _report.account_of(loader).line()

    for make in (
        lambda: ShardSampler(shards, seed=3),
        lambda: TokenBatches([*range(1, 41)], 60, seed=3),
    ):
        how = "sampler" if isinstance(make(), ShardSampler) else "batch_sampler"
        size = {"batch_size": 4} if how == "sampler" else {}
        made = make()
        expected, _ = passes(torch.utils.data.DataLoader, made, **{how: made}, **size)
        made = make()
        got, line = passes(DataLoader, made, **{how: made}, **size, prefetch_next_epoch=True)
        assert got == expected and (expected[0] != expected[1]) == tells
        # Who has not told the epoch before is taken for one that will; then not.
        begun, vain = (2, 1) if tells else (1, 2)
        assert f"{begun} epochs prefetched, {vain} discarded" in line, line


def test_a_predicted_epoch_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = TokenBatches(lengths_like_texts(500), 700, seed=6)
    planned: list[int] = []
    plan = TokenBatches._planned

    def counted(self: TokenBatches, sequence: torch.Tensor, ranks: int) -> Any:
        planned.append(self.epoch)
        return plan(self, sequence, ranks)

    monkeypatch.setattr(TokenBatches, "_planned", counted)
    first, second = list(batches), list(batches._in_epoch(1))
    batches.set_epoch(1)
    assert list(batches) == second != first and planned == [0, 1]
    list(batches._in_epoch(2))
    batches.set_epoch(3)
    assert list(batches) not in (first, second) and planned == [0, 1, 2, 3]


@pytest.mark.skipif(
    not hasattr(torch, "set_default_device"), reason="a PyTorch without a default device"
)
def test_the_default_device_counts_for_nothing(tmp_path: Path) -> None:
    numpy.save(tmp_path / "rows.npy", numpy.arange(40, dtype=numpy.int64))
    lengths = lengths_like_texts(40)

    def made() -> tuple[list[list[int]], list[int], dict[str, float]]:
        sampler = TokenBatches(lengths=lengths, max_tokens=1024, seed=1)
        sampler.load_state_dict(sampler.state_dict(1))
        rows = RecordShards([tmp_path / "rows.npy"])
        return list(sampler), [int(rows[at]) for at in range(len(rows))], sampler.balance()

    expected = made()
    with torch.device("meta"):
        assert made() == expected
