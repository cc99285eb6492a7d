# SPDX-License-Identifier: Apache-2.0
"""paceline.comm on a GPU, without one: the driver is a fake one (device/fake_cuda.cpp), and tensors
that are taken for a GPU's lie on the CPU.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import ROOT, Train

FAKE = (
    Path(os.environ.get("PACELINE_BUILD_DIR", ROOT / "build/release"))
    / "accel/tests/fake_cuda/libcuda.so.1"
)

BEGIN = """
import ctypes
fake = ctypes.CDLL(os.environ["FAKE"], mode=ctypes.RTLD_GLOBAL)
import paceline.comm
from paceline.comm import _device
_device.KIND = "cpu"
used = []
_device.stream_of = lambda device: 0
_device.use_in = lambda stream, tensor: used.append((stream, tensor.data_ptr()))
waited = []
_device.wait_for = lambda stream, device: waited.append(stream)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

def refused(error, words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except error as why:
        assert words in str(why), why
    else:
        raise AssertionError("nothing was refused")
"""
END = """
dist.destroy_process_group()
print("reached the end")
"""


@pytest.fixture
def on_fake(train_by_fork: Train, tmp_path: Path) -> Train:
    assert FAKE.exists(), f"{FAKE} is not built: scripts/build release accel_test"
    (tmp_path / "comm-cuda13-sm_90.cubin").write_text("a module that only the fake driver takes")

    def run(program: str, **extra: str) -> None:
        environment = {"FAKE": str(FAKE), "PACELINE_KERNELS": str(tmp_path), **extra}
        result = train_by_fork(BEGIN + program + END, ranks=3, **environment)
        assert result.code == 0, result.output
        assert result.output.count("reached the end") == 3, result.output

    return run  # type: ignore[return-value]


def test_allreduces_of_every_type_are_those_of_tensors_on_the_cpu(on_fake: Train) -> None:
    on_fake("""
with paceline.comm.Communicator(device="cpu") as ours, paceline.comm.Communicator() as theirs:
    assert 0 < ours.device_bytes <= 64 << 20 and f"# {ours.device_bytes} bytes of the GPU" in ours.plan()
    assert theirs.device is None and theirs.device_bytes == 0
    started = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        for count in (0, 1, 4099):
            torch.manual_seed(rank)
            tensor = (torch.randn(count) * 100).to(dtype)
            version = tensor._version
            one = ours.allreduce_start(tensor.clone())
            assert one.tensor._version > 0
            started.append((one, theirs.allreduce(tensor)))
    for one, wanted in started:
        assert torch.equal(one.wait(), wanted), wanted.dtype
        assert not waited
        assert one.wait() is one.tensor  # in what may be another stream by now
        assert waited.pop() == ours._stream
    assert torch.equal(ours.allreduce(torch.full((5,), 1.0)), torch.full((5,), 3.0))
    # Its own stream may write into them until then, whoever frees them.
    assert len(used) == len(started) + 1 and len({stream for stream, _ in used}) == 1 and used[0][0] != 0
    ours.broadcast(torch.zeros(3))
    dist.barrier()  # what is refused ends what others are still in
    refused(ValueError, "contiguous", ours.allreduce, torch.zeros(4, 4).t())
""")


def test_other_collectives_are_those_of_tensors_on_the_cpu(on_fake: Train) -> None:
    on_fake("""
with paceline.comm.Communicator(device="cpu") as ours, paceline.comm.Communicator() as theirs:
    calls = 0
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        for count in (0, 1, 4099):
            torch.manual_seed(rank)
            # Of whole numbers halves have one sum, however often they are rounded.
            whole, piece = ((torch.randn(size) * 10).round().to(dtype) for size in (count * ranks, count))
            for call, output, input in (
                ("allgather", torch.zeros_like(whole), piece),
                ("alltoall", torch.zeros_like(whole), whole),
                ("reduce_scatter", torch.zeros_like(piece), whole),
            ):
                found = getattr(ours, call)(output, input)
                assert found is output and output._version > 0
                assert torch.equal(found, getattr(theirs, call)(torch.zeros_like(output), input)), (call, dtype, count)
            for root in range(ranks):
                assert torch.equal(ours.broadcast(piece.clone(), root), theirs.broadcast(piece.clone(), root))
                total = theirs.allreduce(piece.clone())
                wanted = total if rank == root else piece.clone()
                assert torch.equal(ours.reduce(piece.clone(), root), wanted), (dtype, count, root)
            calls += 3 * 2 + ranks * 2
        rows = [rank + one for one in range(ranks)]  # of nothing too
        sent, received = torch.arange(float(sum(rows))) + 100 * rank, torch.zeros(sum(rows))
        assert torch.equal(ours.alltoall(received, sent, rows, rows), theirs.alltoall(received.clone(), sent, rows, rows))
        calls += 2
    assert len(used) == calls and len({stream for stream, _ in used}) == 1 and used[0][0] == ours._stream
    assert not ours._held
    dist.barrier()  # what is refused ends what others are still in
    refused(ValueError, "root is 3", ours.broadcast, torch.zeros(3), 3)
    refused(ValueError, "it must have 3 times", ours.allgather, torch.zeros(5), torch.zeros(2))
    refused(ValueError, "input is on meta: it must be on cpu", ours.allgather, torch.zeros(6), torch.zeros(2, device="meta"))
    refused(ValueError, "a multiple of 3", ours.alltoall, torch.zeros(5), torch.zeros(5))
""")


def test_a_collective_that_failed_keeps_its_tensors(on_fake: Train) -> None:
    """Others may still read what was given, and copies into the output may be under way."""
    on_fake("""
ours = paceline.comm.Communicator(device="cpu")
dist.barrier()
if rank == 1:
    ours.abort("the test says so")
output, input = torch.zeros(15), torch.ones(5)
refused(paceline.comm.CommError, "the test says so", lambda: ours.allgather(output, input))
assert [[id(one) for one in held] for held in ours._held.values()] == [[id(output), id(input)]]
ours.close()
assert not ours._held
""")


def test_what_one_rank_refuses_the_others_do_not_wait_for(on_fake: Train) -> None:
    on_fake("""
def stream_of(device):
    raise ValueError("paceline.comm: the current stream is being captured")

def captured(one):
    _device.stream_of = stream_of if rank == 1 else _device.stream_of
    one.allreduce(torch.ones(3))

def beginning(one):
    if rank == 1:
        fake.fake_cuda_set(b"cuEventRecord", 719)
    one.broadcast(torch.ones(3))

asked = _device.stream_of
bad = rank == 1
calls = {
    "allreduce: paceline.comm: the current stream is being captured": captured,
    "reduce: paceline.comm: tensor must be contiguous": lambda one: one.reduce(torch.ones(2, 2).t() if bad else torch.ones(2, 2)),
    "allgather: paceline.comm: output has 3 elements": lambda one: one.allgather(torch.ones(3 if bad else 9), torch.ones(3)),
    "reduce_scatter: paceline.comm: output is on meta": lambda one: one.reduce_scatter(torch.ones(3, device="meta" if bad else "cpu"), torch.ones(9)),
    "alltoall: paceline.comm: input_counts is [1, 1]": lambda one: one.alltoall(torch.ones(3), torch.ones(3), [1, 1, 1], [1, 1] if bad else [1, 1, 1]),
    "cuEventRecord: CUDA_ERROR_LAUNCH_FAILED": beginning,
}
for words, call in calls.items():
    with paceline.comm.Communicator(device="cpu") as one:
        dist.barrier()
        try:
            call(one)
            one.barrier()  # who only sends, or has got what it needs, may be done before
        except ValueError as error:
            assert rank == 1 and words.split(": ", 1)[1] in str(error), error
        except paceline.comm.CommError as error:
            assert error.rank == 1 and f"rank 1 gave up: {words}" in str(error), error
            assert ("CUDA_LAUNCH_BLOCKING=1" in str(error)) == bad, error
        else:
            raise AssertionError(words)
        finally:
            _device.stream_of = asked
        fake.fake_cuda_set(b"cuEventRecord", 0)
""")


def test_the_stream_that_tensors_are_known_to_outlives_the_communicator(on_fake: Train) -> None:
    """PyTorch records an event in it when they are freed. The next communicator has it again."""
    on_fake("""
tensor = torch.ones(4099)
for _ in range(3):
    with paceline.comm.Communicator(device="cpu") as ours:
        ours.allreduce(tensor)
    assert fake.fake_cuda_counts() == 1  # the stream
assert len(used) == 3 and len({stream for stream, _ in used}) == 1
""")


def test_a_sum_that_nobody_waits_for_keeps_its_tensor(on_fake: Train) -> None:
    on_fake("""
import weakref
kept = {}
ours = paceline.comm.Communicator(device="cpu")
theirs = paceline.comm.Communicator()
for communicator in (ours, theirs):
    tensor = torch.ones(4099)
    kept[communicator] = weakref.ref(tensor)
    communicator.allreduce_start(tensor)
    del tensor
    assert kept[communicator]() is not None
    for _ in range(2):
        communicator.allreduce_start(torch.ones(5)).wait()
    assert [len(held) for held in communicator._held.values()] == [1]  # of those that were waited for, none
    dist.barrier()
    communicator.close()
    assert kept[communicator]() is None
coded = paceline.comm.Communicator()
coded.allreduce_coded_start(torch.ones(4099), torch.zeros(coded.rest_count(4099)), 3)
assert [len(held) for held in coded._held.values()] == [2]
dist.barrier()
coded.close()
""")


def test_a_wait_that_failed_fails_again(on_fake: Train) -> None:
    on_fake("""
ours = paceline.comm.Communicator(device="cpu")
dist.barrier()
if rank == 1:
    ours.abort("the test says so")
refused(paceline.comm.CommError, "the test says so", lambda: ours.allreduce(torch.ones(5)))
started = ours.allreduce_start(torch.ones(5))
for _ in range(2):
    refused(paceline.comm.CommError, "the test says so", started.wait)
assert not waited
ours.close()
""")


def test_what_one_rank_lacks_every_rank_is_told(on_fake: Train) -> None:
    on_fake("""
if rank == 1:
    fake.fake_cuda_set(b"cuMemAlloc", 2)
refused(RuntimeError, "rank 1: cuMemAlloc", paceline.comm.Communicator, device="cpu")
assert fake.fake_cuda_counts() == 1
refused(ValueError, "device is meta", paceline.comm.Communicator, device="meta")
""")


def test_gradients_by_this_way_are_those_of_the_cpu(on_fake: Train) -> None:
    on_fake("""
from paceline.comm import _hierarchy
from torch.nn.parallel import DistributedDataParallel

def gradients(**options):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(16, 257), nn.ReLU(), nn.Linear(257, 257), nn.ReLU(), nn.Linear(257, 1))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.1)
    sums = paceline.comm.ddp_hook(ddp, **options)
    for step in range(3):
        torch.manual_seed(100 * step + rank)
        ddp.zero_grad()
        ddp(torch.randn(8, 16)).pow(2).mean().backward()
    return sums, torch.cat([p.grad.flatten() for p in ddp.parameters()])

