# SPDX-License-Identifier: Apache-2.0
"""Ranks: one that talks to itself, and two processes."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gigabar
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def fabric() -> Iterator[gigabar.Fabric]:
    with gigabar.Fabric(rank=0, rank_count=1, transports=["local"]) as opened:
        opened.register(1, np.zeros(4096, np.uint8))
        yield opened


def test_write_to_itself(fabric: gigabar.Fabric) -> None:
    memory = np.arange(4096, dtype=np.uint16).view(np.uint8)
    fabric.register(2, memory)
    target = np.zeros(4096, np.uint8)
    fabric.register(3, target)
    posted = fabric.write_notify((2, 8), (0, 3, 16), 100, 7, 9)
    fabric.wait(timeout=10)
    assert fabric.notification_wait(3, 0, 65536, timeout=10) == 7
    assert fabric.notification_reset(3, 7) == 9
    assert (target[16:116] == memory[8:108]).all() and not target[:16].any() and not target[116:].any()
    report = fabric.report(posted)
    assert report.is_done and report.status == "ok" and report.nbytes == 100 and report.reason
    assert report.to_dict()["path"] == report.path
    back = fabric.read((2, 0), (0, 3, 16), 4)
    fabric.wait()
    assert fabric.report(back).is_done and memory[:4].tolist() == target[16:20].tolist()
    assert fabric.explain((2, 0), (0, 3, 0), 64).is_possible
    assert fabric.fetch_add((0, 1, 8), 5) == 0 and fabric.fetch_add((0, 1, 8), 1) == 5
    fabric.flush(0)
    fabric.barrier()
    fabric.deregister(2)


def test_lists_and_counters(fabric: gigabar.Fabric) -> None:
    source, target = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
    fabric.register(2, source)
    fabric.register(3, target)
    posted = fabric.write_list(0, [((2, 1), (3, 100), 3), ((2, 10), (3, 0), 2)])
    fabric.wait()
    assert target[100:103].tolist() == [1, 2, 3] and target[:2].tolist() == [10, 11] and target.sum() == 27
    assert fabric.report(posted).nbytes == 2 and fabric.report(posted).chunks == 1  # the last piece
    fabric.write_list_notify(0, [((2, 7), (3, 200), 1)], 3, 11, 5, queue=1)
    assert fabric.notification_wait(3, 0, 64, timeout=10) == 11 and fabric.notification_reset(3, 11) == 5 and target[200] == 7
    fabric.read_list(0, [((2, 0), (3, 100), 2)])
    fabric.wait()
    assert source[:2].tolist() == [1, 2]
    for _ in range(3):
        fabric.notify_add(0, 3, 12, 2)
    fabric.write_notify_add((2, 50), (0, 3, 50), 4, 12, 4)
    fabric.wait()
    fabric.notification_wait_count(3, 12, 9, timeout=10)
    assert fabric.notification_reset(3, 12) == 1 and target[50:54].tolist() == [50, 51, 52, 53]
    with pytest.raises(gigabar.TimedOut):
        fabric.notification_wait_count(3, 12, 1, timeout=0.05)
    fabric.write_in_order((77).to_bytes(8, "little"), (0, 3, 8))
    fabric.progress()
    fabric.flush(0)
    assert target[8] == 77


def test_atomics_and_reductions(fabric: gigabar.Fabric) -> None:
    assert fabric.compare_swap((0, 1, 16), 0, 2**64 - 1) == 0
    assert fabric.compare_swap((0, 1, 16), 5, 7) == 2**64 - 1
    assert fabric.all_reduce([3, -(2**63)]) == [3, -(2**63)]
    assert fabric.all_reduce(np.array([1.5, 2.0]), "max", group=[0]) == [1.5, 2.0]
    whole = fabric.all_reduce(np.array([7, 8], np.int32), "min")
    assert whole == [7, 8] and all(isinstance(one, int) for one in whole)


def test_posted_messages(fabric: gigabar.Fabric) -> None:
    into = bytearray(5)
    received = fabric.post_recv(0, into, tag=4)
    sent = fabric.post_send(0, bytes([9]) * 5, tag=4)  # kept alive by the fabric
    assert fabric.wait_message(received, timeout=10) == gigabar.Received(0, 4, 5) and into == bytes([9]) * 5
    fabric.wait_message(sent)
    waiting = fabric.post_recv(None, into, tag=None)
    with pytest.raises(gigabar.TimedOut):
        fabric.wait_message(waiting, timeout=0.05)
    fabric.cancel_recv(waiting)
    with pytest.raises(BufferError):  # only while it is posted
        posted = fabric.post_recv(0, into, tag=5)
        into.extend(b"x")
    fabric.cancel_recv(posted)
    into.extend(b"x")


def test_segments_of_peers(fabric: gigabar.Fabric) -> None:
    found = fabric.remote_segment(0, 1)
    assert found.nbytes == 4096 and found.kind.startswith("host") and found.to_dict()["kind"] == found.kind
    fabric.quiesce(1, timeout=10)
    with pytest.raises(gigabar.Error):
        fabric.write((1, 0), (0, 1, 8), 4)
        fabric.wait(timeout=10)
    fabric.enable(1)
    fabric.write((1, 0), (0, 1, 8), 4)
    fabric.wait(timeout=10)


def test_a_mapped_segment_is_memory(fabric: gigabar.Fabric) -> None:
    shared = gigabar.allocate_host(4096, shared=True)
    fabric.register(2, shared)
    with fabric.map_segment(0, 2) as mapped:
        assert len(mapped) == mapped.nbytes == 4096 and mapped.device == -1 and mapped.address and mapped.why_no_atomics == ""
        memory = np.asarray(mapped)
        memory[8:12] = 7
        mapped.fence()
        assert np.asarray(shared)[8:13].tolist() == [7, 7, 7, 7, 0]
        assert mapped.__dlpack_device__() == (1, 0) and np.from_dlpack(mapped)[8] == 7
        fabric.send(0, mapped, tag=9)  # it is memory as any other
    assert mapped.closed
    mapped.close()
    for call in (lambda: mapped.nbytes, mapped.fence, lambda: mapped.__dlpack__()):
        with pytest.raises(gigabar.Error, match="unmapped"):
            call()
    with pytest.raises(BufferError, match="unmapped"):
        memoryview(mapped)
    del memory
    fabric.deregister(2, timeout=10)


@pytest.mark.parametrize("view", [np.asarray, np.from_dlpack, memoryview])
def test_a_view_holds_a_mapped_segment(fabric: gigabar.Fabric, view: Callable[[Any], Any]) -> None:
    fabric.register(2, gigabar.allocate_host(4096, shared=True))
    with fabric.map_segment(0, 2) as mapped:
        memory = view(mapped)
    with pytest.raises(gigabar.TimedOut):
        fabric.deregister(2, timeout=0.05)
    with pytest.raises(gigabar.Error) as raised:
        fabric.close()
    assert raised.value.status == "busy" and memory[8] == 0
    del memory
    fabric.deregister(2, timeout=10)


def test_a_mapped_segment_outlives_its_fabric() -> None:
    fabric = gigabar.Fabric(rank=0, rank_count=1, transports=["local"])
    fabric.register(1, gigabar.allocate(4096))
    mapped = fabric.map_segment(0, 1, kernels=True)
    fabric.abandon()
    del fabric
    memory = np.asarray(mapped)
    memory[:] = 3
    assert memory.sum() == 3 * 4096


def test_settings() -> None:
    limits = gigabar.FabricLimits(eager_bytes=512, chunk_bytes=8192, chunk_count=3)
    with gigabar.Fabric(
        rank=0,
        rank_count=1,
        transports=["local"],
        policy=gigabar.PathPolicy(p2p="forbid"),
        limits=limits,
        rail_policy="fixed",
        rail_count=2,
        cpus="any",
        progress_thread=False,
        ucx_trust_network=False,
    ) as fabric:
        settings = {one.name: one for one in fabric.settings()}
        for value in ("512", "8192", "3", "fixed"):
            assert any(one.value == value and one.source == "option" for one in settings.values()), (value, settings)
        assert fabric.local_rank == 0 and isinstance(fabric.cpus, list)
        fabric.register(1, bytearray(4096))
        options = gigabar.PostOptions(policy=gigabar.PathPolicy(bar="prefer"), chunk_bytes=4096, stripe_bytes=0)
        fabric.write((1, 0), (0, 1, 64), 8, options=options)
        assert fabric.explain((1, 0), (0, 1, 64), 8, options=options).chunk_bytes >= 0
        fabric.wait()
        assert fabric.statistics().operations >= 1 and fabric.statistics().to_dict()["refused_strangers"] == 0
        (peer,) = fabric.peers()
        assert peer.rank == 0 and peer.is_same_host and peer.transport == "local" and not peer.why
        with pytest.raises(gigabar.Error) as raised:
            fabric.forget(0)
        assert raised.value.status == "busy"


def test_messages(fabric: gigabar.Fabric) -> None:
    fabric.send(0, b"hello", tag=3)
    into = bytearray(8)
    received = fabric.recv(0, into, tag=3)
    assert received == gigabar.Received(0, 3, 5) and received.to_dict() == {"rank": 0, "tag": 3, "nbytes": 5}
    assert into == b"hello\0\0\0"
    with pytest.raises(gigabar.TimedOut):
        fabric.recv(None, into, tag=None, timeout=0.05)
    fabric.send(0, b"again")  # the receive that timed out does not take it
    assert fabric.recv(None, into, tag=None).nbytes == 5


def test_a_wait_times_out(fabric: gigabar.Fabric) -> None:
    begin = time.monotonic()
    with pytest.raises(TimeoutError) as raised:
        fabric.notification_wait(1, timeout=0.2)
    assert 0.2 <= time.monotonic() - begin < 5
    assert isinstance(raised.value, gigabar.Error) and raised.value.status == "timed_out"


def test_other_threads_run_while_one_waits(fabric: gigabar.Fabric) -> None:
    notifier = threading.Timer(0.1, lambda: fabric.notify(0, 1, 4, 1, queue=1))
    notifier.start()
    assert fabric.notification_wait(1, 4, timeout=10) == 4
    notifier.join(10)


@pytest.mark.parametrize("call", ["notification_wait", "recv"])
def test_a_signal_ends_a_wait(fabric: gigabar.Fabric, call: str) -> None:
    interrupt = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        if call == "recv":
            fabric.recv(0, bytearray(8), timeout=30)
        else:
            fabric.notification_wait(1, timeout=None)
    assert time.monotonic() - begin < 10
    interrupt.join(10)
    fabric.barrier(timeout=10)


def test_a_wait_for_a_rank_that_never_starts_ends() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fabric = gigabar.Fabric(rank=0, rank_count=2, master_address="127.0.0.1", master_port=port, connect_timeout=0.2)
    interrupt = threading.Timer(10, lambda: os.kill(os.getpid(), signal.SIGINT))
    interrupt.start()
    try:
        for timeout in (None, 30):
            with pytest.raises(gigabar.Error, match="rank 1") as raised:
                fabric.connect(1, timeout=timeout)
            assert raised.value.status == "peer_lost"
    except KeyboardInterrupt:
        pytest.fail("it goes on")
    finally:
        interrupt.cancel()
        fabric.abandon()


def test_bad_calls(fabric: gigabar.Fabric) -> None:
    for call, names in [
        (lambda: fabric.write((1, 0), (0, 1024, 0), 8), "segment"),
        (lambda: fabric.write((1, -1), (0, 1, 0), 8), "local offset"),
        (lambda: fabric.write((1, 0), (0, 1, 0), -8), "nbytes"),
        (lambda: fabric.write((1, 0), (0, 1, 0), 8, queue=16), "queue"),
        (lambda: fabric.write((1, 4095), (0, 1, 0), 8), "segment 1"),
        (lambda: fabric.notify(0, 1, 65536), "notification"),
        (lambda: fabric.notification_wait(1, timeout=-1.0), "timeout"),
        (lambda: fabric.notification_wait(1, timeout=float("nan")), "timeout"),
        (lambda: fabric.register(1, bytearray(8)), "segment 1"),
        (lambda: fabric.register(4, b"read-only"), "memory"),
        (lambda: fabric.send(7, b"x", timeout=0), "rank"),
        (lambda: fabric.report(1 << 60), "operation"),
        (lambda: fabric.write_list(0, [((1, 0), (0, 1024), -1)]), "nbytes|remote offset"),
        (lambda: fabric.write_in_order(bytes(65), (0, 1, 0)), "65"),
        (lambda: fabric.write((1, 0), (0, 1, 0), 8, options=gigabar.PostOptions(chunk_bytes=-1)), "chunk_bytes"),
        (lambda: fabric.write((1, 0), (0, 1, 0), 8, options=gigabar.PostOptions(gigabar.PathPolicy(gdr="no"))), "policy: gdr is 'no'"),
        (lambda: fabric.all_reduce([2**63]), "values"),
        (lambda: fabric.all_reduce([1], "mean"), "operation"),
        (lambda: fabric.wait_message(1 << 60, timeout=0), "operation"),
        (lambda: fabric.cancel_recv(1 << 60), "operation"),
        (lambda: fabric.remote_segment(0, 9, timeout=5), "segment 9"),
        (lambda: fabric.map_segment(0, 9, timeout=5), "segment 9"),
        (lambda: fabric.map_segment(9, 1, timeout=5), "rank"),
        (lambda: fabric.map_segment(0, 1024), "segment"),
        (lambda: fabric.compare_swap((0, 1, 4), 0, 0), "4"),
        (lambda: gigabar.Fabric(transports=["pigeon"]), "transports"),
        (lambda: gigabar.Fabric(rail_policy="random"), "rail_policy"),
        (lambda: gigabar.Fabric(policy=gigabar.PathPolicy(staged="never")), "policy: staged is 'never'"),
        (lambda: gigabar.Fabric(limits=gigabar.FabricLimits(chunk_count=-3)), "chunk_count"),
    ]:
        with pytest.raises(gigabar.Error, match=names):
            call()
    wrong: Any = 3
    for call, names in [
        (lambda: fabric.write(wrong, (0, 1, 0), 8), "local"),
        (lambda: fabric.write_list(0, wrong), "pieces"),
        (lambda: fabric.write_list(0, [wrong]), "pieces"),
        (lambda: fabric.write((1, 0), (0, 1, 0), 8, options=wrong), "options"),
        (lambda: fabric.all_reduce(wrong), "values"),
        (lambda: fabric.all_reduce(["a"]), "values"),
        (lambda: gigabar.Fabric(policy=wrong), "policy"),
        (lambda: gigabar.Fabric(limits=wrong), "limits"),
    ]:
        with pytest.raises(TypeError, match=names):
            call()


def test_a_closed_fabric_says_so() -> None:
    fabric = gigabar.Fabric(rank=0, rank_count=1, transports=["local"])
    fabric.close()
    fabric.close()
    with pytest.raises(gigabar.Error, match="closed"):
        fabric.barrier()
    left = gigabar.Fabric(rank=0, rank_count=1, transports=["local"])
    left.abandon()
    assert left.closed


MAPPED = """
import gigabar, numpy, sys
with gigabar.Fabric() as fabric:
    memories = [gigabar.allocate_host(65536, shared=True), gigabar.allocate(65536, exportable=True), bytearray(4096)]
    for segment, memory in enumerate(memories):
        fabric.register(segment, memory)
    fabric.barrier(timeout=50)
    if fabric.rank == 0:
        for segment in range(2):
            with fabric.map_segment(1, segment, timeout=50) as mapped:
                memory = numpy.asarray(mapped).view(numpy.uint64)
                memory[5] = 77 + segment
                mapped.fence()
                memory[0] = 1
                del memory
                fabric.barrier(timeout=50)  # the peer tries to deregister
                fabric.barrier(timeout=50)
        try:
            fabric.map_segment(1, 2, timeout=50)
            sys.exit(1)
        except gigabar.Error as error:
            if error.status != "not_supported":
                raise
    else:
        for segment in range(2):
            fabric.barrier(timeout=50)
            memory = numpy.asarray(memories[segment]).view(numpy.uint64)
            assert memory[0] == 1 and memory[5] == 77 + segment
            try:
                fabric.deregister(segment, timeout=0.05)
                sys.exit(2)
            except gigabar.TimedOut:
                pass
            fabric.barrier(timeout=50)
            fabric.deregister(segment, timeout=50)
    fabric.barrier(timeout=50)
