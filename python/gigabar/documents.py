# SPDX-License-Identifier: Apache-2.0
"""What availability returns, and the documents of topology, doctor, survey, compare and streams.

Their members are those of `gigabar COMMAND --json`, under the same names (docs/schema). to_dict() of each object has all of them, also
those that a later program adds. Endings of names are units: _us, seconds, bytes; _gb_per_s is 10^9 bytes per second, _gbit_per_s 10^9
bits per second. None: not known, or it does not apply.
"""

from dataclasses import dataclass

from ._common import Device as Device
from ._common import Document as Document
from ._common import Driver as Driver
from ._common import Machine as Machine
from ._common import Origin as Origin
from ._parts import Part as Part
from ._streams_documents import Cell as Cell
from ._streams_documents import Failure as Failure
from ._streams_documents import Figure as Figure
from ._streams_documents import Latency as Latency
from ._streams_documents import Link as Link
from ._streams_documents import Matrix as Matrix
from ._streams_documents import Parameters as Parameters
from ._streams_documents import Place as Place
from ._streams_documents import Plan as Plan
from ._streams_documents import Preset as Preset
from ._streams_documents import PresetDescription as PresetDescription
from ._streams_documents import PresetListDocument as PresetListDocument
from ._streams_documents import PresetsDocument as PresetsDocument
from ._streams_documents import Run as Run
from ._streams_documents import StreamsDocument as StreamsDocument
from ._streams_documents import Total as Total
from ._streams_documents import Transfer as Transfer

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
class Unmatched(Part):
    """A time or rate of which not both surveys have a value of the same unit."""

    key: str
    why: str  # fails (worse), works again (better), fails in both, only first, only second, units differ
    first: str  # value and unit, "failed: " and the reason, or "-"
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Part):
    """A property of the machine, or a verdict, that is not the same."""

    key: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Part):
    """Of figures. Those that fail in the second survey only are among worse, those that work again among better."""

    same: int
    better: int
    worse: int
    unjudged: int  # measured in one pass, which does not tell the noise
    failed: int = 0  # in the second survey
    unmatched: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument(Document):
    """Of gigabar.compare."""

    results: tuple[Difference, ...]
    unmatched: tuple[Unmatched, ...] = ()
    machine_changes: tuple[Change, ...]
    verdict_changes: tuple[Change, ...]
    counts: Counts


# --- availability


@dataclass(frozen=True, slots=True, kw_only=True)
class Path(Part):
    """Whether a path can be used."""

    path: str  # mapping.rm, gdr.dmabuf, p2p, rdma, ...
    description: str
    code: str  # ok, or what is missing
    reason: str  # for ok: what was found
    remedy: str | None = None
    check: str | None = None  # for `gigabar explain`


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability(Part):
    """Of gigabar.availability."""

    paths: tuple[Path, ...]
    drivers: tuple[Driver, ...]  # libraries and kernel interfaces; empty for a captured machine
