# SPDX-License-Identifier: Apache-2.0
"""What calls take and return."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = Any


class SupportsDLPack(Protocol):
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


class SupportsCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


HostMemory: TypeAlias = Union[Buffer, SupportsDLPack]
AnyMemory: TypeAlias = Union[Buffer, SupportsDLPack, SupportsCudaArrayInterface]
Offsets: TypeAlias = Union[Buffer, Sequence[int]]
LocalPlace: TypeAlias = tuple[int, int]  # segment, offset in bytes
RemotePlace: TypeAlias = tuple[int, int, int]  # rank, segment, offset in bytes
Piece: TypeAlias = tuple[LocalPlace, LocalPlace, int]  # of a list: here, segment and offset at the peer, bytes


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a stand-in: host memory that plays one."""

    index: int
    name: str
    is_stand_in: bool
    uuid: str  # empty: a stand-in
    pci: str | None
    numa_node: int | None
    memory_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PathPolicy:
    """Which paths may be taken for GPU memory. Each is allow, prefer, require or forbid; at most one can be required."""

    gdr: str = "allow"  # the NIC reads and writes GPU memory
    p2p: str = "allow"  # a GPU's copy engine
    bar: str = "allow"  # the CPU, through mappings
    staged: str = "allow"  # through pinned host memory


@dataclass(frozen=True, slots=True)
class FabricLimits:
    """Sizes at which one path replaces another. None: of `gigabar tune`, else the default (docs/fabric.md)."""

    eager_bytes: int | None = None  # messages and writes up to this size travel inside one message
    gdr_bytes: int | None = None  # writes to GPU memory by the NIC up to this size; staged above
    gdr_read_bytes: int | None = None  # reads from GPU memory by the NIC up to this size
    chunk_bytes: int | None = None  # of the staged pipeline
    chunk_count: int | None = None  # in flight for each operation
    kernel_bytes: int | None = None  # p2p copies up to this size may use the persistent copy kernel
    stripe_bytes: int | None = None  # operations from this size on use all rails at once


@dataclass(frozen=True, slots=True)
class PostOptions:
    """Of one operation, instead of those of its Fabric; None: as those."""

    policy: PathPolicy | None = None
    chunk_bytes: int | None = None  # of staged writes, from 4096 to the fabric's
    stripe_bytes: int | None = None  # 0: always all rails


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in effect."""

    name: str
    value: str
    source: str  # default, option, an environment variable, or the file of tuned limits

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since a rank joined its job."""

    operations: int
    messages: int
    staged_operations: int  # staged because a preferred path was not possible
    refused_strangers: int  # connections without the job's key, or with another protocol

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Peer:
    """A rank with a present or past connection."""

    rank: int
    is_connected: bool
    is_broken: bool
    is_same_host: bool
    why: str  # the cause, when the connection is broken
    transport: str | None
    rails: list[str]
    memory_bytes: int  # that this process uses for the connection

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment of a peer."""

    nbytes: int
    kind: str  # of memory

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Received:
    """A message that arrived."""

    rank: int
    tag: int
    nbytes: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class OperationReport:
    """The result of an operation between ranks."""

    is_done: bool  # local completion
    status: str
    path: str  # none, host, bar, p2p, gdr or staged
    transport: str | None
    rails: list[tuple[str, int]]  # name, bytes
    nbytes: int
    duration_ns: int  # from post to local completion
    reason: str  # why this path
    notification: str  # which way its notification went; empty: it has none
    chunks: int  # number of pieces
    retries: int  # posts that were repeated after a full queue

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The path that an operation would take, and why not another."""

    is_possible: bool
    path: str
    transport: str | None
    rails: list[str]
    reason: str
    alternatives: list[tuple[str, str]]  # name, why not
    text: str
    chunk_bytes: int  # of a staged operation

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