"""

PEER = """
import gigabar, sys
with gigabar.Fabric() as fabric:
    fabric.barrier(timeout=20)
    if fabric.rank == 1:
        if sys.argv[1] == "dies":
            import os
            os._exit(0)
        into = bytearray(3 << 20)
        assert fabric.recv(0, into, timeout=20).nbytes == 3 << 20
        assert into == bytes([5]) * (3 << 20)
    elif sys.argv[1] == "dies":
        try:
            fabric.recv(1, bytearray(8), timeout=20)
            sys.exit(1)
        except gigabar.Error as error:
            fabric.abandon()
            sys.exit(0 if error.status == "peer_lost" else 2)
    else:
        fabric.send(1, bytes([5]) * (3 << 20), timeout=20)
"""

# Nothing moves on at a rank that is in no call.
BUSY = """
import gigabar, sys, time
with gigabar.Fabric(transports=["tcp"], progress_thread=False) as fabric:
    fabric.register(1, bytearray(4096))
    fabric.barrier(timeout=20)
    if fabric.rank == 1:
        fabric.write((1, 0), (0, 1, 0), 8)  # it has the segment's key then
        fabric.wait(timeout=20)
        fabric.barrier(timeout=20)
        time.sleep(1)
    else:
        fabric.barrier(timeout=20)
        fabric.progress()
        time.sleep(0.2)
        getattr(fabric, sys.argv[1])(1, timeout=20)
    fabric.barrier(timeout=20)  # the connection stands
