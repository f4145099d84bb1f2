// SPDX-License-Identifier: Apache-2.0
// Which paths a machine has, from what its files and drivers say: so the same for this machine and for a captured one.
#include <algorithm>
#include <optional>

#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "doctor/facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr int kMmapVersion = 13030;  // of CUDA: the first that maps its dma-bufs

Availability ok(std::string reason) { return {AvailabilityCode::ok, std::move(reason), {}}; }

Availability not_ok(AvailabilityCode code, std::string reason, std::string remedy = {}) {
  return {code, std::move(reason), std::move(remedy)};
}

// There is no answer, which is not a yes.
Availability untold(const std::string& reason, std::string remedy) {
  return not_ok(AvailabilityCode::driver_unknown, "cannot be told: " + reason, std::move(remedy));
}

// There is none, unless it is hidden.
Availability no_device(const Patient& patient, const char* reason, const char* folder) {
  if (const auto hidden = what_hides(patient, folder)) return untold(statement_of_hidden(*hidden), kShowHidden);
  return not_ok(AvailabilityCode::no_device, reason);
}

using Support = Ruling(const Patient& patient, Findings& findings);

Availability of_support(const Patient& patient, Support* support, AvailabilityCode when_not) {
  Findings unheard("availability");  // nobody asks here for what was read
  const Ruling ruling = support(patient, unheard);
  if (ruling.verdict == Verdict::pass) return ok(ruling.statement);
  if (ruling.verdict == Verdict::fail) return not_ok(when_not, ruling.statement, ruling.remedy);
  return untold(ruling.statement, ruling.remedy);
}

// Why CUDA cannot be used; nothing when it can.
std::optional<Availability> without_cuda(const Patient& patient) {
  if (!has_nvidia(patient)) return no_device(patient, kNoGpu, kPciFolder);
  if (!patient.answers.cuda.is_ok()) return patient.answers.cuda;
  return {};
}

// Why no adapter can be used; nothing when one can.
std::optional<Availability> without_rdma(const Patient& patient) {
  if (rdma_devices(patient).empty()) return no_device(patient, kNoRdma, kInfinibandFolder);
  if (!patient.answers.verbs.is_ok()) return patient.answers.verbs;
  return {};
}

// --- mapping

Availability mapping_by_dmabuf(const Patient& patient) {
  if (auto reason = without_cuda(patient)) return *reason;
  const auto version = patient.answers.cuda_version;
  if (!version) return untold("CUDA did not tell its version", "'nvidia-smi' shows it; 13.3 or newer is needed");
  if (*version < kMmapVersion) {
    return not_ok(AvailabilityCode::driver_too_old,
                  text("the driver supports CUDA ", *version / 1000, ".", *version % 1000 / 10, "; 13.3 is needed"),
                  "install NVIDIA driver 610 or newer");
  }
  for (const GpuAnswers& gpu : patient.answers.gpus) {
    if (const auto able = cuda_attribute(gpu, "dma_buf_mmap")) {
      return *able != 0 ? ok("the driver maps its dma-bufs")
                        : not_ok(AvailabilityCode::not_supported, "the device does not report DMA_BUF_MMAP_SUPPORTED");
    }
  }
  return untold("whether the devices report DMA_BUF_MMAP_SUPPORTED was not asked",
                "'gigabar info' asks each device of this machine");
}

Availability mapping_by_gdrdrv(const Patient& patient) {
  if (auto reason = without_cuda(patient)) return *reason;
  const NodeReport node = look_at_node(patient, "/dev/gdrdrv");
  if (!node.works()) {
    return node.availability("/dev/gdrdrv is missing", "install gdrdrv-dkms, then: sudo modprobe gdrdrv",
                             "sudo chmod a+rw /dev/gdrdrv");
  }
  const auto word = patient.files.word(kGdrdrvVersionFile);
  if (!word) return untold("the version of gdrdrv could not be read", "'modinfo -F version gdrdrv' tells it; 2.5 is needed");
  if (version_of(*word).value_or(Version{}) < kGdrdrvThatKeeps) {
    return not_ok(AvailabilityCode::driver_too_old,
                  text("gdrdrv ", printable(*word, 20), " does not keep freed memory valid; 2.5 is needed"),
                  "install gdrdrv-dkms 2.5 or newer");
  }
  return ok(text("gdrdrv ", printable(*word, 20)));
}

