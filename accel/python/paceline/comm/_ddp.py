# SPDX-License-Identifier: Apache-2.0
"""Sums the gradients of a DistributedDataParallel model over a communicator, by PyTorch's interface
for communication hooks. On a GPU sums go by way of hosts (_hierarchy).

The hook divides a bucket as the reducer would have, begins its sum on the communicator's thread,
and returns a future at once. It asks the autograd engine to call `Hooked.complete` at the end of
backward, which completes all futures. The reducer queues its own wait after the last hook has
returned, so `complete` runs first.

The thread that runs backward completes the futures, and no other thread touches a Python object. In
PyTorch 1.13 a thread that releases a future while the interpreter ends aborts the process.

The engine makes no such call in the first backward of a static graph. Nor does it for a rank that
has run out of inputs within join(). Then the hook of the last bucket completes all futures, since
nothing is left to compute.
"""

from __future__ import annotations

import weakref
import zlib
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.autograd import Variable

from paceline.comm import _hierarchy, _report
from paceline.comm._bucket_sums import Carrier, Result, Sums
from paceline.comm._communicator import Communicator
from paceline.comm._compression import Compression, Compressor, parse, why_not_class
from paceline.comm._handle import HEARTBEAT_TIMEOUT
from paceline.comm._hierarchy import Hierarchy
from paceline.comm._layout import Layout, PeerInfo, exchange, own_host
from paceline.comm._members import Members, refuse_to_join
from paceline.comm._model import device_of, timeout_of, why_not
from paceline.comm._sparse_rows import divided
from paceline.comm._tuning import tune

Tensor = torch.Tensor

_gradients: weakref.WeakKeyDictionary[Any, Hooked] = weakref.WeakKeyDictionary()


def ddp_hook(
    model: Any,
    *,
    plan: str = "",
    heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT,
    compression: Compression | str = "Disabled",
    host: str = "",
) -> Carrier:
    """Sums a model's gradients over Paceline's communicator instead of gloo.

    Call it before the first backward, on all ranks of the model's process group, for their models
    in the same order. Numerics class Reordered; Lossy with a compression. If a rank is lost later,
    backward raises CommError on all other ranks.

    On a GPU the sums go over PyTorch's own process groups: inside each host, between hosts, and
    inside each host again. That takes several hosts, one of them with several ranks.

    Args:
        model: a DistributedDataParallel model with parameters on the CPU and a gloo group, or on
            one GPU and an NCCL group.
        plan: a plan that `Communicator.plan()` returned; by default the quickest way is measured.
            CPU only.
        heartbeat_timeout: a rank that is silent for this long counts as lost. CPU only.
        compression: "Disabled", "FP16", "BF16", "Int8", "TopK:ratio=0.01", "PowerSGD:rank=1", a
            PowerSGD, DGC(optimizer) or OneBit(optimizer). PowerSGD needs GPUs of one kind.
        host: ranks with the same text share memory. By default those of one machine and one
            network namespace do, or on a GPU those with the same NCCL_HOSTID.

    Returns:
        The communicator of the model's sums, or on a GPU an object with the same `plan()` and
        `shape()`.

    Raises:
        ValueError: if the model, or this rank's settings, cannot have the hook. If it is this
            rank's settings, the other ranks raise ValueError or CommError with its number and
            reason.
        CommError: if another rank cannot join.

    Example:
        >>> model = torch.nn.parallel.DistributedDataParallel(  # doctest: +SKIP
        ...     torch.nn.Linear(4, 1)
        ... )
        >>> communicator = paceline.comm.ddp_hook(model, compression="Int8")  # doctest: +SKIP
        >>> model(torch.ones(2, 4)).sum().backward()  # doctest: +SKIP
    """
    if why := why_not(model):
        raise ValueError(f"paceline.comm.ddp_hook: {why}")
    how, why = _asked(compression)
    if _hierarchy.carries(model):
        sums = _by_hosts(model, plan, how, host, why)
        register(model, sums, how, model.register_comm_hook)
        return sums
    if why:
        refuse_to_join(model.process_group, why)
        raise ValueError(f"paceline.comm.ddp_hook: {why}")
    communicator = Communicator(
        model.process_group,
        plan=plan,
        timeout=timeout_of(model),
        heartbeat_timeout=heartbeat_timeout,
        host=host,
    )
    try:
        if not all_say(communicator, f"{how} {plan}"):
            raise ValueError(
                f"paceline.comm.ddp_hook: compression is {how} and plan {plan!r} here, and another"
                " on some rank: say the same on all"
            )
        if not plan:
            tune(communicator)
    except BaseException:
        communicator.close()
        raise
    register(model, communicator, how, model.register_comm_hook)
    return communicator


