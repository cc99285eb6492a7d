# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits with PyTorch DistributedDataParallel, on CPUs. An ordinary program: any
launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT can start it, and without one it
trains alone.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

TEST_SHARE = 5  # every fifth sample is for testing


class Digits(Dataset):
    """8x8 images of handwritten digits; for training each is shifted by up to one pixel, so that no
    epoch repeats another.
    """

    def __init__(self, path: Path, train: bool) -> None:
        with gzip.open(path, "rt") as lines:
            rows = [[int(value) for value in line.split(",")] for line in lines]
        rows = [row for index, row in enumerate(rows) if (index % TEST_SHARE == 0) != train]
        table = torch.tensor(rows, dtype=torch.float32)
        self.images = table[:, :64].reshape(-1, 1, 8, 8) / 16
        self.labels = table[:, 64].long()
        self.train = train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.images[index]
        if self.train:
            down, right = torch.randint(-1, 2, (2,)).tolist()
            image = torch.roll(image, (down, right), (1, 2))
        return image, self.labels[index]


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    counts = torch.zeros(2)
    for images, labels in loader:
        counts[0] += (model(images).argmax(1) == labels).sum()
        counts[1] += len(labels)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def load_checkpoint(path: Path) -> Any:
    """Rank 0's checkpoint, for every rank: no shared file system is needed. None where there is
    none.
    """
    state = [torch.load(path) if dist.get_rank() == 0 and path.exists() else None]
    dist.broadcast_object_list(state, src=0)
    return state[0]


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, partial)
    os.replace(partial, path)


def options_of_the_command() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).with_name("digits.csv.gz"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="per rank")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=Path("digits.pt"),
        help="resumed from if a run was interrupted",
    )
    return parser.parse_args()


def main() -> None:
    options = options_of_the_command()
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }.items():
        os.environ.setdefault(name, value)
    dist.init_process_group("gloo")
    # A function of its own: DistributedDataParallel holds the process group, and must be gone
    # before the group is destroyed. PyTorch 1.13 can hang there otherwise: it joins gloo's threads
    # with the interpreter's lock held, while one of them lets go of the last tensor it summed.
    train(options)
    dist.destroy_process_group()


def train(options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    torch.manual_seed(rank)

    train_set, test_set = Digits(options.data, train=True), Digits(options.data, train=False)
    sampler: DistributedSampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, options.batch_size, sampler=sampler, drop_last=True)
    test_loader = DataLoader(test_set, 128, sampler=DistributedSampler(test_set, shuffle=False))

    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    first_epoch = 0
    checkpoint = load_checkpoint(options.checkpoint)
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        schedule.load_state_dict(checkpoint["schedule"])
        first_epoch = checkpoint["epoch"]
        if rank == 0:
            print(f"resumed after epoch {first_epoch}", flush=True)
    parallel = DistributedDataParallel(model)
    loss_of = nn.CrossEntropyLoss()

    accuracy = 0.0
    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)
        parallel.train()
        started, samples, total = time.perf_counter(), 0, 0.0
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = loss_of(parallel(images), labels)
            loss.backward()
            optimizer.step()
            samples += len(labels)
            total += loss.item() * len(labels)
        schedule.step()
        seconds = time.perf_counter() - started
        accuracy = evaluate(parallel.module, test_loader)
        if rank == 0:
            rate = samples * dist.get_world_size() / seconds
            print(
                f"epoch {epoch + 1}/{options.epochs}: loss {total / samples:.4f}, {rate:.0f}"
                f" samples/s, test accuracy {accuracy:.3f}",
                flush=True,
            )
            save_checkpoint(
                options.checkpoint,
                {
                    "epoch": epoch + 1,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                },
            )
    if rank == 0:
        # What is left is the trained model, not something to resume from: the next run starts anew.
        final = options.checkpoint.with_name(options.checkpoint.stem + "-trained.pt")
        save_checkpoint(final, model.state_dict())
        options.checkpoint.unlink()
        print(f"accuracy: {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
