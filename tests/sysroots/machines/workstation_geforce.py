# SPDX-License-Identifier: Apache-2.0
"""A desktop computer with one GeForce: a BAR1 of 256 MiB, no GPUDirect RDMA, a closed driver, one Ethernet adapter of 1 Gb/s."""

from blocks import gpu, host, nic, pci
from blocks.cpu import CORE_11700, Cpus
from blocks.machine import Machine


def build():
    machine = Machine("workstation_geforce", "A desktop computer that cannot do GPUDirect RDMA.")
    Cpus(machine, CORE_11700, cores_per_node=8, memory_gib_per_node=64, governor="powersave", driver="intel_pstate")
    host.kernel(machine, "6.1.0-40-amd64", off=("CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_PCI_P2PDMA"))
    host.board(machine, "ASUS", "System Product Name", board_name="PRIME Z590-A")
    host.process(machine, memlock_bytes=8 << 20, can_lock_memory=False)
    gpu.driver(machine, "550.163.01", is_open=False, cuda_version=12040, peermem=False, gdrdrv=False)
    bridge = pci.HostBridge(machine, "0000:00", -1)
    bridge.integrated("0000:00:00.0", (0x8086, 0x4C43), 0x060000)
    slot = bridge.root_port("0000:00:01.0", pci.INTEL_CLIENT_PORT, speed=16.0, driver="pcieport")
    # Idle: the driver has lowered the link to 2.5 GT/s; its width stays.
    unable = {"gpu_direct_rdma": 0, "dma_buf": 0, "gpu_direct_rdma_writes_ordering": 0, "flush_writes_options": 0}
    gpu.gpu(slot, "0000:01:00.0", gpu.RTX_4090, attributes=unable, is_persistence_enabled=False,
            bar1_used_bytes=12 * pci.MIB, pcie_generation=1)
    graphics = machine.pci_devices[-1]
    graphics.speed, slot.speed = 2.5, 2.5
    slot.endpoint("0000:01:00.1", (gpu.VENDOR, 0x22BA), 0x040300, speed=2.5, most_speed=16.0, driver="snd_hda_intel")
    chipset = bridge.root_port("0000:00:1c.0", pci.INTEL_CHIPSET_PORT, speed=2.5, most_speed=8.0, width=1, driver="pcieport")
    nic.ethernet(chipset, "0000:03:00.0", (0x8086, 0x1533), "igb", "enp3s0", speed=2.5, width=1)
    nic.loopback(machine)
    machine.folder("/sys/class/infiniband")
    pci.without_iommu(machine)
    for answers in machine.answers["gpus"]:
        gpu.forget_server_features(answers)
    return machine.finish()
