// SPDX-License-Identifier: Apache-2.0
// The probes: checks that do something, on the machine itself. Their table, and what they share.
#include "doctor/probes.hpp"

#include <algorithm>
#include <cstdio>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "driver/cuda/cuda.hpp"

namespace gigabar::doctor {
namespace {

constexpr const char* kOnlyHere = "only on the machine itself";

void no_gpu(const Patient& patient, Findings& findings) {
  if (environment("GIGABAR_STAND_IN")) return findings.skip("GIGABAR_STAND_IN asks for stand-ins, which are no GPUs");
  if (patient.topology.gpus.empty()) return findings.skip("this machine has no GPU");
  const Availability& cuda = cuda::driver().availability;
  findings.reading("libcuda", cuda.reason);
  findings.unknown({}, text("the machine has GPUs, but this process cannot use CUDA: ", printable(cuda.reason)), cuda.remedy);
}

void no_rdma(const Patient& patient, const std::string& cause, const std::string& remedy, Findings& findings) {
  const bool has_device = std::any_of(patient.topology.nics.begin(), patient.topology.nics.end(),
                                      [](const Nic& nic) { return !nic.rdma_device.empty(); });
  if (!has_device) return findings.skip("this machine has no RDMA device");
  findings.reading("libibverbs", cause);
  findings.unknown({}, text("the machine has RDMA devices, but this process cannot use them: ", printable(cause)), remedy);
}

constexpr Check kProbes[] = {
    {{"probe.mapping", "GPU memory mapped for the CPU", "Small transfers by the CPU need a mapping that shows the right memory.",
      true,
      "64 KiB of each GPU are allocated, mapped, written by the CPU and read by the GPU's copy engine, then the other way "
      "round. The first way to map that works is used: dma-buf, gdrdrv or the resource manager.",
      "Without a mapping, small messages cost a copy engine's start (5 to 10 us) where stores of the CPU take below 1 us. A "
      "mapping that shows other memory corrupts data silently.",
      "'gigabar info' lists the ways to map with the reason why each is not usable; 'gigabar sanity' tries them in depth.",
      "A way that is not there: load gdrdrv (modprobe gdrdrv), or use a driver whose resource manager interface Gigabar knows. "
      "No room in BAR1: free mappings, or enable Resizable BAR in the firmware. In a container: pass /dev/nvidiactl and "
      "/dev/nvidia0.",
      "NVIDIA GPUDirect RDMA documentation (BAR1, pinning); GDRCopy's README; CUDA driver API, cuMemGetHandleForAddressRange."},
     try_mapping},
    {{"probe.copy", "Small copies by the CPU", "It shows in microseconds what a small message costs on this machine.", true,
      "4 KiB are copied by the CPU to mapped GPU memory and back, 15 times each, and compared. The median times are told.",
      "Writes that take more than a few microseconds point at an uncached mapping, a far NUMA node or a slow link. Reads are "
      "slow by nature: each 64 bytes are a round trip over PCIe.",
      "'gigabar copylat' and 'gigabar copybw' measure all sizes; run them below 'numactl --cpunodebind' of the GPU's node to "
      "see the effect of distance.",
      "Run on CPUs of the GPU's NUMA node (numa.cpu), keep the CPU's clock up (cpu.governor), and let 'gigabar calibrate' "
      "choose the copy kernels.",
      "Intel SDM volume 1, section 10.4.6 (write combining); PCI Express Base Specification, section 2.4 (ordering)."},
     try_copy},
    {{"probe.link", "PCIe link of each GPU under load",
      "A link that trained down halves every transfer, and an idle one only looks so.", true,
      "The speed and width of each GPU's PCIe link are read while a copy engine moves data, and compared with what GPU and slot "
      "can do together. An idle GPU lowers its link's speed to save power, so that a reading without load tells nothing.",
      "A link of half the width, or of the generation below, carries half the data. It is easily overlooked, since everything "
      "works.",
      "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv "
      "while a copy runs; 'lspci -vv' shows LnkCap and LnkSta of both ends as root.",
      "Reseat the card or riser, check the bifurcation and the speed limit of the slot in the firmware's setup, and look for "
      "corrected errors (dmesg | grep -i aer) that made the link train down.",
      "Kernel Documentation/ABI/testing/sysfs-bus-pci (current_link_speed); NVML, nvmlDeviceGetCurrPcieLinkGeneration; nvtop "
      "#6 and hwloc #653 on idle links."},
     try_link},
    {{"probe.host", "Registration of host memory", "Nothing of RDMA works when ordinary memory cannot be registered.", true,
      "64 KiB of ordinary host memory are registered with each RDMA device by ibv_reg_mr, and released.",
      "Registration pins pages. When the limit of locked memory is too low, libraries fail at start or fall back to TCP without "
      "saying so.",
      "'ulimit -l' shows the limit of locked memory; 'ibv_devinfo' shows whether the device can be opened; 'ibv_rc_pingpong' "
      "between two shells uses it.",
      "Raise the limit: '* - memlock unlimited' in /etc/security/limits.d, LimitMEMLOCK=infinity for a service, --ulimit "
      "memlock=-1 for a container. Pass /dev/infiniband into a container.",
      "ibv_reg_mr(3); getrlimit(2), RLIMIT_MEMLOCK; capabilities(7), CAP_IPC_LOCK."},
     try_host_registration},
    {{"probe.dmabuf", "Registration of GPU memory as a dma-buf",
      "It is the modern way of GPUDirect RDMA, and attributes alone do not prove it.", true,
      "64 KiB of each GPU are exported as a dma-buf and registered with each RDMA device by ibv_reg_dmabuf_mr. Every pair is "
      "tried, since the driver decides by pair.",
      "Without it (and without nvidia-peermem) every transfer from and to GPU memory is staged through host memory, at half the "
      "rate or less, often without a word in the logs.",
      "'ib_write_bw --use_cuda=0 --use_cuda_dmabuf' of perftest does the same. errno 95 or 93: the adapter's driver, kernel or "
      "rdma-core cannot; 524: the NVIDIA driver refused the pair, see 'dmesg | grep dma-buf'; 12: no room in BAR1; 22: a "
      "mapping that the importer cannot take.",
      "NVIDIA's open kernel modules (515 or newer), Linux 5.12 or newer with CONFIG_DMABUF_MOVE_NOTIFY, rdma-core 34 or newer "
      "and an adapter whose driver imports dma-bufs (mlx5, efa, irdma, bnxt_re, mana). Else load nvidia-peermem.",
      "ibv_reg_dmabuf_mr(3); NVIDIA GPUDirect RDMA documentation; CUDA driver API, cuMemGetHandleForAddressRange; libfabric "
      "#12409; UCX #11002."},
     try_dma_buf},
    {{"probe.peermem", "Registration of a GPU pointer (nvidia-peermem)", "Software that does not know dma-bufs needs it.", true,
      "A pointer to GPU memory is given to ibv_reg_mr of each RDMA device. It succeeds only when nvidia-peermem is loaded into "
      "an RDMA core that knows peer memory. It is no fault when it fails and dma-buf works.",
      "Older releases of MPI, UCX, NCCL and perftest know only this way, and stage through host memory, or end with 'Couldn't "
      "allocate MR', when it is not there.",
      "'lsmod | grep peermem' shows the module; 'ib_write_bw --use_cuda=0' of perftest uses it. errno 14 (EFAULT) means that "
      "nobody claimed the GPU's address.",
      "modprobe nvidia-peermem. 'Invalid argument' there: the NVIDIA driver was built before the RDMA stack; install DOCA-OFED "
      "first, then the driver again. On upstream kernels, which have no peer memory, use dma-buf.",
      "NVIDIA driver README, chapter GPUDirect RDMA peer memory client; nv_peer_memory #28, #63 and #116."},
     try_peer_memory},
    {{"probe.loop", "RDMA of an adapter with itself", "It shows wrong data and slow paths before an application meets them.", true,
      "Each adapter is connected with itself (RC) and writes and reads 64 KiB: first between buffers of host memory, then into "
      "and out of the memory of each GPU. The data are compared, and up to 256 transfers give a rate. iWARP adapters are left "
      "out, which connect by rdma_cm only, and EFA and usNIC, which have no RC queue pairs.",
      "A GPU path below 0.7 of the rate of host memory on the nearest adapter means a detour: ACS sends it through the root "
      "port, the IOMMU translates it, or CPUs lie between. Wrong data mean that results cannot be trusted.",
      "'ib_write_bw' and 'ib_read_bw' of perftest, with --use_cuda and without, from the machine to itself; 'gigabar topology' "
      "shows what lies between.",
      "Switch ACS redirection off below a common switch (pci.acs), set the IOMMU to pass-through (iommu.mode), use the adapter "
      "that is nearest to the GPU (pci.topo), allow relaxed ordering (pci.ro).",
      "perftest #241; NCCL #199 and #629; UCX #8062; InfiniBand Architecture Specification, volume 1, chapter 9 (RC)."},
     try_loop},
};

}  // namespace

std::span<const Check> probe_checks() { return kProbes; }

std::vector<ProbeGpu> probe_gpus(const Patient& patient, Findings& findings) {
  std::vector<ProbeGpu> gpus;
  if (!patient.is_live) {
    findings.skip(kOnlyHere);
    return gpus;
  }
  const auto all = devices();
  if (!all) {
    const ErrorRecord& record = all.error().record();
    findings.unknown({}, text("the GPUs of this process cannot be listed: ", printable(record.cause)), record.remedy);
    return gpus;
  }
  for (const DeviceInfo& device : *all) {
    if (device.is_stand_in || !device.pci) continue;
    const auto& known = patient.topology.gpus;
    const auto found = std::find_if(known.begin(), known.end(), [&](const Gpu& gpu) { return gpu.address == *device.pci; });
    gpus.push_back({device.index, *device.pci, found == known.end() ? -1 : static_cast<int>(found - known.begin())});
  }
  if (gpus.empty()) no_gpu(patient, findings);
  return gpus;
}

std::vector<std::string> probe_rdma_devices(const Patient& patient, Findings& findings) {
  if (!patient.is_live) {
    findings.skip(kOnlyHere);
    return {};
  }
  auto names = verbs::device_names();
  if (!names) {
    no_rdma(patient, names.error().record().cause, names.error().record().remedy, findings);
    return {};
  }
  if (names->empty())
    no_rdma(patient, "libibverbs finds none",
            "install the devices' provider libraries (package ibverbs-providers), and in a container pass /dev/infiniband",
            findings);
  return std::move(*names);
}

const Nic* nic_of(const Patient& patient, const std::string& rdma_device) {
  const auto& nics = patient.topology.nics;
  const auto found = std::find_if(nics.begin(), nics.end(), [&](const Nic& nic) { return nic.rdma_device == rdma_device; });
  return found == nics.end() ? nullptr : &*found;
}

std::string pair_subject(const ProbeGpu& gpu, const std::string& rdma_device) {
  return text(gpu.subject(), " and ", printable(rdma_device, 64));
}

std::vector<unsigned char> probe_pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> pattern(bytes);
  std::uint32_t state = 0x9e3779b9U * (seed + 1);
  for (unsigned char& byte : pattern) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator: the upper bits vary
    byte = static_cast<unsigned char>(state >> 24);
  }
  return pattern;
}

std::string short_number(double number) {
  char line[32] = {};
  std::snprintf(line, sizeof line, number < 10 ? "%.2f" : "%.1f", number);
  return line;
}

}  // namespace gigabar::doctor
