# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs: the PCI functions, the driver's files in /proc and /dev, and what CUDA and NVML answer."""

from .host import add_character_devices
from .pci import GIB, MIB

VENDOR = 0x10DE
DRIVER = "580.95.05"
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5}

PARAMETERS = {
    "ResmanDebugLevel": "4294967295", "RmLogonRC": "1", "ModifyDeviceFiles": "1", "DeviceFileUID": "0", "DeviceFileGID": "0",
    "DeviceFileMode": "438", "InitializeSystemMemoryAllocations": "1", "UsePageAttributeTable": "4294967295", "EnableMSI": "1",
    "EnablePCIeGen3": "0", "MemoryPoolSize": "0", "KMallocHeapMaxSize": "0", "VMallocHeapMaxSize": "0", "IgnoreMMIOCheck": "0",
    "EnableStreamMemOPs": "0", "EnableUserNUMAManagement": "1", "NvLinkDisable": "0", "RmProfilingAdminOnly": "1",
    "PreserveVideoMemoryAllocations": "0", "EnableS0ixPowerManagement": "0", "DynamicPowerManagement": "3",
    "RegisterPCIDriver": "1", "EnablePCIERelaxedOrderingMode": "0", "EnableResizableBar": "0", "EnableGpuFirmware": "18",
    "EnableGpuFirmwareLogs": "2",
    "RmNvlinkBandwidthLinkCount": "0", "EnableDbgBreakpoint": "0", "OpenRmEnableUnsupportedGpus": "1", "DmaRemapPeerMmio": "1",
    "ImexChannelCount": "2048", "CreateImexChannel0": "0", "GrdmaPciTopoCheckOverride": "0", "CoherentGPUMemoryMode": '""',
    "RegistryDwords": '""', "RegistryDwordsPerDevice": '""', "RmMsg": '""', "GpuBlacklist": '""', "TemporaryFilePath": '""',
    "ExcludedGpus": '""',
}
# What GPU-initiated networking asks of the driver.
NETWORKING_PARAMETERS = {"EnableStreamMemOPs": "1", "RegistryDwords": '"PeerMappingOverride=1;"'}


class Model:
    """`idle_links`: NVLinks that a card has for a bridge, when none is mounted."""

    def __init__(self, name, device, memory_gib, bar1_bytes, speed, class_code=0x030200, firmware="96.00.BC.00.01", idle_links=0):
        self.name, self.device, self.class_code, self.firmware = name, device, class_code, firmware
        self.memory_gib, self.bar1_bytes, self.speed, self.idle_links = memory_gib, bar1_bytes, speed, idle_links


H200 = Model("NVIDIA H200", 0x2335, 141, 256 * GIB, 32.0)
H100_PCIE = Model("NVIDIA H100 PCIe", 0x2331, 80, 128 * GIB, 32.0, idle_links=12)
A100_PCIE = Model("NVIDIA A100 80GB PCIe", 0x20B5, 80, 128 * GIB, 16.0, firmware="92.00.A0.00.01", idle_links=12)
A100_SXM = Model("NVIDIA A100-SXM4-80GB", 0x20B2, 80, 128 * GIB, 16.0, firmware="92.00.9E.00.01")
GH200 = Model("NVIDIA GH200 480GB", 0x2342, 96, 128 * GIB, 32.0)
RTX_4090 = Model("NVIDIA GeForce RTX 4090", 0x2684, 24, 256 * MIB, 16.0, class_code=0x030000, firmware="95.02.3C.00.01")


def driver(machine, version=DRIVER, is_open=True, parameters=None, cuda_version=13000, peermem=True, gdrdrv=True):
    """The NVIDIA driver without its GPUs. Called after host.kernel()."""
    arch = "aarch64" if machine.cpus.model.is_arm else "x86_64"
    flavour = (f"NVIDIA UNIX Open Kernel Module for {arch}  {version}  Release Build  (dvs-builder)" if is_open
               else f"NVIDIA UNIX {arch} Kernel Module  {version}")
    machine.file("/proc/driver/nvidia/version", f"NVRM version: {flavour}  Tue Sep 23 10:11:16 UTC 2025\n"
                                                "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)")
    values = {**PARAMETERS, **(parameters or {})}
    machine.file("/proc/driver/nvidia/params", "".join(f"{name}: {value}\n" for name, value in values.items()))
    machine.module("nvidia", version, users=4)
    machine.module("nvidia_uvm", users=2)
    machine.link("/sys/bus/pci/drivers/nvidia/module", "/sys/module/nvidia")
    add_character_devices(machine, [(195, "nvidia"), (195, "nvidiactl"), (237, "nvidia-caps"), (510, "nvidia-uvm"),
                                    (509, "nvidia-caps-imex-channels")])
    for name, major, minor in [("nvidiactl", 195, 255), ("nvidia-modeset", 195, 254), ("nvidia-uvm", 510, 0),
                               ("nvidia-uvm-tools", 510, 1)]:
        machine.device(f"/dev/{name}", major, minor)
    if peermem:
        machine.module("nvidia_peermem", version, {"peerdirect_support": "0", "persistent_api_support": "1"})
        machine.files_in("/sys/kernel/mm/memory_peers/nv_mem", {"version": version, "num_alloc_mrs": "0", "num_dealloc_mrs": "0"})
    if gdrdrv:
        machine.module("gdrdrv", "2.5")
        machine.device("/dev/gdrdrv", 236, 0)
        add_character_devices(machine, [(236, "gdrdrv")])
    machine.answers.update(cuda={"code": "ok", "reason": f"driver {version}", "remedy": ""},
                           nvml={"code": "ok", "reason": f"driver {version}", "remedy": ""},
                           cuda_version=cuda_version, driver_version=version)


