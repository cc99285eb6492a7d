# SPDX-License-Identifier: Apache-2.0
"""Runs and captures a step on a GPU."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch


class Cuda:
    """How a step is run and captured on a GPU."""

    type = "cuda"

    def __init__(self) -> None:
        self._stream: Any = None

    def missing(self) -> str:
        return "" if torch.cuda.is_available() else "PyTorch sees no GPU here"

    @contextlib.contextmanager
    def beside(self) -> Any:
        """Runs a step on a stream of its own. Autograd remembers streams, and a capture must not
        find the default one among them.
        """
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Captures `run`. Returns a function that replays it and returns what `run` returned."""
        before, pool = torch.cuda.current_stream(), torch.cuda.graph_pool_handle()
        try:
            graph, answer = self._captured(run, pool)
        except BaseException:
            # If the device itself has failed, nothing can be mended, and the program's error is the
            # one to raise.
            with contextlib.suppress(Exception):
                # PyTorch leaves the stream set if the driver refuses the capture.
                torch.cuda.set_stream(before)
                self._recover(pool)
            raise

        def replay() -> Any:
            graph.replay()
            return answer

        return replay

    def _captured(self, run: Callable[[], Any], pool: Any) -> tuple[Any, Any]:
        """Returns the graph, whose memory is of this pool, and what `run` returned."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on with what they do (pinning, collectives).
        known = inspect.signature(torch.cuda.graph.__init__).parameters
        mode = {"capture_error_mode": "thread_local"} if "capture_error_mode" in known else {}
        with torch.cuda.graph(graph, pool=pool, stream=self._stream, **mode):
            answer = run()
        return graph, answer

    def _recover(self, pool: Any) -> None:
        """Repairs PyTorch's state after the driver refused a capture.

        The pool of the capture is still open. In some releases the device's random numbers raise an
        error until a capture has ended (https://github.com/pytorch/pytorch/issues/171263).
        """
        device, inside = torch.cuda.current_device(), torch._C
        with contextlib.suppress(AttributeError, TypeError):  # before 2.3 it cannot be closed
            # Since 2.8; and its older name.
            end = (
                getattr(inside, "_cuda_endAllocateToPool", None)
                or inside._cuda_endAllocateCurrentStreamToPool
            )
            try:
                end(device, pool)
            except RuntimeError:
                # The pool is closed: the capture has ended, and the program's function failed.
                return
            # A pool that stays costs memory, but the random numbers below matter more.
            with contextlib.suppress(RuntimeError):
                inside._cuda_releasePool(device, pool)
        self._captured(
            functools.partial(torch.zeros, (), device=self.type), torch.cuda.graph_pool_handle()
        )
