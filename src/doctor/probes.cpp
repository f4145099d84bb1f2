// SPDX-License-Identifier: Apache-2.0
// What the probes share: checks that do something, on the machine itself. probe.host, probe.dmabuf and probe.peermem: whether
// memory can be registered with each RDMA device, and what an error means. probe.mapping, probe.copy and probe.link: one GPU and
// the CPU.
#include "doctor/probes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <stop_token>
#include <thread>

#include "base/blocked_signals.hpp"
#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/facts.hpp"
#include "driver/cuda/cuda.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/mapping.hpp"
#include "memory/runtime.hpp"
#include "platform/pci_link.hpp"

namespace gigabar::doctor {
namespace {

constexpr const char* kOnlyHere = "only on the machine itself";

Ruling no_gpu(const Patient& patient, Findings& findings) {
  if (environment("GIGABAR_STAND_IN")) return skip("GIGABAR_STAND_IN asks for stand-ins, which are no GPUs");
  if (patient.topology.gpus.empty()) return findings.no_device(patient, "this machine has no GPU");
  const Availability& cuda = cuda::driver().availability;
  findings.reading("libcuda", cuda.reason);
  return unknown(text("the machine has GPUs, but this process cannot use CUDA: ", printable(cuda.reason)), cuda.remedy);
}

Ruling no_rdma(const Patient& patient, const std::string& cause, const std::string& remedy, Findings& findings) {
  if (std::ranges::all_of(patient.topology.nics, &std::string::empty, &Nic::rdma_device))
    return findings.no_device(patient, kNoRdma, kInfinibandFolder);
  findings.reading("libibverbs", cause);
  return unknown(text("the machine has RDMA devices, but this process cannot use them: ", printable(cause)), remedy);
}

// ---- registration of memory

constexpr std::size_t kGpuPageBytes = std::size_t{2} << 20;  // an allocation of its own begins at such a page
constexpr int kKernelNotSupported = 524;                     // ENOTSUPP, which user space has no name for

std::string memlock_of(const Patient& patient) {
  if (!patient.answers.memlock_bytes) return "not known";
  if (*patient.answers.memlock_bytes == UINT64_MAX) return "none";
  return counted(*patient.answers.memlock_bytes, "byte");
}

bool is_memlock_limited(const Patient& patient) {
  return patient.answers.memlock_bytes.value_or(UINT64_MAX) != UINT64_MAX && !patient.answers.can_lock_memory.value_or(false);
}

constexpr const char* kMemlockRemedy =
    "raise the limit of locked memory: 'ulimit -l unlimited' with '* - memlock unlimited' in /etc/security/limits.d, "
    "LimitMEMLOCK=infinity for a service, --ulimit memlock=-1 for a container";

Ruling meaning_for_dma_buf(const Patient&, int code) {
  switch (code) {
    case kKernelNotSupported:
      return fail("the NVIDIA driver refused to let the adapter attach (its own check of the PCI topology, or of the mapping type)",
                  "see the kernel's log (dmesg | grep 'dma-buf attach failed'); use an adapter below the same PCIe switch, or read "
                  "'gigabar explain drv.grdma_topo'");
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOSYS:
      return fail("the adapter's driver, the kernel or rdma-core cannot register dma-bufs",
                  "Linux 5.12 or newer with CONFIG_DMABUF_MOVE_NOTIFY, an adapter whose driver has it (mlx5, efa, irdma, bnxt_re, "
                  "mana), rdma-core 34 or newer; else load nvidia-peermem");
    case ENOMEM:
      return fail("there was no room: in the GPU's BAR1, or in the adapter's tables",
                  "see BAR1 in 'nvidia-smi -q -d MEMORY'; free mappings, or switch on Resizable BAR and Above 4G Decoding");
    case EINVAL:
      return fail("the mapping was refused as invalid (alignment, or a mapping type that the importer cannot take)",
                  "see the kernel's log (dmesg | grep -i dma-buf), and upgrade the adapter's driver");
    case EPERM:
    case EACCES: return fail("this user may not register memory", kMemlockRemedy);
    default: return fail("GPU memory cannot be registered as a dma-buf", "look at the kernel's log (dmesg)");
  }
}

Ruling meaning_for_peer_memory(const Patient&, int code) {
  switch (code) {
    case EFAULT:
      return fail("the kernel cannot pin a GPU pointer: no module gives peer memory to its RDMA core",
                  "modprobe nvidia-peermem (it needs an RDMA core with the peer memory interface, as in DOCA-OFED); upstream "
                  "kernels have none: use dma-buf there");
    case ENOMEM:
      return fail("nvidia-peermem is there, and there was no room in the GPU's BAR1 or in the adapter's tables",
                  "see BAR1 in 'nvidia-smi -q -d MEMORY'; free mappings, or switch on Resizable BAR and Above 4G Decoding");
    case EINVAL:
      return fail(
          "the registration of a GPU pointer was refused as invalid: the memory is not of a kind that can be pinned, or the driver "
          "denies it",
          "look at the kernel's log (dmesg | grep -i -e nvrm -e peermem)");
    case EPERM:
    case EACCES: return fail("this user may not pin memory", kMemlockRemedy);
    default: return fail("a GPU pointer cannot be registered", "look at the kernel's log (dmesg | grep -i peermem)");
  }
}

std::string code_text(const ErrorRecord& record) {
  return record.native.name.empty() ? std::string(name_of(record.status)) : text(record.native.name, " ", record.native.code);
}

void note(Findings& findings, std::string_view call, const Result<verbs::Region>& result) {
  findings.reading(call, result ? "registered" : code_text(result.error().record()));
}

// Each adapter that could reach GPU memory: one of software is the CPU under another name.
std::vector<std::string> hardware_devices(const Patient& patient, Findings& findings) {
  std::vector<std::string> names = probe_rdma_devices(patient, findings);
  const auto erased = std::erase_if(names, [&](const std::string& name) {
    const Nic* const nic = nic_of(patient, name);
    return nic != nullptr && is_software(*nic);
  });
  if (names.empty() && erased > 0)
    throw skip("the RDMA devices of this machine are software, which copies by the CPU and cannot reach GPU memory");
  return names;
}

Ruling cannot_open(const std::string& name, const ErrorRecord& record, Findings& findings) {
  findings.reading(text("ibv_open_device(", name, ")"), code_text(record));
  return unknown(text("it could not be opened, so nothing was tried: ", printable(record.cause)),
                 record.remedy.empty() ? "see what rdma.dev says of it ('gigabar explain rdma.dev')" : record.remedy);
}

Ruling judge_dma_buf(const Patient& patient, const verbs::Device& device, const ProbeMemory& memory, Findings& findings) {
  const auto region = memory.register_dma_buf(device);
  note(findings, "ibv_reg_dmabuf_mr(64 KiB)", region);
  if (region) return pass("GPU memory can be registered as a dma-buf");
  const Ruling why = explain(patient, meaning_for_dma_buf, region.error().record());
  if (memory.register_peer_memory(device))
    return warn(text("no dma-buf: ", why.statement, "; nvidia-peermem works in its place"), why.remedy);
  return fail(text("no dma-buf: ", why.statement), why.remedy);
}

Ruling judge_peer_memory(const Patient& patient, const verbs::Device& device, const ProbeMemory& memory, Findings& findings) {
  const auto region = memory.register_peer_memory(device);
  note(findings, "ibv_reg_mr(64 KiB of GPU memory)", region);
  if (region) return pass("a GPU pointer can be registered (nvidia-peermem)");
  const Ruling why = explain(patient, meaning_for_peer_memory, region.error().record());
  const auto dma_buf = memory.register_dma_buf(device);
  note(findings, "ibv_reg_dmabuf_mr(64 KiB)", dma_buf);
  if (dma_buf) return pass("not available, and not needed: dma-buf works for this pair (", why.statement, ")");
  return fail(text(why.statement, "; dma-buf does not work either"), why.remedy);
}

using Judge = Ruling(const Patient&, const verbs::Device&, const ProbeMemory&, Findings&);

MaybeRuling try_pairs(const Patient& patient, Findings& findings, Judge judge) {
  const std::vector<std::string> names = hardware_devices(patient, findings);
  const std::vector<ProbeGpu> gpus = probe_gpus(patient, findings);
  std::vector<verbs::Device> devices;
  for (const std::string& name : names) {
    if (auto device = verbs::Device::open(name)) {
      devices.push_back(std::move(*device));
    } else {
      findings.say(name, cannot_open(name, device.error().record(), findings));
    }
  }
  for (const ProbeGpu& gpu : gpus) {
    findings.say_what(gpu.subject(), [&]() -> MaybeRuling {
      const ProbeMemory memory = ProbeMemory::allocate(gpu);
      for (const verbs::Device& device : devices)
        findings.say(pair_subject(gpu, device.name()), judge(patient, device, memory, findings));
      return {};
    });
  }
  return {};
}

Ruling try_host_registration_of(const Patient& patient, const std::string& name, Findings& findings) {
  const auto device = verbs::Device::open(name);
  if (!device) return cannot_open(name, device.error().record(), findings);
  const auto memory = HostMemory::allocate(kProbeBytes, {.pages = HostPages::pageable});
  if (!memory)
    return unknown(text("host memory for the probe could not be allocated: ", printable(memory.error().record().cause)),
                   "free memory, and try again");
  const auto region = device->register_memory(memory->address(), kProbeBytes);
  note(findings, "ibv_reg_mr(64 KiB of host memory)", region);
  findings.reading("RLIMIT_MEMLOCK", memlock_of(patient));
  return region ? pass("host memory can be registered") : explain(patient, meaning_for_host_memory, region.error().record());
}

// Without a remedy the usual one.
Ruling cannot_allocate(const std::string& cause, const std::string& remedy) {
  return unknown(text("GPU memory for the probe could not be allocated: ", printable(cause)),
                 remedy.empty() ? "see who uses the GPU (nvidia-smi), and try again when it has memory to spare" : remedy);
}

Result<Descriptor> export_of(const DeviceMemory& memory) {
  auto descriptor = memory.export_dma_buf();
  if (!descriptor) return std::move(descriptor).error();
  return Descriptor(*descriptor);
}

struct MappedMemory {
  DeviceMemory memory;
  Mapping mapping;
};

MappedMemory map_memory(const ProbeGpu& gpu, Findings& findings) {
  auto memory = DeviceMemory::allocate(gpu.device, kProbeBytes);
  if (!memory) throw cannot_allocate(memory.error().record().cause, memory.error().record().remedy);
  auto mapping = map(memory->address(), kProbeBytes);
  if (mapping) return {std::move(*memory), std::move(*mapping)};
  const ErrorRecord& record = mapping.error().record();
  findings.reading(text("map(", kProbeBytes, " bytes)"), text(name_of(record.status), " ", record.native.name));
  throw fail(text("its memory cannot be mapped for the CPU: ", printable(record.cause)),
             record.remedy.empty() ? "see 'gigabar info' for the state of each way to map" : record.remedy);
}

std::uintptr_t address_of(const MappedMemory& mapped) { return reinterpret_cast<std::uintptr_t>(mapped.memory.address()); }

void expect_done(const std::string& step, const Result<void>& done, Findings& findings) {
  if (done) return;
  const ErrorRecord& record = done.record();
  findings.reading(step, text(name_of(record.status), " ", record.native.name));
  throw fail(text(step, " failed: ", printable(record.cause)),
             record.remedy.empty() ? "look for Xid lines in the kernel's log (dmesg)" : record.remedy);
}

void expect_same(const std::vector<unsigned char>& seen, const std::vector<unsigned char>& wanted, const char* otherwise) {
  if (seen != wanted)
    throw fail(
        otherwise,
        "do not trust this path: unset GIGABAR_MAPPING or choose another way to map with it, and report the driver's version");
}

// What the CPU stores, the GPU's copy engine must find, and the other way round.
void expect_intact_data(const ProbeGpu& gpu, const MappedMemory& mapped, Findings& findings) {
  std::vector<unsigned char> seen(kProbeBytes);
  const auto written = probe_pattern(kProbeBytes, 1), stored = probe_pattern(kProbeBytes, 2);
  expect_done("copy_to", copy_to(mapped.mapping, 0, written.data(), kProbeBytes), findings);
  expect_done("the copy engine", engine_copy_from(gpu.device, seen.data(), address_of(mapped), kProbeBytes), findings);
  expect_same(seen, written, "what the CPU wrote through the mapping is not what the GPU holds");
  expect_done("the copy engine", engine_copy_to(gpu.device, address_of(mapped), stored.data(), kProbeBytes), findings);
  expect_done("copy_from", copy_from(mapped.mapping, 0, seen.data(), kProbeBytes), findings);
  expect_same(seen, stored, "what the CPU reads through the mapping is not what the GPU holds");
}

Ruling try_mapping_of(const Patient&, const ProbeGpu& gpu, Findings& findings) {
  const MappedMemory mapped = map_memory(gpu, findings);
  for (const PassedOver& other : mapped.mapping.report().passed_over)
    findings.reading(text("mapping by ", name_of(other.backend)), other.why.reason);
  findings.reading("mapping", text(name_of(mapped.mapping.backend()), ", ", name_of(mapped.mapping.type())));
  expect_intact_data(gpu, mapped, findings);
  return pass("64 KiB of its memory were mapped by '", name_of(mapped.mapping.backend()),
              "'; CPU and GPU see the same data in both directions");
}

constexpr std::size_t kCopyBytes = 4096;
constexpr int kRepeats = 15;

// Median of kRepeats calls in microseconds.
template <class Call>
double median_us(const char* name, Findings& findings, Call call) {
  std::array<std::int64_t, kRepeats> times{};
  for (std::int64_t& time : times) {
    const std::int64_t begin_ns = now_ns();
    const Result<void> done = call();
    time = now_ns() - begin_ns;
    expect_done(name, done, findings);
  }
  std::ranges::nth_element(times, times.begin() + kRepeats / 2);
  return static_cast<double>(times[kRepeats / 2]) / 1000;
}

Ruling try_copy_of(const Patient&, const ProbeGpu& gpu, Findings& findings) {
  const MappedMemory mapped = map_memory(gpu, findings);
  const auto sent = probe_pattern(kCopyBytes, 3);
  std::vector<unsigned char> received(kCopyBytes);
  const double to_us = median_us("copy_to", findings, [&] { return copy_to(mapped.mapping, 64, sent.data(), kCopyBytes); });
  const double from_us =
      median_us("copy_from", findings, [&] { return copy_from(mapped.mapping, 64, received.data(), kCopyBytes); });
  findings.reading("copy_to(4096 bytes)", short_number(to_us) + " us, median of 15");
  findings.reading("copy_from(4096 bytes)", short_number(from_us) + " us, median of 15");
  expect_same(received, sent, "4 KiB that were written to its memory came back different");
  return pass("4 KiB are written in ", short_number(to_us), " us and read in ", short_number(from_us),
              " us by the CPU, and come back unchanged");
}

// ---- probe.link

constexpr std::size_t kLoadBytes = std::size_t{8} << 20;
constexpr auto kLoadTime = std::chrono::milliseconds(400);
constexpr auto kSampleTime = std::chrono::milliseconds(10);

std::optional<PcieLink> link_now(const ProbeGpu& gpu) { return pcie_path(gpu.address).front().link; }

// That both ends of the link can do: as the driver says, else as the PCI tree says.
std::optional<PcieLink> best_link(const Patient& patient, const ProbeGpu& gpu) {
  for (const GpuAnswers& answers : patient.answers.gpus) {
    if (answers.pci == gpu.address.to_string() && answers.pcie_most_generation && answers.pcie_most_width)
      return pcie_link_of_generation(*answers.pcie_most_generation, *answers.pcie_most_width);
  }
  const std::vector<int> way = way_up(patient.topology, patient.topology.find_pci(gpu.address));
  if (way.empty()) return {};
  const PciLinkFacts& own = node_of(patient.topology, way[0]).link;
  const PciLinkFacts& above = node_of(patient.topology, way[way.size() > 1 ? 1 : 0]).link;
  const bool is_told = above.most_gt_per_s > 0 && above.most_width > 0;
  return pcie_link_of_speed(is_told ? std::min(own.most_gt_per_s, above.most_gt_per_s) : own.most_gt_per_s,
                            is_told ? std::min(own.most_width, above.most_width) : own.most_width);
}

// Copies of the copy engine on a thread of their own, for as long as the object lives.
class Load {
 public:
  Load(int device, std::uintptr_t destination) {
    const BlockedSignals blocked;
    thread_ = std::jthread([this, device, destination](const std::stop_token& stop) { run(device, destination, stop); });
  }

