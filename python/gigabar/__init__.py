# SPDX-License-Identifier: Apache-2.0
"""Gigabar: moves bytes to, from and between GPUs over the shortest path the machine has, and names that path.

Memory is anything with the buffer protocol, DLPack or __cuda_array_interface__: numpy, torch, cupy. None of them is required.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._core import Fabric, MappedSegment, Mapping, Memory, allocate, allocate_host, copy, devices, map
from ._errors import Error, TimedOut
from ._types import (
    Device,
    Explanation,
    FabricLimits,
    OperationReport,
    PathPolicy,
    Peer,
    PostOptions,
    Received,
    RemoteSegment,
    Setting,
    Statistics,
)

if TYPE_CHECKING:
    from . import documents, streams
    from ._machine import availability, compare, doctor, survey, topology

__all__ = [
    "Device",
    "Error",
    "Explanation",
    "Fabric",
    "FabricLimits",
    "MappedSegment",
    "Mapping",
    "Memory",
    "OperationReport",
    "PathPolicy",
    "Peer",
    "PostOptions",
    "Received",
    "RemoteSegment",
    "Setting",
    "Statistics",
    "TimedOut",
    "allocate",
    "allocate_host",
    "availability",
    "compare",
    "copy",
    "devices",
    "doctor",
    "documents",
    "map",
    "streams",
    "survey",
    "topology",
]


def __getattr__(name: str) -> Any:
    """Imports what runs the program at its first use: its many dataclasses take longer than everything else."""
    if name in ("documents", "streams"):
        return import_module(f".{name}", __name__)
    if name in ("availability", "compare", "doctor", "survey", "topology"):
        return getattr(import_module("._machine", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