"""

ARRIVING = """
import gigabar, os, re, signal, sys, threading, time
with gigabar.Fabric(progress_thread=False) as fabric:
    if fabric.rank == 1:
        first, second = bytes([5]) * (3 << 20), bytes([6]) * (3 << 20)
        sent = [fabric.post_send(0, first), fabric.post_send(0, second)]
        fabric.barrier(timeout=20)  # their requests are there
        time.sleep({"soon": 3.5, "late": 8, "interrupted": 3}[sys.argv[1]])
        for one in sent:
            fabric.wait_message(one, timeout=20)
    else:
        fabric.barrier(timeout=20)
        fabric.progress()
        time.sleep(0.2)
        into = bytearray(3 << 20)
        if sys.argv[1] == "interrupted":
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            received = fabric.recv(1, into, timeout={"soon": 2, "late": 2, "interrupted": 20}[sys.argv[1]])
            assert sys.argv[1] == "soon"
        except (KeyboardInterrupt, gigabar.TimedOut) as error:
            assert sys.argv[1] == ("late" if isinstance(error, gigabar.TimedOut) else "interrupted")
            operation = re.search(r"wait_message[(]([0-9]+)[)]", error.__notes__[0])[1]
            received = fabric.wait_message(int(operation), timeout=20)
        assert received == gigabar.Received(1, 0, 3 << 20) and into == bytes([5]) * (3 << 20)
        fabric.recv(1, into, timeout=20)
        assert into == bytes([6]) * (3 << 20)
    fabric.barrier(timeout=20)
