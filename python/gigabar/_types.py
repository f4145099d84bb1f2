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
class Received:
    """A message that arrived."""

    rank: int
    tag: int
    nbytes: int


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