def gpu(parent, address, model, ats=None, most_width=16, width=16, attributes=None, bar1_used_bytes=4 * MIB, **answers):
    """A GPU below a port, its files, and its answers; `answers` override or add to them."""
    machine = parent.machine
    index = len(machine.answers["gpus"])
    uuid = f"GPU-{index + 1:08x}-5a4d-4c1b-9d3e-{model.device:012x}"
    device = parent.endpoint(address, (VENDOR, model.device), model.class_code, speed=model.speed, width=width,
                             most_width=most_width, driver="nvidia", revision=0xA1, subsystem=(VENDOR, 0x18BE), ats=ats,
                             bars=[(0, 16 * MIB, False), (1, model.bar1_bytes, True), (3, 32 * MIB, True)])
    machine.file(f"/proc/driver/nvidia/gpus/{address}/information", "".join(f"{line}\n" for line in [
        f"Model: \t\t {model.name}", "IRQ:   \t\t 16", f"GPU UUID: \t {uuid}", f"Video BIOS: \t {model.firmware.lower()}",
        "Bus Type: \t PCIe", "DMA Size: \t 52 bits", "DMA Mask: \t 0xfffffffffffff", f"Bus Location: \t {address}",
        f"Device Minor: \t {index}", f"GPU Firmware: \t {machine.answers['driver_version']}", "GPU Excluded:\t No"]))
    machine.device(f"/dev/nvidia{index}", 195, index)
    machine.answers["gpus"].append({
        "pci": address, "uuid": uuid, "name": model.name, "cuda_index": index,
        "cuda_attributes": {"gpu_direct_rdma": 1, "dma_buf": 1, "vmm": 1, "integrated": 0, "gpu_direct_rdma_writes_ordering": 100,
                            "flush_writes_options": 1, "host_native_atomics": 0, **(attributes or {})},
        "is_mig_enabled": False, "is_persistence_enabled": True, "bar1_total_bytes": model.bar1_bytes,
        "bar1_used_bytes": bar1_used_bytes, "pcie_generation": GENERATIONS[model.speed], "pcie_width": width,
        "pcie_most_generation": GENERATIONS[model.speed], "pcie_most_width": most_width,
        "nvlinks": idle_nv_links(model.idle_links), "c2c_links": 0, "fabric_state": "not_supported",
        "clocks_event_reasons": 0x1, "is_row_remap_pending": False, "has_row_remap_failed": False,
        "is_page_retirement_pending": False, **answers,
    })
    return device


def nv_switch(parent, address):
    """An NVSwitch as PCI shows it: an endpoint of the class "other bridge"."""
    return parent.endpoint(address, (VENDOR, 0x22A3), 0x068000, speed=5.0, width=2, driver="nvidia-nvswitch", module="nvidia",
                           revision=0xA1, subsystem=(VENDOR, 0x1796), bars=[(0, 32 * MIB, False)])


def nv_links(remotes, mb_per_s, is_switch):
    """NVML's view of the links of one GPU: `remotes` has the address at the other end of each, as "0000:05:00.0"."""
    return [{"is_active": True, "is_switch": is_switch, "remote_pci": f"0000{address.upper()}", "mb_per_s": mb_per_s}
            for address in remotes]


def idle_nv_links(count):
    """Of a link that is not active NVML says nothing more."""
    return [{"is_active": False, "is_switch": False, "remote_pci": "", "mb_per_s": 0} for _ in range(count)]


def forget_server_features(answers):
    """A GeForce has no such thing, and NVML refuses to answer."""
    for name in ("fabric_state", "is_page_retirement_pending", "is_row_remap_pending", "has_row_remap_failed", "is_mig_enabled"):
        answers.pop(name)


def peers(machine, atomics="ok"):
    """Peer access for every ordered pair of GPUs, but for those with MIG."""
    machine.answers["peers"] = []
    for first in machine.answers["gpus"]:
        for second in machine.answers["gpus"]:
            if first is second:
                continue
            is_split = first["is_mig_enabled"] or second["is_mig_enabled"]
            able = "not_supported" if is_split else "ok"
            machine.answers["peers"].append({"from": first["pci"], "to": second["pci"], "can_access": not is_split, "read": able,
                                             "write": able, "atomics": "not_supported" if is_split else atomics})
