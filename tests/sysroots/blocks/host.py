# SPDX-License-Identifier: Apache-2.0
"""The kernel, the firmware's words about the board, limits of the process that captured, and module lists."""

UNLIMITED = (1 << 64) - 1

BOOT_OPTIONS = ("CONFIG_PCI_P2PDMA", "CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_DMA_SHARED_BUFFER", "CONFIG_PCI", "CONFIG_PCIEPORTBUS",
                "CONFIG_PCI_ATS", "CONFIG_IOMMU_SUPPORT", "CONFIG_NUMA", "CONFIG_ZONE_DEVICE", "CONFIG_NO_HZ_FULL",
                "CONFIG_INFINIBAND_ON_DEMAND_PAGING", "CONFIG_HMM_MIRROR")


def kernel(machine, release="6.8.0-79-generic", arguments="", off=(), has_boot_config=True, numa_balancing=0):
    """`off` are options of the kernel's configuration that are not set."""
    arch = "aarch64" if machine.cpus.model.is_arm else "x86_64"
    machine.file("/proc/sys/kernel/osrelease", release)
    machine.file("/proc/sys/kernel/ostype", "Linux")
    machine.file("/proc/version", f"Linux version {release} (buildd@builder) ({arch}-linux-gnu-gcc-13 13.3.0, GNU ld 2.42) "
                                  "#79-Ubuntu SMP PREEMPT_DYNAMIC Tue Aug 12 14:42:46 UTC 2025")
    machine.file("/proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{release} root=/dev/sda2 ro quiet {arguments}".rstrip())
    machine.file("/proc/sys/kernel/numa_balancing", str(numa_balancing))
    machine.files.setdefault("/proc/modules", "")
    if has_boot_config:
        lines = [f"# {option} is not set" if option in off else f"{option}=y" for option in BOOT_OPTIONS]
        machine.file(f"/boot/config-{release}", "\n".join(["#", f"# Linux/{arch} {release} Kernel Configuration", "#", *lines,
                                                           "CONFIG_INFINIBAND=m", "CONFIG_INFINIBAND_USER_ACCESS=m"]))
    machine.file("/etc/os-release", 'NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
    machine.file("/proc/devices", "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n\nBlock devices:\n259 blkext\n")


def add_character_devices(machine, devices):
    """Lines of /proc/devices, sorted by their number as the kernel has them."""
    head, rest = machine.files["/proc/devices"].split("\n\n", 1)
    lines = head.split("\n")[1:] + [f"{major:3d} {name}" for major, name in devices]
    lines.sort(key=lambda line: int(line.split()[0]))
    machine.files["/proc/devices"] = "\n".join(["Character devices:", *dict.fromkeys(lines)]) + "\n\n" + rest


def board(machine, vendor, product, bios_vendor="American Megatrends International, LLC.", board_name=None):
    machine.files_in("/sys/devices/virtual/dmi/id", {
        "sys_vendor": vendor, "product_name": product, "board_vendor": vendor, "board_name": board_name or product,
        "bios_vendor": bios_vendor, "bios_version": "2.1", "bios_date": "03/14/2025", "chassis_vendor": vendor,
        "chassis_type": "23",
    })
    machine.link("/sys/class/dmi/id", "/sys/devices/virtual/dmi/id")


def process(machine, memlock_bytes=UNLIMITED, can_lock_memory=True):
    """The process that captured: /proc/self, and the same as answers."""
    limit = "unlimited" if memlock_bytes == UNLIMITED else str(memlock_bytes)
    rows = [("Limit", "Soft Limit", "Hard Limit", "Units"), ("Max cpu time", "unlimited", "unlimited", "seconds"),
            ("Max stack size", "8388608", "unlimited", "bytes"), ("Max open files", "1048576", "1048576", "files"),
            ("Max locked memory", limit, limit, "bytes"), ("Max address space", "unlimited", "unlimited", "bytes")]
    lines = [f"{name:<25} {soft:<20} {hard:<20} {unit:<10}\n" for name, soft, hard, unit in rows]
    machine.file("/proc/self/limits", "".join(lines))
    cpus = machine.cpus
    machine.file("/proc/self/status", "Name:\tgigabar\nState:\tR (running)\n"
                 f"CapEff:\t{'000001ffffffffff' if can_lock_memory else '0000000000000000'}\n"
                 f"Cpus_allowed_list:\t0-{cpus.count - 1}\nMems_allowed_list:\t0-{len(cpus.memory_gib) - 1}\n")
    machine.answers.update(memlock_bytes=memlock_bytes, can_lock_memory=can_lock_memory, allowed_cpus=f"0-{cpus.count - 1}")


def kernel_log(machine, *lines):
    """What of the kernel's log speaks of the parts that matter; ask for none and the log was read and is clean."""
    machine.answers["kernel_log"] = list(lines)
