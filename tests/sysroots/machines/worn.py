# SPDX-License-Identifier: Apache-2.0
"""Four A100 that were joined by NVLink, and four adapters: a server on which everything went wrong that goes wrong in use."""

from blocks import gpu, host, nic, pci
from blocks.cpu import EPYC_7543, Cpus
from blocks.machine import Machine

PAIRS = [(0x00, 0), (0x40, 0), (0x80, 1), (0xC0, 1)]
GPUS = [f"0000:{bus + 3:02x}:00.0" for bus, _ in PAIRS]
THERMAL_SLOWDOWN = 0x20 | 0x40  # software and hardware thermal slowdown, of NVML's reasons
LINKS = 12

ADAPTERS = [
    {"state": "DOWN"},
    {"state": "INIT"},
    {"is_roce": True, "mtu": 1500, "active_mtu": 1024, "has_address": False, "has_ecn": False, "mrrs_bytes": 512},
    {},
]
FAULTS = [
    {"is_row_remap_pending": True},
    {"clocks_event_reasons": THERMAL_SLOWDOWN},
    {"bar1_used_bytes": 128 * pci.GIB - 96 * pci.MIB},
    {"is_mig_enabled": True},
]


def build():
    machine = Machine("worn", "A server with many faults.")
    Cpus(machine, EPYC_7543, packages=2, cores_per_node=32, memory_gib_per_node=512, governor="schedutil", driver="acpi-cpufreq",
         far_distance=32)
    host.kernel(machine, arguments="iommu=pt", numa_balancing=1)
    host.board(machine, "Supermicro", "AS -2124GQ-NART")
    host.process(machine, memlock_bytes=64 << 10, can_lock_memory=False)
    gpu.driver(machine, parameters={**gpu.NETWORKING_PARAMETERS, "NvLinkDisable": "1"})
    for index, (bus, node) in enumerate(PAIRS):
        build_pair(machine, index, bus, node)
    nic.rdma_stack(machine)
    gpu.peers(machine, atomics="not_supported")
    host.kernel_log(
        machine, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build",
        f"NVRM: Xid (PCI:{GPUS[0][:10]}): 63, Row Remapper: New row (0x000000000140a9c1) marked for remapping, reset gpu to "
        "activate.")
    pci.give_iommu(machine, "identity", unit="ivhd0")
    return machine.finish()


def build_pair(machine, index, bus, node):
    bridge = pci.HostBridge(machine, f"0000:{bus:02x}", node)
    root = bridge.root_port(f"0000:{bus:02x}:01.1", pci.AMD_PORT, driver="pcieport", acs=0)
    switch = root.switch(f"0000:{bus + 1:02x}:00.0")
    below_gpu = switch.downstream(f"0000:{bus + 2:02x}:00.0", acs=0)
    below_nic = switch.downstream(f"0000:{bus + 2:02x}:10.0", acs=0)
    gpu.gpu(below_gpu, GPUS[index], gpu.A100_SXM, is_persistence_enabled=False, nvlinks=gpu.idle_nv_links(LINKS), **FAULTS[index])
    nic.ConnectX(below_nic, f"0000:{bus + 4:02x}:00.0", nic.CONNECTX_6, 200, **ADAPTERS[index])
