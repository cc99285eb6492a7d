# SPDX-License-Identifier: Apache-2.0
"""Which loaders must make their samples in the training process: a sampler that may read the
training, a dataset that cannot be copied into another process or that changes itself.

What a program's objects hold is looked at in part only (a number of objects, and a depth). So a
hazard may be missed. Nothing here changes an object.
"""

from __future__ import annotations

import functools
import io
import itertools
import logging
import multiprocessing
import random
import socket
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import IterableDataset, Sampler, get_worker_info
from torch.utils.data import dataloader as torch_loader

from paceline.loader._workers import models

OBJECTS, DEPTH, ELEMENTS = 2000, 6, 4
# The order of samplers from these modules follows from their own state. Any other one may read the
# training, and workers ask it ahead of time.
SAMPLERS = (
    "torch.utils.data.",
    "paceline.loader.",
    "accelerate.data_loader",
    "transformers.trainer_pt_utils",
)
# The functions for new workers of these modules seed them, and do no more.
SEEDING = ("transformers.trainer_utils", "lightning.", "lightning_fabric.", "pytorch_lightning.")
ORDERS = (list, tuple, range, torch.Tensor)
LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Thread)
# Top-level modules of objects that hold a connection, a file's position or a lock of their own.
NOT_FORKED = frozenset(
    [
        "h5py",
        "lmdb",
        "sqlite3",
        "tables",
        "netCDF4",
        "psycopg2",
        "pymongo",
        "redis",
        "botocore",
        "boto3",
        "s3fs",
        "gcsfs",
        "aiohttp",
        "requests",
        "grpc",
        "decord",
        "av",
        "duckdb",
        "zipfile",
        "tarfile",
        "subprocess",
        "asyncio",
    ]
)
LIBRARY = f"{Path(io.__file__).parent}/"
CACHE = type(functools.lru_cache(lambda: None))
PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, logging.Logger)


def why_not(loader: Any) -> str:
    """Returns an empty text if workers may make this loader's samples as far as can be told before
    one was made, else why not."""
    if loader._dataset_kind != torch_loader._DatasetKind.Map or isinstance(
        loader.dataset, IterableDataset
    ):
        return "its dataset is iterable: each worker would yield all samples"
    if isinstance(loader.dataset, (torch_loader.IterDataPipe, torch_loader.MapDataPipe)):
        return "its dataset is a DataPipe"
    if multiprocessing.current_process().daemon or get_worker_info() is not None:
        return "this process is a daemon, which must not start processes"
    if not is_known(loader.worker_init_fn):
        return "worker_init_fn is the program's own, and is told the workers' numbers"
    method = chosen_start_method(loader)
    if method not in (None, "fork"):
        return f"processes start by {method}, and only a fork has the program's objects as they are"
    return why_not_ahead(loader._index_sampler)


def is_known(function: Any) -> bool:
    """Whether this is None, or a function of a trainer that only seeds a worker."""
    while isinstance(function, functools.partial):
        function = function.func
    module = str(getattr(function, "__module__", ""))
    return function is None or module.startswith(SEEDING)


def chosen_start_method(loader: Any) -> str | None:
    """Returns the start method of processes that the program has set, or None if it has set none.
    Then it stays unset."""
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    method: str | None = torch.multiprocessing.get_start_method(allow_none=True)
    return method


def start_method(loader: Any) -> str:
    """Returns how PyTorch starts this loader's workers."""
    return chosen_start_method(loader) or multiprocessing.get_all_start_methods()[0]


def why_not_ahead(sampler: Any, depth: int = 4) -> str:
    """Returns an empty text if this sampler may be asked before the program needs the batch, else
    why not."""
    if type(sampler) in ORDERS:
        return ""
    maker = next(
        (each for each in type(sampler).__mro__ if "__iter__" in vars(each)), type(sampler)
    )
    if not f"{maker.__module__}.".startswith(SAMPLERS) or depth == 0:
        return (
            f"its sampler {type(sampler).__qualname__} is the program's own, and workers would ask"
            " it ahead of the training"
        )
    inner = (
        value
        for name, value in vars(sampler).items()
        if isinstance(value, Sampler) or name in ("sampler", "batch_sampler")
    )
    return next(filter(None, (why_not_ahead(each, depth - 1) for each in inner)), "")