Availability mapping_by_rm(const Patient& patient) {
  if (auto reason = without_cuda(patient)) return *reason;
  return resource_manager_nodes(patient);
}

// --- RDMA on GPU memory

// Why no GPU's memory can be registered, whatever the way; nothing when CUDA says yes, or says nothing.
std::optional<Availability> without_gdr(const Patient& patient) {
  if (!has_nvidia(patient)) return no_device(patient, kNoGpu, kPciFolder);
  if (auto reason = without_rdma(patient)) return reason;
  bool is_told = false;
  for (const GpuAnswers& gpu : patient.answers.gpus) {
    const auto value = cuda_attribute(gpu, "gpu_direct_rdma");
    if (value.value_or(0) != 0) return {};
    is_told = is_told || value.has_value();
  }
  if (!is_told) return {};
  return not_ok(AvailabilityCode::not_supported, "no GPU here supports GPUDirect RDMA", "stage through pinned host memory");
}

Availability gdr_by_dmabuf(const Patient& patient) {
  if (auto reason = without_gdr(patient)) return *reason;
  return of_support(patient, dmabuf, AvailabilityCode::not_supported);
}

Availability gdr_by_peermem(const Patient& patient) {
  if (auto reason = without_gdr(patient)) return *reason;
  return of_support(patient, peermem, AvailabilityCode::no_device);
}

// --- among GPUs

Availability peer_to_peer(const Patient& patient) {
  if (auto reason = without_cuda(patient)) return *reason;
  const std::size_t gpus = std::max(patient.topology.gpus.size(), patient.answers.gpus.size());
  if (gpus < 2) return not_ok(AvailabilityCode::no_device, "there is one GPU, which has no peer");
  std::size_t told = 0, able = 0;
  for (const PeerAnswers& pair : patient.answers.peers) {
    if (pair.can_access) ++told;
    if (pair.can_access.value_or(false)) ++able;
  }
  if (told == 0) return untold("no pair of GPUs was asked", "run this where CUDA works, or: nvidia-smi topo -p2p r");
  if (able == 0) {
    return not_ok(AvailabilityCode::not_supported, text("none of ", told, " ordered pairs of GPUs has peer access"),
                  "'gigabar explain gpu.p2p' tells the reasons there are");
  }
  return ok(text(able, " of ", told, " ordered pairs of GPUs have peer access"));
}

Availability by_nvlink(const Patient& patient) {
  if (!has_nvidia(patient)) return no_device(patient, kNoGpu, kPciFolder);
  NvLinkFacts count;
  bool is_waiting = false;
  for (const Gpu& gpu : patient.topology.gpus) {
    const NvLinkFacts links = nvlinks_of(patient, gpu);
    count.is_told = count.is_told || links.is_told;
    count.total += links.total;
    count.active += links.active;
    is_waiting = is_waiting || links.is_waiting();
  }
  if (is_waiting) {
    return not_ok(AvailabilityCode::not_supported, "the NVLink fabric is not set up",
                  "sudo systemctl enable --now nvidia-fabricmanager");
  }
  if (!count.is_told) return untold("NVML did not say which NVLinks there are", "nvidia-smi nvlink -s");
  if (count.total == 0) return not_ok(AvailabilityCode::no_device, "no GPU here has NVLinks");
  if (count.active == 0) {
    return not_ok(AvailabilityCode::not_supported, text("none of ", count.total, " NVLinks is active"),
                  "mount the NVLink bridge, or remove NVreg_NvLinkDisable");
  }
  return ok(text(count.active, " of ", count.total, " NVLinks are active"));
}

