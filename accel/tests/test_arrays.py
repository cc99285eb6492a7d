# SPDX-License-Identifier: Apache-2.0
"""paceline.arrays: collectives of programs that know no PyTorch, on arrays by DLPack."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import rings
from ports import free_port

# Ranks of a program in which PyTorch cannot be imported.
BEGIN = """
import ctypes, os, signal, sys, time
from datetime import timedelta
sys.modules["torch"] = None
import numpy
import paceline.arrays
rank, ranks, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def opened(store):
    if ":" in store:
        return paceline.arrays.TcpStore(store, serve=rank == 0)
    return paceline.arrays.FileStore(store)

def refused(call, *words):
    try:
        call()
    except ValueError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"not refused: {words}")
"""
Play = Callable[..., list[str]]


@pytest.fixture
def play(runtime: Path, tmp_path: Path) -> Play:
    def run(program: str, ranks: int = 3, store: str = "", dead: int = 0) -> list[str]:
        script = tmp_path / "program.py"
        script.write_text(BEGIN + textwrap.dedent(program))
        environment = rings.environment(runtime, tmp_path / "no-receiver")
        command = [sys.executable, str(script)]
        started = [
            subprocess.Popen(
                [*command, str(rank), str(ranks), store or str(tmp_path / "store")],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(ranks)
        ]
        said = [process.communicate(timeout=120)[0] for process in started]
        failed = [f"rank {i}: {said[i]}" for i, process in enumerate(started) if process.returncode]
        assert len(failed) == dead, "\n".join(failed)
        return said

    return run


CALLS = """
    with paceline.arrays.Communicator(opened(store), rank, ranks, host=f"host{rank % 2}") as communicator:
        total = ranks * (ranks + 1) // 2
        for dtype in ("float32", "float64", "float16", "int32", "int64"):
            array = numpy.arange(1001, dtype=dtype) % 7 * (rank + 1)
            communicator.allreduce(array)
            assert (array == numpy.arange(1001, dtype=dtype) % 7 * total).all(), dtype
        # A part of an array, from the middle of its memory.
        whole = numpy.full(100, rank, dtype="float32")
        communicator.allreduce(whole[40:60].reshape(4, 5))
        assert whole[40:60].tolist() == [ranks * (ranks - 1) / 2] * 20 and whole[39] == whole[60] == rank
        one = numpy.array([rank, 7], dtype="int64")
        communicator.broadcast(one, root=ranks - 1)
        assert one.tolist() == [ranks - 1, 7]
        gathered = communicator.allgather(numpy.empty((ranks, 2), dtype="float64"), numpy.array([rank, -rank], dtype="float64"))
        assert gathered.tolist() == [[r, -r] for r in range(ranks)]
        part = communicator.reduce_scatter(numpy.empty(2, dtype="int32"), numpy.arange(2 * ranks, dtype="int32"))
        assert part.tolist() == [2 * rank * ranks, (2 * rank + 1) * ranks]
        turned = communicator.alltoall(numpy.empty(ranks, dtype="int32"), numpy.arange(ranks, dtype="int32") + 10 * rank)
        assert turned.tolist() == [10 * r + rank for r in range(ranks)]
        if rank == 0:
            communicator.send(numpy.array([1.5, 2.5]), to=1)
        elif rank == 1:
            assert communicator.receive(numpy.empty(2), source=0).tolist() == [1.5, 2.5]
        assert "order=" in communicator.plan()
        communicator.barrier()
