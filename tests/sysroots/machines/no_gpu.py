# SPDX-License-Identifier: Apache-2.0
"""A server with two InfiniBand adapters, without a GPU and without NVIDIA's driver."""

from blocks import host, nic, pci
from blocks.cpu import EPYC_7543, Cpus
from blocks.machine import Machine


def build():
    machine = Machine("no_gpu", "A server that only has adapters.")
    Cpus(machine, EPYC_7543, cores_per_node=32, memory_gib_per_node=256, driver="acpi-cpufreq")
    host.kernel(machine, arguments="iommu=pt")
    host.board(machine, "Dell Inc.", "PowerEdge R7515", bios_vendor="Dell Inc.")
    host.process(machine)
    for bus in (0x40, 0x80):
        bridge = pci.HostBridge(machine, f"0000:{bus:02x}", 0)
        port = bridge.root_port(f"0000:{bus:02x}:03.1", pci.AMD_PORT, driver="pcieport", acs=0)
        nic.ConnectX(port, f"0000:{bus + 1:02x}:00.0", nic.CONNECTX_6, 200)
    nic.rdma_stack(machine)
    host.kernel_log(machine, "AMD-Vi: Interrupt remapping enabled")
    pci.give_iommu(machine, "identity", unit="ivhd0")
    return machine.finish()
