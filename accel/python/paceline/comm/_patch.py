# SPDX-License-Identifier: Apache-2.0
"""Gives PyTorch's own DistributedDataParallel our hook, in programs that do not know Paceline.

Injection installs it. These settings of the job switch it on:

- PACELINE_COMMUNICATION=Auto, unless PACELINE_NUMERICS=Bitwise, because sums have another order
  than gloo's (class Reordered);
- PACELINE_COMMUNICATION_COMPRESSION, for example Int8, with PACELINE_NUMERICS=Lossy: fewer bytes
  between hosts (_compression).

It replaces `DistributedDataParallel.__init__` and the two methods that register hooks. A model on
the CPU in a gloo group gets the hook when it is made. A model on a GPU in an NCCL group gets it if
the job asks for compression, or if sums by way of hosts are measured to be quicker than NCCL's own.
They are measured where hosts are joined by TCP, or where AIAK_HIERARCHICAL_ALLREDUCE=1 asks. The
ranks agree for each model: all use the hook, or none. A hook that the program registers later takes
the place of ours.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist

from paceline._core import contract
from paceline._core.agreement import AGREEMENT_TIMEOUT, agree
from paceline._core.environment import AIAK, setting, told
from paceline._core.log import say
from paceline._core.switches import why_off
from paceline.comm import _hierarchy, _native, _report
from paceline.comm._addresses import why_no_address
from paceline.comm._communicator import Communicator
from paceline.comm._compression import Compression, parse
from paceline.comm._ddp import Hooked, all_say, register
from paceline.comm._hierarchy import Hierarchy
from paceline.comm._layout import Layout, PeerInfo, exchange, own_host, why_not_tcp
from paceline.comm._measured import BUDGET_S, Choice, sizes_to_measure
from paceline.comm._members import Members
from paceline.comm._model import bucket_sizes, device_of, timeout_of, why_not
from paceline.comm._tuning import tune

# The arguments of DistributedDataParallel whose meaning the hook knows, in PyTorch 1.13 to 2.14. A
# model that sets another one is left to PyTorch, because it may mean anything.
KNOWN = {
    *("self", "module", "device_ids", "output_device", "dim", "broadcast_buffers", "init_sync"),
    *("process_group", "bucket_cap_mb", "find_unused_parameters", "check_reduction"),
    *("gradient_as_bucket_view", "static_graph", "delay_all_reduce_named_params"),
    *("param_to_hook_all_reduce", "mixed_precision", "device_mesh", "bucket_cap_mb_list"),
    *("skip_all_reduce_unused_params", "batched_grad_copy", "forward_sync_buffers"),
}
# What the patch uses of the class.
_USED = ("register_comm_hook", "_register_builtin_comm_hook", "_check_comm_hook")

# Smaller buckets on a GPU are left to NCCL, which has less latency.
LEAST_BYTES = 1 << 20

_compression: Compression | None = None
_by_hosts = False  # whether AIAK_HIERARCHICAL_ALLREDUCE=1 asks for sums by way of hosts
# What was measured for a process group, by its hosts and device. Its later models use it.
_choices: weakref.WeakKeyDictionary[Any, dict[Any, Choice]] = weakref.WeakKeyDictionary()
_attached: weakref.WeakKeyDictionary[Any, Hooked] = weakref.WeakKeyDictionary()
_undo: list[Callable[[], None]] = []
_said: set[str] = set()


def install() -> None:
    """Patches DistributedDataParallel if the job's settings ask for it, else records why not."""
    global _compression, _by_hosts
    _compression = None
    _choices.clear()
    _by_hosts = os.environ.get("AIAK_HIERARCHICAL_ALLREDUCE") == "1"
    _take_aiak()
    _report.switch = why_off(
        contract.COMMUNICATION,
        "gradients of PyTorch's DistributedDataParallel are",
        "sums over our communicator",
    )
    if _report.switch:
        return
    kind = torch.nn.parallel.DistributedDataParallel
    missing = [name for name in _USED if not callable(getattr(kind, name, None))]
    if not dist.is_available() or missing:
        _report.switch = f"off (PyTorch's DistributedDataParallel has no {', '.join(missing)})"
        say(f"DistributedDataParallel is left as it is: it has no {', '.join(missing)}")
        return
    _patch(kind)
    _compression = _wanted_compression()
    _report.numerics = "Reordered" if _compression is None else "Lossy"
    _report.switch = "on" if _compression is None else f"on (compression {_compression})"


def _wanted_compression() -> Compression | None:
    """Returns the job's compression, or None with a line that says why there is none."""
    try:
        wanted = parse(told(contract.COMMUNICATION_COMPRESSION))
    except ValueError as error:
        say(f"gradients are not compressed: {contract.COMMUNICATION_COMPRESSION}: {error}")
        return None
    numerics = setting(contract.NUMERICS)
    if wanted is not None and numerics != "Lossy":
        say(
            f"gradients are not compressed: {wanted} is of class Lossy, and {contract.NUMERICS} is"
            f" {numerics}"
        )
        return None
    return wanted


