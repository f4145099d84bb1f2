// SPDX-License-Identifier: Apache-2.0
// probe.mapping, probe.copy and probe.link: one GPU and the CPU.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/blocked_signals.hpp"
#include "base/clock.hpp"
#include "base/errors.hpp"
#include "doctor/pci_facts.hpp"
#include "doctor/probes.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/mapping.hpp"
#include "memory/runtime.hpp"
#include "platform/pci_link.hpp"

namespace gigabar::doctor {
namespace {

// GPU memory and its mapping; nothing after a finding that says why not.
struct MappedMemory {
  DeviceMemory memory;
  Mapping mapping;
};

std::optional<MappedMemory> map_memory(const ProbeGpu& gpu, Findings& findings) {
  auto memory = DeviceMemory::allocate(gpu.device, kProbeBytes);
  if (!memory) {
    cannot_allocate(gpu, memory.error().record().cause, memory.error().record().remedy, findings);
    return {};
  }
  auto mapping = map(memory->address(), kProbeBytes);
  if (!mapping) {
    const ErrorRecord& record = mapping.error().record();
    findings.reading(text("map(", kProbeBytes, " bytes)"), text(name_of(record.status), " ", record.native.name));
    findings.fail(gpu.subject(), text("its memory cannot be mapped for the CPU: ", printable(record.cause)),
                  record.remedy.empty() ? "see 'gigabar info' for the state of each way to map" : record.remedy);
    return {};
  }
  return MappedMemory{std::move(*memory), std::move(*mapping)};
}

std::uintptr_t address_of(const MappedMemory& mapped) { return reinterpret_cast<std::uintptr_t>(mapped.memory.address()); }

// Whether a step of a probe worked; says it when it did not.
bool is_done(const ProbeGpu& gpu, const std::string& step, const Result<void>& done, Findings& findings) {
  if (done) return true;
  const ErrorRecord& record = done.record();
  findings.reading(step, text(name_of(record.status), " ", record.native.name));
  findings.fail(gpu.subject(), text(step, " failed: ", printable(record.cause)),
                record.remedy.empty() ? "look for Xid lines in the kernel's log (dmesg)" : record.remedy);
  return false;
}

bool is_right(const ProbeGpu& gpu, bool is_same, const char* otherwise, Findings& findings) {
  if (is_same) return true;
  findings.fail(
      gpu.subject(), otherwise,
      "do not trust this path: unset GIGABAR_MAPPING or choose another way to map with it, and report the driver's version");
  return false;
}

// What the CPU stores, the GPU's copy engine must find, and the other way round.
bool is_data_intact(const ProbeGpu& gpu, const MappedMemory& mapped, Findings& findings) {
  std::vector<unsigned char> seen(kProbeBytes);
  const auto written = probe_pattern(kProbeBytes, 1), stored = probe_pattern(kProbeBytes, 2);
  const auto done = [&](const char* step, const Result<void>& result) { return is_done(gpu, step, result, findings); };
  return done("copy_to", copy_to(mapped.mapping, 0, written.data(), kProbeBytes)) &&
         done("the copy engine", engine_copy_from(gpu.device, seen.data(), address_of(mapped), kProbeBytes)) &&
         is_right(gpu, seen == written, "what the CPU wrote through the mapping is not what the GPU holds", findings) &&
         done("the copy engine", engine_copy_to(gpu.device, address_of(mapped), stored.data(), kProbeBytes)) &&
         done("copy_from", copy_from(mapped.mapping, 0, seen.data(), kProbeBytes)) &&
         is_right(gpu, seen == stored, "what the CPU reads through the mapping is not what the GPU holds", findings);
}

void try_mapping_of(const Patient&, const ProbeGpu& gpu, Findings& findings) {
  const auto mapped = map_memory(gpu, findings);
  if (!mapped) return;
  for (const PassedOver& other : mapped->mapping.report().passed_over)
    findings.reading(text("mapping by ", name_of(other.backend)), other.why.reason);
  findings.reading("mapping", text(name_of(mapped->mapping.backend()), ", ", name_of(mapped->mapping.type())));
  if (is_data_intact(gpu, *mapped, findings))
    findings.pass(gpu.subject(), text("64 KiB of its memory were mapped by '", name_of(mapped->mapping.backend()),
                                      "'; CPU and GPU see the same data in both directions"));
}

constexpr std::size_t kCopyBytes = 4096;
constexpr int kRepeats = 15;

// Median of kRepeats calls in microseconds; nothing when one failed, which is then said.
template <class Call>
std::optional<double> median_us(const ProbeGpu& gpu, const char* name, Findings& findings, Call call) {
  std::array<std::int64_t, kRepeats> times{};
  for (std::int64_t& time : times) {
    const std::int64_t begin_ns = now_ns();
    const Result<void> done = call();
    time = now_ns() - begin_ns;
    if (!is_done(gpu, name, done, findings)) return {};
  }
  std::ranges::nth_element(times, times.begin() + kRepeats / 2);
  return static_cast<double>(times[kRepeats / 2]) / 1000;
}

void try_copy_of(const Patient&, const ProbeGpu& gpu, Findings& findings) {
  const auto mapped = map_memory(gpu, findings);
  if (!mapped) return;
  const auto sent = probe_pattern(kCopyBytes, 3);
  std::vector<unsigned char> received(kCopyBytes);
  const auto to_us = median_us(gpu, "copy_to", findings, [&] { return copy_to(mapped->mapping, 64, sent.data(), kCopyBytes); });
  if (!to_us) return;
  const auto from_us =
      median_us(gpu, "copy_from", findings, [&] { return copy_from(mapped->mapping, 64, received.data(), kCopyBytes); });
  if (!from_us) return;
  findings.reading("copy_to(4096 bytes)", short_number(*to_us) + " us, median of 15");
  findings.reading("copy_from(4096 bytes)", short_number(*from_us) + " us, median of 15");
  if (is_right(gpu, received == sent, "4 KiB that were written to its memory came back different", findings))
    findings.pass(gpu.subject(), text("4 KiB are written in ", short_number(*to_us), " us and read in ", short_number(*from_us),
                                      " us by the CPU, and come back unchanged"));
}

// ---- probe.link

constexpr std::size_t kLoadBytes = std::size_t{8} << 20;
constexpr auto kLoadTime = std::chrono::milliseconds(400);
constexpr auto kSampleTime = std::chrono::milliseconds(10);

std::optional<PcieLink> faster(const std::optional<PcieLink>& first, const std::optional<PcieLink>& second) {
  if (!first || !second) return first ? first : second;
  return second->gb_per_s() > first->gb_per_s() ? second : first;
}

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
    thread_ = std::thread([this, device, destination] { run(device, destination); });
  }
  ~Load() {
    is_over_ = true;
    thread_.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  bool has_failed() const { return has_failed_; }

 private:
  void run(int device, std::uintptr_t destination) noexcept try {
    const std::vector<unsigned char> bytes(kLoadBytes, 0x5a);
    while (!is_over_ && !has_failed_) has_failed_ = !engine_copy_to(device, destination, bytes.data(), bytes.size()).is_ok();
  } catch (...) {
    has_failed_ = true;
  }

  std::atomic<bool> is_over_ = false, has_failed_ = false;
  std::thread thread_;
};

// The fastest that the link was seen at while data went over it.
std::optional<PcieLink> link_under_load(const ProbeGpu& gpu, const Load& load, const std::optional<PcieLink>& best) {
  const Deadline deadline = Deadline::after_ns(std::chrono::nanoseconds(kLoadTime).count());
  std::optional<PcieLink> seen;
  while (!deadline.has_passed() && !load.has_failed()) {
    std::this_thread::sleep_for(kSampleTime);
    seen = faster(seen, link_now(gpu));
    if (seen && best && seen->gb_per_s() >= best->gb_per_s()) break;
  }
  return seen;
}

void judge_link(const ProbeGpu& gpu, const std::optional<PcieLink>& idle, const std::optional<PcieLink>& busy,
                const std::optional<PcieLink>& best, Findings& findings) {
  findings.reading("link, idle", idle ? idle->name() : "not told");
  findings.reading("link, while the copy engine works", busy ? busy->name() : "not told");
  findings.reading("link, the most that GPU and slot can do", best ? best->name() : "not told");
  const char* const how_to_find_out =
      "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max --format=csv";
  if (!busy)
    return findings.unknown(gpu.subject(), "neither the kernel nor the driver tells how its PCIe link runs", how_to_find_out);
  if (!best)
    return findings.unknown(gpu.subject(), text("its link runs as ", busy->name(), " under load; what it could do is not told"),
                            how_to_find_out);
  if (busy->gb_per_s() >= best->gb_per_s() && busy->width >= best->width) {
    const bool has_slept = idle && idle->gb_per_s() < busy->gb_per_s();
    return findings.pass(gpu.subject(), text("its link runs as ", busy->name(), " under load, the most that GPU and slot can do",
                                             has_slept ? "; when idle it saves power as " + idle->name() : std::string()));
  }
  findings.warn(gpu.subject(), text("its link runs as ", busy->name(), " under load, where GPU and slot can do ", best->name()),
                busy->width < best->width
                    ? "reseat the card and its riser, and check the firmware's bifurcation of the slot; then look at "
                      "'lspci -vv' (LnkCap, LnkSta) of the GPU and of the port above it"
                    : "check the firmware's limit of the slot's speed and the kernel's log for AER lines (dmesg | grep -i aer); a "
                      "link that trained down after errors often comes back after the card was reseated");
}

void try_link_of(const Patient& patient, const ProbeGpu& gpu, Findings& findings) {
  const auto best = best_link(patient, gpu);
  const auto idle = link_now(gpu);
  const auto memory = DeviceMemory::allocate(gpu.device, kLoadBytes);
  if (!memory) return cannot_allocate(gpu, memory.error().record().cause, memory.error().record().remedy, findings);
  std::optional<PcieLink> busy;
  bool has_failed = false;
  {
    const Load load(gpu.device, reinterpret_cast<std::uintptr_t>(memory->address()));
    busy = link_under_load(gpu, load, best);
    has_failed = load.has_failed();
  }
  if (has_failed)
    return findings.fail(gpu.subject(), "its copy engine failed while the link was watched",
                         "look for Xid lines in the kernel's log (dmesg)");
  judge_link(gpu, idle, busy, best, findings);
}

using GpuProbe = void (*)(const Patient& patient, const ProbeGpu& gpu, Findings& findings);

void try_each(const Patient& patient, Findings& findings, GpuProbe probe) {
  for (const ProbeGpu& gpu : probe_gpus(patient, findings)) probe(patient, gpu, findings);
}

}  // namespace

void try_mapping(const Patient& patient, Findings& findings) { try_each(patient, findings, try_mapping_of); }
void try_copy(const Patient& patient, Findings& findings) { try_each(patient, findings, try_copy_of); }
void try_link(const Patient& patient, Findings& findings) { try_each(patient, findings, try_link_of); }

}  // namespace gigabar::doctor
