# SPDX-License-Identifier: Apache-2.0
"""Two EPYC sockets cut into four NUMA nodes each, four GPUs and two adapters on root ports of their own, and nothing tuned."""

from blocks import gpu, host, nic, pci
from blocks.cpu import EPYC_9354, Cpus
from blocks.machine import Machine

# Bus of the root complex and NUMA node of each GPU.
GPUS = [(0x20, 0), (0x40, 2), (0xA0, 4), (0xC0, 6)]
# The first adapter is on the root complex of the first GPU, the second on one of its own.
NICS = [(0x20, 0), (0xE0, 7)]


def build():
    machine = Machine("epyc_nps4", "A server with eight NUMA nodes, tuned for nothing.")
    Cpus(machine, EPYC_9354, packages=2, nodes_per_package=4, cores_per_node=8, threads=1, memory_gib_per_node=96,
         governor="ondemand", driver="acpi-cpufreq", far_distance=32)
    host.kernel(machine, arguments="amd_iommu=on iommu=pt", numa_balancing=1)
    host.board(machine, "GIGABYTE", "G293-Z43-AAP1-000")
    host.process(machine)
    gpu.driver(machine, gdrdrv=False)
    bridges = {bus: pci.HostBridge(machine, f"0000:{bus:02x}", node) for bus, node in {**dict(GPUS), **dict(NICS)}.items()}
    for bus, _ in GPUS:
        port = bridges[bus].root_port(f"0000:{bus:02x}:01.1", pci.AMD_PORT, speed=32.0, driver="pcieport", acs=0)
        gpu.gpu(port, f"0000:{bus + 1:02x}:00.0", gpu.H100_PCIE)
    for bus, _ in NICS:
        port = bridges[bus].root_port(f"0000:{bus:02x}:03.1", pci.AMD_PORT, speed=32.0, driver="pcieport", acs=0)
        # The port can do more than the adapter.
        port.speed = 16.0
        port.most_speed = 32.0
        nic.ConnectX(port, f"0000:{bus + 8:02x}:00.0", nic.CONNECTX_6_DX, 200, is_roce=True,
                     relaxed_ordering=False, mrrs_bytes=512)
    nic.rdma_stack(machine)
    gpu.peers(machine, atomics="not_supported")
    host.kernel_log(machine, "AMD-Vi: Interrupt remapping enabled",
                    f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build")
    pci.give_iommu(machine, "identity", unit="ivhd0")
    return machine.finish()