def _asked(compression: Compression | str) -> tuple[Compression | None, str]:
    """Returns the compression that the program asks for, and why this rank cannot have it."""
    try:
        how = parse(compression) if isinstance(compression, str) else compression
    except ValueError as error:
        return None, str(error)
    return how, why_not_class(how)


def _by_hosts(model: Any, plan: str, how: Compression | None, host: str, why: str) -> Hierarchy:
    """Makes the sums of a model on a GPU. If this rank cannot take part, `why` says so, and the
    other ranks learn it from its peer info.
    """
    members, timeout = Members(model.process_group), timeout_of(model)
    why = why or (f"plan is {plan!r}: on a GPU there is none to choose" if plan else "")
    why = why or _hierarchy.why_not_group(members)
    compression = _hierarchy.told(how, device_of(model))
    info = PeerInfo(host or own_host(), compression, True, why)
    infos = exchange(members, members.next_name("hosts"), info, timeout)
    layout = Layout.of([one.host for one in infos])
    others = next((f"rank {rank}: {one.why}" for rank, one in enumerate(infos) if one.why), "")
    if len({one.compression for one in infos}) > 1:
        others = (
            others
            or f"compression is {compression} here and another on some rank: say the same on all"
        )
    why = why or others or layout.why_not()
    if why:
        raise ValueError(f"paceline.comm.ddp_hook: {why}")
    hierarchy = Hierarchy(members, layout, device_of(model), timeout)
    hierarchy.prove(how is not None)
    return hierarchy


def register(
    model: Any, communicator: Carrier, how: Compression | None, hook: Callable[[Any, Any], Any]
) -> Hooked:
    gradients = Hooked(model, communicator, how)
    ours = gradients.hook()
    hook(None, ours)
    # PyTorch notes hooks in the model for a reducer that ours does not serve. A model that is saved
    # or copied whole takes the note along, and ours belongs to this process.
    noted = getattr(model, "_comm_hooks", [])
    noted[:] = [entry for entry in noted if entry[0] is not ours]
    _gradients[model] = gradients
    _report.outcome_of(model).take(communicator, gradients.sums, "" if how is None else str(how))
    return gradients


def all_say(communicator: Communicator, text: str) -> bool:
    """Tells whether all ranks passed the same text."""
    mine = torch.tensor([zlib.crc32(text.encode())], device="cpu")
    return bool((communicator.all_gather(mine.new_empty(communicator.ranks), mine) == mine).all())


def state_dict(model: Any) -> dict[str, Any]:
    """Returns what compression has lost of a model's gradients so far and will add to later steps.

    Each rank saves its own with its checkpoint.

    Args:
        model: a model with a compressing hook.

    Returns:
        A dictionary of tensors and numbers for torch.save.

    Raises:
        ValueError: if the model's gradients are not compressed.

    Example:
        >>> state = paceline.comm.state_dict(model)  # doctest: +SKIP
        >>> paceline.comm.load_state_dict(model, state)  # doctest: +SKIP
    """
    return _compressor(model).state_dict(_gradients[model].sums.passes)


def load_state_dict(model: Any, state: dict[str, Any]) -> None:
    """Loads what `state_dict` returned. Call it before the first backward.

    Args:
        model: a model with the same compression.
        state: of the same rank, from a run with as many ranks on each host and the same plan.

    Raises:
        ValueError: if the state belongs to another rank, plan or compression, or the model's
            gradients are not compressed.

    Example:
        >>> paceline.comm.load_state_dict(model, torch.load("rank0.pt"))  # doctest: +SKIP
    """
    _compressor(model).load_state_dict(state)


def _compressor(model: Any) -> Compressor:
    gradients = _gradients.get(model)
    if gradients is None or gradients.sums.compressor is None:
        raise ValueError(
            "paceline.comm: the gradients of this model are not compressed: there is no state"
        )
    return gradients.sums.compressor


