# SPDX-License-Identifier: Apache-2.0
"""What all documents have."""

from dataclasses import dataclass

from ._parts import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Part):
    """Where the program ran."""

    host: str
    cpu: str
    kernel: str
    cores: int
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Part):
    """What all documents have."""

    schema: int
    tool: str  # the command of `gigabar`
    command: tuple[str, ...]
    date: str  # UTC, as 2026-01-31T12:00:00Z
    machine: Machine
    units: dict[str, str]  # of endings of names
    notes: tuple[str, ...]  # what a reader of the results has to know


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Part):
    """A GPU or a stand-in."""

    index: int  # CUDA's number, or the stand-in's
    name: str
    uuid: str | None
    pci: str | None  # address
    is_stand_in: bool
    numa_node: int | None
    memory_bytes: int
    bar1_bytes: int | None
    bar1_used_bytes: int | None = None
    compute_capability: str | None  # "9.0"
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin(Part):
    """The machine that was examined."""

    is_live: bool  # False: a captured machine
    path: str
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver(Part):
    """Whether a library or kernel interface can be used."""

    name: str
    code: str  # ok, or what is missing
    reason: str
    remedy: str | None = None
    check: str | None = None
