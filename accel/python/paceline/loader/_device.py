# SPDX-License-Identifier: Apache-2.0
"""Copies the next batch to the device before the program asks for it.

A program turns this on by `device_copies=True`, a job by PACELINE_LOADER_DEVICE_COPIES=Auto. Both
state that the program does not write to a batch through `.numpy()` or a pointer before it copies
it, because PyTorch does not see such writes.

A program copies its batches itself: `pixels.to(device)`, `labels.cuda(non_blocking=True)`. Assume
that it has copied two batches in the same way, tensor by tensor. Then the next batch's tensors are
copied on a separate stream while the device works on the present one. The program's own call
returns that copy. Any other call goes to PyTorch, and the unused copy is dropped.

- PyTorch allocates the copy's memory for the stream that the program copies on. So the memory is
  used again in that stream's order, and the device holds one batch more.
- The copying starts when that stream has finished its work so far. The stream waits for the copy
  before the program gets it. A call that would have blocked the host waits for the copy.
- The program gets the copy only if it passes the delivered tensor itself, at the same address, and
  PyTorch has seen no write to it (`_version`).
- No copy is handed out under function or dispatch modes, under an inference mode that began later,
  while tracing or compiling, or to a stream that is being captured.

The interpreter lock protects this module: one operation on a dictionary takes a tensor's copy.
"""

from __future__ import annotations

import functools
import os
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import torch

from paceline._core import contract
from paceline._core.switches import why_off
from paceline.loader._pinned import dense

MISSES_IN_A_ROW = 2


class Way:
    """How a program copies a tensor: to `device`, blocking or not, on `stream`."""

    def __init__(self, device: torch.device, non_blocking: bool, stream: Any) -> None:
        self.device, self.non_blocking, self.stream = device, non_blocking, stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Way) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Cuda:
    """The functions of PyTorch's CUDA that this module uses. Tests replace this object."""

    def __init__(self) -> None:
        self._sides: dict[torch.device, Any] = {}

    def device(self, named: Any) -> torch.device:
        """Returns the device with its index. Raises PyTorch's error if `named` is no device."""
        found = torch.device("cuda") if named is None else torch.device(named)
        if found.type != "cuda" or found.index is not None:
            return found
        return torch.device("cuda", torch.cuda.current_device())

    def stream(self, device: torch.device) -> Any:
        return torch.cuda.current_stream(device)

    def begin(self, sources: list[torch.Tensor], way: Way) -> tuple[list[torch.Tensor], Any]:
        """Starts the copies. Returns them and the event of their completion. Returns no copies if
        the stream is being captured."""
        side = self._sides.get(way.device)
        if side is None:
            side = self._sides[way.device] = torch.cuda.Stream(way.device)
        with torch.cuda.stream(way.stream):
            if torch.cuda.is_current_stream_capturing():
                return [], None
            copies = [
                torch.empty_strided(s.shape, s.stride(), dtype=s.dtype, device=way.device)
                for s in sources
            ]
            side.wait_stream(way.stream)  # the memory was used on that stream before
        with torch.cuda.stream(side):
            try:
                for copy, source in zip(copies, sources):
                    # `.data` keeps the version of the copy at 0, as after the program's own call.
                    copy.data.copy_(source, non_blocking=True)
                return copies, side.record_event()
            except BaseException:
                for copy in copies:  # some of them may have started
                    self.drop(copy, way)
                raise

    def hand_over(self, there: Any, way: Way) -> bool:
        """Lets the program's stream wait for the copy. Returns False if it is being captured."""
        with torch.cuda.stream(way.stream):
            if torch.cuda.is_current_stream_capturing():
                return False
        way.stream.wait_event(there)
        if not way.non_blocking:
            there.synchronize()
        return True

    def drop(self, copy: torch.Tensor, way: Way) -> None:
        """Drops a copy. Its copying may still run, so the allocator must wait for that."""
        copy.record_stream(self._sides[way.device])


cuda: Any = Cuda()


