# SPDX-License-Identifier: Apache-2.0
"""Gigabar: moves bytes to, from and between GPUs over the shortest path the machine has, and names that path.

Memory is anything with the buffer protocol, DLPack or __cuda_array_interface__: numpy, torch, cupy. None of them is required.
"""

from ._core import Fabric, Mapping, Memory, allocate, allocate_host, copy, devices, map
from ._errors import Error, TimedOut
from ._types import Device, Explanation, OperationReport, Received

__all__ = [
    "Device",
    "Error",
    "Explanation",
    "Fabric",
    "Mapping",
    "Memory",
    "OperationReport",
    "Received",
    "TimedOut",
    "allocate",
    "allocate_host",
    "copy",
    "devices",
    "map",
]
