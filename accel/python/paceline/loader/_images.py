# SPDX-License-Identifier: Apache-2.0
"""Makes batches of pictures from tar shards. The library's threads decode, crop, resize, mirror and
normalise the pictures; the pixels equal Pillow's.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from paceline.loader import _pictures_native as native
from paceline.loader import _report
from paceline.loader._resume import States
from paceline.loader._sampler import ShardSampler
from paceline.loader._shards import TarShards


class _Memory:
    """Keeps the memory of dead batches and uses it again, because the kernel must clear fresh pages
    first. The memory is private to the process: a forked child has its own copy.
    """

    def __init__(self, most: int) -> None:
        self._free: list[mmap.mmap] = []
        self._most = most

    def take(self, size: int) -> ctypes.Array[Any]:
        memory = None
        while self._free and memory is None:
            found = self._free.pop()
            memory = found if len(found) == size else None
        if memory is None:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        buffer: ctypes.Array[Any] = _buffer_type(size).from_buffer(memory)
        buffer.home = (self, memory)  # type: ignore[attr-defined]
        return buffer

    def give_back(self, memory: mmap.mmap) -> None:
        if len(self._free) < self._most:
            self._free.append(memory)


def _freed(self: Any) -> None:
    home = self.__dict__.pop("home", None)
    if home is not None:
        home[0].give_back(home[1])


_types: dict[int, Any] = {}


def _buffer_type(size: int) -> Any:
    if size not in _types:
        if len(_types) > 64:  # bounds the cache if a program asks for ever new sizes
            _types.clear()
        _types[size] = type("Batch", (ctypes.c_ubyte * size,), {"__del__": _freed})
    return _types[size]


def _pair(name: str, value: Sequence[float]) -> Any:
    if len(value) != 2:
        raise ValueError(f"{name} is {value!r}: it must be two numbers, the smaller one first")
    return (ctypes.c_double * 2)(*value)


def _one_of(name: str, value: str, known: Mapping[str, int]) -> int:
    if value not in known:
        raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(known)}")
    return known[value]


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _check_count(name: str, value: int) -> None:
    if not 1 <= value <= 1 << 20:
        raise ValueError(f"{name} is {value}: it must be at least 1")


def _check_normalization(mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
    if (mean is None) != (std is None) or any(
        each is not None and len(each) != 3 for each in (mean, std)
    ):
        raise ValueError(
            f"mean is {mean!r} and std {std!r}: they must be three numbers each, or neither be"
            " given"
        )


def _height_and_width(size: int | tuple[int, int]) -> tuple[int, int]:
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2:
        raise ValueError(f"size is {size!r}: it must be a number, or height and width")
    return sides[0], sides[1]


class ImageShards(IterableDataset[Any]):
    """Makes batches of the JPEG pictures in tar shards, in the order of `ShardSampler`.

    Threads decode the pictures, so no worker process is needed. If the workers of a DataLoader
    iterate (with batch_size=None), each makes every n-th batch, and the order stays the same. The
    view of a picture depends only on the seed, the epoch and the sample.

    A batch is a tensor of shape (batch, 3, height, width). With `target` it is a pair: that tensor,
    and an int64 tensor of shape (batch,) with the samples' numbers. Pictures are torch.uint8, or
    with `mean` and `std` torch.float32: `(value / 255 - mean) / std`. Pixels equal those of
    Pillow's `Image.crop` and `Image.resize`.

    Args:
        shards: `TarShards`, or the paths of tar files.
        batch_size: pictures in a batch.
        size: pixels of a side of the square picture, or (height, width).
        crop: "random" takes a random region and may mirror it. "center" resizes the shorter side to
            `resize` and takes the middle. "none" takes the whole picture.
        resize: pixels of the shorter side for "center", by default size * 256 / 224.
        scale: smallest and largest fraction of the picture's area, for "random".
        ratio: smallest and largest width divided by height, for "random".
        flip: probability of mirroring, by default 0.5 for "random" and otherwise 0.
        filter: "box", "bilinear", "hamming", "bicubic" or "lanczos".
        mean, std: three numbers each, one for each channel.
        exif: turns pictures as their EXIF orientation says.
        scaled_decode: lets the decoder divide the sides of large pictures by 2, 4 or 8 first.
        images: extensions of the members that are pictures.
        target: extension of the member that holds the sample's number in decimal.
        shuffle, seed, rank, ranks, window, drop_last: as for `ShardSampler`.
        threads: decoding threads, by default one for each processor.
        prefetch: batches that are made before the program asks for them.
        pin_memory: makes the batches in pinned memory.

    Raises:
        OSError: a picture cannot be made; the text names the shard, the sample and the reason.
        ValueError: an argument is out of range; the text names it.

    Example:
        >>> jpeg = io.BytesIO()
        >>> PIL.Image.new("RGB", (640, 480)).save(jpeg, "jpeg")
        >>> with tarfile.open(folder / "train.tar", "w") as tar:
        ...     for name, data in (("a.jpg", jpeg.getvalue()), ("a.cls", b"7")):
        ...         member = tarfile.TarInfo(name)
        ...         member.size = len(data)
        ...         tar.addfile(member, io.BytesIO(data))
        >>> images = paceline.loader.ImageShards(
        ...     [folder / "train.tar"], batch_size=1, size=224, target="cls", seed=1,
        ...     mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
        ... )
        >>> for pictures, labels in images:
        ...     print(pictures.shape, pictures.dtype, labels)
        torch.Size([1, 3, 224, 224]) torch.float32 tensor([7])
    """

    def __init__(
        self,
        shards: TarShards | Sequence[str | os.PathLike[str]],
        batch_size: int,
        size: int | tuple[int, int],
        *,
        crop: str = "random",
        resize: int | None = None,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float | None = None,
        filter: str = "bilinear",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        exif: bool = False,
        scaled_decode: bool = False,
        images: Sequence[str] = ("jpg", "jpeg"),
        target: str | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        window: int = 4,
        drop_last: bool = False,
        threads: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
    ) -> None:
        self._shards = shards if isinstance(shards, TarShards) else TarShards(shards)
        _check_count("batch_size", batch_size)
        _check_count("prefetch", prefetch)
        if threads is not None:
            _check_count("threads", threads)
        _check_normalization(mean, std)
        if isinstance(images, str) or not images:
            raise ValueError(f"images is {images!r}: it must be a list of extensions")
        height, width = _height_and_width(size)
        self._sampler = ShardSampler(
            self._shards,
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            ranks=ranks,
            window=window,
            drop_last=drop_last,
        )
        style = native.Style(ctypes.sizeof(native.Style))
        style.flags = (native.FLOATS if mean is not None else 0) | (
            native.SCALED if scaled_decode else 0
        )
        style.flags |= native.TURNED if exif else 0
        style.crop, style.filter = (
            _one_of("crop", crop, native.CROPS),
            _one_of("filter", filter, native.FILTERS),
        )
        for name, value in (("height", height), ("width", width), ("resize", resize or 0)):
            if not 0 <= value <= 8192:
                raise ValueError(f"{name} is {value}: it must be at least 1 and at most 8192")
        style.width, style.height = width, height
        style.shorter = resize if resize is not None else min(max(height, width) * 256 // 224, 8192)
        style.seed, style.scale, style.ratio = seed, _pair("scale", scale), _pair("ratio", ratio)
        style.flip = flip if flip is not None else 0.5 if crop == "random" else 0.0
        style.mean = (ctypes.c_float * 3)(*(mean or (0, 0, 0)))
        style.deviation = (ctypes.c_float * 3)(*(std or (1, 1, 1)))
        self._style, self._extensions, self._target = style, tuple(images), target
        self._batch_size, self._drop_last = batch_size, drop_last
        self._threads, self._prefetch, self._pin = threads, prefetch, pin_memory
        self._delivered = 0
        self._start(1).close()  # reports bad arguments and a missing decoder now, not in a pass
        self._account = _report.ImageAccount(
            f"pictures of {len(self._shards)} samples", f"{width}x{height}"
        )

    def _start(self, threads: int) -> native.Pictures:
        self._style.threads = threads
        return native.Pictures(self._shards, self._style, self._extensions, self._target)

    def __len__(self) -> int:
        """Returns the number of batches in a pass."""
        samples = len(self._sampler)
        return samples // self._batch_size if self._drop_last else -(-samples // self._batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass. A resumed epoch stays resumed if it is set again."""
        before = self._sampler._order.epoch
        self._sampler.set_epoch(epoch)
        if epoch != before:
            self._delivered = 0

    def view(self, sample: int) -> dict[str, int]:
        """Returns the view of a sample's picture in this epoch; all lengths are pixels.

        x, y, width and height are the region. It is resized to full_width and full_height. The
        delivered window begins at left and top in the result. flip is 1 if it is mirrored.
        """
        pictures = self._start(1)
        try:
            return pictures.view(int(self._sampler._order.epoch), sample)
        finally:
            pictures.close()

    def state_dict(self, delivered: int | None = None) -> dict[str, Any]:
        """Returns the state of this epoch, as plain Python values.

        Args:
            delivered: samples that the program has had in the running pass. None: as many as the
                pass has yielded. If the workers of a DataLoader iterate, give the number.
        """
        return self._sampler.state_dict(self._delivered if delivered is None else delivered)

    def load_state_dict(self, state: States) -> None:
        """Lets the next pass begin where the state was taken; see `ShardSampler`.

        Args:
            state: the state of one rank, or a list of the states of all ranks.
        """
        self._sampler.load_state_dict(state)
        self._delivered = 0

    def _batches(self) -> Iterator[tuple[int, list[int]]]:
        """Yields the batches of this process: the number of the pass's samples up to the end of
        the batch, and the batch's own samples."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        samples, end, number = iter(self._sampler), 0, 0
        while True:
            batch = list(itertools.islice(samples, self._batch_size))
            if not batch or (self._drop_last and len(batch) < self._batch_size):
                return
            end += len(batch)
            if number % workers == worker:
                yield end, batch
            number += 1

    def _room(self, memory: _Memory, count: int) -> torch.Tensor:
        shape = (count, 3, self._style.height, self._style.width)
        dtype = torch.float32 if self._style.flags & native.FLOATS else torch.uint8
        if self._pin:
            return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)
        size = (
            count
            * 3
            * self._style.height
            * self._style.width
            * (4 if dtype == torch.float32 else 1)
        )
        return torch.frombuffer(memory.take(size), dtype=dtype).view(shape)

    def __iter__(self) -> Iterator[Any]:
        threads = self._threads or (_processors() if get_worker_info() is None else 1)
        epoch, batches = int(self._sampler._order.epoch), self._batches()
        memory = _Memory(self._prefetch + 2)
        pictures = self._start(threads)
        ahead: collections.deque[tuple[int, int, torch.Tensor, torch.Tensor | None]] = (
            collections.deque()
        )
        self._delivered = 0
        self._account.began(threads)
        try:
            while True:
                while (
                    len(ahead) <= self._prefetch and (following := next(batches, None)) is not None
                ):
                    end, samples = following
                    images = self._room(memory, len(samples))
                    numbers = (
                        None
                        if self._target is None
                        else torch.empty(len(samples), dtype=torch.int64, device="cpu")
                    )
                    size = images.numel() * images.element_size()
                    where = None if numbers is None else numbers.data_ptr()
                    ahead.append(
                        (
                            pictures.begin(epoch, samples, images.data_ptr(), size, where),
                            end,
                            images,
                            numbers,
                        )
                    )
                if not ahead:
                    return
                number, end, images, numbers = ahead[0]
                pictures.wait(number)
                ahead.popleft()
                self._delivered = end
                self._account.made(len(images), pictures.decoding)
                yield images if numbers is None else (images, numbers)
                del images, numbers  # frees their memory for the next batch
        finally:
            self._account.ended(pictures.decoding)
            pictures.close()  # its threads still write to the batches in `ahead`
            ahead.clear()
