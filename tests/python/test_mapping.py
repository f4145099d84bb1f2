# SPDX-License-Identifier: Apache-2.0
"""Memory, mappings and copies, on a stand-in."""

import array
import os
import sys
import threading
from typing import Any

import gigabar
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


class CudaArray:
    """Memory of a stand-in behind the interface by which cupy and torch show theirs."""

    def __init__(self, memory: gigabar.Memory, **changes: Any) -> None:
        self.memory = memory
        self.interface = {
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "data": (memory.address, False),
            "version": 3,
        } | changes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


def filled(memory: gigabar.Memory, value: int = 0) -> np.ndarray:
    view = np.asarray(memory)
    view[:] = value
    return view


@pytest.fixture
def memory() -> gigabar.Memory:
    memory = gigabar.allocate(4096)
    filled(memory, 0xEE)
    return memory


def refused(call: Any, *arguments: Any, status: str, names: str, **options: Any) -> gigabar.Error:
    with pytest.raises(gigabar.Error) as raised:
        call(*arguments, **options)
    assert raised.value.status == status, raised.value
    assert names in str(raised.value)
    assert raised.value.operation and raised.value.cause
    return raised.value


def test_devices_are_labelled() -> None:
    devices = gigabar.devices()
    assert [one.index for one in devices] == [0, 1]
    assert all(one.is_stand_in and "stand-in" in one.name for one in devices)
    assert devices[0].to_dict()["index"] == 0


def test_memory_of_a_stand_in_is_an_array(memory: gigabar.Memory) -> None:
    view = np.asarray(memory)
    assert view.nbytes == memory.nbytes == len(memory) == 4096
    assert view.ctypes.data == memory.address
    assert np.from_dlpack(memory).ctypes.data == memory.address
    assert not hasattr(memory, "__cuda_array_interface__")
    del memory
    view[0] = 1  # the view keeps it


def test_write_and_read(memory: gigabar.Memory) -> None:
    view = np.asarray(memory)
    with gigabar.map(memory) as m:
        assert (m.nbytes, m.device, m.is_stand_in, m.backend) == (4096, 0, True, "host")
        m.write(b"abcdefgh", offset=3)
        assert bytes(view[2:12]) == b"\xeeabcdefgh\xee"
        m.write(np.arange(4, dtype=np.float32), 64)
        assert view[64:80].view(np.float32).tolist() == [0, 1, 2, 3]
        assert m.read_bytes(8, 3) == b"abcdefgh"
        into = np.zeros(4, np.float32)
        m.read(into, offset=64)
        assert into.tolist() == [0, 1, 2, 3]
        m.fill(7, 4000)
        assert view[3999] == 0xEE and set(view[4000:]) == {7}
        m.write(array.array("h", [1, -1]), 128)
        assert view[128:132].view(np.int16).tolist() == [1, -1]
    assert m.closed


def test_publish(memory: gigabar.Memory) -> None:
    view = np.asarray(memory)
    with gigabar.map(memory) as m:
        m.publish(b"data", 64, 0xFFFFFFFF, 8)
        assert bytes(view[8:12]) == b"data" and view[64:68].view(np.uint32)[0] == 0xFFFFFFFF and view[68] == 0xEE
        m.publish(None, 72, 1 << 63, flag_bytes=8)
        assert view[72:80].view(np.uint64)[0] == 1 << 63
        refused(m.publish, b"data", 66, 1, status="invalid_argument", names="flag")
        refused(m.publish, b"data", 64, 1 << 32, status="out_of_range", names="value")
        refused(m.publish, b"x", 64, 1, flag_bytes=2, status="invalid_argument", names="flag_bytes")
        refused(m.publish, b"xxxx", 4096, 1, status="out_of_range", names="4096")
        assert bytes(view[:4]) == b"\xee" * 4  # nothing of it