"""

# A rank that dies before it has spoken to the other.
SILENT = """
import gigabar, os, sys
fabric = gigabar.Fabric(connect_timeout=10)
if fabric.rank == 1:
    os._exit(0)
fabric.register(1, bytearray(4096))
calls = {
    "connect": lambda: fabric.connect(1, timeout=None),
    "notification_wait": lambda: fabric.notification_wait(1, timeout=None),
    "recv": lambda: fabric.recv(1, bytearray(8), timeout=None),
    "barrier": lambda: fabric.barrier(timeout=None),
}
try:
    calls[sys.argv[1]]()
    sys.exit(1)
except gigabar.Error as error:
    fabric.abandon()
    if error.status != "peer_lost":
        raise
"""


@pytest.mark.parametrize(
    ("program", "what"),
    [(PEER, "lives"), (PEER, "dies"), (MAPPED, "")]
    + [(BUSY, call) for call in ("quiesce", "deregister")]
    + [(ARRIVING, how) for how in ("soon", "late", "interrupted")]
    + [(SILENT, call) for call in ("connect", "notification_wait", "recv", "barrier")],
)
def test_two_processes(program: str, what: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen([sys.executable, "-c", program, what], env=job | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=60)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said


anything = st.one_of(st.none(), st.integers(), st.floats(), st.binary(max_size=8), st.tuples(st.integers(0, 3), st.integers(0, 5000)))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        ["write", "read", "write_notify", "notify", "report", "notification_reset", "write_list", "read_list", "write_list_notify"]
        + ["notify_add", "write_notify_add", "write_in_order", "all_reduce", "cancel_recv", "enable", "forget", "post_send"]
        + ["map_segment"]
    ),
    st.lists(anything | st.lists(anything, max_size=3), max_size=6),
)
def test_any_arguments_end_in_an_exception(name: str, arguments: list[Any]) -> None:
    try:
        getattr(SHARED, name)(*arguments)
    except (gigabar.Error, TypeError):
        pass


SHARED = gigabar.Fabric(rank=0, rank_count=1, transports=["local"])
SHARED.register(1, bytearray(4096))
