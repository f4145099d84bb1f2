"""The extension of the package gigabar, over libgigabar.so.1."""



from collections.abc import Sequence
from ._types import AnyMemory, Device, Explanation, HostMemory, LocalPlace, Offsets, OperationReport, Received, RemotePlace

class Memory:
    """
    Memory that the library allocated: of a device, or of the host. It is freed with the last reference, also of a view.

    A stand-in's and the host's offer the buffer protocol and DLPack (numpy.asarray(memory)), a GPU's DLPack and
    __cuda_array_interface__ (torch.from_dlpack(memory)).
    """

    @property
    def address(self) -> int:
        """The address of the first byte, of the device's or the host's memory."""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""

    @property
    def device(self) -> int:
        """The device's index; -1: memory of the host."""

    @property
    def is_stand_in(self) -> bool:
        """Whether host memory plays a GPU's."""

    def __len__(self) -> int: ...

    def __dlpack__(self, **kwargs: object) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    @property
    def __cuda_array_interface__(self) -> dict[str, object]: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

def allocate(nbytes: int, *, device: int = 0, exportable: bool = False) -> Memory:
    """
    Allocate nbytes (at least 1) on a device. The content is undefined.

    exportable: as CUDA's virtual memory, in multiples of 2 MiB, which other processes can open.
    Errors: invalid_argument (no such device, zero bytes), out_of_memory, device_error.
    """

def allocate_host(nbytes: int, *, numa_node: int | None = None, pages: str = 'pinned', shared: bool = False) -> Memory:
    """
    Allocate nbytes (at least 1) of host memory, zeroed, with all pages present.

    numa_node: the node that the pages are bound to; None: the system's choice.
    pages: pinned, pageable, wc (write-combined) or huge.
    shared: ranks of this host that a Fabric connects access a segment of it directly; pinned or pageable only.
    Errors: invalid_argument, out_of_memory, out_of_descriptors, no_permission, device_error.
    """

def devices() -> list[Device]:
    """
    The devices of this process, in CUDA's order; stand-ins where there is no GPU, or where GIGABAR_STAND_IN asks for them.

    Errors: device_error, invalid_argument (GIGABAR_STAND_IN).
    """

class Mapping:
    """
    A view of GPU memory in this process's address space, made by gigabar.map. A context manager that closes it.

    Offsets and sizes are bytes. Errors of every call: out_of_range (the range leaves the mapping), invalid_argument
    (memory that is not contiguous, or on a GPU), unavailable (closed), foreign_process (a forked child).
    Threads: any number at once; ranges that are written at the same time must not overlap.
    """

    def write(self, source: HostMemory, offset: int = 0) -> None:
        """
        Store all bytes of source at offset. They have left the CPU when it returns.
        """

    def read(self, destination: HostMemory, offset: int = 0) -> None:
        """Load as many bytes as destination has, from offset."""

    def read_bytes(self, nbytes: int, offset: int = 0) -> bytes:
        """Load nbytes from offset."""

    def write_many(self, source: HostMemory, offsets: Offsets) -> None:
        """
        Store the i-th of len(offsets) equal parts of source at offsets[i], with one fence behind all of them.

        offsets: an array of int64 or uint64, or a sequence. Nothing is stored when one of the ranges leaves the mapping.
        """

    def publish(self, data: HostMemory | None, flag_offset: int, value: int, offset: int = 0, *, flag_bytes: int = 4) -> None:
        """
        Store data at offset, then value at flag_offset: a reader that sees the flag also sees the data.

        data: None stores the flag behind everything that this thread stored before. flag_bytes: 4 or 8; flag_offset is a multiple of it.
        Nothing is stored when a range leaves the mapping.
        """

    def fill(self, value: int, offset: int = 0, nbytes: int | None = None) -> None:
        """Set nbytes from offset to value (0 to 255); None: up to the end."""

    def close(self) -> None:
        """
        Unmap. Calls of other threads that are under way end first. Closing again does nothing.
        """

    @property
    def closed(self) -> bool:
        """Whether close() was called."""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""

    @property
    def device(self) -> int:
        """The index of the device whose memory this is."""

    @property
    def is_stand_in(self) -> bool:
        """Whether host memory plays the GPU's."""

    @property
    def backend(self) -> str:
        """What made the mapping: dmabuf, gdrdrv, rm or host."""

    @property
    def type(self) -> str:
        """write_combined, uncached or cached."""

    @property
    def passed_over(self) -> list[tuple[str, str]]:
        """The better backends that were not used, each with the reason."""

    def __len__(self) -> int: ...

    def __enter__(self) -> Mapping: ...

    def __exit__(self, *exception: object) -> None: ...

def map(memory: AnyMemory, *, backend: str | None = None, verification: str = 'compare', inherit_on_fork: bool = False) -> Mapping:
    """
    Make GPU memory accessible for the CPU, and verify that the mapping shows it.

    memory: a tensor or array on a GPU (DLPack or __cuda_array_interface__), contiguous; a Memory; an array of a stand-in's memory.
    The mapping keeps it alive. backend: dmabuf, gdrdrv, rm or host; None: the best that works.
    verification: compare, or nonce, which writes 8 bytes and restores them.
    Errors: not_supported (memory that no backend can map), unavailable (no backend works here; the cause has each reason),
    out_of_bar1, out_of_descriptors, out_of_memory, no_permission, device_error, verification_failed, foreign_process.
    """

