# SPDX-License-Identifier: Apache-2.0
"""paceline.loader.RecordShards against NumPy: what it writes is read row by row; what it does not
write so is refused with a remedy.
"""

from __future__ import annotations

import os
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
)

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]


def numbers(dtype: str, *shape: int) -> Any:
    return (
        numpy.random.default_rng(len(shape))
        .integers(0, 2 if dtype == "bool" else 100, shape)
        .astype(dtype)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_dtype(tmp_path: Path, dtype: str) -> None:
    arrays = {
        "x": numbers(dtype, 7, 3, 5),
        "label": numbers("int64", 7),
        "ü" * 40: numbers("float32", 7, 1),
    }
    numpy.save(tmp_path / "one.npy", arrays["x"])
    numpy.savez(tmp_path / "all.npz", **arrays)
    rows = RecordShards([tmp_path / "one.npy", tmp_path / "one.npy"])
    assert len(rows) == 14
    for at, row in enumerate(rows):
        assert str(row.dtype) == f"torch.{dtype}" and numpy.array_equal(
            row.numpy(), arrays["x"][at % 7]
        )
    both = RecordShards([tmp_path / "all.npz"])
    for at in range(-7, 7):
        row = both[at]
        assert set(row) == set(arrays) and all(
            numpy.array_equal(row[name].numpy(), arrays[name][at]) for name in row
        )
    with pytest.raises(IndexError):
        both[7]


def test_versions_of_the_format_and_files_without_rows(tmp_path: Path) -> None:
    array = numbers("float32", 5, 2)
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(tmp_path / f"{version[0]}.npy", "wb") as file:
            numpy.lib.format.write_array(file, array, version=version)
    numpy.save(tmp_path / "none.npy", array[:0])
    rows = RecordShards(
        [tmp_path / name for name in ("none.npy", "1.npy", "2.npy", "none.npy", "3.npy")]
    )
    assert torch.equal(torch.stack(list(rows)), torch.from_numpy(array).repeat(3, 1))


def test_records_without_a_header(tmp_path: Path) -> None:
    array = numbers("int32", 11, 6)
    (tmp_path / "a.bin").write_bytes(array[:4].tobytes())
    (tmp_path / "b.bin").write_bytes(array[4:].tobytes())
    rows = RecordShards([tmp_path / "a.bin", tmp_path / "b.bin"], dtype=torch.int32, shape=(2, 3))
    assert torch.equal(torch.stack(list(rows)), torch.from_numpy(array).view(11, 2, 3))
    with pytest.raises(
        OSError, match=r"a.bin: its 96 bytes are no whole number of records of 20 bytes"
    ):
        RecordShards([tmp_path / "a.bin"], dtype=torch.int32, shape=(5,))


def test_through_workers_in_an_order_that_is_gone_on_from(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.arange(13))
    numpy.save(tmp_path / "b.npy", numpy.arange(13, 30))
    rows = RecordShards([tmp_path / "a.npy", tmp_path / "b.npy"])
    again = pickle.loads(pickle.dumps(rows))
    assert again.identity == rows.identity and len(again) == 30
    sampler = ShardSampler(rows, seed=3)
    loader = DataLoader(rows, batch_size=4, sampler=sampler, num_workers=2)
    order = [int(value) for batch in loader for value in batch]
    assert sorted(order) == list(range(30)) and order != sorted(order) and order == list(sampler)
    resumed = ShardSampler(again, seed=3)
    resumed.load_state_dict(sampler.state_dict(17))
    assert list(resumed) == order[17:]
    with pytest.raises(ValueError, match="shards was"):
        ShardSampler(RecordShards([tmp_path / "a.npy"]), seed=3).load_state_dict(
            sampler.state_dict(3)
        )


def test_what_is_refused_is_named_with_a_remedy(tmp_path: Path) -> None:
    array = numbers("float32", 5, 4)
    numpy.save(tmp_path / "good.npy", array)
    numpy.savez_compressed(tmp_path / "packed.npz", x=array)
    numpy.savez(tmp_path / "uneven.npz", x=array, y=array[:4])
    numpy.save(tmp_path / "columns.npy", numpy.asfortranarray(array))
    numpy.save(tmp_path / "big.npy", array.astype(">f4"))
    numpy.save(tmp_path / "object.npy", numpy.array([{}, []], dtype=object), allow_pickle=True)
    numpy.save(tmp_path / "named.npy", numpy.zeros(3, dtype=[("a", "<f4"), ("b", "<i4")]))
    numpy.save(tmp_path / "single.npy", numpy.float32(3))
    numpy.save(tmp_path / "wide.npy", numbers("float32", 5, 5))
    (tmp_path / "text.npy").write_text("a,b,c\n1,2,3\n")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:-1])
    reasons = {
        "packed.npz": "compressed.*numpy.savez",
        "uneven.npz": "array y has 4 rows, and x has 5",
        "columns.npy": "numpy.ascontiguousarray",
        "big.npy": "dtype >f4: numbers must be plain",
        "object.npy": "dtype [|]O",
        "named.npy": "without a plain dtype",
        "single.npy": "without a first axis",
        "wide.npy": "other arrays than .*good.npy",
        "text.npy": "neither an .npy nor an .npz",
        "cut.npy": "ends early: the file was cut off",
        "none.npy": "No such file",
    }
    for name, why in reasons.items():
        with pytest.raises(OSError, match=f"{name}.*{why}"):
            RecordShards([tmp_path / "good.npy", tmp_path / name])
    rows = RecordShards([tmp_path / "good.npy"])
    os.truncate(tmp_path / "good.npy", 150)
    with pytest.raises(OSError, match="good.npy: row 4 ends early"):
        rows[4]


def test_files_that_lie_are_refused_or_read_within_their_bounds(tmp_path: Path) -> None:
    draw = random.Random(2)
    numpy.savez(tmp_path / "good.npz", x=numbers("int16", 3, 2), y=numbers("uint8", 3))
    good = (tmp_path / "good.npz").read_bytes()
    path, opened = tmp_path / "bad.npz", 0
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] = draw.choice((0, 1, 0x7F, 0xFF, draw.randrange(256)))
        path.write_bytes(bad[: draw.randrange(len(bad))] if draw.random() < 0.3 else bad)
        try:
            rows = RecordShards([path])
        except (OSError, TypeError):
            continue
        opened += 1
        for at in {0, len(rows) - 1} if len(rows) else set():
            rows[at]
    assert opened > 20