class Hooked:
    """One model's hook, and its buckets in flight."""

    def __init__(self, model: Any, communicator: Carrier, how: Compression | None = None) -> None:
        self._model = weakref.ref(model)
        self.communicator = communicator
        self.sums = Sums(communicator, how)
        # The program's own hook, if it registered one later.
        self.instead: Callable[[Any], Any] | None = None
        self._under_way: list[tuple[Any, Result]] = []
        self._before: dict[
            int, int
        ] = {}  # where a parameter's gradient was before backward, by the parameter's id
        ranks = communicator.ranks
        if model.gradient_as_bucket_view and ranks & (ranks - 1):
            self._watch_kept_gradients(model)

    def hook(self) -> Callable[..., Any]:
        gradients = self

        # Without annotations: PyTorch compares them with its own types, not with their names.
        def paceline_all_reduce(state, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            return (gradients.instead or gradients._sum)(bucket)

        return paceline_all_reduce

    def complete(self) -> None:
        """Waits for all buckets under way. Raises CommError out of backward."""
        self.sums.turn()
        while self._under_way:
            future, summed = self._under_way[0]
            result = summed()
            del self._under_way[0]
            future.set_result(result)

    def _sum(self, bucket: Any) -> Any:
        buffer = bucket.buffer()
        in_backward = self._complete_at_the_end()
        ranks = self._divisor(in_backward)
        ours = self.sums.takes(buffer)
        if buffer.layout is not torch.strided:
            buffer = divided(buffer, ranks) if ours else buffer / ranks
        elif ours:
            self._scale(bucket, buffer, ranks)
        else:
            buffer.div_(ranks)
        summed = self.sums.start(bucket, buffer) if ours else self._start_in_group(buffer)
        return self._later(bucket, in_backward, summed, buffer)

    def by_group(self, bucket: Any, half: bool) -> Any:
        """Sums a bucket in the process group, as PyTorch's built-in hooks do; in float16 if
        `half`.
        """
        buffer = bucket.buffer()
        in_backward = self._complete_at_the_end()
        sent = (buffer.to(torch.float16) if half else buffer).div_(self.communicator.ranks)
        summed = self._start_in_group(sent)
        return self._later(bucket, in_backward, lambda: buffer.copy_(summed()), buffer)

    def _start_in_group(self, tensor: Tensor) -> Result:
        model = self._model()
        group = None if model is None else model.process_group
        work = dist.all_reduce(tensor, group=group, async_op=True)

        def summed() -> Tensor:
            work.wait()
            return tensor

        return summed

    def _complete_at_the_end(self) -> bool:
        """Asks the autograd engine to call `complete` at the end of backward; False outside of it.
        Every bucket asks, because a backward within backward has an end of its own.
        """
        try:
            Variable._execution_engine.queue_callback(self.complete)
        except RuntimeError:
            return False
        return True

    def _later(self, bucket: Any, in_backward: bool, summed: Result, buffer: Tensor) -> Any:
        future: Any = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else [])
        self._under_way.append((future, summed))
        if bucket.is_last():
            if not in_backward or (
                self.sums.passes == 0 and getattr(self._model(), "static_graph", False)
            ):
                self.complete()
            self.sums.end_pass()
        return future

    def _divisor(self, in_backward: bool) -> int:
        """Returns the number of ranks. Within join(divide_by_initial_world_size=False) it counts
        only ranks that still have inputs.
        """
        model = self._model()
        config = getattr(model, "_join_config", None)
        if (
            config is None
            or not config.enable
            or getattr(model, "_divide_by_initial_world_size", True)
        ):
            return self.communicator.ranks
        training = torch.tensor([int(in_backward)], dtype=torch.int32, device="cpu")
        return max(1, int(self.communicator.all_reduce(training)))

    def _scale(self, bucket: Any, buffer: Tensor, ranks: int) -> None:
        """Divides a bucket as the reducer does. The reducer multiplies gradients that it copies
        into the bucket by 1/ranks, and divides those that lie there already. The bits differ.
        """
        if not self._before:
            buffer.mul_(1.0 / ranks)
            return
        for parameter, view in zip(bucket.parameters(), bucket.gradients()):
            if self._before.get(id(parameter)) == view.data_ptr():
                view.div_(ranks)
            else:
                view.mul_(1.0 / ranks)

    def _watch_kept_gradients(self, model: Any) -> None:
        before = self._before

        def note(parameter: Any) -> Callable[[Any], None]:
            weak = weakref.ref(parameter)
            key = id(parameter)

            def before_accumulation(_: Any) -> None:
                found = weak()
                if found is not None:
                    before[key] = 0 if found.grad is None else found.grad.data_ptr()

            return before_accumulation

        for parameter in model.module.parameters():
            if parameter.requires_grad:
                parameter.register_hook(note(parameter))