theirs, wanted = gradients(plan="algorithm=hierarchical")
refused(ValueError, "the parameters are on the CPU", gradients, transport="ipc")
_hierarchy.carries = lambda model: True
ours, found = gradients(transport="ipc")
assert len(used) >= 3 and ours.device_bytes > 0  # a bucket of each step; PyTorch 1.13 makes but one
assert torch.equal(found, wanted)
refused(ValueError, "it must be 'ipc'", gradients, transport="nccl")
refused(ValueError, "rank 1: compression is FP16", gradients, transport="ipc", compression="FP16" if rank == 1 else "Disabled")
refused(ValueError, "on some rank", gradients, transport="" if rank == 0 else "ipc")
ours.close(), theirs.close()
""")


def test_what_a_program_leaves_open_is_closed_in_one_order(on_fake: Train) -> None:
    """Each waits for the other ranks to close theirs: in different orders all would wait for as
    long as for a silent peer.
    """
    on_fake("""
import atexit, random
from datetime import timedelta
from paceline.comm import _handle

class Shuffled(list):
    def __iter__(self):
        return iter(random.sample(list(super().__iter__()), len(self)))

left = Shuffled(paceline.comm.Communicator(device="cpu", silence=timedelta(seconds=40)) for _ in range(4))
_handle._living = left
_handle._living.discard = lambda one: None
random.seed(rank)
dist.barrier()
began = time.monotonic()
_handle._close_all()
assert time.monotonic() - began < 30
assert fake.fake_cuda_counts() == len(left)  # the stream of each
""")