  bool has_failed() const { return has_failed_; }

 private:
  void run(int device, std::uintptr_t destination, const std::stop_token& stop) noexcept try {
    const std::vector<unsigned char> bytes(kLoadBytes, 0x5a);
    while (!stop.stop_requested() && !has_failed_)
      has_failed_ = !engine_copy_to(device, destination, bytes.data(), bytes.size()).is_ok();
  } catch (...) {
    has_failed_ = true;
  }

  std::atomic<bool> has_failed_ = false;
  std::jthread thread_;  // the last member: asked to end, and joined, before the other is gone
};

// The fastest that the link was seen at while data went over it.
std::optional<PcieLink> link_under_load(const ProbeGpu& gpu, const Load& load, const std::optional<PcieLink>& best) {
  const Deadline deadline = Deadline::after_ns(std::chrono::nanoseconds(kLoadTime).count());
  std::optional<PcieLink> seen;
  while (!deadline.has_passed() && !load.has_failed()) {
    std::this_thread::sleep_for(kSampleTime);
    const auto now = link_now(gpu);
    if (now && (!seen || now->gb_per_s() > seen->gb_per_s())) seen = now;
    if (seen && best && seen->gb_per_s() >= best->gb_per_s()) break;
  }
  return seen;
}

Ruling judge_link(const std::optional<PcieLink>& idle, const std::optional<PcieLink>& busy, const std::optional<PcieLink>& best,
                  Findings& findings) {
  findings.reading("link, idle", idle ? idle->name() : "not told");
  findings.reading("link, while the copy engine works", busy ? busy->name() : "not told");
  findings.reading("link, the most that GPU and slot can do", best ? best->name() : "not told");
  const char* const how_to_find_out =
      "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv";
  if (!busy) return unknown("neither the kernel nor the driver tells how its PCIe link runs", how_to_find_out);
  if (!best) return unknown(text("its link runs as ", busy->name(), " under load; what it could do is not told"), how_to_find_out);
  if (busy->gb_per_s() >= best->gb_per_s() && busy->width >= best->width) {
    const bool has_slept = idle && idle->gb_per_s() < busy->gb_per_s();
    return pass("its link runs as ", busy->name(), " under load, the most that GPU and slot can do",
                has_slept ? "; when idle it saves power as " + idle->name() : std::string());
  }
  return warn(text("its link runs as ", busy->name(), " under load, where GPU and slot can do ", best->name()),
              busy->width < best->width
                  ? "reseat the card and its riser, and check the firmware's bifurcation of the slot; then look at 'lspci -vv' "
                    "(LnkCap, LnkSta) of the GPU and of the port above it"
                  : "check the firmware's limit of the slot's speed and the kernel's log for AER lines (dmesg | grep -i aer); a "
                    "link that trained down after errors often comes back after the card was reseated");
}

Ruling try_link_of(const Patient& patient, const ProbeGpu& gpu, Findings& findings) {
  const auto best = best_link(patient, gpu);
  const auto idle = link_now(gpu);
  const auto memory = DeviceMemory::allocate(gpu.device, kLoadBytes);
  if (!memory) return cannot_allocate(memory.error().record().cause, memory.error().record().remedy);
  std::optional<PcieLink> busy;
  {
    const Load load(gpu.device, reinterpret_cast<std::uintptr_t>(memory->address()));
    busy = link_under_load(gpu, load, best);
    if (load.has_failed())
      return fail("its copy engine failed while the link was watched", "look for Xid lines in the kernel's log (dmesg)");
  }
  return judge_link(idle, busy, best, findings);
}

using GpuProbe = Ruling(const Patient& patient, const ProbeGpu& gpu, Findings& findings);

MaybeRuling try_each(const Patient& patient, Findings& findings, GpuProbe probe) {
  for (const ProbeGpu& gpu : probe_gpus(patient, findings))
    findings.say_what(gpu.subject(), [&] { return probe(patient, gpu, findings); });
  return {};
}

}  // namespace

std::vector<ProbeGpu> probe_gpus(const Patient& patient, Findings& findings) {
  if (!patient.is_live) throw skip(kOnlyHere);
  const auto all = devices();
  if (!all)
    throw unknown(text("the GPUs of this process cannot be listed: ", printable(all.error().record().cause)),
                  all.error().record().remedy);
  std::vector<ProbeGpu> gpus;
  for (const DeviceInfo& device : *all) {
    if (device.is_stand_in || !device.pci) continue;
    const auto& known = patient.topology.gpus;
    const auto found = std::ranges::find(known, *device.pci, &Gpu::address);
    gpus.push_back({device.index, *device.pci, found == known.end() ? -1 : static_cast<int>(found - known.begin())});
  }
  if (gpus.empty()) throw no_gpu(patient, findings);
  return gpus;
}

std::vector<std::string> probe_rdma_devices(const Patient& patient, Findings& findings) {
  if (!patient.is_live) throw skip(kOnlyHere);
  auto names = verbs::device_names();
  if (!names) throw no_rdma(patient, names.error().record().cause, names.error().record().remedy, findings);
  if (!names->empty()) return std::move(*names);
  throw no_rdma(patient, "libibverbs finds none",
                "install the devices' provider libraries (package ibverbs-providers), and in a container pass /dev/infiniband",
                findings);
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

std::string short_number(double number) { return rounded(number, number < 10 ? 2 : 1); }

ProbeMemory::ProbeMemory(DeviceMemory memory) : memory_(std::move(memory)), dma_buf_(export_of(memory_)) {}

ProbeMemory ProbeMemory::allocate(const ProbeGpu& gpu) {
  auto memory = DeviceMemory::allocate(gpu.device, kGpuPageBytes);
  if (!memory) throw cannot_allocate(memory.error().record().cause, {});
  return ProbeMemory(std::move(*memory));
}

Result<verbs::Region> ProbeMemory::register_dma_buf(const verbs::Device& device) const {
  if (!dma_buf_) return dma_buf_.error();
  return device.register_dma_buf(dma_buf_->get(), kProbeBytes, address());
}

Result<verbs::Region> ProbeMemory::register_peer_memory(const verbs::Device& device) const {
  return device.register_memory(memory_.address(), kProbeBytes);
}

Ruling meaning_for_host_memory(const Patient& patient, int code) {
  switch (code) {
    case ENOMEM:
    case EPERM:
    case EAGAIN:
      if (is_memlock_limited(patient))
        return fail(text("host memory cannot be pinned; the limit of locked memory is ", memlock_of(patient)), kMemlockRemedy);
      return fail("the kernel or the device has no room to pin host memory, although no limit of locked memory is in force",
                  "look at the kernel's log (dmesg), at the memory cgroup and at the rdma cgroup's limits of this process");
    case EFAULT:
      return fail("the kernel could not pin pages of ordinary host memory", "look at the kernel's log (dmesg) for the device");
    case EINVAL:
      return fail("the device refuses a plain registration of host memory",
                  "check that rdma-core's provider fits the kernel's driver (ibv_devinfo -v; upgrade both together)");
    default: return fail("host memory cannot be registered", "look at the kernel's log (dmesg) for the device");
  }
}

Ruling explain(const Patient& patient, Meaning meaning, const ErrorRecord& record) {
  if (record.native.domain != NativeDomain::system_errno)
    return fail(text("it was refused before the adapter was asked: ", printable(record.cause)),
                record.remedy.empty() ? "see 'gigabar explain gpu.rdma'" : record.remedy);
  Ruling found = meaning(patient, static_cast<int>(record.native.code));
  found.statement += text(" (", code_text(record), ")");
  return found;
}

MaybeRuling try_host_registration(const Patient& patient, Findings& findings) {
  for (const std::string& name : probe_rdma_devices(patient, findings))
    findings.say(name, try_host_registration_of(patient, name, findings));
  return {};
}

MaybeRuling try_dma_buf(const Patient& patient, Findings& findings) { return try_pairs(patient, findings, judge_dma_buf); }
MaybeRuling try_peer_memory(const Patient& patient, Findings& findings) { return try_pairs(patient, findings, judge_peer_memory); }

MaybeRuling try_mapping(const Patient& patient, Findings& findings) { return try_each(patient, findings, try_mapping_of); }
MaybeRuling try_copy(const Patient& patient, Findings& findings) { return try_each(patient, findings, try_copy_of); }
MaybeRuling try_link(const Patient& patient, Findings& findings) { return try_each(patient, findings, try_link_of); }

}  // namespace gigabar::doctor