class Leaf:
    """A tensor of a batch: how the program copied it before, and the copy that exists already."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = weakref.ref(tensor, functools.partial(_died, id(tensor)))
        # How the program's first call copied it; None if it made no call, or one of another kind.
        self.way: Way | None = None
        self.calls = 0
        self.begun = self.hit = False
        self._before = _state(tensor)
        self.copies: dict[str, tuple[torch.Tensor, Any, Way]] = {}
        _leaves[id(tensor)] = self

    def has(self, copy: torch.Tensor, there: Any, way: Way) -> None:
        self.begun = True
        self.copies["it"] = copy, there, way

    def take(self, tensor: torch.Tensor, way: Way | None) -> torch.Tensor | None:
        """Takes the copy for a call of the program. If it returns None, PyTorch must copy."""
        self.calls += 1
        if self.calls == 1:
            self.way = way
        found = self.copies.pop("it", None)
        if found is None:
            return None
        copy, there, wanted = found
        try:
            same = way == wanted and _state(tensor) == self._before and _ordinary()
            if (
                same
                and copy.is_inference() == torch.is_inference_mode_enabled()
                and cuda.hand_over(there, wanted)
            ):
                self.hit = True
                return copy
        finally:
            if not self.hit:
                cuda.drop(copy, wanted)
        return None

    def drop(self) -> None:
        found = self.copies.pop("it", None)
        if found is not None:
            cuda.drop(found[0], found[2])


_leaves: dict[int, Leaf] = {}  # by the id of the tensor, as long as it lives


def _died(number: int, _: Any) -> None:
    leaf = _leaves.pop(number, None)
    if leaf is not None:
        leaf.drop()


_inherited: list[Any] = []


def _in_child() -> None:
    """The device belongs to the parent: a forked child neither hands out nor frees its memory."""
    for leaf in _leaves.values():
        _inherited.extend(leaf.copies.values())
        leaf.copies.clear()


os.register_at_fork(after_in_child=_in_child)


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        tensor._version,
        tensor.data_ptr(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.requires_grad,
    )


def _ordinary() -> bool:
    """Returns whether a call here means the same as outside every mode and trace."""
    return not (
        torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch.jit.is_tracing()
        or torch.compiler.is_compiling()
    )


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors that may be copied early, in an order that batches of one structure share."""
    if type(batch) is torch.Tensor:
        # Skip tensors that require a gradient, because their copy belongs to the graph.
        if (
            batch.is_pinned()
            and dense(batch)
            and not batch.is_inference()
            and not batch.requires_grad
        ):
            yield batch
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            yield from tensors_of(part)
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from tensors_of(part)


class Copies:
    """Watches how the program copies the batches of one iterator, and starts the copies of the next
    batch.
    """

    def __init__(self) -> None:
        patch()
        self.hits = 0
        self.misses = 0
        self.why = ""  # if set, no more copies are started
        self._present: list[Leaf] = []
        self._ways: list[Way | None] = []
        self._in_a_row = 0

    def delivered(self, batch: Any, upcoming: Any) -> None:
        """Starts the copies of `upcoming`, just before the program gets `batch`. `upcoming` is
        None if the next batch has not arrived yet.
        """
        if self.why:
            return
        try:
            ways = self._learn()
            self._present = [_leaf_of(tensor) for tensor in tensors_of(batch)]
            steady, self._ways = any(ways) and ways == self._ways, ways
            following = (
                list(tensors_of(upcoming)) if steady and not self.why and _ordinary() else []
            )
            if len(following) == len(ways):
                self._begin(
                    [(_leaf_of(tensor), tensor, way) for tensor, way in zip(following, ways) if way]
                )
        except Exception as error:  # such as no memory for a batch more on the device
            self.why = f"{type(error).__name__}: {error}"

    def _learn(self) -> list[Way | None]:
        """Returns how the program copied the previous batch, and counts hits and misses."""
        hits = sum(leaf.hit for leaf in self._present)
        misses = sum(leaf.begun for leaf in self._present) - hits
        self.hits += hits
        self.misses += misses
        self._in_a_row = self._in_a_row + 1 if misses else 0
        if self._in_a_row == MISSES_IN_A_ROW:
            self.why = f"copies were begun in vain for {MISSES_IN_A_ROW} batches in a row"
        for leaf in self._present:
            leaf.drop()  # the program did not ask for this copy
        return [leaf.way for leaf in self._present]

    @staticmethod
    def _begin(wanted: list[tuple[Leaf, torch.Tensor, Way]]) -> None:
        while wanted:
            way = wanted[0][2]
            alike = [one for one in wanted if one[2] == way]
            wanted = [one for one in wanted if one[2] != way]
            copies, there = cuda.begin([tensor for _, tensor, _ in alike], way)
            for (leaf, _, _), copy in zip(alike, copies):
                leaf.has(copy, there, way)


