# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel's gradients over a communicator, or those on a GPU by way of hosts
(_hierarchy): a communication hook of PyTorch's own interface.

The hook scales a bucket as the reducer would have, starts its sum on the communicator's thread, and
returns at once a future. Who completes it is the thread that will wait for it: the hook has the
autograd engine call `Gradients.complete` at the end of backward. The reducer queues its own wait
after the hook of the last bucket has returned, so ours comes first, and no other thread ever
touches a Python object: in PyTorch 1.13 one that still lets go of a future aborts an interpreter
that ends.

Where the reducer waits without such a call (the first backward of a static graph, and the passes of
a rank that has run out of inputs, within join()) the hook of the last bucket completes all of them
itself; nothing is left to compute then.
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
from paceline.comm._choice import tune
from paceline.comm._communicator import HEARTBEAT_TIMEOUT, TIMEOUT, Communicator, refuse_to_join
from paceline.comm._compression import Compression, Compressor, parse, why_not_class
from paceline.comm._hierarchy import Hierarchy
from paceline.comm._layout import Card, Layout, exchange, own_host
from paceline.comm._members import Members
from paceline.comm._rows import divided
from paceline.comm._sums import Carrier, Result, Sums

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
    """Registers the hook with a DistributedDataParallel model whose parameters are on the CPU in a
    group of gloo, or on one GPU in a group of NCCL, before its first backward, and returns what its
    sums go over. All ranks of the model's process group call it, for their models in the same
    order.

    `compression` is lossy and off by default: "FP16", "BF16", "Int8", "TopK:ratio=0.01",
    "PowerSGD:rank=1", DGC(optimizer) or OneBit(optimizer); PowerSGD on GPUs of one kind. `host`
    names the ranks that share memory; by default those of this machine and network namespace, on a
    GPU also NCCL_HOSTID.

    On a GPU sums go inside a host, between hosts and inside again, over sub-groups of PyTorch's own
    that all ranks of the model's group make here: it takes several hosts, one of them with several
    ranks. `plan` and `heartbeat_timeout` are of the CPU's.

    A ValueError says why a model, or this rank, cannot have it; where that is this rank's
    compression, plan, PACELINE_NUMERICS or network device, all others raise ValueError
    or CommError with its number and reason. A rank that is lost raises CommError out of backward on
    all others.
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
                f"paceline.comm.ddp_hook: compression is {how} and plan {plan!r} here, and other on"
                " some rank: say the same on all"
            )
        if not plan:
            tune(communicator)
    except BaseException:
        communicator.close()
        raise
    register(model, communicator, how, model.register_comm_hook)
    return communicator


def _asked(compression: Compression | str) -> tuple[Compression | None, str]:
    """The settings that the program asks for, and why this rank cannot have them, if so."""
    try:
        how = parse(compression) if isinstance(compression, str) else compression
    except ValueError as error:
        return None, str(error)
    return how, why_not_class(how)


def _by_hosts(model: Any, plan: str, how: Compression | None, host: str, why: str) -> Hierarchy:
    """`why` this rank cannot, if so: the others hear it where they meet."""
    members, timeout = Members(model.process_group), timeout_of(model)
    why = why or (f"plan is {plan!r}: on a GPU there is none to choose" if plan else "")
    why = why or _hierarchy.why_not_group(members)
    compression = _hierarchy.told(how, device_of(model))
    card = Card(host or own_host(), compression, True, why)
    cards = exchange(members, members.next_name("hosts"), card, timeout)
    layout = Layout.of([one.host for one in cards])
    others = next((f"rank {rank}: {one.why}" for rank, one in enumerate(cards) if one.why), "")
    if len({one.compression for one in cards}) > 1:
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
    hook(None, gradients.hook())
    _gradients[model] = gradients
    _report.outcome_of(model).take(communicator, gradients.sums, "" if how is None else str(how))
    return gradients


def all_say(communicator: Communicator, text: str) -> bool:
    mine = torch.tensor([zlib.crc32(text.encode())], device="cpu")
    return bool((communicator.all_gather(mine.new_empty(communicator.ranks), mine) == mine).all())


def state_dict(model: Any) -> dict[str, Any]:
    """Of a model with compressed gradients: what has been lost so far and belongs to later steps.
    Each rank has its own.
    """
    return _compressor(model).state_dict(_gradients[model].sums.passes)


def load_state_dict(model: Any, state: dict[str, Any]) -> None:
    """Before the first backward, by the same ranks on hosts of the same sizes."""
    _compressor(model).load_state_dict(state)


def _compressor(model: Any) -> Compressor:
    gradients = _gradients.get(model)
    if gradients is None or gradients.sums.compressor is None:
        raise ValueError(
            "paceline.comm: the gradients of this model are not compressed: there is no state"
        )
    return gradients.sums.compressor


def why_not(model: Any) -> str:
    """Returns an empty text if the hook can carry this model's gradients, else why not."""
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return f"a {type(model).__name__}, no DistributedDataParallel"
    for option in (
        "mixed_precision",
        "_use_python_reducer",
        "skip_all_reduce_unused_params",
        "batched_grad_copy",
    ):
        if getattr(model, option, None):
            return f"DistributedDataParallel with {option.strip('_')}"
    if getattr(model, "_delay_all_reduce_params", None):
        return "DistributedDataParallel with delay_all_reduce_named_params"
    devices = {p.device for p in model.module.parameters() if p.requires_grad}
    kinds = {device.type for device in devices}
    if len(devices) != 1 or not kinds <= set(_hierarchy.BACKENDS):
        return (
            f"parameters on {', '.join(sorted(map(str, devices))) or 'no device'}, not on the CPU"
            " or one GPU alone"
        )
    kind, backend = kinds.pop(), _backends_of(model.process_group)
    wanted = _hierarchy.BACKENDS[kind]
    if backend != wanted and f"{kind}:{wanted}" not in backend:
        return f"a process group of {backend}, not {wanted}"
    if model.process_group.size() < 2:
        return "one rank, with nobody to communicate"
    return ""