"""


def test_ranks_that_meet_in_a_folder_make_all_calls(play: Play) -> None:
    play(CALLS)


def test_ranks_that_meet_at_a_port_make_all_calls(play: Play) -> None:
    play(CALLS, store=f"127.0.0.1:{free_port()}")


def test_one_rank_needs_nobody(play: Play) -> None:
    play(CALLS.split("        if rank == 0:")[0], ranks=1)


def test_what_cannot_be_done_is_refused_by_name(play: Play) -> None:
    play("""
    refused(lambda: paceline.arrays.Communicator(opened(store), 3, 3), "rank is 3", "0 to 2")
    refused(lambda: paceline.arrays.TcpStore("here"), "address is 'here'", "HOST:PORT")
    met = paceline.arrays.Communicator(opened(store), rank, ranks, name="met")
    with paceline.arrays.Communicator(opened(store), rank, ranks) as communicator:
        met.barrier()  # none is still in the making of its own
        numbers = numpy.arange(12.0)
        refused(lambda: communicator.allreduce([1.0, 2.0]), "array is of list", "__dlpack__")
        refused(lambda: communicator.allreduce(numbers[::2]), "array must be contiguous")
        refused(lambda: communicator.allreduce(numbers.reshape(3, 4).T), "array must be contiguous")
        refused(lambda: communicator.allreduce(numbers.astype("uint8")), "uint8", "float32")
        refused(lambda: communicator.broadcast(numbers, root=3), "root is 3")
        refused(lambda: communicator.allgather(numbers, numbers), "output has 12 elements", "3 times the 12 of input")
        refused(lambda: communicator.alltoall(numbers, numbers.astype("float32")), "float64", "float32")
        numbers.flags.writeable = False
        refused(lambda: communicator.allreduce(numbers), "array", "read-only" if numpy.__version__ >= "2.1" else "readonly")

        class OnDevice:
            def __dlpack_device__(self): return (2, 0)
            def __dlpack__(self): raise AssertionError
        refused(lambda: communicator.allreduce(OnDevice()), "array is on a device", "CPU")
    """)


def test_what_one_rank_refuses_the_others_do_not_wait_for(play: Play) -> None:
    said = play("""
    three, wide = numpy.ones(3), numpy.ones(9)
    calls = {
        "allreduce: paceline.arrays: array must be contiguous": lambda one, bad: one.allreduce(wide[::2] if bad else wide),
        "reduce: paceline.comm: root is 3": lambda one, bad: one.reduce(three, 3 if bad else 0),
        "broadcast: paceline.arrays: array is of list": lambda one, bad: one.broadcast([1.0] if bad else three),
        "reduce_scatter: paceline.arrays: input has 3": lambda one, bad: one.reduce_scatter(numpy.ones(3), three if bad else wide),
        "allgather: paceline.arrays: output has 3": lambda one, bad: one.allgather(three if bad else wide, numpy.ones(3)),
        "alltoall: paceline.arrays: input has 2": lambda one, bad: one.alltoall(three, wide[:2] if bad else wide[:3]),
    }
    meeting, met = opened(store), paceline.arrays.Communicator(opened(store), rank, ranks, name="met")
    for words, call in calls.items():
        with paceline.arrays.Communicator(meeting, rank, ranks, name=words) as one:
            met.barrier()
            try:
                call(one, rank == 1)
                one.barrier()  # who only sends, or has got what it needs, may be done before
            except ValueError as error:
                assert rank == 1 and words.split(": ", 1)[1] in str(error), error
            except paceline.arrays.CommError as error:
                assert rank != 1 and error.rank == 1 and "rank 1 gave up: " + words in str(error), error
                print("told")
            else:
                raise AssertionError(words)
    met.close()
    """)
    assert [text.count("told") for text in said] == [6, 0, 6]


def test_a_rank_that_dies_is_named_to_the_others(play: Play) -> None:
    said = play(
        """
        communicator = paceline.arrays.Communicator(opened(store), rank, ranks)
        if rank == 1:
            communicator.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            communicator.barrier()  # some may still be in it
            communicator.allreduce(numpy.zeros(1 << 20, dtype="float32"))
        except paceline.arrays.CommError as error:
            print("lost", error.rank)
        """,
        dead=1,
    )
    assert [text.strip() for rank, text in enumerate(said) if rank != 1] == ["lost 1"] * 2


def test_nobody_waits_for_ever_for_who_does_not_come(play: Play) -> None:
    said = play(
        """
        if rank == 0:
            try:
                paceline.arrays.Communicator(opened(store), rank, ranks, timeout=timedelta(seconds=1))
            except paceline.arrays.CommError as error:
                print(error)
        """,
        ranks=2,
    )
    assert "rank 1" in said[0]


def test_a_rank_that_cannot_begin_is_named_on_all(play: Play) -> None:
    said = play("""
        if rank == 1:
            os.environ["PACELINE_SOCKET_IFNAME"] = "nosuch"
        try:
            paceline.arrays.Communicator(opened(store), rank, ranks)
        except (ValueError, paceline.arrays.CommError) as error:
            print(type(error).__name__, error)
        """)
    why = "PACELINE_SOCKET_IFNAME: 'nosuch' names no network device"
    assert said[1].startswith(f"ValueError {why}"), said
    for rank in (0, 2):
        assert said[rank].startswith(f"CommError paceline.comm: rank 1 does not come: {why}"), said


def test_a_store_outlives_those_who_talk_nonsense_to_it(play: Play) -> None:
    port = free_port()
    play(
        f"""
    import socket
    if rank == 0:
        served = opened(store)
        for nonsense in (b"", b"x", b"s" + b"\\xff" * 4, b"g\\x01\\x00\\x00", b"s\\x01\\x00\\x00\\x00k\\xff\\xff\\xff\\x7f"):
            with socket.create_connection(("127.0.0.1", {port})) as peer:
                peer.sendall(nonsense)
        served.set("key", b"value")
        assert served.get("key", timedelta(seconds=1)) == b"value"
        refused(lambda: served.set("key", bytes(1 << 21)), "2097152 bytes")
        try:
            served.get("nothing", timedelta(milliseconds=100))
        except TimeoutError as error:
            assert "nothing" in str(error)
        else:
            raise AssertionError
        served.close()
    """,
        ranks=1,
        store=f"127.0.0.1:{port}",
    )
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_arrays_of_pytorch_are_arrays_too(runtime: Path, tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import torch, paceline.arrays
        with paceline.arrays.Communicator(paceline.arrays.FileStore({str(tmp_path)!r}), 0, 1) as communicator:
            numbers = torch.arange(6, dtype=torch.bfloat16)
            assert communicator.allreduce(numbers) is numbers and numbers.tolist() == [0, 1, 2, 3, 4, 5]
        """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=rings.environment(runtime, tmp_path / "no-receiver"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout


def test_a_job_that_tells_no_ranks_is_told_of(runtime: Path, tmp_path: Path) -> None:
    program = """
import paceline.arrays
try:
    paceline.arrays.of_job()
except ValueError as error:
    print(error)
"""
    environment = {
        **rings.environment(runtime, tmp_path / "no-receiver"),
        "RANK": "0",
        "WORLD_SIZE": "two",
    }
    for missing, wanted in ((None, "WORLD_SIZE is 'two'"), ("RANK", "RANK is not set")):
        environment.pop(missing, None)
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert wanted in done.stdout, done.stdout + done.stderr


def test_a_forked_child_does_not_keep_the_stores_port(play: Play) -> None:
    port = free_port()
    play(
        """
    served = opened(store)
    ours, childs = os.pipe()
    if os.fork() == 0:
        os.close(childs)
        os.read(ours, 1)  # to the end of the parent's test
        os._exit(0)
    os.close(ours)
    served.close()
    again = opened(store)
    again.set("key", b"value")
    assert again.get("key", timedelta(seconds=1)) == b"value"
    """,
        ranks=1,
        store=f"127.0.0.1:{port}",
    )
