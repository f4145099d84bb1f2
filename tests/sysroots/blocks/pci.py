# SPDX-License-Identifier: Apache-2.0
"""The PCI tree in /sys: host bridges, ports, switches and endpoints, with their IOMMU groups."""

from .config_space import ConfigSpace
from .machine import cpu_list, cpu_map

GIB, MIB = 1 << 30, 1 << 20

# Vendor and device numbers of the bridges that the machines are made of.
INTEL_ICE_LAKE_PORT = (0x8086, 0x347A)
INTEL_SAPPHIRE_RAPIDS_PORT = (0x8086, 0x352A)
INTEL_CLIENT_PORT = (0x8086, 0x4C01)
INTEL_CHIPSET_PORT = (0x8086, 0x43BC)
AMD_PORT = (0x1022, 0x14AB)
NVIDIA_GRACE_PORT = (0x10DE, 0x22B2)
QEMU_PORT = (0x1B36, 0x000C)
BROADCOM_SWITCH = (0x1000, 0xC030)

# Of the resource file: IORESOURCE_MEM, _SIZEALIGN, PREFETCH, MEM_64.
MEMORY_FLAGS, PREFETCH_FLAGS = 0x00040200, 0x0014220C


class HostBridge:
    """A root complex: a bus without a link above it."""

    def __init__(self, machine, name, numa_node=-1):
        self.machine = machine
        self.path = f"/sys/devices/pci{name}"  # "pci0000:3a"
        self.numa_node = numa_node
        self.parent = None

    def root_port(self, address, ids, speed=16.0, width=16, **options):
        return PciDevice(self.machine, address, self, "root_port", ids, 0x060400, speed=speed, width=width, **options)

    def integrated(self, address, ids, class_code, **options):
        """A function of the root complex itself: it has no link."""
        return PciDevice(self.machine, address, self, "integrated", ids, class_code, width=0, **options)

    def endpoint(self, address, ids, class_code, **options):
        """A device whose port a hypervisor does not show."""
        return PciDevice(self.machine, address, self, "endpoint", ids, class_code, **options)


