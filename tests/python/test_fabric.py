# SPDX-License-Identifier: Apache-2.0
"""Ranks: one that talks to itself, and two processes."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
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


def test_messages(fabric: gigabar.Fabric) -> None:
    fabric.send(0, b"hello", tag=3)
    into = bytearray(8)
    assert fabric.recv(0, into, tag=3) == gigabar.Received(0, 3, 5)
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
        (lambda: gigabar.Fabric(transports=["pigeon"]), "transports"),
    ]:
        with pytest.raises(gigabar.Error, match=names):
            call()
    with pytest.raises(TypeError, match="local"):
        fabric.write(3, (0, 1, 0), 8)  # type: ignore[arg-type]


def test_a_closed_fabric_says_so() -> None:
    fabric = gigabar.Fabric(rank=0, rank_count=1, transports=["local"])
    fabric.close()
    fabric.close()
    with pytest.raises(gigabar.Error, match="closed"):
        fabric.barrier()
    left = gigabar.Fabric(rank=0, rank_count=1, transports=["local"])
    left.abandon()
    assert left.closed


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


@pytest.mark.parametrize("what", ["lives", "dies"])
def test_two_processes(what: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen([sys.executable, "-c", PEER, what], env=job | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said


anything = st.one_of(st.none(), st.integers(), st.floats(), st.binary(max_size=8), st.tuples(st.integers(0, 3), st.integers(0, 5000)))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["write", "read", "write_notify", "notify", "report", "notification_reset"]), st.lists(anything, max_size=6))
def test_any_arguments_end_in_an_exception(name: str, arguments: list[Any]) -> None:
    try:
        getattr(SHARED, name)(*arguments)
    except (gigabar.Error, TypeError):
        pass


SHARED = gigabar.Fabric(rank=0, rank_count=1, transports=["local"])
SHARED.register(1, bytearray(4096))
