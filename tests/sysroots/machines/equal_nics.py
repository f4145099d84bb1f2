# SPDX-License-Identifier: Apache-2.0
"""Two PCIe switches, each with two A100 and two ConnectX-6: both adapters are as near to both GPUs."""

from blocks import gpu, host, nic, pci
from blocks.cpu import XEON_4314, Cpus
from blocks.machine import Machine

SWITCHES = [(0x16, 0), (0x97, 1)]


def build():
    machine = Machine("equal_nics", "A server with two GPUs and two adapters below each of its switches.")
    Cpus(machine, XEON_4314, packages=2, cores_per_node=16, memory_gib_per_node=128)
    host.kernel(machine, arguments="intel_iommu=on iommu=pt")
    host.board(machine, "Dell Inc.", "PowerEdge R750xa", bios_vendor="Dell Inc.")
    host.process(machine)
    gpu.driver(machine, parameters=gpu.NETWORKING_PARAMETERS)
    for bus, node in SWITCHES:
        build_switch(machine, bus, node)
    nic.rdma_stack(machine)
    gpu.peers(machine)
    host.kernel_log(machine, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build")
    pci.give_iommu(machine, "identity")
    return machine.finish()


def build_switch(machine, bus, node):
    bridge = pci.HostBridge(machine, f"0000:{bus:02x}", node)
    root = bridge.root_port(f"0000:{bus:02x}:02.0", pci.INTEL_ICE_LAKE_PORT, driver="pcieport", acs=0)
    switch = root.switch(f"0000:{bus + 1:02x}:00.0")
    ports = [switch.downstream(f"0000:{bus + 2:02x}:{slot:02x}.0", acs=0) for slot in (0, 1, 8, 9)]
    for place, port in enumerate(ports[:2]):
        gpu.gpu(port, f"0000:{bus + 3 + place:02x}:00.0", gpu.A100_PCIE)
    for place, port in enumerate(ports[2:], 2):
        nic.ConnectX(port, f"0000:{bus + 3 + place:02x}:00.0", nic.CONNECTX_6, 200)
