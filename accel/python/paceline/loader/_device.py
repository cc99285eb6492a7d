# SPDX-License-Identifier: Apache-2.0
"""The next batch's copy on the device, begun before the program asks for it (`device_copies=True`,
or of a job PACELINE_LOADER_DEVICE_COPIES=Auto: who writes it says of its programs what
`device_copies=True` says).

A program copies its batches itself: `pixels.to(device)`, `labels.cuda(non_blocking=True)`. Where it
has done so with two batches in the same way, tensor by tensor, the next batch's tensors are copied
on a stream of their own while the device works on the present one, and the program's own call is
given that copy. Anything else is PyTorch's call, and the copy made for nothing is dropped.

- The copy's memory is allocated by PyTorch for the stream that the program copies on, so it is used
  again in that stream's order:
  the device holds one batch more than it would. The copying begins when that stream has done what
  it was given so far, and the stream
  waits for it before the program has the copy. A call that would have waited on the host waits for
  the copy.
- The very tensor that was delivered, at the same place, written to by nobody that PyTorch knows of
  (`_version`). What writes through
  `.numpy()` or a pointer is not known: that is why the program has to say that it does no such
  thing before it copies.
- Not under function or dispatch modes, inference mode that began later, tracing, compiling, or a
  stream that is being captured.

Locked by the interpreter lock: each tensor's copy is taken by one operation on a dictionary.
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
    """How a program copies a tensor. `stream` is the one that it copies on."""

    def __init__(self, device: torch.device, non_blocking: bool, stream: Any) -> None:
        self.device, self.non_blocking, self.stream = device, non_blocking, stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Way) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Cuda:
    """What is asked of PyTorch's CUDA; tests put another in its place."""

    def __init__(self) -> None:
        self._sides: dict[torch.device, Any] = {}

    def device(self, named: Any) -> torch.device:
        """Raises what PyTorch raises for what names no device."""
        found = torch.device("cuda") if named is None else torch.device(named)
        if found.type != "cuda" or found.index is not None:
            return found
        return torch.device("cuda", torch.cuda.current_device())

    def stream(self, device: torch.device) -> Any:
        return torch.cuda.current_stream(device)

    def begin(self, sources: list[torch.Tensor], way: Way) -> tuple[list[torch.Tensor], Any]:
        """Starts the copies. Returns them and the event of their completion, or no copies if it
        cannot now."""
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
            side.wait_stream(way.stream)  # on which the memory was used before
        with torch.cuda.stream(side):
            try:
                for copy, source in zip(copies, sources):
                    copy.data.copy_(
                        source, non_blocking=True
                    )  # .data: nobody has written to the copy itself
                return copies, side.record_event()
            except BaseException:
                for copy in copies:  # the first may be on their way
                    self.drop(copy, way)
                raise

    def hand_over(self, there: Any, way: Way) -> bool:
        """Whether the program's stream may have the copy."""
        with torch.cuda.stream(way.stream):
            if torch.cuda.is_current_stream_capturing():
                return False
        way.stream.wait_event(there)
        if not way.non_blocking:
            there.synchronize()
        return True

    def drop(self, copy: torch.Tensor, way: Way) -> None:
        """The copy may still be written to, so the allocator must wait for that."""
        copy.record_stream(self._sides[way.device])


cuda: Any = Cuda()


class Leaf:
    """A tensor of a batch: how the program copied it before, and the copy that exists already."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = weakref.ref(tensor, functools.partial(_died, id(tensor)))
        self.way: Way | None = (
            None  # of the program's first call; None: there was none, or one that is not known here
        )
        self.calls = 0
        self.begun = self.hit = False
        self._before = _state(tensor)
        self.copies: dict[str, tuple[torch.Tensor, Any, Way]] = {}
        _leaves[id(tensor)] = self

    def has(self, copy: torch.Tensor, there: Any, way: Way) -> None:
        self.begun = True
        self.copies["it"] = copy, there, way

    def take(self, tensor: torch.Tensor, way: Way | None) -> torch.Tensor | None:
        """For a call of the program's. None: PyTorch makes the copy."""
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


_leaves: dict[int, Leaf] = {}  # by id of their tensors, as long as these live


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
    """Whether a call does here what it does on its own."""
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
    """Of one iterator: what the program does with its batches, and what is therefore begun with the
    next.
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
        """`batch` is about to be handed out; `upcoming` is the one after it, or None where it is
        not there yet.
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
        except (
            Exception
        ) as error:  # of the device's memory, for instance: the program's own copies may still fit
            self.why = f"{type(error).__name__}: {error}"

    def _learn(self) -> list[Way | None]:
        """How the program has copied the batch before."""
        hits = sum(leaf.hit for leaf in self._present)
        misses = sum(leaf.begun for leaf in self._present) - hits
        self.hits += hits
        self.misses += misses
        self._in_a_row = self._in_a_row + 1 if misses else 0
        if self._in_a_row == MISSES_IN_A_ROW:
            self.why = f"copies were begun in vain for {MISSES_IN_A_ROW} batches in a row"
        for leaf in self._present:
            leaf.drop()  # the program has not asked for it
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
    """Whether copies are to begin early: as the program says for this loader, else as the job
    does for all.
    """
    told = getattr(loader, "_paceline_device_copies", None)
    if told is not None:
        return bool(told)
    return _asked_of_all()


@functools.cache
def _asked_of_all() -> bool:
    """What the job says. Asked once, so that a wrong value is told once."""
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
# ------------------------------------------------------------

_undo: list[Callable[[], None]] = []


def _way(device: Any = None, non_blocking: bool = False) -> Way:
    """Raises TypeError for calls with other arguments."""
    found = cuda.device(device)
    return Way(found, bool(non_blocking), cuda.stream(found))


def _way_to(device: Any, **options: Any) -> Way:
    """`.to` takes many things first; a device's name, number or object is what is known here."""
    if not isinstance(device, (str, int, torch.device)):
        raise TypeError
    return _way(device, **options)


def patch() -> None:
    """`Tensor.to` and `Tensor.cuda` look for a copy first: of tensors that a loader with
    device_copies has handed out.
    """
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
    """A method of Tensor that looks for a copy first. Equal to PyTorch's own: tensor subclasses
    have that in sets of functions.
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
            except Exception:  # whatever failed, PyTorch makes the call
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