// --- network

Availability by_rdma(const Patient& patient) {
  if (auto reason = without_rdma(patient)) return *reason;
  const auto& listed = patient.answers.rdma_devices;
  const auto is_refused = [](const RdmaDeviceAnswers& device) { return device.error.has_value(); };
  if (!listed.empty() && std::ranges::all_of(listed, is_refused)) {
    return not_ok(AvailabilityCode::no_permission, text("no RDMA device can be opened: ", printable(*listed.front().error)),
                  "'gigabar explain rdma.dev' tells what a device needs");
  }
  std::size_t ports = 0, active = 0, foreign = 0;
  for (const Nic& nic : patient.topology.nics) {
    for (const RdmaPort& port : nic.ports) {
      ++ports;
      const bool is_foreign = transport_of(patient, {&nic, &port}) == RdmaTransport::other;
      if (is_foreign) ++foreign;
      if (!is_foreign && port.state == "ACTIVE") ++active;
    }
  }
  if (ports == 0) return untold("no port's state could be read", "ibv_devinfo, or: cat /sys/class/infiniband/*/ports/*/state");
  if (foreign == ports) {
    return not_ok(AvailabilityCode::not_supported, "no port here is InfiniBand, RoCE or iWARP, which RC queue pairs need",
                  "'gigabar explain rdma.port' tells what can be used instead");
  }
  if (active == 0) {
    return not_ok(AvailabilityCode::not_supported, text("none of ", ports, " RDMA ports is active"),
                  "'gigabar explain rdma.port' tells what brings a port up");
  }
  return ok(text(active, " of ", ports, " RDMA ports are active"));
}

Availability by_gin(const Patient& patient) {
  if (auto reason = without_cuda(patient)) return *reason;
  if (auto reason = without_rdma(patient)) return *reason;
  if (!has_mlx5(patient)) {
    return not_ok(AvailabilityCode::no_device, "no NVIDIA ConnectX or BlueField adapter (mlx5) is here",
                  "a thread of the CPU posts for the GPU");
  }
  return of_support(patient, gin_of_driver, AvailabilityCode::not_supported);
}

}  // namespace

std::vector<PathReport> availability_of(const Patient& patient) {
  return {{"mapping.dmabuf", "CPU mapping of GPU memory by mmap of a dma-buf", mapping_by_dmabuf(patient), "drv.flavour"},
          {"mapping.gdrdrv", "CPU mapping of GPU memory through gdrdrv", mapping_by_gdrdrv(patient), "mod.gdrdrv"},
          {"mapping.rm", "CPU mapping of GPU memory through the resource manager", mapping_by_rm(patient), "drv.loaded"},
          {"gdr.dmabuf", "RDMA on GPU memory, registered by dma-buf", gdr_by_dmabuf(patient), "kern.dmabuf"},
          {"gdr.peermem", "RDMA on GPU memory, registered through nvidia-peermem", gdr_by_peermem(patient), "mod.peermem"},
          {"p2p", "a GPU reaching the memory of another", peer_to_peer(patient), "gpu.p2p"},
          {"nvlink", "NVLink between GPUs", by_nvlink(patient), "nvlink"},
          {"rdma", "RDMA on host memory", by_rdma(patient), "rdma.port"},
          {"gin", "networking started by a GPU", by_gin(patient), "gin"}};
}

}  // namespace gigabar::doctor

namespace gigabar::inline v0 {

std::vector<PathReport> availability(const Machine& machine) try {
  const Uncancelled uncancelled;
  const Result<Topology> found = discover_topology(machine);
  const Topology none;  // most paths follow from files and answers alone
  return doctor::availability_of({machine.files(), machine.answers(), found ? *found : none, machine.is_live()});
} catch (...) {
  return {};
}

}  // namespace gigabar::inline v0
