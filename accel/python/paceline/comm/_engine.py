# SPDX-License-Identifier: Apache-2.0
"""Gradients averaged over ranks without DistributedDataParallel: hooks on the parameters, buckets
in the order in which gradients are ready, the sum of each on its way as its last gradient is there.

All ranks start the same sums in the same order, whatever the order of their own gradients: a bucket
begins when those before it have. The first pass has one bucket for each type; then rank 0 tells in
which order its gradients came, and all cut their buckets by it.

A pass ends with backward(), which waits for all sums; with `overlap`, with the step of that
optimizer (_overlap).
"""

from __future__ import annotations

import contextlib
import functools
import math
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable

from paceline._core.untraced import untraced
from paceline.comm import _report
from paceline.comm._bucket import FIRST_BYTES, Bucket, cut
from paceline.comm._bucket_size import BucketSize
from paceline.comm._choice import tune
from paceline.comm._communicator import DTYPES, SILENCE, TIMEOUT, Communicator, refuse_to_meet
from paceline.comm._compression import Compression, Compressor, parse, why_not_class
from paceline.comm._overlap import Awaited, Stepwise
from paceline.comm._sums import Result, Sums

Tensor = torch.Tensor


class Gradients:
    """Averages the gradients of a model, or of parameters, on the CPU over the ranks of `group`
    (None: of all), from the next backward on.

    All ranks make it, for the same parameters in the same order, and begin with the parameters and
    buffers of rank 0. After backward() each `.grad` is the mean of all ranks', as
    DistributedDataParallel has it, and lies in the engine's memory: the next backward writes there,
    so a program that keeps gradients keeps clones. Numerics class Reordered.

    bucket_mb       MiB of gradients in one allreduce, or "auto": the quickest of a few, which are
    measured in the first passes
    compression     as ddp_hook's; class Lossy
    find_unused     some steps have no gradient of some parameters: one small allreduce more in each
    step. Otherwise that is an error
    overlap         an optimizer of torch.optim whose step updates each bucket's parameters as its
    sum comes. Until then whatever reads a
                    `.grad` through PyTorch waits; an extension in C++ that is given one does not:
                    call synchronize() first
    communicator    one of the program's, which it closes itself; else one is made, as `plan`,
    `silence`, `timeout` and `host` say

    A rank that is lost raises CommError on all others, and so does one whose parameters or options
    are refused here; over the program's `communicator`, which stays as good as it was, the others
    raise ValueError then. `close` takes the hooks away.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[Tensor],
        *,
        bucket_mb: float | str = 25.0,
        compression: Compression | str = "Disabled",
        find_unused: bool = False,
        overlap: Any = None,
        group: Any = None,
        communicator: Communicator | None = None,
        plan: str = "",
        silence: timedelta = SILENCE,
        timeout: timedelta = TIMEOUT,
        host: str = "",
    ) -> None:
        with _refusing(group, communicator):
            how = parse(compression) if isinstance(compression, str) else compression
            why = why_not_class(how)
            if bucket_mb != "auto" and not (isinstance(bucket_mb, (int, float)) and bucket_mb > 0):
                why = f"bucket_mb is {bucket_mb!r}: it must be more than 0, or 'auto'"
            if bucket_mb == "auto" and how is not None:
                why = (
                    "bucket_mb is 'auto' with compression: what is lost belongs to a bucket; say"
                    " how large they are"
                )
            if overlap is not None and find_unused:
                why = (
                    "overlap and find_unused: which gradients there are is known when all sums have"
                    " come; use one of them"
                )
            named = _named(model)
            if why := why or _why_not([parameter for _, parameter in named], model):
                raise ValueError(f"paceline.comm.Gradients: {why}")
            self._stepwise = None if overlap is None else Stepwise(overlap, self)
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        whole = sum(parameter.numel() * parameter.element_size() for parameter in self._parameters)
        self._trial = BucketSize(whole) if bucket_mb == "auto" else None
        self._most = self._trial.most if self._trial is not None else float(bucket_mb) * (1 << 20)
        self._find_unused = find_unused
        self._sparse = _made_sparse(model, self._parameters)
        self._own = communicator is None
        self.communicator = communicator or Communicator(
            group, plan=plan, silence=silence, timeout=timeout, host=host
        )
        shapes = [(name, tuple(parameter.shape), parameter.dtype) for name, parameter in named]
        options = f"{shapes} {how} {bucket_mb} {find_unused} {overlap is None} {self._own} {plan}"
        try:
            self._begin_alike(options, self._own and not plan, _whole(model, self._parameters))
        except BaseException:
            if self._own:
                self.communicator.close()
            raise
        self._sums = Sums(self.communicator, how)
        self.under_way: deque[tuple[Bucket, Result]] = deque()
        self._syncing = True
        self._left = False  # sums of an earlier backward are under way
        self._came: dict[
            int, int
        ] = {}  # gradients of this pass, in their order: the version of their parameter then
        self._used: set[int] = set()  # also those since the last sum that was none
        self._any_used: Tensor | None = None  # on how many ranks, by find_unused
        self._awaited: dict[Tensor, Awaited] = {}
        everyone = list(range(len(self._parameters)))
        self._order: list[int] = []  # of all ranks, once it is known
        self._set_buckets(cut(self._parameters, everyone, self._sparse, math.inf, math.inf))
        self._nodes: list[Any] = []
        self._handles: list[Any] = []
        for number in everyone:
            self._watch(number)
        if self._stepwise is not None:
            self._stepwise.install()
        if isinstance(model, nn.Module):
            _report.outcome_of(model).take(
                self.communicator, self._sums, "" if how is None else str(how)
            )

    # -- what a program calls
    # ------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within add up each rank's own gradients; the next one outside is summed
        with what they have left.
        """
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    @untraced
    def synchronize(self) -> None:
        """Waits for all sums under way. Needed with `overlap` alone, before something reads
        gradients behind PyTorch's back.
        """
        while self.under_way:
            self.next_bucket()
        self._left = False

    @property
    def bucket_mb(self) -> float:
        """MiB of gradients in one allreduce, now."""
        return self._most / (1 << 20)

    def state_dict(self) -> dict[str, Any]:
        """With compression: what has been lost so far and belongs to later steps. Each rank has its
        own.
        """
        return self._compressor().state_dict(self._sums.passes)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Before the first backward, by the same ranks on hosts of the same sizes."""
        self._compressor().load_state_dict(state)

    def close(self) -> None:
        """By all ranks: waits for what is under way. Gradients are each rank's own from then on.
        Where a rank is lost meanwhile the hooks are gone too when this raises CommError, and
        gradients whose sums did not come are None.
        """
        try:
            self.synchronize()
            if self._own:
                self.communicator.barrier()
        finally:
            self._let_go()
            if self._own:
                self.communicator.close()

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._nodes.clear()
        if self._stepwise is not None:
            self._stepwise.uninstall()
        for parameter, awaited in self._awaited.items():
            if parameter.grad is awaited:
                parameter.grad = None
        self._awaited.clear()
        self.under_way.clear()

    def _begin_alike(self, options: str, untuned: bool, tensors: list[Tensor]) -> None:
        if why := _why_not_alike(self.communicator, options):
            raise ValueError(f"paceline.comm.Gradients: {why}")
        if untuned:
            tune(self.communicator)
        for tensor in tensors:
            _from_rank_0(self.communicator, tensor)

    def _compressor(self) -> Compressor:
        if self._sums.compressor is None:
            raise ValueError(
                "paceline.comm.Gradients: the gradients are not compressed: there is no state"
            )
        return self._sums.compressor

    # -- a pass
    # ------------------------------------------------------------

    def _set_buckets(self, buckets: list[Bucket]) -> None:
        self._buckets = buckets
        self._bucket_of = {number: bucket for bucket in buckets for number in bucket.numbers}
        self._begun = 0

    def _cut_again(self) -> None:
        self._set_buckets(
            cut(
                self._parameters,
                self._order,
                self._sparse,
                min(FIRST_BYTES, self._most),
                self._most,
            )
        )

    def _begin_pass(self) -> None:
        if self._trial is None or not self._order:
            return
        if self._trial.next(self.communicator):
            self._most = self._trial.most
            self._cut_again()
        if self._trial.chosen:
            self._trial = None
        else:
            self._trial.begin()

    def _watch(self, number: int) -> None:
        parameter = self._parameters[number]
        taken = functools.partial(self._take, number)
        if self._stepwise is not None:
            self._handles.append(parameter.register_hook(self._before))
        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            self._handles.append(parameter.register_post_accumulate_grad_hook(taken))
            return
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._nodes.append(accumulator)  # it goes, with its hooks, when nobody keeps it
        self._handles.append(accumulator.register_hook(taken))

    # PyTorch calls these, from within compiled functions too.

    @untraced
    def _before(self, _: Any) -> None:
        if self._left:
            self.synchronize()

    @untraced
    def _take(self, number: int, *_: Any) -> None:
        """A gradient has been accumulated."""
        self._used.add(number)
        if not self._syncing:
            return
        if number in self._came:
            self._refuse(
                f"the gradient of {self._names[number]} came again before those of"
                f" {self._absent()}: pass find_unused=True where a step does not use all parameters"
            )
        if number not in self._sparse and self._parameters[number].grad.layout is not torch.strided:
            self._refuse(
                f"the gradient of {self._names[number]} is sparse: pass the module instead of its"
                " parameters"
            )
        if not self._came:
            self._begin_pass()
            if self._find_unused:
                Variable._execution_engine.queue_callback(self._end_backward)
        self._came[number] = self._parameters[number]._version
        self._bucket_of[number].missing -= 1
        while self._begun < len(self._buckets) and self._buckets[self._begun].missing == 0:
            self._start_next()
            # For every bucket: a backward within backward has an end of its own.
            Variable._execution_engine.queue_callback(self._end_backward)

    def _start_next(self) -> None:
        bucket = self._buckets[self._begun]
        self._begun += 1
        for number in bucket.numbers:
            if number not in self._came:
                continue
            why = (
                "the gradient of {} was taken away before its sum"
                if self._parameters[number].grad is None
                else ""
            )
            # By the step of an optimizer, each rank's by its own gradient.
            if self._parameters[number]._version != self._came[number]:
                why = why or "{} has changed since its gradient came and before its sum"
            if why:
                name = self._names[number]
                self._refuse(
                    f"{why.format(name)}: pass find_unused=True where a step does not use all"
                    " parameters"
                )
        with torch.no_grad():
            buffer = bucket.gather(self.communicator.ranks)
            self.under_way.append((bucket, self._sums.start(bucket, buffer)))

    @untraced
    def _end_backward(self) -> None:
        if self._find_unused and self._came:
            while self._begun < len(self._buckets):
                self._start_next()
        self._sums.turn()
        if self._find_unused and self._came:
            used = torch.tensor(
                [int(number in self._used) for number in range(len(self._names))],
                dtype=torch.int32,
                device="cpu",
            )
            self._any_used = self.communicator.allreduce(used)
        if self._stepwise is None or self._sparse or self._sums.passes == 0:
            self.synchronize()
        else:
            self._leave()
        if self._came and self._begun == len(self._buckets):
            self._end_pass()

    def _leave(self) -> None:
        """What is under way goes on after backward."""
        self._left = bool(self.under_way)
        for bucket, _ in self.under_way:
            wait = functools.partial(self._wait_for, bucket)
            for parameter, view in zip(bucket.parameters(), bucket.views):
                self._awaited[parameter] = parameter.grad = Awaited.of(view, wait)

    @untraced
    def _wait_for(self, bucket: Bucket) -> None:
        while any(one is bucket for one, _ in self.under_way):
            self.next_bucket()

    def refuse_early_step(self, parameters: Iterable[Tensor]) -> None:
        """Of these, where a gradient has come whose sum has not begun."""
        if not self._came:
            return
        stepping = {id(parameter) for parameter in parameters}
        for number in self._came:
            if (
                id(self._parameters[number]) in stepping
                and self._bucket_of[number].index() >= self._begun
            ):
                self._refuse(
                    f"{self._names[number]} would step before the sum of its gradient, which waits"
                    f" for those of {self._absent()}: use no overlap, and pass find_unused=True,"
                    " where a step does not use all parameters"
                )

    def is_replaced(self, parameter: Tensor) -> bool:
        """Whether its gradient is another than the one whose sum is under way."""
        awaited = self._awaited.get(parameter)
        return awaited is not None and parameter.grad is not awaited

    def next_bucket(self) -> Bucket:
        """Waits for the next sum. Who has taken away a gradient meanwhile does not get it back."""
        bucket, summed = self.under_way[0]
        result = summed()
        self.under_way.popleft()
        for number, parameter, view in zip(
            bucket.numbers, bucket.parameters(), bucket.views or [result]
        ):
            replaced = self.is_replaced(parameter)
            self._awaited.pop(parameter, None)
            if replaced:
                continue
            if self._any_used is None or self._any_used[number] > 0:
                parameter.grad = view
        if (
            self._trial is not None
            and self._order
            and not self.under_way
            and self._begun in (0, len(self._buckets))
        ):
            self._trial.end()
        return bucket

    def _end_pass(self) -> None:
        self._sums.end_pass()
        order = list(self._came)
        self._came.clear()
        self._used.clear()
        self._begun = 0
        for bucket in self._buckets:
            bucket.missing = len(bucket.numbers)
        if self._sums.passes == 1:
            never = set(range(len(self._names))).difference(order)
            told = torch.tensor(order + sorted(never, reverse=True), device="cpu")
            self._order = self.communicator.broadcast(told).tolist()
            self._cut_again()

    def _absent(self) -> str:
        names = [name for number, name in enumerate(self._names) if number not in self._came]
        return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")

    def _refuse(self, why: str) -> None:
        """Ends the calls of all ranks: others are, or will be, in sums that this one does not
        begin.
        """
        self.communicator.abort(why)
        raise RuntimeError(f"paceline.comm.Gradients: {why}")


@contextlib.contextmanager
def _refusing(group: Any, communicator: Communicator | None) -> Iterator[None]:
    """Where this rank raises within, the others, which would wait for it, hear why where they meet
    next.
    """
    try:
        yield
    except Exception as error:
        why = str(error) or type(error).__name__
        with contextlib.suppress(Exception):  # no process group, a communicator that is closed
            if communicator is None:
                refuse_to_meet(group, why)
            else:
                _why_not_alike(communicator, "", why)
        raise


def _why_not_alike(communicator: Communicator, options: str, refusal: str = "") -> str:
    """Empty where all ranks say the same options. `refusal`: why this rank has none, which all
    others hear instead.
    """
    said = refusal.removeprefix("paceline.comm.Gradients: ").encode()
    mine = torch.tensor([-len(said) if said else zlib.crc32(options.encode())], device="cpu")
    told = communicator.allgather(mine.new_empty(communicator.ranks), mine).tolist()
    first = next((rank for rank, number in enumerate(told) if number < 0), None)
    if first is None:
        differ = (
            "parameters or options differ between ranks: pass the same on all, in the same order"
        )
        return "" if len(set(told)) == 1 else differ
    text = torch.tensor(
        [*said] if first == communicator.rank else [0] * -told[first],
        dtype=torch.int32,
        device="cpu",
    )
    return f"rank {first} refuses: {bytes(communicator.broadcast(text, first).tolist()).decode()}"


def _named(model: nn.Module | Iterable[Tensor]) -> list[tuple[str, Tensor]]:
    if isinstance(model, nn.Module):
        return [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        ]
    return [
        (f"parameter {number}", tensor)
        for number, tensor in enumerate(model)
        if tensor.requires_grad
    ]


def _why_not(parameters: list[Tensor], model: Any) -> str:
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return (
            "a DistributedDataParallel sums its gradients itself: use"
            " paceline.comm.ddp_hook(model), or pass model.module"
        )
    if not parameters:
        return "no parameter that requires a gradient"
    for parameter in parameters:
        if parameter.device.type != "cpu":
            return (
                f"a parameter on {parameter.device}: it must be on the CPU; on GPUs use"
                " DistributedDataParallel and paceline.comm.ddp_hook(model)"
            )
        if parameter.dtype not in DTYPES and not parameter.is_complex():
            return (
                f"a parameter of {parameter.dtype}: it must be of one of"
                f" {', '.join(map(str, DTYPES))}"
            )
        if not parameter.is_leaf:
            return "a tensor that is no leaf: gradients are of parameters"
    return ""


def _made_sparse(model: Any, parameters: list[Tensor]) -> set[int]:
    """Parameters whose gradients are sparse, as DistributedDataParallel looks for them."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    tables = {
        id(one.weight)
        for one in modules
        if isinstance(one, (nn.Embedding, nn.EmbeddingBag)) and one.sparse
    }
    return {number for number, parameter in enumerate(parameters) if id(parameter) in tables}


def _whole(model: Any, parameters: list[Tensor]) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else parameters


def _from_rank_0(communicator: Communicator, tensor: Tensor) -> None:
    """Its bytes, of whatever type."""
    own = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    words = torch.zeros((own.numel() + 3) // 4, dtype=torch.int32, device="cpu")
    sent = words.view(torch.uint8)[: own.numel()]
    sent.copy_(own)
    communicator.broadcast(words)
    if communicator.rank != 0:
        tensor.detach().copy_(sent.view(tensor.dtype).view(tensor.shape))
