"""The extension of the package gigabar, over libgigabar.so.1."""



from collections.abc import Sequence
from typing import TypeVar
from ._types import AnyMemory, Device, Explanation, FabricLimits, HostMemory, LocalPlace, Offsets, OperationReport, PathPolicy
from ._types import Peer, Piece, PostOptions, Received, RemotePlace, RemoteSegment, Setting, Statistics

N = TypeVar("N", int, float)

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
    method: cpu, cpu_parallel, copy_engine or readback; None: as the calibration of this machine says.
    Errors: out_of_range, not_supported (no device, or two), those of map, device_error.
    """

class Fabric:
    """
    This process as a rank of a job. A context manager: it leaves the job in order, and at once after an exception.

    Offsets and sizes are bytes, timeouts seconds; None waits until the operation ends or its peer is lost. A wait lets other
    threads run, and Ctrl-C ends it. Errors of every call: invalid_argument and out_of_range name the argument; unavailable
    (closed, no path); peer_lost; foreign_process. TimedOut: nothing is lost and, but for send, and a recv with a note, the
    same call can be made again.
    Threads: any; calls of one queue are served one after the other; collectives of one group are for one thread at a
    time (busy).
    """

    def __init__(self, *, rank: int | None = None, rank_count: int | None = None, master_address: str | None = None, master_port: int | None = None, job_key: str | None = None, transports: Sequence[str] = (), device: int | None = None, connect_timeout: float = 30.0, ucx_trust_network: bool | None = None, rails: Sequence[str] = (), rail_count: int | None = None, rail_policy: str | None = None, cpus: str | None = None, policy: PathPolicy | None = None, limits: FabricLimits | None = None, gid_index: int | None = None, traffic_class: int | None = None, service_level: int | None = None, progress_thread: bool | None = None) -> None:
        """
        Join the job. What is None is taken from the launcher: gigabar run, PMIx, srun, torchrun's variables; else a job of one
        rank. What else is None or empty has the value of its variable of the environment, else its default (docs/fabric.md).

        job_key: at least 16 bytes, the same at every rank. transports: local, verbs, ucx, tcp, best first; empty: all.
        ucx_trust_network: everybody who reaches UCX's ports is trusted, without which UCX is not used.
        rails: NIC ports (mlx5_0, mlx5_1/1). rail_count: for each peer, at most. rail_policy: first, round_robin or fixed.
        cpus: of the fabric's threads: near, any, or a list (0-7,16). policy, limits: which path data takes.
        progress_thread: False: peers' operations wait for calls of this rank.
        Errors: invalid_argument, unavailable (no transport), timed_out (rank 0 never appeared), no_permission (another key).
        """

    def __enter__(self) -> Fabric: ...

    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...

    def close(self, timeout: float | None = 30.0) -> None:
        """Complete the posted operations and leave the job."""

    def abandon(self) -> None:
        """
        Leave the job at once: peers that need this rank see it as lost. With mapped segments: when the last one is closed.
        """

    @property
    def closed(self) -> bool:
        """Whether this rank has left the job."""

    def connect(self, rank: int, timeout: float | None = 30.0) -> None:
        """Connect now instead of at the first operation."""

    def forget(self, rank: int) -> None:
        """
        Forget a lost peer: the next operation connects again. Errors: busy (the connection is intact).
        """

    def register(self, segment: int, memory: AnyMemory) -> None:
        """
        Register contiguous memory of the host or a GPU as a segment (0 to 1023), which peers then reach. It stays alive until deregister.

        Errors: invalid_argument (id in use), out_of_memory, device_error.
        """

    def deregister(self, segment: int, timeout: float | None = 30.0) -> None:
        """
        Take the segment from the peers: afterwards none of them can access it. Waits as quiesce.
        """

    def quiesce(self, segment: int, timeout: float | None = 30.0) -> None:
        """
        Keep the peers from the segment until enable: what they wrote before is in place. It stays registered.

        A peer that has not answered at the end of the time is cut off; over local it is not, and this times out. Ctrl-C does
        not end this wait.
        """

    def enable(self, segment: int) -> None:
        """Let the peers access the segment again."""

    def remote_segment(self, rank: int, segment: int, timeout: float | None = 30.0) -> RemoteSegment:
        """
        Ask a rank for the size and kind of its segment. Errors: out_of_range (it has no such segment).
        """

    def map_segment(self, rank: int, segment: int, timeout: float | None = 30.0, *, kernels: bool = False) -> MappedSegment:
        """
        Make a segment of this rank, or of a peer of this host, accessible for loads and stores: without a call for each.

        kernels: for those of this rank's GPU, over NVLink or PCIe; else for threads of this process, also to GPU memory. Without a
        GPU both are the CPU.
        Errors: out_of_range (no such segment), not_supported (another host, no peer access, memory that cannot be shared:
        allocate_host(shared=True) can), device_error.
        """

    @property
    def rank(self) -> int:
        """The number of this rank."""

    @property
    def rank_count(self) -> int:
        """The number of ranks of the job."""

    @property
    def local_rank(self) -> int:
        """The number of this rank among those of this host."""

    @property
    def device(self) -> int:
        """The device of this rank."""

    @property
    def cpus(self) -> list[int]:
        """
        The CPUs of the fabric's own threads, ascending; empty: they are not bound.
        """

    def settings(self) -> list[Setting]:
        """Every setting in effect, with its source. Never the job's key."""

    def statistics(self) -> Statistics:
        """Counts since this rank joined the job."""

    def peers(self) -> list[Peer]:
        """The peers with a present or past connection."""

    def report(self, operation: int) -> OperationReport:
        """
        The path, duration and result of one of the last 4,096 operations. Errors: out_of_range.
        """

    def explain(self, local: LocalPlace, remote: RemotePlace, nbytes: int, timeout: float | None = 30.0, *, options: PostOptions | None = None, read: bool = False) -> Explanation:
        """Which path a write (or read) would take, and why not another."""

    def write(self, local: LocalPlace, remote: RemotePlace, nbytes: int, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        Post a write from (segment, offset) to (rank, segment, offset), and return the operation's number. wait() ends it.

        Errors: busy (1,024 operations in the queue: wait), unavailable (no path: each with its reason).
        """

    def read(self, local: LocalPlace, remote: RemotePlace, nbytes: int, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """Post a read from remote to local. As write."""

    def write_list(self, rank: int, pieces: Sequence[Piece], *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        Post up to 1,024 writes to one rank with one call. Each is ((segment, offset), (segment of rank, offset), nbytes).
        The number is the last one's operation, whose report is of it alone.
        """

    def read_list(self, rank: int, pieces: Sequence[Piece], *, queue: int = 0, options: PostOptions | None = None) -> int:
        """Post up to 1,024 reads from one rank with one call. As write_list."""

    def write_notify(self, local: LocalPlace, remote: RemotePlace, nbytes: int, notification: int, value: int = 1, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        Post a write, and set a notification of the remote segment to value (not 0) after the data is in place.
        """

    def write_notify_add(self, local: LocalPlace, remote: RemotePlace, nbytes: int, notification: int, value: int = 1, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        As write_notify, but add value to the notification, modulo 2**32. Between two resets it is either set or added to.
        """

    def write_list_notify(self, rank: int, pieces: Sequence[Piece], segment: int, notification: int, value: int = 1, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        As write_list, and set a notification of a segment of rank to value after all of the data is in place.
        """

    def notify(self, rank: int, segment: int, notification: int, value: int = 1, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        Set a notification (0 to 65535) of a segment of rank to value, behind the queue's earlier writes to it.
        """

    def notify_add(self, rank: int, segment: int, notification: int, value: int = 1, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        As notify, but add value to the notification, modulo 2**32. Between two resets it is either set or added to.
        """

    def write_in_order(self, source: HostMemory, remote: RemotePlace, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        Copy up to 64 bytes of the host, and post their write. They are in place after all earlier writes of the queue to that
        rank, and before later calls of this: a flag in the program's own memory. report() has no path of it.
        """

    def wait(self, queue: int = 0, timeout: float | None = 30.0) -> None:
        """
        Wait for local completion of everything in the queue. Errors: the first failure of one of its operations.
        """

    def flush(self, rank: int, timeout: float | None = 30.0) -> None:
        """Wait until everything posted to rank is in place there."""

    def progress(self) -> None:
        """
        Make progress without waiting: for a program that polls its own memory instead of waiting for a notification.
        """

    def notification_wait(self, segment: int, first: int = 0, count: int = 1, timeout: float | None = 30.0) -> int:
        """
        Wait until one of count notifications from first on is not 0, and return the lowest such one.
        """

    def notification_wait_count(self, segment: int, notification: int, value: int, timeout: float | None = 30.0) -> None:
        """
        Wait until the notification is at least value, and subtract value from it.
        """

    def notification_reset(self, segment: int, notification: int) -> int:
        """Set the notification to 0 and return its value before."""

    def barrier(self, group: Offsets | None = None, timeout: float | None = 30.0) -> None:
        """
        Wait for all ranks of the group (ascending; None: all). After TimedOut call again with the same group.
        """

    def all_reduce(self, values: Sequence[N], operation: str = 'sum', group: Offsets | None = None, timeout: float | None = 30.0) -> list[N]:
        """
        Combine up to 255 numbers of each rank of the group by sum, min or max, and return the results at all of them.

        Where all values are whole they are 64-bit integers, else doubles: the same at every rank. After TimedOut call again.
        """

    def fetch_add(self, remote: RemotePlace, value: int, timeout: float | None = 30.0) -> int:
        """
        Add to 8 aligned bytes of any segment, atomically among the ranks, and return them as before. Ctrl-C does not end this wait.
        """

    def compare_swap(self, remote: RemotePlace, expected: int, desired: int, timeout: float | None = 30.0) -> int:
        """
        Set 8 aligned bytes of any segment to desired where they are expected, and return them as before. As fetch_add.
        """

    def send(self, rank: int, source: AnyMemory, tag: int = 0, timeout: float | None = 30.0, *, queue: int = 0, options: PostOptions | None = None) -> None:
        """
        Send a message of contiguous memory of the host or a GPU. After TimedOut or Ctrl-C it may still be sent: do not change the memory.
        """

    def recv(self, rank: int | None, destination: AnyMemory, tag: int | None = 0, timeout: float | None = 30.0, *, queue: int = 0, options: PostOptions | None = None) -> Received:
        """
        Receive the first message of rank (None: of any) with that tag (None: any). Errors: out_of_range (it is longer than the
        destination).

        A message that is arriving at the end of the time gets that time once more, at least 1 s. After TimedOut or Ctrl-C
        nothing is received later, unless a note of the exception says that the message is arriving: wait_message takes it.
        """

    def post_send(self, rank: int, source: AnyMemory, tag: int = 0, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        Post a message, and return the operation's number. Do not change the memory, which stays alive, until wait_message.
        """

    def post_recv(self, rank: int | None, destination: AnyMemory, tag: int | None = 0, *, queue: int = 0, options: PostOptions | None = None) -> int:
        """
        Post a receive, as of recv. Do not use the memory, which stays alive, until wait_message or cancel_recv.
        """

    def wait_message(self, operation: int, timeout: float | None = 30.0) -> Received:
        """
        Wait for a posted message, once for each. After TimedOut it goes on. Errors: out_of_range (no such message, or longer than
        the destination).
        """

    def cancel_recv(self, operation: int) -> None:
        """
        Cancel a receive that has not matched. Errors: busy (it is being filled or is complete: wait for it).
        """

class MappedSegment:
    """
    A segment that loads and stores access, made by Fabric.map_segment. A context manager that unmaps it.

    Mapped for the CPU it offers the buffer protocol and DLPack (numpy.asarray(mapped)), for kernels of a GPU DLPack
    (torch.from_dlpack(mapped)). Until it is unmapped, its owner's quiesce and deregister wait, and Fabric.close is busy.
    Nothing is ordered but by the caller's own fences. Each load from GPU memory by the CPU is a round trip over PCIe.
    Errors of every call: unavailable (closed).
    """

    def fence(self) -> None:
        """
        Order the stores of this thread: a reader that sees one behind the fence also sees those before it, which have left the CPU.
        """

    def close(self) -> None:
        """
        Unmap: at once, or with the last array or other view of it. Closing again does nothing.
        """

    @property
    def closed(self) -> bool:
        """Whether close() was called."""

    @property
    def address(self) -> int:
        """The address of the first byte: for the CPU, or for kernels."""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""

    @property
    def device(self) -> int:
        """The GPU whose kernels access it; -1: the CPU accesses it."""

    @property
    def why_no_atomics(self) -> str:
        """
        Why system-scope atomics of this rank's kernels are not atomic with those of the owner's; empty: they are.
        """

    def __len__(self) -> int: ...

    def __dlpack__(self, **kwargs: object) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __enter__(self) -> MappedSegment: ...

    def __exit__(self, *exception: object) -> None: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...

def availability_members(machine: str | None) -> dict[str, object]:
    """What gigabar.availability returns, as JSON has it."""