def _backends_of(group: Any) -> str:
    """As "gloo", or for each kind of device, "cpu:gloo,cuda:nccl"."""
    told = getattr(dist, "get_backend_config", dist.get_backend)(group)
    return str(told)


def device_of(model: Any) -> torch.device:
    """Of a model that `why_not` has nothing against."""
    device: torch.device = next(p.device for p in model.module.parameters() if p.requires_grad)
    return device


def timeout_of(model: Any) -> timedelta:
    """That of the process group, which the program may have set."""
    group = model.process_group
    try:
        backend = group._get_backend(device_of(model)) if hasattr(group, "_get_backend") else group
        return max(backend.options._timeout, timedelta(seconds=1))
    except (AttributeError, RuntimeError):
        return TIMEOUT


class Hooked:
    """The gradients of one model: the buckets under way, and how they end."""

    def __init__(self, model: Any, communicator: Carrier, how: Compression | None = None) -> None:
        self._model = weakref.ref(model)
        self.communicator = communicator
        self.sums = Sums(communicator, how)
        # Another way for all buckets: the program's own hook.
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

    # -- one bucket
    # ------------------------------------------------------------

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
        """As PyTorch's built-in hooks do: in the process group, in float16 if `half`."""
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
        """False outside of backward. For every bucket: a backward within backward has an end of its
        own.
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

    # -- the reducer's scaling
    # ------------------------------------------------------------

    def _divisor(self, in_backward: bool) -> int:
        """The number of ranks, or within join(divide_by_initial_world_size=False) of those that
        still have inputs.
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
        """The reducer multiplies what it copies into a bucket by 1/ranks, and divides what lies
        there already: not the same bits.
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
