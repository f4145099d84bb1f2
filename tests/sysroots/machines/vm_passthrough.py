# SPDX-License-Identifier: Apache-2.0
"""A virtual machine of QEMU that was given one GPU and one adapter. No IOMMU of its own, no ACS, no NUMA locality."""

from blocks import gpu, host, nic, pci
from blocks.cpu import XEON_4314, Cpus
from blocks.machine import Machine


def build():
    machine = Machine("vm_passthrough", "A guest with a GPU and an adapter passed through.")
    Cpus(machine, XEON_4314, cores_per_node=16, threads=1, memory_gib_per_node=128, governor=None, is_guest=True)
    host.kernel(machine)
    host.board(machine, "QEMU", "Standard PC (Q35 + ICH9, 2009)", bios_vendor="EFI Development Kit II / OVMF")
    host.process(machine)
    gpu.driver(machine, parameters=gpu.NETWORKING_PARAMETERS)
    bridge = pci.HostBridge(machine, "0000:00", -1)
    bridge.integrated("0000:00:00.0", (0x8086, 0x29C0), 0x060000)
    port = bridge.root_port("0000:00:02.0", pci.QEMU_PORT, speed=16.0, driver="pcieport")
    gpu.gpu(port, "0000:01:00.0", gpu.A100_PCIE)
    port = bridge.root_port("0000:00:02.1", pci.QEMU_PORT, speed=16.0, driver="pcieport")
    nic.ConnectX(port, "0000:02:00.0", nic.CONNECTX_6, 200)
    nic.rdma_stack(machine)
    host.kernel_log(machine, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build")
    pci.without_iommu(machine)
    return machine.finish()
