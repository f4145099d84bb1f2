# SPDX-License-Identifier: Apache-2.0
"""The server that several machines vary: two Xeons, a PCIe switch with an A100 and a ConnectX-6 below it, and a second
ConnectX-6 at the other socket. InfiniBand, open driver, nothing wrong."""

from blocks import gpu, host, nic, pci
from blocks.cpu import XEON_4314, Cpus
from blocks.machine import Machine


class SmallServer:
    """The parts that a variant changes before finish()."""

    def __init__(self, name, story, iommu_type="identity", arguments="intel_iommu=on iommu=pt", can_lock_memory=True,
                 memlock_bytes=host.UNLIMITED):
        machine = self.machine = Machine(name, story)
        Cpus(machine, XEON_4314, packages=2, cores_per_node=16, memory_gib_per_node=128)
        host.kernel(machine, arguments=arguments)
        host.board(machine, "Dell Inc.", "PowerEdge R750xa", bios_vendor="Dell Inc.")
        host.process(machine, memlock_bytes=memlock_bytes, can_lock_memory=can_lock_memory)
        gpu.driver(machine, parameters=gpu.NETWORKING_PARAMETERS)
        near = pci.HostBridge(machine, "0000:16", 0)
        self.root = near.root_port("0000:16:02.0", pci.INTEL_ICE_LAKE_PORT, driver="pcieport", acs=0)
        self.switch = self.root.switch("0000:17:00.0")
        self.above_gpu = self.switch.downstream("0000:18:00.0", acs=0)
        self.above_nic = self.switch.downstream("0000:18:04.0", acs=0)
        self.gpu = gpu.gpu(self.above_gpu, "0000:19:00.0", gpu.A100_PCIE)
        self.near_nic = nic.ConnectX(self.above_nic, "0000:1a:00.0", nic.CONNECTX_6, 200)
        far = pci.HostBridge(machine, "0000:97", 1)
        self.far_root = far.root_port("0000:97:02.0", pci.INTEL_ICE_LAKE_PORT, driver="pcieport", acs=0)
        self.far_nic = nic.ConnectX(self.far_root, "0000:98:00.0", nic.CONNECTX_6, 200)
        nic.rdma_stack(machine)
        host.kernel_log(machine, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build")
        pci.give_iommu(machine, iommu_type)