def copy(destination: AnyMemory | Mapping, source: AnyMemory | Mapping, *, offset: int = 0, method: str | None = None) -> str:
    """
    Copy between host memory and a device's by the method that is fastest for the size, and return its name.

    One of both is memory of a device or a Mapping, where the copy begins at offset (bytes). It has the size of the other.
    method: cpu, cpu_parallel or copy_engine; None: as the calibration of this machine says.
    Errors: out_of_range, not_supported (no device, or two), those of map, device_error.
    """

class Fabric:
    """
    This process as a rank of a job. A context manager: it leaves the job in order, and at once after an exception.

    Offsets and sizes are bytes, timeouts seconds; None waits until the operation ends or its peer is lost. A wait lets other
    threads run, and Ctrl-C ends it. Errors of every call: invalid_argument and out_of_range name the argument; unavailable
    (closed, no path); peer_lost; foreign_process. TimedOut: nothing is lost, the same call can be made again.
    Threads: any; operations of one queue, and collectives of one group, are for one thread at a time (busy).
    """

    def __init__(self, *, rank: int | None = None, rank_count: int | None = None, master_address: str | None = None, master_port: int | None = None, job_key: str | None = None, transports: Sequence[str] = (), device: int | None = None, connect_timeout: float = 30.0) -> None:
        """
        Join the job. What is None is taken from the launcher: gigabar run, PMIx, srun, torchrun's variables; else a job of one rank.

        job_key: at least 16 bytes, the same at every rank. transports: local, verbs, ucx, best first; empty: all.
        Errors: invalid_argument, unavailable (no transport), timed_out (rank 0 never appeared), no_permission (another key).
        """

    def __enter__(self) -> Fabric: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

    def close(self, timeout: float | None = 30.0) -> None:
        """Complete the posted operations and leave the job."""

    def abandon(self) -> None:
        """Leave the job at once: peers that need this rank see it as lost."""

    @property
    def closed(self) -> bool:
        """Whether this rank has left the job."""

    @property
    def rank(self) -> int:
        """The number of this rank."""

    @property
    def rank_count(self) -> int:
        """The number of ranks of the job."""

    @property
    def device(self) -> int:
        """The device of this rank."""

    def register(self, segment: int, memory: AnyMemory) -> None:
        """
        Register contiguous memory of the host or a GPU as a segment (0 to 1023), which peers then reach. It stays alive until deregister.

        Errors: invalid_argument (id in use), out_of_memory, device_error.
        """

    def deregister(self, segment: int, timeout: float | None = 30.0) -> None:
        """
        Take the segment from the peers: afterwards none of them can access it.
        """

    def connect(self, rank: int, timeout: float | None = 30.0) -> None:
        """Connect now instead of at the first operation."""

    def write(self, local: LocalPlace, remote: RemotePlace, nbytes: int, *, queue: int = 0) -> int:
        """
        Post a write from (segment, offset) to (rank, segment, offset), and return the operation's number. wait() ends it.

        Errors: busy (1,024 operations in the queue: wait), unavailable (no path: each with its reason).
        """

    def read(self, local: LocalPlace, remote: RemotePlace, nbytes: int, *, queue: int = 0) -> int:
        """Post a read from remote to local. As write."""

    def write_notify(self, local: LocalPlace, remote: RemotePlace, nbytes: int, notification: int, value: int = 1, *, queue: int = 0) -> int:
        """
        Post a write, and set a notification of the remote segment to value (not 0) after the data is in place.
        """

    def notify(self, rank: int, segment: int, notification: int, value: int = 1, *, queue: int = 0) -> int:
        """
        Set a notification (0 to 65535) of a segment of rank to value, behind the queue's earlier writes to it.
        """

    def notification_wait(self, segment: int, first: int = 0, count: int = 1, timeout: float | None = 30.0) -> int:
        """
        Wait until one of count notifications from first on is not 0, and return the lowest such one.
        """

    def notification_reset(self, segment: int, notification: int) -> int:
        """Set the notification to 0 and return its value before."""

    def wait(self, queue: int = 0, timeout: float | None = 30.0) -> None:
        """
        Wait for local completion of everything in the queue. Errors: the first failure of one of its operations.
        """

    def flush(self, rank: int, timeout: float | None = 30.0) -> None:
        """Wait until everything posted to rank is in place there."""

    def send(self, rank: int, source: AnyMemory, tag: int = 0, timeout: float | None = 30.0, *, queue: int = 0) -> None:
        """
        Send a message of contiguous memory of the host or a GPU. After TimedOut or Ctrl-C it may still be sent: do not change the memory.
        """

    def recv(self, rank: int | None, destination: AnyMemory, tag: int | None = 0, timeout: float | None = 30.0, *, queue: int = 0) -> Received:
        """
        Receive the first message of rank (None: of any) with that tag (None: any). After TimedOut nothing is received later, unless the
        message had begun to arrive. Errors: out_of_range (it is longer than the destination).
        """

    def barrier(self, group: Offsets | None = None, timeout: float | None = 30.0) -> None:
        """
        Wait for all ranks of the group (ascending; None: all). After TimedOut call again with the same group.
        """

    def fetch_add(self, remote: RemotePlace, value: int, timeout: float | None = 30.0) -> int:
        """
        Add to 8 aligned bytes of any segment, atomically among the ranks, and return them as before. Ctrl-C does not end this wait.
        """

    def report(self, operation: int) -> OperationReport:
        """
        The path, duration and result of one of the last 4,096 operations. Errors: out_of_range.
        """

    def explain(self, local: LocalPlace, remote: RemotePlace, nbytes: int, timeout: float | None = 30.0, *, read: bool = False) -> Explanation:
        """Which path a write (or read) would take, and why not another."""