def _leaf_of(tensor: torch.Tensor) -> Leaf:
    return _leaves.get(id(tensor)) or Leaf(tensor)


def asked(loader: Any) -> bool:
    """Returns whether copies shall begin early. The program's word for this loader comes before
    the job's setting for all loaders.
    """
    told = getattr(loader, "_paceline_device_copies", None)
    if told is not None:
        return bool(told)
    return _asked_of_all()


@functools.cache
def _asked_of_all() -> bool:
    """Returns the job's setting. It is read once, so that a bad value is reported once."""
    return not why_off(
        contract.LOADER_DEVICE_COPIES,
        "batches are copied to the device where the program says, and",
    )


def why_not() -> str:
    """Returns an empty text if copies can begin early, else why not."""
    if not hasattr(torch, "compiler") or not hasattr(torch._C, "_len_torch_dispatch_stack"):
        return "this PyTorch is older than 2.1"
    return ""


# -- the program's own calls

_undo: list[Callable[[], None]] = []


def _way(device: Any = None, non_blocking: bool = False) -> Way:
    """Reads the arguments of `.cuda`. Raises TypeError for other arguments."""
    found = cuda.device(device)
    return Way(found, bool(non_blocking), cuda.stream(found))


def _way_to(device: Any, **options: Any) -> Way:
    """Reads the arguments of `.to`. Raises TypeError unless the first one is a device."""
    if not isinstance(device, (str, int, torch.device)):
        raise TypeError
    return _way(device, **options)


def patch() -> None:
    """Lets `Tensor.to` and `Tensor.cuda` look for an early copy first."""
    if _undo:
        return
    for name, way_of in (("to", _way_to), ("cuda", _way)):
        original = getattr(torch.Tensor, name)
        setattr(torch.Tensor, name, _Looking(original, way_of))
        _undo.append(functools.partial(setattr, torch.Tensor, name, original))


def unpatch() -> None:
    while _undo:
        _undo.pop()()


class _Looking:
    """A method of Tensor that looks for an early copy first. It equals PyTorch's own method,
    because tensor subclasses look that up in sets of functions.
    """

    def __init__(self, original: Callable[..., Any], way_of: Callable[..., Way]) -> None:
        self._original, self._way_of = original, way_of
        functools.update_wrapper(self, original)

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        return self if tensor is None else types.MethodType(self, tensor)

    def __eq__(self, other: object) -> bool:
        return self is other or self._original == other

    def __hash__(self) -> int:
        return hash(self._original)

    def __call__(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        leaf = _leaves.get(id(tensor)) if _leaves else None
        if leaf is not None and leaf.tensor() is tensor:
            taken = None
            try:
                taken = leaf.take(tensor, _known(self._way_of, args, kwargs))
            except Exception:  # PyTorch's own call below is always right
                pass
            if taken is not None:
                return taken
        return self._original(tensor, *args, **kwargs)


def _known(way_of: Callable[..., Way], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Way | None:
    try:
        way = way_of(*args, **kwargs)
        return way if way.device.type == "cuda" else None
    except Exception:
        return None