def why_not_sent(batch: Any) -> str:
    """Returns an empty text if a worker could send this batch, as far as can be told, else why
    not."""
    for path, value in _objects(batch, "a batch"):
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return f"{path} is a tensor on {value.device.type}"
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return f"{path} is a tensor with a gradient"
    return ""


def payload(batch: Any) -> int:
    """Returns the bytes of the tensors in a batch."""
    tensors = (value for _, value in _objects(batch, "") if isinstance(value, torch.Tensor))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def why_not_copied(loader: Any) -> str:
    """Returns an empty text if a fork may copy what makes the samples, else what it found."""
    for name in ("dataset", "collate_fn"):
        for path, value in _objects(getattr(loader, name), name):
            why = _why_not_object(value)
            if why:
                return f"{path} is {why}"
    return ""


def models_of(loader: Any) -> list[torch.nn.Module]:
    """Returns the models that what makes the samples holds."""
    held = (_objects(getattr(loader, name), name) for name in ("dataset", "collate_fn"))
    return [each for _, each in itertools.chain(*held) if isinstance(each, torch.nn.Module)]


def _why_not_object(value: Any) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, torch.Tensor):
        return "" if value.device.type == "cpu" else f"a tensor on {value.device.type}"
    if isinstance(value, torch.nn.Module):
        why = models.why_never(value)
        return f"{name}, {why}" if why else ""
    if isinstance(value, (torch.Generator, random.Random)) or kind.__module__.startswith(
        "numpy.random"
    ):
        return f"{name}, whose numbers every worker would repeat"
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        return "" if value.closed else f"{name}, an open file whose position processes would share"
    if isinstance(value, (*LOCKS, socket.socket)) or kind.__module__.startswith("multiprocessing"):
        return f"{name}, which a fork breaks"
    if isinstance(value, CACHE):
        return "a cache, which workers would lose with each pass"
    if kind.__module__.partition(".")[0] in NOT_FORKED:
        return f"{name}, which must not be used by two processes"
    return ""


def _objects(root: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields this object and those that it holds, nearest first, each with the way to it."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any, int]] = [(path, root, 0)]
    for where, value, depth in waiting:
        if id(value) in seen or isinstance(value, PLAIN):
            continue
        seen.add(id(value))
        yield where, value
        if depth < DEPTH:
            room = OBJECTS - len(waiting)
            held = itertools.islice(_held(value, depth), max(0, room))
            waiting += [(f"{where}{name}", each, depth + 1) for name, each in held]


def _held(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key in [*itertools.islice(value, 16 * ELEMENTS)]:
            yield f"[{key!r}]", value.get(key)
    elif isinstance(value, (list, tuple)):
        for number in range(min(len(value), ELEMENTS)):
            yield f"[{number}]", value[number]
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield from ((f"({number})", each) for number, each in enumerate(value.args))
        yield from ((f"({name})", each) for name, each in value.keywords.items())
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _used(value)
    elif not isinstance(value, torch.Tensor):
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            for name in [*itertools.islice(own, 16 * ELEMENTS)]:
                yield f".{name}", own.get(name)
        if depth <= 1:
            for name, function in vars(type(value)).items():
                if isinstance(function, (types.FunctionType, CACHE)):
                    yield f".{name}", function


def _used(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields what a function's closure holds, and the globals of the program that it names."""
    for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars):
        try:
            yield f" ({name})", cell.cell_contents
        except ValueError:  # a cell that is still empty
            continue
    module = sys.modules.get(function.__module__ or "")
    if is_installed(module):
        return
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        if not isinstance(found, (types.FunctionType, types.BuiltinFunctionType)):
            yield f" ({name})", found


def is_installed(module: Any) -> bool:
    """Whether a package was installed, as one of PyTorch's. A program's own modules are not."""
    file = str(getattr(module, "__file__", "") or "")
    return "site-packages" in file or "dist-packages" in file or file.startswith(LIBRARY)
