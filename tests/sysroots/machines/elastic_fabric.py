# SPDX-License-Identifier: Apache-2.0
"""A machine of a cloud with two GPUs and two Elastic Fabric Adapters, whose ports have no RC queue pairs."""

from blocks import gpu, host, nic, pci
from blocks.cpu import EPYC_7543, Cpus
from blocks.machine import Machine

PAIRS = [("0000:44", 0, "0000:4d:00.0", "0000:4e:00.0"), ("0000:86", 1, "0000:8f:00.0", "0000:90:00.0")]


def build():
    machine = Machine("elastic_fabric", "A cloud machine with Elastic Fabric Adapters.")
    Cpus(machine, EPYC_7543, packages=2, cores_per_node=16, memory_gib_per_node=256, governor=None, is_guest=True)
    host.kernel(machine)
    host.board(machine, "Amazon EC2", "p5.48xlarge", bios_vendor="Amazon EC2")
    host.process(machine)
    gpu.driver(machine, parameters=gpu.NETWORKING_PARAMETERS)
    for name, node, gpu_address, adapter_address in PAIRS:
        bridge = pci.HostBridge(machine, name, node)
        gpu.gpu(bridge, gpu_address, gpu.H100_PCIE)
        nic.ElasticFabricAdapter(bridge, adapter_address)
    nic.rdma_stack(machine, modules=("efa",))
    gpu.peers(machine)
    host.kernel_log(machine, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build")
    pci.without_iommu(machine)
    return machine.finish()
