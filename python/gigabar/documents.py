# SPDX-License-Identifier: Apache-2.0
"""The documents that topology, doctor, survey, compare and streams.run return.

Their members are those of `gigabar COMMAND --json`, under the same names (docs/schema). to_dict() of each object has all of them, also
those that a later program adds. Endings of names are units: _us, seconds, bytes; _gb_per_s is 10^9 bytes per second, _gbit_per_s 10^9
bits per second. None: not known, or it does not apply.
"""

from dataclasses import dataclass

from ._parts import Part as Part

# What all documents have.


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


# --- topology


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode(Part):
    index: int
    package: int | None
    cpus: tuple[int, ...]
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PciLink(Part):
    """The link above a PCI device: as it is now, and the most that it can."""

    gt_per_s: float | None
    width: int | None
    most_gt_per_s: float | None
    most_width: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice(Part):
    address: str
    vendor: int
    device: int
    class_code: int
    name: str | None
    is_bridge: bool
    parent: int | None  # index into pci
    root_complex: str | None
    numa_node: int | None
    link: PciLink
    driver: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Part):
    pci: int | None  # index into pci
    address: str
    cuda_index: int | None
    name: str | None
    uuid: str | None
    numa_node: int | None
    is_coherent: bool
    nvlinks_active: int
    nvlinks_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gid(Part):
    """An address of a port."""

    index: int
    gid: str
    type: str | None
    netdev: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Port(Part):
    """A port of an RDMA device."""

    number: int
    state: str | None
    link_layer: str | None
    rate_gbit_per_s: float | None
    active_mtu_bytes: int | None
    gids: tuple[Gid, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice(Part):
    """A network device of the kernel."""

    name: str
    state: str | None
    mtu_bytes: int | None
    gbit_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic(Part):
    pci: int | None  # index into pci
    name: str
    rdma_device: str | None
    driver: str | None
    numa_node: int | None
    rate_gbit_per_s: float | None
    ports: tuple[Port, ...]
    net_devices: tuple[NetDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink(Part):
    """NVLinks between two GPUs."""

    first: int  # index into gpus
    second: int  # index into gpus; below 0: none of them
    count: int
    gb_per_s: float | None
    is_switched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Part):
    """One end of a route."""

    kind: str  # gpu, nic or numa_node
    index: int  # into gpus, nics or numa_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Part):
    """How two parts of the machine are joined."""

    first: End
    second: End
    relation: str
    symbol: str
    nvlink_count: int
    gb_per_s: float | None  # theoretical, each way
    bottleneck: str | None
    hops: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestNics(Part):
    """The NICs of a GPU in the order in which it should use them."""

    gpu: int  # index into gpus
    nics: tuple[int, ...]  # indexes into nics
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology(Part):
    """The parts of a machine and how any two are joined."""

    what: str
    numa_nodes: tuple[NumaNode, ...]
    pci: tuple[PciDevice, ...]
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    nvlinks: tuple[NvLink, ...]
    routes: tuple[Route, ...]
    nearest_nics: tuple[NearestNics, ...]
    could_not_be_found_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDocument(Document):
    """Of gigabar.topology."""

    results: tuple[Topology, ...]  # one
    origin: Origin

    @property
    def topology(self) -> Topology:
        """The result."""
        return self.results[0]


# --- doctor


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Part):
    """What a check read, and from where."""

    source: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Part):
    """The result of a check, of one subject."""

    check: str  # the id for `gigabar explain`
    title: str | None
    subject: str  # empty: the whole machine
    verdict: str  # FAIL, WARN, UNKNOWN, PASS or SKIP
    statement: str
    readings: tuple[Reading, ...]
    why: str | None
    remedy: str  # empty: none is needed
    needs_reboot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BestNic(Part):
    """The NIC that a GPU should use."""

    gpu: int
    gpu_address: str
    nic: str | None
    reason: str
    relation: str | None
    gb_per_s: float | None
    bottleneck: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Part):
    """A line of the symptom that is known."""

    line: int
    text: str
    program: str
    symptom: str
    means: str
    remedy: str
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom(Part):
    """What a symptom means."""

    text: str
    checks: tuple[str, ...]  # that were run, the likeliest first
    lines: tuple[LogLine, ...]
    is_explained: bool  # by a finding


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorDocument(Document):
    """Of gigabar.doctor."""

    results: tuple[Finding, ...]
    origin: Origin | None = None
    summary: dict[str, int] | None = None  # numbers of checks, of findings, and of findings of each verdict
    best_nics: tuple[BestNic, ...] = ()
    symptom: Symptom | None = None


# --- survey


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Part):
    """A time or rate, or why there is none."""

    key: str  # the same on every machine and day
    unit: str  # us or GB/s
    value: float | None = None  # median of the samples
    min: float | None = None
    max: float | None = None
    samples: tuple[float, ...] = ()
    passes: int | None = None  # that the samples are of
    path: str | None = None
    link: str | None = None
    ratio: float | None = None  # of the link's rate
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes(Part):
    count: int  # over everything
    seconds: float  # that they took


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst(Part):
    """The transfer that lost most beside others."""

    key: str
    share_of_own_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyDocument(Document):
    """Of gigabar.survey."""

    device: Device | None
    results: tuple[Measurement, ...]
    topology: Topology
    findings: tuple[Finding, ...]
    passes: Passes
    worst: Worst | None = None
    elapsed_s: float


# --- compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Part):
    """A time or rate in both surveys."""

    key: str
    unit: str  # us or GB/s
    first: float
    second: float
    relative: float  # second over first, minus 1
    noise: float  # relative as well
    change: str  # same, better or WORSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Part):
    """A property of the machine, or a verdict, that is not the same."""

    key: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Part):
    """Of differences."""

    same: int
    better: int
    worse: int
    unjudged: int  # measured in one pass, which does not tell the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument(Document):
    """Of gigabar.compare."""

    results: tuple[Difference, ...]
    machine_changes: tuple[Change, ...]
    verdict_changes: tuple[Change, ...]
    counts: Counts


# --- streams


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
class Driver(Part):
    """Whether a library or kernel interface can be used."""

    name: str
    code: str  # ok, or what is missing
    reason: str
    remedy: str | None = None
    check: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsDocument(Document):
    """Of gigabar.streams.run."""

    results: tuple[Run, ...]  # one for each size
    gigabar_version: str
    parameters: Parameters
    is_stand_in: bool | None = None
    devices: tuple[Device, ...] = ()
    drivers: tuple[Driver, ...] = ()