def _take_aiak() -> None:
    """Translates AIAK-Training's switches into our variables, except those that the job sets."""
    on = [name for name in AIAK if os.environ.get(name) == "1"]
    if not on or told(contract.COMMUNICATION) == "Disabled":
        return
    taken = {contract.COMMUNICATION: "Auto"}
    if "AIAK_FP16_COMPRESSION" in on:
        taken[contract.COMMUNICATION_COMPRESSION] = "FP16"
    if "AIAK_POWERSGD_COMPRESSION" in on:
        rank = os.environ.get("AIAK_MATRIX_APPROXIMATION_RANK") or "1"
        start = os.environ.get("AIAK_START_COMPRESS_ITER") or "1000"
        taken[contract.COMMUNICATION_COMPRESSION] = f"PowerSGD:rank={rank},start={start}"
    if len(taken) > 1:
        taken[contract.NUMERICS] = "Lossy"
    for name, value in taken.items():
        os.environ[name] = os.environ.get(name) or value
    if os.environ.get("RANK", "0") == "0":
        says = ", ".join(f"{name}={os.environ[name]}" for name in taken)
        say(f"{', '.join(on)}: taken for {says}; flat or hierarchical is chosen, not set")


def uninstall() -> None:
    """Restores the replaced methods. Models that already have the hook keep it."""
    while _undo:
        _undo.pop()()
    _report.switch = "off (uninstalled)"


def _patch(kind: Any) -> None:
    make, register, register_builtin = (
        kind.__init__,
        kind.register_comm_hook,
        kind._register_builtin_comm_hook,
    )
    signature = inspect.signature(make)

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        try:
            unknown = _unknown(signature, args, kwargs)
            _attach(
                self,
                unknown,
                register if type(self).register_comm_hook is register_comm_hook else None,
            )
        except Exception as error:
            _leave(self, f"{type(error).__name__}: {error}")

    @functools.wraps(register)
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> None:
        gradients = _attached.pop(self, None)
        if gradients is None:
            return register(self, state, hook)
        self._check_comm_hook(hook)
        self.logger._set_comm_hook_name(hook.__qualname__)
        if hasattr(self, "_comm_hooks"):
            self._comm_hooks[:] = [(hook, state)]
        _stand_back(self, gradients, functools.partial(hook, state))
        return None

    @functools.wraps(register_builtin)
    def _register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
        gradients = _attached.pop(self, None)
        if gradients is None:
            return register_builtin(self, comm_hook_type)
        self.logger._set_comm_hook_name(str(comm_hook_type))
        half = comm_hook_type == dist.BuiltinCommHookType.FP16_COMPRESS
        _stand_back(self, gradients, functools.partial(gradients.by_group, half=half))
        return None

    for replacement in (__init__, register_comm_hook, _register_builtin_comm_hook):
        name = replacement.__name__
        _undo.append(functools.partial(setattr, kind, name, getattr(kind, name)))
        setattr(kind, name, replacement)


def _stand_back(model: Any, gradients: Hooked, hook: Callable[[Any], Any]) -> None:
    gradients.instead = hook
    _report.outcome_of(model).leave("a hook of the program's")


def _unknown(signature: inspect.Signature, args: Any, kwargs: dict[str, Any]) -> str:
    """Returns why a model with these arguments is PyTorch's, or an empty text."""
    given = signature.bind_partial(None, *args, **kwargs).arguments
    for name, value in given.items():
        default = signature.parameters[name].default
        if name not in KNOWN and value is not default and value != default:
            return f"{name}={value!r}, an argument that this release does not know"
    return ""


def _attach(model: Any, unknown: str, hook: Callable[..., None] | None) -> None:
    """Registers the hook with a new model, if all ranks of its group can. All ranks call it when
    they construct the model.
    """
    if model.process_group.size() < 2:
        _report.outcome_of(model).leave("one rank, with no other to communicate with")
        return
    if _hierarchy.carries(model):
        _attach_by_hosts(model, unknown, hook)
        return
    why = unknown or why_not(model) or _native.why_unavailable() or why_no_address()
    if hook is None:
        why = why or "a subclass that registers hooks in its own way"
    members = Members(model.process_group)
    name = members.next_name("ddp")
    if refused := agree(members.store, f"{name}/able", members.rank, members.ranks, why):
        _leave(model, refused)
        return
    assert hook is not None
    communicator = None
    plan = told(contract.COMMUNICATION_PLAN)
    how = _compression
    try:
        communicator = Communicator(
            model.process_group, name=name, timeout=timeout_of(model), plan=plan
        )
        # create() accepts plans that mean the same. Here their texts must be equal, because tune()
        # is a call of all ranks or of none.
        if not all_say(communicator, plan):
            raise ValueError(
                f"PACELINE_COMMUNICATION_PLAN is {plan!r} here and another on some rank: say the"
                " same on all"
            )
        if not all_say(communicator, str(how)):
            say(
                f"gradients are not compressed: PACELINE_COMMUNICATION_COMPRESSION is {how} here"
                " and another on some rank"
            )
            how = None
        if not plan:
            tune(communicator)
    except Exception as error:
        communicator = None
        why = str(error) or type(error).__name__
    # A rank that is connected learns here whether all ranks are.
    if refused := agree(members.store, f"{name}/connected", members.rank, members.ranks, why):
        _leave(model, refused)
        return
    assert communicator is not None
    _attached[model] = register(model, communicator, how, functools.partial(hook, model))


