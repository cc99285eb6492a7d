# SPDX-License-Identifier: Apache-2.0
"""Measures pictures per second of processor time: paceline.loader.ImageShards against a tuned
torch.utils.data.DataLoader (persistent workers, prefetching) over Pillow, in turn within one run.

Both read the same shards of JPEG files through paceline.loader.TarShards, and cut the same regions.
Both resize, mirror and normalise them to float32 batches, for a loop that reads nothing. Before the
first measurement a batch of each is compared bit for bit. The measured time is processor time of
loop, threads and workers in one pass over the shards. The DataLoader has had one pass to warm up.

The first row decodes pictures whole. The second row has larger pictures, and the decoder divides
their sides (Image.draft there, scaled_decode here). The ratio is ours over theirs, in pictures per
second of processor time. It is the median over rounds that are neighbours in time.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import PIL
import torch
from paceline.loader import ImageShards, ShardSampler, TarShards
from PIL import Image, features
from torch.utils.data import DataLoader, Dataset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TICK = os.sysconf("SC_CLK_TCK")
BATCH, SIDE = 32, 224


def picture(width: int, height: int, seed: int) -> bytes:
    """Detail of every scale, as photographs have it, so that about as many coefficients are not
    zero.
    """
    draw = random.Random(seed)
    image = Image.new("RGB", (width, height), (128, 128, 128))
    for scale, weight in ((64, 0.6), (16, 0.45), (4, 0.3), (1, 0.06)):
        size = (max(width // scale, 2), max(height // scale, 2))
        noise = Image.frombytes("RGB", size, draw.randbytes(size[0] * size[1] * 3))
        image = Image.blend(image, noise.resize((width, height), Image.Resampling.BICUBIC), weight)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, subsampling=2)
    return file.getvalue()


def write(path: Path, files: list[bytes], first: int) -> Path:
    with tarfile.open(path, "w") as archive:
        for number, data in enumerate(files, first):
            for extension, content in (("jpg", data), ("cls", str(number).encode())):
                info = tarfile.TarInfo(f"{number:06}.{extension}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


class Decode:
    """What a training script has in its dataset: Pillow, then torchvision's ToTensor and Normalize,
    in place.
    """

    def __init__(self, views: list[dict[str, int]], scaled: bool) -> None:
        self.views, self.scaled = views, scaled
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def __call__(self, sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
        number = int(sample["cls"])
        view = self.views[number]
        image: Any = Image.open(io.BytesIO(sample["jpg"]))
        divisor = 1
        if self.scaled:
            room = min(view["width"] // SIDE, view["height"] // SIDE)
            divisor = next(each for each in (8, 4, 2, 1) if each <= max(room, 1))
            image.draft("RGB", (image.size[0] // divisor, image.size[1] // divisor))
        x, y, width, height = (view[name] // divisor for name in ("x", "y", "width", "height"))
        image = image.convert("RGB").crop((x, y, x + width, y + height))
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        if view["flip"]:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous()
        return pixels.float().div_(255).sub_(self.mean).div_(self.std), number


def ticks(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def processor_seconds(workers: list[int]) -> float:
    return time.process_time() + sum(ticks(process) for process in workers)


@dataclass
class Row:
    name: str
    theirs: list[float]
    ours: list[float]
    decoding: float  # share of our processor time

    @property
    def ratio(self) -> float:
        return statistics.median(one / other for one, other in zip(self.ours, self.theirs))

    def say(self) -> None:
        medians = [statistics.median(values) for values in (self.ours, self.theirs)]
        print(
            f"{self.name}: {medians[0]:.0f} pictures a second of processor time against"
            f" {medians[1]:.0f}, ratio {self.ratio:.2f} (rounds"
            f" {' '.join(f'{one / other:.2f}' for one, other in zip(self.ours, self.theirs))});"
            f" {self.decoding:.0%} of ours in the decoder"
        )


def compare(ours: ImageShards, loader: Any) -> None:
    (one, numbers), (other, others) = next(iter(ours)), next(iter(loader))
    assert numbers.tolist() == others.tolist()
    assert torch.equal(one, other), "the same pixels"


def measure(name: str, paths: list[Path], options: Any, scaled: bool) -> Row:
    shards: Dataset[Any] = TarShards(paths)
    ours = ImageShards(
        shards,
        BATCH,
        SIDE,
        target="cls",
        mean=MEAN,
        std=STD,
        seed=1,
        threads=options.workers,
        scaled_decode=scaled,
    )
    views = [ours.view(number) for number in range(len(shards))]
    theirs = TarShards(paths, Decode(views, scaled))
    loader = DataLoader(
        theirs,
        BATCH,
        sampler=ShardSampler(theirs, seed=1),
        num_workers=options.workers,
        persistent_workers=True,
        prefetch_factor=4,
    )
    compare(ours, loader)
    workers = [process.pid for process in loader._iterator._workers]
    passes: dict[str, Callable[[], Any]] = {"theirs": lambda: loader, "ours": lambda: ours}
    for _ in loader:
        pass
    rates: dict[str, list[float]] = {each: [] for each in passes}
    decoding = spent = 0.0
    for number in range(options.rounds):
        for each in passes if number % 2 == 0 else reversed(passes):
            account = ours._account.decoding
            began = processor_seconds(workers)
            count = sum(len(numbers) for _, numbers in passes[each]())
            seconds = processor_seconds(workers) - began
            rates[each].append(count / seconds)
            if each == "ours":
                decoding += ours._account.decoding - account
                spent += seconds
    return Row(name, rates["theirs"], rates["ours"], decoding / spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--pictures", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2, help="their processes, our threads")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rows = []
    for name, size, scaled in (("whole", (500, 375), False), ("divided", (1400, 1050), True)):
        with tempfile.TemporaryDirectory() as folder:
            some = [picture(*size, seed) for seed in range(32)]
            files = [some[number % len(some)] for number in range(options.pictures)]
            half = len(files) // 2
            paths = [
                write(Path(folder) / "a.tar", files[:half], 0),
                write(Path(folder) / "b.tar", files[half:], half),
            ]
            mean = statistics.mean(map(len, some))
            rows.append(
                measure(f"{size[0]}x{size[1]}, {mean:.0f} bytes, {name}", paths, options, scaled)
            )
        rows[-1].say()
    decoder = f"libjpeg-turbo {features.version('libjpeg_turbo')}"
    print(
        f"theirs: Pillow {PIL.__version__} with {decoder}, PyTorch {torch.__version__}; load"
        f" {load:.2f} at the beginning"
    )
    said = {
        "bench": "images",
        "ratio": round(rows[0].ratio, 3),
        "ratio_divided": round(rows[1].ratio, 3),
    }
    for key, row in zip(("whole", "divided"), rows):
        said[key] = {
            "ours": round(statistics.median(row.ours), 1),
            "theirs": round(statistics.median(row.theirs), 1),
            "decode_share": round(row.decoding, 3),
        }
    print(json.dumps({**said, "pillow": PIL.__version__, "load": round(load, 2)}))


if __name__ == "__main__":
    main()
