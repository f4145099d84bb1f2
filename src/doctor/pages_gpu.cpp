// SPDX-License-Identifier: Apache-2.0
#include "doctor/pages_gpu.hpp"

namespace gigabar::doctor::page {

CheckInfo gpu_rdma() {
  return {
      .id = "gpu.rdma",
      .title = "GPUDirect RDMA of each GPU",
      .why = "A GPU without it sends and receives only through host memory.",
      .what =
          "CUDA says for each GPU whether other PCI devices can reach its memory (GPU_DIRECT_RDMA_SUPPORTED), whether that memory "
          "can be exported as a dma-buf (DMA_BUF_SUPPORTED), and whether what arrives is visible to the GPU in order. The answer "
          "is the GPU's alone: kernel, adapter and topology have their own say.",
      .impact =
          "On GeForce boards and on integrated GPUs such as GB10 registration of GPU memory fails whatever else is right, and all "
          "traffic takes two more copies. Where writes are not ordered, a program that forgets to flush reads old data.",
      .confirm = "gigabar info; nvidia-smi -q | grep -E 'Product Name|Product Brand'; the program deviceQuery of CUDA's samples.",
      .remedy =
          "Stage through pinned host memory in chunks that overlap with the wire. On integrated GPUs allocate with cudaHostAlloc "
          "and register that. Data-centre and professional boards support GPUDirect RDMA.",
      .source =
          "CUDA driver API, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_*; NVIDIA GPUDirect RDMA documentation, 'Supported systems'; "
          "GDRCopy #139; perftest #269."};
}

CheckInfo gpu_persist() {
  return {.id = "gpu.persist",
          .title = "Persistence mode",
          .why = "Without it each program that comes alone waits seconds for the GPU's start.",
          .what =
              "With persistence mode the driver keeps a GPU ready although no program uses it. Without it the GPU is shut down "
              "when the last program ends and started again for the next.",
          .impact =
              "The first CUDA call takes seconds more, on machines with many GPUs tens of seconds. Clock limits, power limits and "
              "ECC counters that were set or read are lost in between, so that measurements differ from run to run.",
          .confirm = "nvidia-smi -q | grep 'Persistence Mode'; systemctl status nvidia-persistenced.",
          .remedy = "sudo systemctl enable --now nvidia-persistenced. Until the next boot: sudo nvidia-smi -pm 1.",
          .source = "NVIDIA Driver Persistence documentation; nvidia-persistenced(1)."};
}

CheckInfo gpu_mig() {
  return {
      .id = "gpu.mig",
      .title = "Multi-Instance GPU",
      .why = "A GPU that is split into instances has no peer access, and one process sees one instance.",
      .what = "MIG splits a GPU into up to seven instances with memory and processors of their own. Each looks like a smaller GPU.",
      .impact =
          "cuDeviceCanAccessPeer says no, CUDA IPC and NVLink between GPUs are off, and a process sees one instance even when it "
          "was given several. Rates are those of the instance's share.",
      .confirm = "nvidia-smi -L lists instances; nvidia-smi --query-gpu=index,mig.mode.current --format=csv.",
      .remedy =
          "Nothing, when the split is wanted. Else, with no program on the GPU: sudo nvidia-smi -i INDEX -mig 0, and on Ampere "
          "sudo nvidia-smi --gpu-reset -i INDEX.",
      .source = "NVIDIA Multi-Instance GPU user guide, 'Application considerations'; cuda-samples #203."};
}

CheckInfo gpu_ecc() {
  return {.id = "gpu.ecc",
          .title = "Health of the GPU's memory, and Xid errors",
          .why = "A GPU with pending repairs or recent errors may return wrong data or stop in the middle of a job.",
          .what =
              "The driver counts errors of the GPU's memory. Broken rows are remapped and broken pages retired, which takes effect "
              "at the next reset. Faults of any kind are written to the kernel's log as Xid with a number.",
          .impact =
              "While a repair is pending, programs may be given the broken memory and end with an ECC error. When remapping has "
              "failed, the spare rows are used up. Xid 48, 63, 64, 94 and 95 are memory, 74 and 149 NVLink, 79 a GPU off the bus, "
              "119 its system processor; 13, 31, 43 and 45 are mostly the program's fault.",
          .confirm = "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT; sudo dmesg | grep -E 'NVRM: Xid'.",
          .remedy =
              "Pending: end the programs on it, then sudo nvidia-smi --gpu-reset -i INDEX, or reboot. Failed: take the GPU out of "
              "use and ask for a replacement. For Xids follow NVIDIA's page, which has an action for each number.",
          .source = "NVIDIA GPU Memory Error Management; NVIDIA 'Xid Errors'; NVML API reference, nvmlDeviceGetRemappedRows."};
}

CheckInfo gpu_throttle() {
  return {
      .id = "gpu.throttle",
      .title = "What holds the GPU's clocks",
      .why = "A GPU that is too hot or short of power runs slower, and everything measured on it with it.",
      .what =
          "The driver tells why a GPU does not run at its highest clock. Being idle, a power cap or set clocks are normal; "
          "slowdown by heat, by the power brake signal or by hardware is not.",
      .impact =
          "Clocks fall to a half or less. Copy engines and NVLink keep their rate mostly, kernels that move data do not, and all "
          "ranks of a job wait for the slowest GPU.",
      .confirm = "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK, several times under load: the check sees one moment only.",
      .remedy =
          "Cooling: fans, air flow, blanking panels, room temperature. Power: cables, supplies, the chassis's budget (a power "
          "brake is the chassis's signal). Software thermal slowdown below the limit: check nvidia-smi -q -d TEMPERATURE for the "
          "target.",
      .source = "NVML API reference, nvmlClocksEventReasons; nvidia-smi(1), 'Clocks Event Reasons'."};
}

CheckInfo gpu_p2p() {
  return {.id = "gpu.p2p",
          .title = "Peer access between GPUs, read, write and atomics",
          .why = "Without peer access every copy between two GPUs goes through host memory.",
          .what =
              "Peer access lets a GPU reach the memory of another over NVLink or PCIe. The driver decides it for each ordered "
              "pair, and for reading, writing and atomics separately. Over PCIe through a CPU it allows reading only where it "
              "knows the CPU's root ports to do it well, and never atomics.",
          .impact =
              "Without access a copy takes two steps and half the rate or less; kernels that follow a peer's pointer end with an "
              "error. With writing alone, pulling is staged while pushing is direct. Missing atomics matter to kernels that use "
              "them on a peer.",
          .confirm =
              "nvidia-smi topo -p2p r, then w and a (OK; CNS chipset, GNS GPU, TNS topology, DR registry key, NS not supported); "
              "nvidia-smi topo -m; gigabar streams measures both directions.",
          .remedy =
              "Push instead of pull where only writes work. Below one PCI switch switch ACS redirection off (pci.acs), on bare "
              "metal run the IOMMU in pass-through (iommu.mode), in a virtual machine ask its host. Boards whose driver supports "
              "no peer access stage through host memory.",
          .source =
              "CUDA driver API, cuDeviceCanAccessPeer; NVML API reference, nvmlDeviceGetP2PStatus; NVIDIA open-gpu-kernel-modules, "
              "PCIe peer capabilities; open-gpu-kernel-modules #1253."};
}

CheckInfo nvlink() {
  return {
      .id = "nvlink",
      .title = "NVLinks and the NVLink fabric",
      .why = "An inactive link takes its share of the rate, and an unfinished fabric keeps CUDA from starting.",
      .what =
          "NVLinks join GPUs directly, by bridges, or through NVSwitches. With switches a service, the fabric manager, programs "
          "the routes after each start; until it is done the GPUs report their fabric as not started or in progress.",
      .impact =
          "One inactive link of eighteen costs a little of the rate, and the collective waits for the slowest. Without the fabric "
          "manager, or with one of another version than the driver, CUDA's start fails with error 802 (system not ready).",
      .confirm =
          "nvidia-smi nvlink -s; nvidia-smi nvlink -e counts errors; nvidia-smi -q | grep -A 3 Fabric; systemctl status "
          "nvidia-fabricmanager; nvidia-smi topo -m.",
      .remedy =
          "sudo apt install nvidia-fabricmanager-VERSION with the driver's own version, then sudo systemctl enable --now "
          "nvidia-fabricmanager. Inactive links: reset all GPUs of the board together, or power off and on; then reseat the bridge "
          "or the board. Switched off by NVreg_NvLinkDisable: see mod.params.",
      .source =
          "NVIDIA Fabric Manager user guide; NVML API reference, NvLink methods and nvmlDeviceGetGpuFabricInfo; CUDA driver API, "
          "CUDA_ERROR_SYSTEM_NOT_READY."};
}

CheckInfo bar1_size() {
  return {
      .id = "bar1.size",
      .title = "Size of the BAR1 aperture",
      .why = "All that others see of a GPU's memory at a time has to fit into its BAR1.",
      .what =
          "BAR1 is the PCI window onto GPU memory: CPU mappings, network adapters and peers over PCIe go through it. Data-centre "
          "boards have one as large as their memory; others have 256 MiB unless the firmware enables Resizable BAR.",
      .impact =
          "Registering or mapping more than the aperture fails with ENOMEM, or with CUDA's error 'out of memory' although memory "
          "is free. Registration caches thrash. On coherent boards the CPU reaches GPU memory without it.",
      .confirm = "nvidia-smi -q -d MEMORY | grep -A 3 BAR1; lspci -vs ADDRESS, its second memory region.",
      .remedy =
          "In the firmware's set-up enable 'Above 4G Decoding' and 'Resizable BAR', update the board's firmware where it is older, "
          "and reboot. Else register in smaller pieces and release them.",
      .source =
          "PCI Express base specification, 'Resizable BAR'; NVIDIA GPUDirect RDMA documentation, 'BAR sizes'; kernel "
          "Documentation/ABI/testing/sysfs-bus-pci (resource); nv_peer_memory #101; UCX #8049."};
}

CheckInfo bar1_used() {
  return {.id = "bar1.used",
          .title = "Free room in the BAR1 aperture",
          .why = "When the aperture is full, new mappings and registrations fail although GPU memory is free.",
          .what =
              "Every CPU mapping of GPU memory and every registration with a network adapter takes room in BAR1 for as long as it "
              "lives, of all processes together.",
          .impact =
              "ibv_reg_mr and mappings fail with ENOMEM, and libraries change to staging without a word. A process that was killed "
              "gives its room back; one that hangs does not.",
          .confirm = "nvidia-smi -q -d MEMORY | grep -A 3 BAR1; sudo fuser -v /dev/nvidia*.",
          .remedy =
              "End programs that hold mappings they no longer need. Register once and use again instead of registering anew. "
              "Enlarge the aperture (bar1.size).",
          .source = "NVML API reference, nvmlDeviceGetBAR1MemoryInfo; NVIDIA GPUDirect RDMA documentation; libfabric #10502."};
}

}  // namespace gigabar::doctor::page
