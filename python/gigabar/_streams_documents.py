# SPDX-License-Identifier: Apache-2.0
"""Of transfers."""

from dataclasses import dataclass

from ._common import Device, Document, Driver
from ._parts import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Part):
    """Why a transfer failed."""

    status: str
    message: str
    native_name: str
    native_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Part):
    """Of the repeats."""

    median: float
    min: float
    max: float
    samples: tuple[float, ...]  # one of each repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Part):
    samples: int  # how many were taken
    min_us: float
    p50_us: float
    p99_us: float
    max_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Part):
    """One end of a transfer."""

    kind: str  # device or host
    device: int | None = None
    pages: str | None = None  # of the host: pinned, pageable, wc or huge
    numa_node: int | str | None = None  # of the host: its number, nearest or any


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(Part):
    """The narrowest link of a transfer."""

    name: str
    gb_per_s: float | None
    reason: str  # why the rate is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Part):
    text: str  # in words, as streams.run takes it
    source: Place
    destination: Place
    executor: str  # ce, sm, cpu, flag or chase
    side: str  # push, pull or automatic
    worker_count: int | None = None  # thread blocks of sm, threads of cpu; 0: the usual number
    bytes: int
    iterations: int | None
    seconds: float | None
    delay_seconds: float
    group: str
    is_background: bool
    is_latency: bool
    may_stage: bool
    path: str | None = None
    link: Link | None = None
    host_numa_node: int | None = None
    host_placement: str | None = None
    life_gb_per_s: Figure | None = None  # over its own begin and end
    window_gb_per_s: Figure | None = None  # over the time in which all ran
    life_seconds: Figure | None = None
    latency: Latency | None = None
    copies_done: int | None = None
    bytes_moved: int | None = None
    is_verified: bool | None = None
    ratio: float | None = None  # of the link's rate
    error: Failure | None = None
    plain_cudaMemcpyAsync_gb_per_s: Figure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total(Part):
    """Of all transfers, or of a group."""

    group: str  # empty: all
    aggregate_gb_per_s: Figure | None  # over the wall clock
    sum_gb_per_s: Figure | None
    overlap_percent: Figure | None  # of the shortest transfer: the part of its time beside all others


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Part):
    repeats: int
    is_verified: bool
    timeout_seconds: float  # of one repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Part):
    """All transfers together, for one size."""

    measure: str
    swept_bytes: int | None
    plan: Plan
    error: Failure | None
    is_stand_in: bool | None = None
    was_stopped: bool | None = None
    warnings: tuple[str, ...] = ()
    transfers: tuple[Transfer, ...]
    totals: tuple[Total, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters(Part):
    """What transfers have that do not say it themselves."""

    bytes: int
    iterations: int | None
    seconds: float | None
    executor: str
    pages: str
    has_numa_affinity: bool
    may_stage: bool
    sweep_bytes: tuple[int, ...]
    repeats: int
    is_verified: bool
    timeout_seconds: float | None
    expected_ratio: float | None
    assumed_link_gb_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamsDocument(Document):
    gigabar_version: str
    parameters: Parameters
    is_stand_in: bool | None = None
    devices: tuple[Device, ...] = ()
    drivers: tuple[Driver, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsDocument(_StreamsDocument):
    """Of gigabar.streams.run."""

    results: tuple[Run, ...]  # one for each size


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Run):
    """A place in a preset's matrix, and what was run for it."""

    matrix: str  # its name; empty: the only one
    row: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(Part):
    """Figures of a preset; None: a cell that was not run."""

    name: str  # empty: the only one
    rows: tuple[tuple[float | None, ...], ...]
    sum: float | None
    min: float | None
    max: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset(Part):
    """A test case of nvbandwidth, for one size."""

    measure: str
    name: str
    description: str
    unit: str  # GB/s or ns
    waived: str  # why this machine cannot run it; empty: it can
    matrices: tuple[Matrix, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetsDocument(_StreamsDocument):
    """Of gigabar.streams.run_presets."""

    results: tuple[Preset, ...]  # one for each preset and size


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetDescription(Part):
    """A test case of nvbandwidth that can be run by name."""

    measure: str
    name: str
    description: str
    is_latency: bool  # ns, not GB/s
    cells: int  # of its matrices
    waived: str  # why this machine cannot run it; empty: it can


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetListDocument(_StreamsDocument):
    """Of `gigabar streams --list-presets`."""

    results: tuple[PresetDescription, ...]