class PciDevice:
    def __init__(self, machine, address, parent, kind, ids, class_code, speed=16.0, width=16, most_speed=None, most_width=None,
                 numa_node=None, driver=None, module=None, bars=(), subsystem=(0, 0), revision=0, acs=None, ats=None,
                 mps_bytes=256, mrrs_bytes=512, relaxed_ordering=True, iommu_group=None, iommu_type=None):
        """`acs` and `ats` are the control register and whether it is enabled; None: the function has no such capability.
        `bars` are (index, bytes, is_prefetchable)."""
        self.machine, self.address, self.parent, self.kind = machine, address, parent, kind
        self.ids, self.class_code, self.subsystem, self.revision = ids, class_code, subsystem, revision
        self.speed, self.width = speed, width
        self.most_speed = speed if most_speed is None else most_speed
        self.most_width = width if most_width is None else most_width
        self.numa_node = parent.numa_node if numa_node is None else numa_node
        self.driver, self.module = driver, module or driver
        self.bars, self.acs, self.ats = bars, acs, ats
        self.mps_bytes, self.mrrs_bytes, self.relaxed_ordering = mps_bytes, mrrs_bytes, relaxed_ordering
        self.iommu_group, self.iommu_type = iommu_group, iommu_type
        self.path = f"{parent.path}/{address}"
        self.children = []
        if isinstance(parent, PciDevice):
            parent.children.append(self)
        machine.pci_devices.append(self)

    # What can hang below a bridge.

    def switch(self, address, ids=BROADCOM_SWITCH, speed=None, width=16, **options):
        """The upstream port of a PCIe switch."""
        return PciDevice(self.machine, address, self, "upstream_port", ids, 0x060400, speed=speed or self.speed, width=width,
                         driver="pcieport", **options)

    def downstream(self, address, speed=None, width=16, **options):
        """A downstream port of this switch."""
        return PciDevice(self.machine, address, self, "downstream_port", self.ids, 0x060400, speed=speed or self.speed,
                         width=width, driver="pcieport", **options)

    def endpoint(self, address, ids, class_code, **options):
        return PciDevice(self.machine, address, self, "endpoint", ids, class_code, **options)

    @property
    def is_bridge(self):
        return self.kind in ("root_port", "upstream_port", "downstream_port")

    @property
    def bus(self):
        return int(self.address.split(":")[1], 16)

    def last_bus(self):
        return max([self.bus, *(child.last_bus() for child in self.children)])

    def write(self):
        self.write_attributes()
        self.machine.file(f"{self.path}/config", self.config_space())
        self.write_links()
        self.write_iommu()

    def write_attributes(self):
        vendor, device = self.ids
        machine = self.machine
        machine.files_in(self.path, {
            "vendor": f"0x{vendor:04x}", "device": f"0x{device:04x}", "subsystem_vendor": f"0x{self.subsystem[0]:04x}",
            "subsystem_device": f"0x{self.subsystem[1]:04x}", "class": f"0x{self.class_code:06x}",
            "revision": f"0x{self.revision:02x}", "numa_node": str(self.numa_node), "enable": "1", "irq": "16",
            "d3cold_allowed": "1", "ari_enabled": "0", "power_state": "D0", "broken_parity_status": "0", "dma_mask_bits": "64",
            "consistent_dma_mask_bits": "64", "resource": self.resources(),
        })
        if machine.cpus:
            near = machine.cpus.of_node(self.numa_node)
            machine.file(f"{self.path}/local_cpus", cpu_map(near, machine.cpus.count))
            machine.file(f"{self.path}/local_cpulist", cpu_list(near))
        if self.width:
            machine.files_in(self.path, {
                "current_link_speed": speed_text(self.speed), "current_link_width": str(self.width),
                "max_link_speed": speed_text(self.most_speed), "max_link_width": str(self.most_width),
            })
        if self.is_bridge:
            machine.file(f"{self.path}/secondary_bus_number", str(self.secondary_bus()))
            machine.file(f"{self.path}/subordinate_bus_number", str(self.last_bus()))

    def secondary_bus(self):
        return min((child.bus for child in self.children), default=self.bus)

    def config_space(self):
        bridge = (self.bus, self.secondary_bus(), self.last_bus()) if self.is_bridge else None
        space = ConfigSpace(*self.ids, self.class_code, self.revision, self.subsystem, bridge)
        space.express(self.kind, self.speed, self.width, self.most_speed, self.most_width, self.mps_bytes,
                      mrrs_bytes=self.mrrs_bytes, relaxed_ordering=self.relaxed_ordering)
        space.errors()
        if self.acs is not None:
            space.acs(self.acs)
        if self.ats is not None:
            space.ats(self.ats)
        return space.content()

    def resources(self):
        """Six BARs and the ROM; a bridge has four windows more. Addresses only have to be aligned and apart from each other."""
        lines = [(0, 0, 0)] * (11 if self.is_bridge else 7)
        for index, size_bytes, is_prefetchable in self.bars:
            start = ((len(self.machine.pci_devices) + self.bus) << 44 | (index + 1) << 40) if is_prefetchable else \
                0x80000000 + (self.bus << 25)
            lines[index] = (start, start + size_bytes - 1, PREFETCH_FLAGS if is_prefetchable else MEMORY_FLAGS)
        return "".join(f"0x{start:016x} 0x{end:016x} 0x{flags:016x}\n" for start, end, flags in lines)

    def write_links(self):
        machine = self.machine
        machine.link(f"/sys/bus/pci/devices/{self.address}", self.path)
        machine.link(f"{self.path}/subsystem", "/sys/bus/pci")
        if self.driver:
            machine.link(f"{self.path}/driver", f"/sys/bus/pci/drivers/{self.driver}")
            machine.link(f"/sys/bus/pci/drivers/{self.driver}/{self.address}", self.path)
        if self.module and self.module != "pcieport":
            machine.link(f"/sys/bus/pci/drivers/{self.driver}/module", f"/sys/module/{self.module}")

    def write_iommu(self):
        if self.iommu_group is None:
            return
        group = f"/sys/kernel/iommu_groups/{self.iommu_group}"
        self.machine.file(f"{group}/type", self.iommu_type)
        self.machine.file(f"{group}/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi")
        self.machine.link(f"{group}/devices/{self.address}", self.path)
        self.machine.link(f"{self.path}/iommu_group", group)
        if self.machine.has_iommu:
            self.machine.link(f"{self.path}/iommu", f"/sys/devices/virtual/iommu/{self.machine.has_iommu}")


def speed_text(gt_per_s):
    return f"{gt_per_s:.1f} GT/s PCIe"


def give_iommu(machine, group_type, unit="dmar0"):
    """Every function gets a group of its own, in the order of addresses. Called before finish()."""
    machine.has_iommu = unit
    machine.file(f"/sys/devices/virtual/iommu/{unit}/uevent", "")
    machine.link(f"/sys/class/iommu/{unit}", f"/sys/devices/virtual/iommu/{unit}")
    for number, device in enumerate(sorted(machine.pci_devices, key=lambda device: device.address)):
        device.iommu_group, device.iommu_type = number, group_type


def without_iommu(machine):
    """The kernel has the folders even when there is nothing in them."""
    machine.folder("/sys/kernel/iommu_groups")
    machine.folder("/sys/class/iommu")
