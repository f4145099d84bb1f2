// SPDX-License-Identifier: Apache-2.0
#include "doctor/pages_gpu.hpp"

namespace gigabar::doctor::page {

CheckInfo drv_loaded() {
  return {
      .id = "drv.loaded",
      .title = "NVIDIA driver and its device nodes",
      .why = "Without the driver and its nodes no program can use a GPU.",
      .what =
          "The NVIDIA kernel driver shows itself in /proc/driver/nvidia and offers its devices as /dev/nvidiactl, /dev/nvidia0, "
          "/dev/nvidia1, ... and /dev/nvidia-uvm. A container sees the driver of its host, but only the nodes that it was given. "
          "The kernel looks at a node's number alone: "
          "one that was made for an earlier start of the driver may lead to another driver's device. The check compares the "
          "numbers "
          "with /proc/devices and opens each node.",
      .impact =
          "Without the driver CUDA starts with error 100 or 999. Without a node, or without the right to open it, CUDA finds no "
          "device although 'nvidia-smi' on the host shows it. Gigabar's own CPU mappings of GPU memory need /dev/nvidiactl and "
          "/dev/nvidiaN and nothing else.",
      .confirm =
          "cat /proc/driver/nvidia/version; ls -l /dev/nvidia*; grep nvidia /proc/devices; lsmod | grep nvidia; nvidia-smi. In a "
          "container, run the same on its host and compare.",
      .remedy =
          "Load the driver: sudo modprobe nvidia. Make the nodes of a loaded driver: sudo nvidia-modprobe -u -c 0, or just "
          "nvidia-smi as root. In a container: docker run --gpus all, or the device plug-in of the batch system. A node "
          "with another number, or a folder in its place: remove it and make it anew. A node that the device cgroup refuses "
          "(EPERM): "
          "--device instead of a bind mount, DeviceAllow= of a systemd unit. Install the driver where there is none: sudo apt "
          "install nvidia-open, then reboot.",
      .source =
          "NVIDIA Linux driver README, chapters 'Installing the NVIDIA driver' and 'Proc filesystem interface'; NVIDIA Container "
          "Toolkit documentation; nvidia-modprobe(1)."};
}

CheckInfo drv_flavour() {
  return {
      .id = "drv.flavour",
      .title = "Open or proprietary kernel modules",
      .why = "Only the open kernel modules export GPU memory as a dma-buf, the way of RDMA that needs no extra module.",
      .what =
          "NVIDIA's driver comes with one of two sets of kernel modules: open ones, since driver 515 and for Turing GPUs and "
          "newer, and proprietary ones. Both run the same libraries. /proc/driver/nvidia/version names the loaded set.",
      .impact =
          "With the proprietary modules a network adapter can register GPU memory only through nvidia-peermem, which in turn needs "
          "an RDMA stack with the peer-memory interface (DOCA-OFED, MLNX_OFED). With a distribution's own kernel and rdma-core "
          "there is then no GPUDirect RDMA at all. Blackwell GPUs and newer do not run with the proprietary modules.",
      .confirm =
          "cat /proc/driver/nvidia/version: 'Open Kernel Module' is the open set. modinfo nvidia | grep license: 'Dual MIT/GPL' is "
          "open, 'NVIDIA' is proprietary.",
      .remedy =
          "Install the open modules in place of the others and reboot: sudo apt install nvidia-open (NVIDIA's packages for Debian "
          "and Ubuntu), sudo dnf install nvidia-open (Red Hat and its like), or the installer's option --kernel-module-type=open.",
      .source =
          "NVIDIA Linux driver README, chapter 'Open Linux kernel modules'; NVIDIA GPUDirect RDMA documentation, section on "
          "dma-buf; NVIDIA open-gpu-kernel-modules, nv-dmabuf.c."};
}

CheckInfo drv_gpus() {
  return {
      .id = "drv.gpus",
      .title = "Every GPU of the bus belongs to the driver",
      .why = "A GPU that the driver lost or never got is missing without any program saying so.",
      .what =
          "The PCI bus lists every GPU that the firmware found; the driver lists those that it started. The check compares the "
          "two, and looks at who has the others. It also reads each GPU's configuration space, which is all ones when the device "
          "no longer answers, and the kernel's log.",
      .impact =
          "A job asks for eight GPUs and gets seven, or device numbers shift so that CPU and adapter bindings are wrong. A GPU "
          "that has fallen off the bus (Xid 79) often takes its NVLink peers with it.",
      .confirm = "lspci -nnk -d 10de:; ls /proc/driver/nvidia/gpus; nvidia-smi -L; sudo dmesg | grep -E 'NVRM|Xid'.",
      .remedy =
          "Of another driver: unbind it (echo ADDRESS | sudo tee /sys/bus/pci/devices/ADDRESS/driver/unbind), then bind it to "
          "nvidia; blacklist nouveau. Fallen off the bus: read the Xid, check power and seat of the card, then power the "
          "machine off and on. 'RmInitAdapter failed' after a change of driver: reboot.",
      .source =
          "Kernel Documentation/ABI/testing/sysfs-bus-pci (bind, unbind); NVIDIA 'Xid Errors'; NVIDIA Linux driver README, "
          "'Proc filesystem interface'."};
}

CheckInfo kern_dmabuf() {
  return {
      .id = "kern.dmabuf",
      .title = "Kernel and rdma-core for RDMA by dma-buf",
      .why = "Without them a network adapter cannot register GPU memory by dma-buf.",
      .what =
          "A dma-buf is the kernel's handle for exported pages. The NVIDIA driver exports GPU memory as one, and the RDMA core "
          "imports it. That needs kernel 5.12 or newer with CONFIG_DMA_SHARED_BUFFER, CONFIG_PCI_P2PDMA and "
          "CONFIG_DMABUF_MOVE_NOTIFY, and libibverbs 34 or newer with ibv_reg_dmabuf_mr.",
      .impact =
          "ibv_reg_dmabuf_mr fails with EOPNOTSUPP (95), EPROTONOSUPPORT (93) or EINVAL, and libraries fall back to staging "
          "through host memory, mostly without a word. Then transfers of GPU memory take two copies more.",
      .confirm =
          "uname -r; grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY|DMA_SHARED_BUFFER' /boot/config-$(uname -r), or zcat /proc/config.gz | "
          "grep -E the same; ibv_reg_dmabuf_mr in nm -D libibverbs.so.1.",
      .remedy =
          "Use a newer kernel, or one that is built with the options: distributions' general kernels are, some cloud and minimal "
          "ones are not. Update rdma-core. Where neither can be changed, nvidia-peermem with DOCA-OFED does the same work.",
      .source =
          "Kernel Documentation/driver-api/dma-buf.rst and drivers/infiniband/core/umem_dmabuf.c; rdma-core, ibv_reg_mr(3); NVIDIA "
          "GPU Operator documentation, 'GPUDirect RDMA'; UCX #11002."};
}

CheckInfo mod_peermem() {
  return {.id = "mod.peermem",
          .title = "nvidia-peermem, or dma-buf in its place",
          .why = "One of the two must be there, else no network adapter can register GPU memory.",
          .what =
              "nvidia-peermem (formerly nv_peer_mem) is a kernel module that lets ibv_reg_mr take pointers to GPU memory. It needs "
              "an RDMA stack with the peer-memory interface, which DOCA-OFED and MLNX_OFED have and the kernel's own has not. "
              "Where dma-buf works, the module is not needed.",
          .impact =
              "Without either, ibv_reg_mr of GPU memory fails with EFAULT (14), 'Couldn't allocate MR', and GPUDirect RDMA is off. "
              "Programs that only know the older way need the module even where dma-buf works.",
          .confirm =
              "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'; cat /sys/kernel/mm/memory_peers/*/version; sudo grep "
              "ib_register_peer_memory_client /proc/kallsyms tells whether the RDMA stack has the interface.",
          .remedy =
              "sudo modprobe nvidia-peermem, and its name in /etc/modules-load.d/nvidia-peermem.conf to keep it. 'Invalid "
              "argument' means that it was built without the interface: install DOCA-OFED first and the NVIDIA driver after it. Or "
              "use dma-buf: open kernel modules, kernel 5.12 or newer, rdma-core 34 or newer.",
          .source =
              "NVIDIA Linux driver README, 'GPUDirect RDMA Peer Memory Client'; Mellanox nv_peer_memory #28, #43, #63, #79, #84, "
              "#116; NVIDIA gpu-operator #2868."};
}

CheckInfo mod_peermem_dmesg() {
  return {
      .id = "mod.peermem.dmesg",
      .title = "Complaints of the kernel about nvidia-peermem",
      .why = "A module that the kernel refused looks like one that nobody loaded; only the log tells them apart.",
      .what =
          "A kernel module names the symbols that it takes from others, each with a checksum. nvidia-peermem takes them from the "
          "RDMA core. When the core is another one than at build time, the kernel refuses the module and writes why to its log.",
      .impact =
          "'modprobe nvidia-peermem' fails with 'Invalid argument' or 'Unknown symbol in module', most often after the RDMA stack "
          "or the kernel was updated, and GPUDirect RDMA is off until somebody notices that it is slower.",
      .confirm = "sudo dmesg | grep -i -E 'peermem|peer_mem'; modinfo nvidia-peermem; ofed_info -s.",
      .remedy =
          "Build the NVIDIA driver's modules again with the RDMA stack in use installed: sudo dkms autoinstall, or reinstall the "
          "driver. Then sudo modprobe nvidia-peermem.",
      .source =
          "Kernel Documentation/kbuild/modules.rst (module versioning); Mellanox nv_peer_memory #43, #79; NVIDIA Linux driver "
          "README, 'GPUDirect RDMA Peer Memory Client'."};
}

CheckInfo mod_gdrdrv() {
  return {
      .id = "mod.gdrdrv",
      .title = "gdrdrv, the kernel module of GDRCopy",
      .why = "Programs linked against GDRCopy's library cannot map GPU memory without it; Gigabar can.",
      .what =
          "gdrdrv is a kernel module with the node /dev/gdrdrv, through which a program maps GPU memory for the CPU. Gigabar uses "
          "it when it is there and 2.5 or newer, and else maps through the NVIDIA driver's own nodes, which need no module.",
      .impact =
          "Where neither can be used, small copies between CPU and GPU go through the copy engine: several microseconds instead of "
          "a tenth. UCX, MVAPICH and others that link GDRCopy's library lose their fast path for small messages without a word. "
          "Versions before 2.5 revoke a mapping when the memory is freed, and an access then ends the program with SIGBUS.",
      .confirm =
          "ls -l /dev/gdrdrv; grep gdrdrv /proc/devices; cat /sys/module/gdrdrv/version; gigabar info lists the ways to map that "
          "work here.",
      .remedy =
          "Install and load it: sudo apt install gdrdrv-dkms; sudo modprobe gdrdrv. Missing node: sudo mknod -m 666 /dev/gdrdrv c "
          "MAJOR 0 with MAJOR from /proc/devices. A node with another number, or a folder or file in its place: remove it first. "
          "Missing rights: sudo chmod a+rw /dev/gdrdrv. In a container: --device "
          "/dev/gdrdrv. Or give programs Gigabar's libgdrapi.so.2, which needs no module.",
      .source = "GDRCopy README and CHANGELOG; GDRCopy #115, #139; NVIDIA GPUDirect RDMA documentation."};
}

CheckInfo mod_params() {
  return {
      .id = "mod.params",
      .title = "Settings of the NVIDIA kernel module",
      .why = "A setting left over from a test can switch off NVLink or GPUDirect RDMA for good.",
      .what =
          "The NVIDIA module takes settings (NVreg_...) when it is loaded, and lists those in force in /proc/driver/nvidia/params. "
          "The check looks at the ones that decide about paths: NvLinkDisable, GrdmaPciTopoCheckOverride and DmaRemapPeerMmio.",
      .impact =
          "NvLinkDisable=1 sends all traffic between GPUs over PCIe. GrdmaPciTopoCheckOverride=2 makes the driver refuse every "
          "adapter that wants GPU memory. DmaRemapPeerMmio=0 breaks peer-to-peer where an IOMMU translates addresses.",
      .confirm = "cat /proc/driver/nvidia/params; grep -r NVreg /etc/modprobe.d /proc/cmdline.",
      .remedy =
          "Remove the setting from the files in /etc/modprobe.d (and from the kernel's command line), rebuild the initial ramdisk "
          "(sudo update-initramfs -u, or sudo dracut -f), and reboot.",
      .source = "NVIDIA open-gpu-kernel-modules, nv-reg.h, which describes each setting; modprobe.d(5)."};
}

CheckInfo drv_grdma_topo() {
  return {.id = "drv.grdma_topo",
          .title = "The driver's rule about the PCI topology of GPU and adapter",
          .why = "On some Arm machines the driver itself refuses an adapter that shares no PCI switch with the GPU.",
          .what =
              "On NVIDIA Grace, Ampere Altra and AmpereOne-160 the NVIDIA driver hands GPU memory to another device only when some "
              "PCI bridge is above both, when the GPU is joined to its CPU coherently (NVLink-C2C), in a virtual machine with the "
              "GPU passed through, or when NVreg_GrdmaPciTopoCheckOverride=1 says so. Other CPUs have no such rule.",
          .impact =
              "Registering GPU memory fails with errno 524 (ENOTSUPP), and the kernel's log says 'PCI topology not supported for "
              "dma-buf'. Libraries then stage through host memory or, as NCCL does, fall back to sockets.",
          .confirm =
              "sudo dmesg | grep 'dma-buf attach failed'; lspci -tv shows whether GPU and adapter hang below one switch; grep "
              "Grdma /proc/driver/nvidia/params.",
          .remedy =
              "Use an adapter below the GPU's own switch; 'gigabar topology' shows the nearest. At your own risk: options nvidia "
              "NVreg_GrdmaPciTopoCheckOverride=1 in a file in /etc/modprobe.d, rebuild the initial ramdisk, reboot, and check data "
              "with 'gigabar doctor --only probe'.",
          .source =
              "NVIDIA open-gpu-kernel-modules: nv_grdma_pci_topology_supported in nv-pci.c, and its table of chipsets; nv-reg.h."};
}

CheckInfo drv_dmabuf_log() {
  return {
      .id = "drv.dmabuf.log",
      .title = "Refused dma-bufs in the kernel's log",
      .why = "The program only sees an errno; the driver writes the reason to the kernel's log.",
      .what =
          "When the NVIDIA driver refuses to hand a dma-buf of GPU memory to another device, it writes 'NVRM: dma-buf attach "
          "failed' with the reason. There are three: the PCI topology, the PCIe mapping type on a machine or pair that has none, "
          "and an importer that cannot do peer-to-peer.",
      .impact = "Registration fails with errno 524, 95 or 22, and the transfer goes another way, slower, or not at all.",
      .confirm =
          "sudo dmesg | grep 'dma-buf attach failed'. Lines stay until the machine restarts, so one may tell of a fault that is "
          "mended by now.",
      .remedy =
          "FORCE_PCIE: export without the PCIe mapping type, or put GPU and adapter into one IOMMU group. 'importer unable to "
          "handle MMIO': newer kernel or RDMA stack. 'PCI topology not supported': see drv.grdma_topo.",
      .source = "NVIDIA open-gpu-kernel-modules, nv_dma_buf_attach in nv-dmabuf.c; kernel Documentation/driver-api/dma-buf.rst."};
}

CheckInfo imex() {
  return {.id = "imex",
          .title = "IMEX channels of multi-node NVLink",
          .why = "Without a channel, GPUs of other machines on the same NVLink fabric cannot be reached.",
          .what =
              "On racks whose NVLink joins several machines (GB200 NVL72 and its like), memory is shared between machines by "
              "handles of type FABRIC. A process may make or import them only when it can open an IMEX channel, "
              "/dev/nvidia-caps-imex-channels/channel0, and the service nvidia-imex runs on every machine of the domain.",
          .impact =
              "cuMemCreate with a FABRIC handle fails with CUDA_ERROR_NOT_PERMITTED; NCCL, NVSHMEM and nvbandwidth then use the "
              "network or stop. A node with the wrong major number fails the same way, though its name looks right.",
          .confirm =
              "grep imex /proc/devices; ls -l /dev/nvidia-caps-imex-channels; systemctl status nvidia-imex; nvidia-imex-ctl -N; "
              "nvidia-smi -q | grep -A 3 Fabric.",
          .remedy =
              "Let the driver make the channel: options nvidia NVreg_CreateImexChannel0=1. Or by hand, until the next boot: sudo "
              "mknod -m 666 /dev/nvidia-caps-imex-channels/channel0 c MAJOR 0 with MAJOR from /proc/devices. Start the service: "
              "sudo systemctl enable --now nvidia-imex. In a container: NVIDIA_IMEX_CHANNELS=0 with the NVIDIA container toolkit.",
          .source =
              "NVIDIA IMEX Service for NVLink Networks guide; NVIDIA open-gpu-kernel-modules, nv-reg.h; nvbandwidth #39, #46; "
              "MSCCL++ #467."};
}

CheckInfo libs() {
  return {
      .id = "libs",
      .title = "Libraries of the devices",
      .why = "A device whose library or provider is missing looks as if it were not there.",
      .what =
          "CUDA needs libcuda.so.1 of the very version of the kernel driver, and facts about GPUs come from libnvidia-ml.so.1. "
          "RDMA needs libibverbs.so.1 and, for each kind of adapter, a provider that a file in /etc/libibverbs.d names.",
      .impact =
          "With a libcuda of another version CUDA starts with error 803. With a missing provider 'ibv_devices' lists nothing "
          "although /sys/class/infiniband does, and libraries use TCP without saying why.",
      .confirm =
          "ldconfig -p | grep -E 'libcuda|libnvidia-ml|libibverbs'; ibv_devices; ls /sys/class/infiniband /etc/libibverbs.d; "
          "nvidia-smi, which names a version mismatch.",
      .remedy =
          "RDMA: sudo apt install libibverbs1 ibverbs-providers, or sudo dnf install libibverbs. CUDA: reboot after a driver "
          "update, so that module and libraries agree; in a container use the NVIDIA container toolkit, which brings the host's "
          "libraries, and install none in the image.",
      .source = "rdma-core, Documentation/libibverbs.md; NVIDIA CUDA compatibility guide; NVIDIA Container Toolkit documentation."};
}

CheckInfo gin() {
  return {
      .id = "gin",
      .title = "Networking started by a GPU",
      .why = "Without these settings every message of a GPU kernel takes a detour over a CPU thread.",
      .what =
          "GPU-initiated networking lets a kernel write work requests and ring the adapter's doorbell by itself. That works with "
          "mlx5 adapters (ConnectX, BlueField), whose doorbell page the driver has to map for the GPU: open kernel modules, with "
          "PeerMappingOverride=1 and EnableStreamMemOPs=1.",
      .impact =
          "cuMemHostRegister of the adapter's page with CU_MEMHOSTREGISTER_IOMEMORY fails, and NVSHMEM's IBGDA, DOCA GPUNetIO, "
          "NCCL's GIN and others stop or use a proxy: a microsecond or more for each message, and a busy CPU core for each GPU.",
      .confirm =
          "grep -E 'EnableStreamMemOPs|RegistryDwords' /proc/driver/nvidia/params; cat /proc/driver/nvidia/version; ibv_devinfo | "
          "grep hca_id.",
      .remedy =
          "In /etc/modprobe.d/nvidia-gin.conf: options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" "
          "NVreg_EnableStreamMemOPs=1. Then sudo update-initramfs -u (or sudo dracut -f), and reboot.",
      .source =
          "NVIDIA NVSHMEM documentation, 'InfiniBand GPUDirect Async (IBGDA)'; NVIDIA DOCA GPUNetIO guide; CUDA driver API, "
          "cuMemHostRegister."};
}

}  // namespace gigabar::doctor::page
