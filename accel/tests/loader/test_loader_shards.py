# SPDX-License-Identifier: Apache-2.0
"""paceline.loader.TarShards and ShardSampler: archives of several makers against Python's tarfile,
samples through loaders, places that are gone on from.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from paceline.loader import (
    DataLoader,
    ShardSampler,
    TarShards,
)

NAMES = ["a/0001", "a/0002", "ü/groß", "n" * 90 + "/" + "m" * 150, "x" * 180, "9"]


def write(path: Path, names: list[str], format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as archive:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for number, name in enumerate(names):
            for extension in ("jpg", "seg.PNG", "cls"):
                data = f"{name} {extension} ".encode() * (number * 40)
                info = tarfile.TarInfo(f"{name}.{extension}")
                # A fraction of a second makes pax write an extended header.
                info.size, info.mtime = len(data), 1.5
                archive.addfile(info, io.BytesIO(data))
    return path


def expected(path: Path) -> list[dict[str, Any]]:
    """As webdataset groups what tarfile reads."""
    samples: list[dict[str, Any]] = []
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            folder, _, last = member.name.rpartition("/")
            stem, _, extension = last.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key})
            samples[-1][extension.lower()] = file.read()
    return samples


def numbered(folder: Path, counts: list[int]) -> TarShards:
    """Shards whose samples are told by their keys."""
    paths = []
    first = 0
    for shard, count in enumerate(counts):
        paths.append(
            write(
                folder / f"{shard:03}.tar",
                [f"{number:06}" for number in range(first, first + count)],
            )
        )
        first += count
    return TarShards(paths, decode=key_of)


def key_of(sample: dict[str, Any]) -> int:
    return int(sample["__key__"])


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_by_python(tmp_path: Path, format: int) -> None:
    names = NAMES if format != tarfile.USTAR_FORMAT else NAMES[:2] + ["p" * 90 + "/" + "m" * 50]
    path = write(tmp_path / "shard.tar", names, format)
    assert list(TarShards([path])) == expected(path)
    assert len(TarShards([path, path])) == 2 * len(names)


@pytest.mark.parametrize("format", ["gnu", "posix", "ustar", "v7"])
def test_archives_by_gnu_tar(tmp_path: Path, format: str) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for number in range(30):
        name = f"{number}" + "y" * (120 if format in ("gnu", "posix") and number % 3 == 0 else 0)
        for extension in ("txt", "bin"):
            (tmp_path / "data" / "deep" / f"{name}.{extension}").write_bytes(
                os.urandom(number * 100)
            )
    (tmp_path / "data" / "link.txt").symlink_to("deep")
    path = tmp_path / "shard.tar"
    subprocess.run(
        ["tar", f"--format={format}", "--sort=name", "-cf", str(path), "-C", str(tmp_path), "data"],
        check=True,
    )
    found = list(TarShards([path]))
    assert found == expected(path) and len(found) == 30


def test_what_is_no_shard_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good.tar", NAMES)
    cut = tmp_path / "cut.tar"
    cut.write_bytes(good.read_bytes()[:-12_000])
    packed = tmp_path / "packed.tar"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(good, "a.txt")
    for bad, why in (
        (cut, "cut off"),
        (packed, "compressed"),
        (tmp_path / "none.tar", "No such file"),
    ):
        with pytest.raises(OSError, match=f"{bad.name}: .*{why}"):
            TarShards([good, bad, good])
    with pytest.raises(ValueError, match="paths is empty: "):
        TarShards(sorted(tmp_path.glob("no-such-*.tar")))
    with pytest.raises(TypeError, match="list of paths"):
        TarShards(str(good))


def test_a_shard_that_changes_later_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "shard.tar", NAMES)
    shards = TarShards([path])
    os.truncate(path, 4096)
    with pytest.raises(OSError, match="shard.tar: .* ends early"):
        list(shards)


def test_samples_through_workers_and_the_same_in_every_process(tmp_path: Path) -> None:
    shards = numbered(tmp_path, [7, 1, 12, 5])
    again = pickle.loads(pickle.dumps(shards))
    assert again.identity == shards.identity and list(again) == list(range(25))
    sampler = ShardSampler(shards, seed=3, window=2)
    order = list(sampler)
    assert sorted(order) == list(range(25)) and order != sorted(order)
    loader = DataLoader(shards, batch_size=4, sampler=sampler, num_workers=2)
    assert [int(key) for batch in loader for key in batch] == order
    assert list(ShardSampler(again, seed=3, window=2)) == order


def test_ranks_divide_an_epoch_and_epochs_differ(tmp_path: Path) -> None:
    shards = numbered(tmp_path, [6, 6, 6, 6])
    samplers = [ShardSampler(shards, seed=1, rank=rank, ranks=4, window=1) for rank in range(4)]
    first = [list(sampler) for sampler in samplers]
    assert sorted(sum(first, [])) == list(range(24))
    assert all(len({sample // 6 for sample in part}) == 1 for part in first), (
        "each rank reads its own shards"
    )
    for sampler in samplers:
        sampler.set_epoch(1)
    second = [list(sampler) for sampler in samplers]
    assert sorted(sum(second, [])) == list(range(24)) and second != first
    assert list(ShardSampler(shards, shuffle=False, rank=1, ranks=5)) == [5, 6, 7, 8, 9]
    assert list(ShardSampler(shards, shuffle=False, rank=4, ranks=5)) == [20, 21, 22, 23, 0]
    assert len(ShardSampler(shards, rank=1, ranks=5, drop_last=True)) == 4


def test_an_epoch_is_gone_on_from_at_any_sample(tmp_path: Path) -> None:
    shards = numbered(tmp_path, [9, 4, 11])
    options: dict[str, Any] = {"seed": 5, "rank": 1, "ranks": 2}
    sampler = ShardSampler(shards, **options)
    sampler.set_epoch(2)
    order = list(sampler)
    for delivered in (0, 1, 7, 12):
        resumed = ShardSampler(shards, **options)
        resumed.load_state_dict(sampler.state_dict(delivered))
        resumed.set_epoch(2)  # as every trainer calls it
        assert list(resumed) == order[delivered:] and len(resumed) == 12 - delivered
        again = ShardSampler(shards, **options)
        again.load_state_dict(resumed.state_dict(12 - delivered))
        assert list(again) == []
        resumed.set_epoch(3)
        sampler_of_next = ShardSampler(shards, **options)
        sampler_of_next.set_epoch(3)
        assert list(resumed) == list(sampler_of_next) and len(resumed) == 12


def test_a_state_of_another_order_is_refused(tmp_path: Path) -> None:
    shards = numbered(tmp_path, [9, 4])
    state = ShardSampler(shards, seed=5, ranks=2).state_dict(3)
    with pytest.raises(ValueError, match="seed was 5 and is 6"):
        ShardSampler(shards, seed=6, ranks=2).load_state_dict(state)
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="shards was"):
        ShardSampler(numbered(tmp_path / "other", [9, 5]), seed=5, ranks=2).load_state_dict(state)
    with pytest.raises(ValueError, match="first is 8: rank 0 of 2 had 7 samples"):
        ShardSampler(shards, seed=5, ranks=2).load_state_dict({**state, "first": 8})
    with pytest.raises(ValueError, match="delivered is 8"):
        ShardSampler(shards, ranks=2).state_dict(8)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("worlds", [(4, 2), (2, 5, 3), (3, 1, 1, 7), (1, 40)])
def test_other_ranks_go_on_with_what_is_left(
    tmp_path: Path, worlds: tuple[int, ...], drop_last: bool
) -> None:
    """Each number of ranks has its part, unevenly far, and hands over to the next."""
    shards = numbered(tmp_path, [9, 4, 11, 7])
    seen: list[int] = []
    states: Any = None
    for turn, ranks in enumerate(worlds):
        options: dict[str, Any] = {"seed": 5, "window": 2, "ranks": ranks, "drop_last": drop_last}
        samplers = [ShardSampler(shards, rank=rank, **options) for rank in range(ranks)]
        for sampler in samplers:
            if states is None:
                sampler.set_epoch(3)
            else:
                sampler.load_state_dict(pickle.loads(pickle.dumps(states)))
                sampler.set_epoch(3)  # as every trainer calls it
        assert len({len(sampler) for sampler in samplers}) == 1, (
            "no rank waits for another at the epoch's end"
        )
        left = len(samplers[0])
        last = turn + 1 == len(worlds)
        had = [left if last else min(left, rank % 3 + 1) for rank in range(ranks)]
        seen += sum((list(sampler)[:count] for sampler, count in zip(samplers, had)), [])
        states = [sampler.state_dict(count) for sampler, count in zip(samplers, had)]
    twice = len(seen) - len(set(seen))
    if drop_last:
        assert twice == 0 and 31 - len(seen) < worlds[-1]
    else:
        assert set(seen) == set(range(31)) and twice < worlds[-1], (
            "but to fill the last ranks' share"
        )


def test_one_state_stands_for_all_that_were_as_far(tmp_path: Path) -> None:
    shards = numbered(tmp_path, [9, 4, 11])
    old = [ShardSampler(shards, seed=5, rank=rank, ranks=4) for rank in range(4)]
    new = [ShardSampler(shards, seed=5, rank=rank, ranks=2) for rank in range(2)]
    for sampler in new:
        sampler.load_state_dict(old[2].state_dict(2))
    assert sorted(
        sum((list(sampler)[:2] for sampler in old), []) + sum(map(list, new), [])
    ) == list(range(24))
    # The same ones, each where it was.
    again = ShardSampler(shards, seed=5, rank=1, ranks=4)
    again.load_state_dict(
        [sampler.state_dict(sampler._order.rank + 1) for sampler in reversed(old)]
    )
    assert list(again) == list(old[1])[2:]
    new[0].set_epoch(1)
    fresh = ShardSampler(shards, seed=5, rank=0, ranks=2)
    fresh.set_epoch(1)
    assert list(new[0]) == list(fresh), "the next epoch is whole"


def test_states_that_are_not_of_one_pass_are_refused(tmp_path: Path) -> None:
    shards = numbered(tmp_path, [9, 4])
    states = [ShardSampler(shards, rank=rank, ranks=3).state_dict(1) for rank in range(3)]
    sampler = ShardSampler(shards, ranks=2)
    for given, why in (
        ([], "an empty list"),
        (states[:2], "2 of 3 ranks, and that of rank 2 is missing"),
        ([*states, states[0]], "4 of 3 ranks, and one comes twice"),
        ([*states[:2], {**states[2], "epoch": 1}], "epoch is 0 and 1"),
        ({**states[0], "left": [[0, 14]]}, r"left has \[0, 14\]"),
        ({**states[0], "left": [[0, 5], [4, 6]]}, r"left has \[4, 6\]"),
        ({**states[0], "left": 3}, "left has None"),
        ({**states[0], "first": -1}, "the state's first is -1"),
        ({**states[0], "ranks": "3"}, "the state's ranks is '3'"),
    ):
        with pytest.raises(ValueError, match=why):
            sampler.load_state_dict(given)
    assert len(sampler) == 7, "and nothing has changed"


@pytest.mark.parametrize(
    "options,why",
    [
        ({"rank": 2, "ranks": 2}, "rank is 2: it must be below ranks"),
        ({"ranks": 0}, "ranks is 0"),
        ({"window": 0}, "window is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, options: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ShardSampler(TarShards([write(tmp_path / "shard.tar", NAMES)]), **options)  # type: ignore[arg-type]
