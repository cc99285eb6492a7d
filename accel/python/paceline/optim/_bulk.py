# SPDX-License-Identifier: Apache-2.0
"""Questions asked of many tensors in one call, since calls are what a step of many small tensors
costs its host. Where there is no reader each tensor is asked by itself.
"""

from __future__ import annotations

import array
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from paceline._core import memory
from paceline.optim import _reader
from paceline.optim._reader import SEEN, Held, layout_of

Tensor = torch.Tensor


class Places:
    """Room for the addresses of so many tensors: of the elements of each in memory, 0 where it has
    none.
    """

    def __init__(self, count: int) -> None:
        self.now = array.array("Q", bytes(8 * count))
        self.address = self.now.buffer_info()[0]

    def set(self, places: list[int]) -> None:
        self.now[:] = array.array("Q", places)

    def read(self, tensors: list[Any]) -> None:
        """All of them, plain tensors that have memory. RuntimeError where PyTorch refuses one."""
        reader = _reader.reader()
        if reader is None:
            self.set([*map(Tensor.data_ptr, tensors)])
        else:
            reader.places(Held(tensors), self.address)


class Members:
    """What a list held: these objects, which are kept, so that no others get their ids."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self._held = Held(objects)

    def same(self, objects: Any) -> bool:
        reader = _reader.reader()
        if reader is not None and type(objects) is list:
            return reader.list_is(objects, self._held)
        return len(objects) == self._held.count and all(map(operator.is_, objects, self._held.all))


class _Rows:
    """Room for what is seen of so many objects."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.words = array.array("Q", bytes(SEEN * count))
        self.address = self.words.buffer_info()[0]


class Seen:
    """What tensors were: of these types, at addresses, of dtypes, devices, sizes and strides; the
    same objects too, unless others that lie so will do. Does not hold them, so that an object may
    have taken another one's address. RuntimeError where PyTorch refuses one.
    """

    def __init__(self, tensors: Held, themselves: bool = True) -> None:
        reader = _reader.reader()
        self._themselves = themselves
        self._each = None if reader else self._by_one(tensors)
        self.rows = _Rows(tensors.count)
        if reader:
            reader.see(tensors, self.rows.address)
        if not themselves:
            self.rows.words[:: SEEN // 8] = array.array("Q", bytes(8 * tensors.count))

    def same(self, objects: Held) -> bool:
        """Whether that is what they are."""
        if objects.count != self.rows.count:
            return False
        reader = _reader.reader()
        if reader is not None and self._each is None:
            return reader.are_as_seen(objects, self.rows.address)
        try:
            return self._each == self._by_one(objects)
        except (AttributeError, RuntimeError, TypeError):  # no tensor, or one that has no place
            return False

    def _by_one(self, tensors: Held) -> list[tuple[object, ...]]:
        return [
            (id(one) if self._themselves else 0, type(one), *layout_of(one)) for one in tensors.all
        ]


class SeenState:
    """The same of an optimizer's state, of which it is asked too under which names it has its
    values. ValueError where that cannot be.
    """

    def __init__(self, state: Mapping[Any, Any]) -> None:
        reader = _reader.reader()
        if reader is None:
            raise ValueError("no reader")
        self._rows = _Rows(sum(1 + 2 * len(held) for held in state.values()))
        if not reader.see_state(state, self._rows.address, self._rows.count):
            raise ValueError("a state that holds something else than dicts of tensors")
        # Names are held, so that no others get their ids.
        self._names = [[*held] for held in state.values()]

    def same(self, state: Mapping[Any, Any]) -> bool:
        reader = _reader.reader()
        return reader is not None and reader.state_is_as_seen(
            state, self._rows.address, self._rows.count
        )


def gradients(tensors: Held, seen: Seen, places: Places) -> bool:
    """Sets where the gradients of these tensors lie. False where one is not there or has another
    layout than was seen, or cannot be known by one call.
    """
    reader = _reader.reader()
    return (
        reader is not None
        and reader.knows_gradients
        and reader.gradients(tensors, seen.rows.address, places.address)
    )


class Versions:
    """How often tensors have been written, by PyTorch and by us."""

    def __init__(self, tensors: Held) -> None:
        self._tensors = tensors
        reader = _reader.reader()
        self._by = reader if reader is not None and reader.knows_gradients else None
        self._counts = array.array("q", bytes(8 * tensors.count))
        self._address = self._counts.buffer_info()[0]

    def read(self) -> None:
        """RuntimeError where one has no count, since it was made in inference mode."""
        if not self._by or not self._by.versions(self._tensors, self._address):
            self._counts[:] = self._now()

    def same(self) -> bool:
        """Whether none was written since they were read."""
        return (
            self._by.versions_are(self._tensors, self._address)
            if self._by
            else self._now() == self._counts
        )

    def _now(self) -> Any:
        return array.array("q", [tensor._version for tensor in self._tensors.all])

    def mark_written(self) -> None:
        if not self._by or not self._by.mark_written(self._tensors):
            memory.mark_written([*self._tensors.all])