def _attach_by_hosts(model: Any, unknown: str, hook: Callable[..., None] | None) -> None:
    """As `_attach`, for a model on a GPU."""
    members = Members(model.process_group)
    name = members.next_name("ddp")
    why = unknown or why_not(model) or _hierarchy.why_not_group(members)
    if hook is None:
        why = why or "a subclass that registers hooks in its own way"
    info = None
    try:
        info = None if why else _own_info(model, members)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    # A rank that comes after the others gave up learns it here, and does not wait.
    if refused := agree(members.store, f"{name}/able", members.rank, members.ranks, why):
        _leave(model, refused)
        return
    assert info is not None and hook is not None
    how = _compression
    infos = exchange(members, name, info, AGREEMENT_TIMEOUT)
    if how is not None and len({one.compression for one in infos}) > 1:
        how = None
        say(
            "gradients are not compressed: PACELINE_COMMUNICATION_COMPRESSION is"
            f" {info.compression} here and another on some rank"
        )
    layout, buckets = Layout.of([one.host for one in infos]), infos[0].buckets
    sizes = sizes_to_measure(buckets, LEAST_BYTES) if how is None else []
    if why := layout.why_not() or _why_not_to_measure(infos, how, sizes):
        _leave(model, why)
        return
    key = (layout, device_of(model))
    choices = _choices.setdefault(members.group, {})
    if key in choices and how is None and (why := _why_not_quicker(choices[key], buckets)):
        _leave(model, why)
        return
    made = _made_by_all(model, members, layout, name, how, sizes, choices.get(key))
    if isinstance(made, str):
        _leave(model, made)
        return
    if made.choice is not None:
        choices[key] = made.choice
        if why := _why_not_quicker(made.choice, buckets):
            made.close()
            _leave(model, why)
            return
    _attached[model] = register(model, made, how, functools.partial(hook, model))


def _own_info(model: Any, members: Members) -> PeerInfo:
    return PeerInfo(
        own_host(),
        _hierarchy.told(_compression, device_of(model)),
        _by_hosts or _compression is not None,
        rdma=why_not_tcp(),
        buckets=sorted(set(bucket_sizes(model))) if members.rank == 0 else (),
    )


def _why_not_to_measure(infos: list[PeerInfo], how: Compression | None, sizes: list[int]) -> str:
    """Returns why all ranks leave NCCL alone without measuring, or an empty text."""
    if how is None and not sizes:
        return f"no bucket has {LEAST_BYTES >> 20} MiB, below which NCCL alone is quicker"
    if all(one.asked for one in infos):
        return ""
    rdma = next((one.rdma for one in infos if one.rdma), "")
    return rdma and f"NCCL seems to reach other hosts by {rdma}, and not by TCP"


def _why_not_quicker(choice: Choice, buckets: Sequence[int]) -> str:
    """Returns why no bucket is summed by way of hosts, or an empty text if one is."""
    if any(size >= LEAST_BYTES and choice.by_hosts(size) for size in buckets):
        return ""
    if not choice.rows:
        return f"three sums by way of hosts and three of NCCL's take longer than {BUDGET_S} s"
    return f"by way of hosts is not clearly quicker; measured as times as quick as flat: {choice}"


def _made_by_all(
    model: Any,
    members: Members,
    layout: Layout,
    name: str,
    how: Compression | None,
    sizes: list[int],
    choice: Choice | None,
) -> Hierarchy | str:
    """Makes, tries and measures the sums by way of hosts. All ranks begin each step or none does.
    Returns the reason if a step failed on any rank.
    """
    hierarchy, why = None, ""
    for step in ("made", "proved", "measured"):
        try:
            if hierarchy is None:
                hierarchy = Hierarchy(
                    members,
                    layout,
                    device_of(model),
                    timeout_of(model),
                    LEAST_BYTES,
                    sizes if choice is None else (),
                    choice if how is None else None,
                )
            elif step == "proved":
                hierarchy.prove(how is not None)
            elif how is None and choice is None:
                hierarchy.measure()
        except Exception as error:
            why = str(error) or type(error).__name__
        if refused := agree(members.store, f"{name}/{step}", members.rank, members.ranks, why):
            return refused
    assert hierarchy is not None
    return hierarchy


def _leave(model: Any, why: str) -> None:
    _report.outcome_of(model).leave(why)
    if why not in _said:
        _said.add(why)
        say(f"gradients are communicated by PyTorch: {why}")
