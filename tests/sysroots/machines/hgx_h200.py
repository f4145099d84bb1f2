# SPDX-License-Identifier: Apache-2.0
"""Eight H200 behind four NVSwitches, each below a PCIe switch with a ConnectX-7 of 400 Gb/s RoCE. All is as it should be."""

from blocks import gpu, host, nic, pci
from blocks.cpu import XEON_8462, Cpus
from blocks.machine import Machine

# Bus of the root complex of each pair, its NUMA node.
PAIRS = [(0x15, 0), (0x36, 0), (0x47, 0), (0x58, 0), (0x97, 1), (0xB7, 1), (0xC7, 1), (0xD7, 1)]
NV_SWITCHES = [f"0000:{bus:02x}:00.0" for bus in (0x05, 0x06, 0x07, 0x08)]
LINKS_TO_SWITCH = (5, 4, 4, 5)  # of the 18 links of each GPU


def build():
    machine = Machine("hgx_h200", "A server of eight GPUs without a fault.")
    Cpus(machine, XEON_8462, packages=2, cores_per_node=32, memory_gib_per_node=1024)
    host.kernel(machine, arguments="intel_iommu=on iommu=pt")
    host.board(machine, "Supermicro", "SYS-821GE-TNHR")
    host.process(machine)
    gpu.driver(machine, parameters=gpu.NETWORKING_PARAMETERS)
    for name, parameters in (("nvidia_drm", {"modeset": "Y"}), ("nvidia_modeset", {})):
        machine.module(name, parameters=parameters)
    for bus, node in PAIRS:
        build_pair(machine, bus, node)
    front = pci.HostBridge(machine, "0000:00", 0)
    for index, address in enumerate(NV_SWITCHES):
        port = front.root_port(f"0000:00:1{index}.0", pci.INTEL_SAPPHIRE_RAPIDS_PORT, speed=5.0, width=2,
                                driver="pcieport", acs=0)
        gpu.nv_switch(port, address)
        machine.device(f"/dev/nvidia-nvswitch{index}", 511, index)
    machine.device("/dev/nvidia-nvswitchctl", 511, 255)
    machine.device("/dev/nvidia-caps-imex-channels/channel0", 509, 0)
    host.add_character_devices(machine, [(511, "nvidia-nvswitch")])
    nic.rdma_stack(machine)
    gpu.peers(machine)
    host.kernel_log(machine, "DMAR: IOMMU enabled", "nvidia-nvlink: Nvlink Core is being initialized, major device number 511",
                    f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build")
    pci.give_iommu(machine, "identity")
    return machine.finish()


def build_pair(machine, bus, node):
    bridge = pci.HostBridge(machine, f"0000:{bus:02x}", node)
    root = bridge.root_port(f"0000:{bus:02x}:01.0", pci.INTEL_SAPPHIRE_RAPIDS_PORT, speed=32.0, driver="pcieport", acs=0)
    switch = root.switch(f"0000:{bus + 1:02x}:00.0")
    below_gpu = switch.downstream(f"0000:{bus + 2:02x}:00.0", acs=0)
    below_nic = switch.downstream(f"0000:{bus + 2:02x}:01.0", acs=0)
    remotes = [address for address, count in zip(NV_SWITCHES, LINKS_TO_SWITCH) for _ in range(count)]
    gpu.gpu(below_gpu, f"0000:{bus + 3:02x}:00.0", gpu.H200, fabric_state="completed",
            nvlinks=gpu.nv_links(remotes, 26562, is_switch=True))
    nic.ConnectX(below_nic, f"0000:{bus + 4:02x}:00.0", nic.CONNECTX_7, 400, is_roce=True)
