# SPDX-License-Identifier: Apache-2.0
"""A Grace Hopper superchip: the GPU is joined to its 72 Arm cores by NVLink-C2C, its memory is a NUMA node without CPUs."""

from blocks import gpu, host, nic, pci
from blocks.cpu import NEOVERSE_V2, Cpus
from blocks.machine import Machine


def build():
    machine = Machine("grace_hopper", "An Arm server with a coherent GPU.")
    cpus = Cpus(machine, NEOVERSE_V2, cores_per_node=72, threads=1, memory_gib_per_node=480, driver="cppc_cpufreq")
    cpus.add_memory_node(96, possible="0-8")
    cpus.write_proc()
    host.kernel(machine, "6.8.0-1032-nvidia-64k", arguments="init_on_alloc=0")
    host.board(machine, "Supermicro", "ARS-111GL-NHR")
    host.process(machine)
    gpu.driver(machine, parameters=gpu.NETWORKING_PARAMETERS)
    machine.device("/dev/nvidia-caps-imex-channels/channel0", 509, 0)
    near_nic = pci.HostBridge(machine, "0000:00", 0)
    root = near_nic.root_port("0000:00:00.0", pci.NVIDIA_GRACE_PORT, speed=32.0, driver="pcieport", acs=0)
    nic.ConnectX(root, "0000:01:00.0", nic.CONNECTX_7, 400)
    near_gpu = pci.HostBridge(machine, "0009:00", 0)
    # The GPU's data takes C2C; its PCIe link is for control and has one lane.
    root = near_gpu.root_port("0009:00:00.0", pci.NVIDIA_GRACE_PORT, speed=32.0, width=1, driver="pcieport", acs=0)
    gpu.gpu(root, "0009:01:00.0", gpu.GH200, width=1, most_width=1, ats=True, c2c_links=10, fabric_state="not_supported",
            attributes={"host_native_atomics": 1, "gpu_direct_rdma_writes_ordering": 200})
    nic.rdma_stack(machine)
    host.kernel_log(machine, f"NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  {gpu.DRIVER}  Release Build")
    pci.give_iommu(machine, "DMA-FQ", unit="smmu3.0x0000000011000000")
    return machine.finish()