def test_write_many(memory: gigabar.Memory) -> None:
    view = np.asarray(memory)
    words = np.arange(100, dtype=np.uint64)
    places = np.random.default_rng(1).permutation(512)[:100].astype(np.int64) * 8
    with gigabar.map(memory) as m:
        m.write_many(words, places)
        assert view.view(np.uint64)[places // 8].tolist() == words.tolist()
        m.write_many(b"aabb", [10, 20])
        assert bytes(view[10:12]) == b"aa" and bytes(view[20:22]) == b"bb"
        m.write_many(b"", [])
        before = view.copy()
        refused(m.write_many, b"aabb", [0, 4095], status="out_of_range", names="4095")
        refused(m.write_many, np.ones(2, np.uint64), np.array([0, -8]), status="out_of_range", names="18446744073709551608")
        refused(m.write_many, b"aab", [0, 1], status="invalid_argument", names="source")
        refused(m.write_many, b"aabb", np.zeros(2, np.int32), status="invalid_argument", names="offsets")
        refused(m.write_many, b"aa", [0, -1], status="out_of_range", names="offsets")
        assert (view == before).all()


def test_cuda_array_interface(memory: gigabar.Memory) -> None:
    with gigabar.map(CudaArray(memory)) as m:
        m.write(b"x")
        assert np.asarray(memory)[0] == ord("x")
    for changes, names in [
        ({"strides": (2,)}, "contiguous"),
        ({"strides": (np.zeros(8),)}, "strides"),
        ({"typestr": "|O8"}, "typestr"),
        ({"typestr": 3}, "typestr"),
        ({"data": (memory.address, True)}, "read-only"),
        ({"data": None}, "data"),
        ({"shape": (5000,)}, "leaves"),
        ({"shape": (1 << 62, 8)}, "shape"),
        ({"shape": 4}, "shape"),
        ({"data": (8, False)}, "data"),
    ]:
        refused(gigabar.map, CudaArray(memory, **changes), status="invalid_argument", names=names)


def test_copy(memory: gigabar.Memory) -> None:
    data = np.random.default_rng(2).integers(0, 256, 4096, np.uint8)
    assert gigabar.copy(memory, data) in ("cpu", "cpu_parallel", "copy_engine")
    assert (np.asarray(memory) == data).all()
    back = np.zeros(96, np.uint8)
    with gigabar.map(memory) as m:
        assert gigabar.copy(back, m, offset=4000, method="copy_engine") == "copy_engine"
    assert (back == data[4000:]).all()
    refused(gigabar.copy, back, bytes(96), status="not_supported", names="neither")
    refused(gigabar.copy, memory, memory, status="not_supported", names="both")
    refused(gigabar.copy, memory, data, offset=1, status="out_of_range", names="4096")
    refused(gigabar.copy, memory, data, method="magic", status="invalid_argument", names="method")


def test_bad_memory(memory: gigabar.Memory) -> None:
    refused(gigabar.map, np.zeros(16, np.uint8), status="not_supported", names="map")
    refused(gigabar.map, np.asarray(memory)[::2], status="invalid_argument", names="memory")
    refused(gigabar.map, memory, backend="magic", status="invalid_argument", names="backend")
    refused(gigabar.map, memory, backend="rm", status="unavailable", names="rm")
    refused(gigabar.map, memory, verification="none", status="invalid_argument", names="verification")
    refused(gigabar.allocate, 16, device=2, status="invalid_argument", names="2")
    refused(gigabar.allocate, -1, status="out_of_range", names="nbytes")
    refused(gigabar.allocate, 0, status="invalid_argument", names="0")
    refused(gigabar.allocate_host, 16, pages="soft", status="invalid_argument", names="pages")
    with pytest.raises(TypeError, match="memory"):
        gigabar.map(3)  # type: ignore[arg-type]
    with gigabar.map(memory) as m:
        refused(m.write, np.zeros((4, 4))[:, 1], status="invalid_argument", names="source")
        refused(m.write, np.array([None, m]), status="invalid_argument", names="source")
        refused(m.read, b"read-only", status="invalid_argument", names="destination")
        refused(m.write, b"x", 4096, status="out_of_range", names="4096")
        refused(m.write, b"x", -1, status="out_of_range", names="offset")
        refused(m.write, b"x", 1 << 70, status="out_of_range", names="offset")
        refused(m.read_bytes, 1 << 50, status="out_of_range", names="read_bytes")
        refused(m.fill, 256, status="out_of_range", names="value")
        with pytest.raises(TypeError, match="offset"):
            m.write(b"x", 1.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="source"):
            m.write(None)  # type: ignore[arg-type]
    for call in (lambda: m.write(b"x"), lambda: m.read_bytes(1), lambda: m.nbytes, lambda: gigabar.copy(m, b"x")):
        refused(call, status="unavailable", names="closed")
    m.close()


def test_a_mapping_keeps_its_memory() -> None:
    m = gigabar.map(filled(gigabar.allocate(4096)))
    m.write(b"still here")
    assert m.read_bytes(10) == b"still here"


def test_a_forked_child_is_refused(memory: gigabar.Memory) -> None:
    m = gigabar.map(memory)
    child = os.fork()
    if child == 0:
        try:
            m.write(b"x")
            os._exit(1)
        except gigabar.Error as error:
            os._exit(0 if error.status == "foreign_process" else 2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_closing_while_threads_copy() -> None:
    memory = gigabar.allocate(8 << 20)
    data = np.ones(8 << 20, np.uint8)
    for _ in range(10):
        m = gigabar.map(memory)
        started, strange = threading.Barrier(3), []

        def work() -> None:
            started.wait(10)
            try:
                for _ in range(50):
                    m.write(data)
            except gigabar.Error as error:
                if error.status != "unavailable":
                    strange.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait(10)
        m.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert not strange


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=64),
    st.lists(st.integers(), max_size=4),
    st.sampled_from(
        [
            np.zeros(8),
            np.zeros((3, 4), order="F"),
            np.zeros(8)[::-1],
            np.array([None]),
            np.float16(1),
            bytearray(8),
            np.zeros(0),
            np.zeros(2, "datetime64[s]"),
            np.zeros(2, [("a", "i4"), ("b", "O")]),
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["write", "read", "read_bytes", "write_many", "publish", "fill"]), st.lists(anything, max_size=5))
def test_any_arguments_end_in_an_exception_or_stay_inside(name: str, arguments: list[Any]) -> None:
    memory = gigabar.allocate(4096)
    view = filled(memory)
    with gigabar.map(view[1024:1152]) as m:
        try:
            getattr(m, name)(*arguments)
        except (gigabar.Error, TypeError):
            pass
    assert not view[:1024].any() and not view[1152:].any()


class ArrayOfGpu(CudaArray):
    """As cupy's and the package's own: it has the buffer protocol, and refuses its use."""

    refusal: type[Exception] = TypeError

    def __buffer__(self, flags: int) -> memoryview:
        raise self.refusal("memory of a GPU")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a class of Python has the buffer protocol from 3.12 on")
@pytest.mark.parametrize("refusal", [TypeError, BufferError])
def test_a_refused_buffer_leaves_the_other_interface(memory: gigabar.Memory, refusal: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrayOfGpu, "refusal", refusal)
    gigabar.copy(ArrayOfGpu(memory), b"four")
    assert bytes(np.asarray(memory)[:4]) == b"four"
    with gigabar.map(ArrayOfGpu(memory)) as mapped:
        assert mapped.read_bytes(4) == b"four"


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["shape", "typestr", "data", "strides"]), anything | st.tuples(anything) | st.tuples(anything, anything)))
def test_any_cuda_array_interface(changes: dict[str, Any]) -> None:
    memory = gigabar.allocate(4096)
    try:
        gigabar.map(CudaArray(memory, **changes)).close()
    except (gigabar.Error, TypeError):
        pass
