// SPDX-License-Identifier: Apache-2.0
// Each GPU by itself: what it can do for GPUDirect, its settings, its health, and the aperture that others see it through. GPUs
// among each other: peer access pair by pair, and NVLink.
#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kSmallBar1 = 256 * kMiB;  // what a GPU has without Resizable BAR
constexpr std::uint64_t kMinFree = 16 * kMiB;     // one buffer of a communication library
constexpr std::uint64_t kFewFree = 8;             // less than one part in this many is little

// Why there are no GPUs to look at: skip, or unknown with the driver.
MaybeRuling without_gpus(const Patient& patient, Findings& findings) {
  if (!patient.topology.gpus.empty()) return {};
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  return unknown("the NVIDIA driver is here, but no GPU could be found",
                 "'gigabar explain drv.gpus' tells how a GPU is lost; 'lspci -d 10de:' lists what the bus has");
}

using GpuJudge = Ruling(const Patient& patient, const Gpu& gpu, const GpuAnswers& answers, Findings& findings);

// Judges every GPU, as "GPU ADDRESS"; says one thing of all where they are alike.
MaybeRuling judge_each_gpu(const Patient& patient, Findings& findings, GpuJudge judge) {
  for (const Gpu& gpu : patient.topology.gpus)
    findings.say(subject_of(gpu), judge(patient, gpu, answers_of(patient, gpu), findings));
  findings.join_gpus();
  return without_gpus(patient, findings);
}

// --- gpu.rdma

std::string abilities(const GpuAnswers& answers) {
  const auto dma_buf = cuda_attribute(answers, "dma_buf");
  const auto ordering = cuda_attribute(answers, "gpu_direct_rdma_writes_ordering");
  std::string line = !dma_buf        ? "; whether by dma-buf is not told"
                     : *dma_buf != 0 ? ", by dma-buf too"
                                     : ", but only through nvidia-peermem: it exports no dma-buf";
  // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER is 100; below that a flush is needed before the GPU may read what arrived.
  if (ordering) line += *ordering >= 100 ? "; what arrives is visible to it in order" : "; what arrives needs a flush first";
  return line;
}

Ruling judge_rdma(const Patient&, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kAttributes{
      {{"GPU_DIRECT_RDMA_SUPPORTED", "gpu_direct_rdma"},
       {"DMA_BUF_SUPPORTED", "dma_buf"},
       {"GPU_DIRECT_RDMA_WRITES_ORDERING", "gpu_direct_rdma_writes_ordering"}}};
  for (const auto& [name, key] : kAttributes) {
    const auto value = cuda_attribute(answers, key);
    findings.reading(text("cuDeviceGetAttribute(", name, ") of ", gpu.address.to_string()), value ? text(*value) : "not told");
  }
  const auto able = cuda_attribute(answers, "gpu_direct_rdma");
  if (!able)
    return unknown("CUDA did not say whether other devices can reach this GPU's memory",
                   "run this where CUDA works, in the same container and as the same user as the program");
  if (*able != 0) return pass("other devices can reach this GPU's memory (GPUDirect RDMA)" + abilities(answers));
  if (cuda_attribute(answers, "integrated").value_or(0) != 0)
    return fail("this integrated GPU shares the CPU's memory and supports no GPUDirect RDMA",
                "allocate with cudaHostAlloc and register that as host memory");
  return fail("this GPU does not support GPUDirect RDMA (GeForce boards do not)",
              "move data through pinned host memory, in chunks that overlap; data-centre and professional boards support it");
}

// --- gpu.persist and gpu.mig

Ruling judge_persistence(const Patient&, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  const auto& is_on = answers.is_persistence_enabled;
  findings.reading("nvmlDeviceGetPersistenceMode of " + gpu.address.to_string(), yes_or_no(is_on));
  if (!is_on) return unknown("NVML did not say whether persistence mode is on", "nvidia-smi -q | grep Persistence");
  if (*is_on) return pass("persistence mode is on: the driver keeps this GPU ready between programs");
  return warn("persistence mode is off: the first program of each run waits for the GPU's start, and settings are lost",
              "sudo systemctl enable --now nvidia-persistenced; or, until the next boot: sudo nvidia-smi -pm 1");
}

Ruling judge_mig(const Patient&, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  const auto& is_on = answers.is_mig_enabled;
  findings.reading("nvmlDeviceGetMigMode of " + gpu.address.to_string(), yes_or_no(is_on));
  if (is_on.value_or(false))
    return warn("MIG is on: no peer access to or from this GPU's instances, and CUDA sees one of them at a time",
                "to use the whole GPU, with no program on it: sudo nvidia-smi -mig 0");
  if (is_on) return pass("MIG is off: the GPU is used as a whole");
  if (answers.is_persistence_enabled) return pass("NVML knows this GPU and reports no MIG mode for it, as for boards without MIG");
  return unknown("NVML did not say whether MIG is on", "nvidia-smi --query-gpu=mig.mode.current --format=csv");
}

// --- gpu.ecc

struct Xid {
  std::uint64_t number;
  const char* meaning;
};
constexpr std::array<Xid, 14> kXids{{{13, "an exception in a kernel, usually the program's fault"},
                                     {31, "a memory fault, usually the program's fault"},
                                     {43, "a channel was stopped after a program's fault"},
                                     {45, "a program was ended while it used the GPU"},
                                     {48, "an uncorrectable memory error"},
                                     {61, "the GPU's firmware halted"},
                                     {63, "a memory row is to be remapped"},
                                     {64, "remapping a memory row failed"},
                                     {74, "an NVLink error"},
                                     {79, "the GPU has fallen off the bus"},
                                     {94, "a contained memory error"},
                                     {95, "an uncontained memory error"},
                                     {119, "the GPU's system processor did not answer"},
                                     {149, "an NVLink error"}}};

std::string meaning_of(std::uint64_t number) {
  const auto found = std::ranges::find(kXids, number, &Xid::number);
  return found == kXids.end() ? "" : text(" (", found->meaning, ")");
}

struct Xids {
  std::vector<std::string> numbers;  // each once, with its meaning
  std::string last_line;
};

Xids xids_of(const Patient& patient, const Gpu& gpu) {
  const std::string address = gpu.address.to_string();
  Xids all;
  for (const std::string& line : log_lines(patient, {"NVRM: Xid", "PCI:" + address.substr(0, address.find('.'))})) {
    const auto number = xid_in(line);
    if (!number) continue;
    const std::string named = text(*number, meaning_of(*number));
    const bool is_new = std::ranges::find(all.numbers, named) == all.numbers.end();
    if (is_new && all.numbers.size() < 8) all.numbers.push_back(named);
    all.last_line = line;
  }
  return all;
}

MaybeRuling ill_memory(const Gpu& gpu, const GpuAnswers& answers) {
  const std::string reset =
      text("stop the programs on it, then: sudo nvidia-smi --gpu-reset -i ", gpu.address.to_string(), " (or reboot)");
  if (answers.has_row_remap_failed.value_or(false))
    return fail("remapping a broken row of this GPU's memory failed",
                "take the GPU out of use and ask its maker for a replacement; 'nvidia-smi -q -d ROW_REMAPPER' is the evidence");
  if (answers.is_row_remap_pending.value_or(false))
    return fail("a broken row of this GPU's memory waits to be remapped: until then it may be used", reset);
  if (answers.is_page_retirement_pending.value_or(false))
    return fail("a broken page of this GPU's memory waits to be retired: until then it may be used", reset);
  return {};
}

Ruling judge_memory(const Patient& patient, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  const std::string of = " of " + gpu.address.to_string();
  const Xids xids = xids_of(patient, gpu);
  const bool has_log = patient.answers.kernel_log.has_value();
  findings.reading("nvmlDeviceGetRemappedRows: pending" + of, yes_or_no(answers.is_row_remap_pending));
  findings.reading("nvmlDeviceGetRemappedRows: failure" + of, yes_or_no(answers.has_row_remap_failed));
  findings.reading("nvmlDeviceGetRetiredPagesPendingStatus" + of, yes_or_no(answers.is_page_retirement_pending));
  findings.reading("the kernel's log: Xid", !has_log ? "not readable" : xids.last_line.empty() ? "none" : xids.last_line);
  if (const MaybeRuling ill = ill_memory(gpu, answers)) return *ill;
  if (!xids.numbers.empty())
    return warn(text("since the machine started the driver reported Xid ", joined(xids.numbers)),
                "sudo dmesg | grep Xid shows when; NVIDIA's 'Xid Errors' page has each number's remedy");
  if (!answers.is_row_remap_pending && !answers.has_row_remap_failed && !answers.is_page_retirement_pending)
    return unknown("NVML did not say whether rows or pages of this GPU's memory are broken",
                   "'nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT' shows what the board knows; boards without ECC know nothing");
  return pass("no row or page of this GPU's memory waits for repair",
              has_log ? ", and no Xid is in the kernel's log" : "; the kernel's log could not be read for Xid errors");
}

// --- gpu.throttle

struct Clock {
  std::uint64_t bit;
  const char* name;
  bool is_bad;
};
// NVML's nvmlClocksEventReason*
constexpr std::array<Clock, 9> kClocks{{{0x1, "idle", false},
                                        {0x2, "application clocks", false},
                                        {0x4, "software power cap", false},
                                        {0x8, "hardware slowdown", true},
                                        {0x10, "sync boost", false},
                                        {0x20, "software thermal slowdown", true},
                                        {0x40, "hardware thermal slowdown", true},
                                        {0x80, "hardware power brake", true},
                                        {0x100, "display clocks", false}}};

Ruling judge_clocks(const Patient&, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  const std::string source = "nvmlDeviceGetCurrentClocksEventReasons of " + gpu.address.to_string();
  if (!answers.clocks_event_reasons) {
    findings.reading(source, "not told");
    return unknown("NVML did not say what holds this GPU's clocks", "nvidia-smi -q -d PERFORMANCE");
  }
  std::vector<std::string> bad, names;
  for (const Clock& clock : kClocks) {
    if ((*answers.clocks_event_reasons & clock.bit) == 0) continue;
    names.emplace_back(clock.name);
    if (clock.is_bad) bad.emplace_back(clock.name);
  }
  findings.reading(source, text(hex_text(*answers.clocks_event_reasons), names.empty() ? "" : ": ", joined(names)));
  if (bad.empty()) return pass("nothing slows this GPU down", names.empty() ? "" : "; its clocks follow: ", joined(names));
  return warn(
      text("this GPU is slowed down right now: ", joined(bad)),
      "check cooling, power cables and the chassis's power budget; 'nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE' tells more");
}

// --- bar1

// BAR0 holds registers and takes one line of /sys/.../resource ("start end flags"), or two where it is 64 bits wide; the next that
// is not empty is the aperture. 0: none is.
std::uint64_t bar1_of_resource(const std::string& resource) {
  std::istringstream lines(resource);
  std::string line;
  for (int i = 0; i < 3 && std::getline(lines, line); ++i) {
    std::istringstream words(line);
    std::uint64_t start = 0, end = 0;
    const bool is_told = static_cast<bool>(words >> std::hex >> start >> end);
    if (i > 0 && is_told && end > start && end != ~std::uint64_t{0}) return end - start + 1;
  }
  return 0;
}

// Of the library, else of the file; says where from.
std::optional<std::uint64_t> bar1_of(const Patient& patient, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  if (answers.bar1_total_bytes) {
    findings.reading("nvmlDeviceGetBAR1MemoryInfo of " + gpu.address.to_string(), size_text(*answers.bar1_total_bytes));
    return answers.bar1_total_bytes;
  }
  const std::string path = pci_folder(gpu.address) + "/resource";
  const FileText resource = patient.files.read(path);
  const std::uint64_t bytes = bar1_of_resource(resource.content);
  findings.reading(path, !resource.is_present() ? value_of(resource)
                         : bytes == 0           ? "no second region"
                                                : "second region of " + size_text(bytes));
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

Ruling judge_bar1_size(const Patient& patient, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  const auto bytes = bar1_of(patient, gpu, answers, findings);
  if (!bytes)
    return unknown("the size of this GPU's BAR1 aperture could not be read",
                   text("nvidia-smi -q -d MEMORY, or: lspci -vs ", gpu.address.to_string()));
  if (*bytes <= kSmallBar1 && !gpu.is_coherent)
    return warn(text("this GPU's BAR1 aperture is only ", size_text(*bytes),
                     ": no more of its memory can be mapped or registered at a time"),
                "enable 'Above 4G Decoding' and 'Resizable BAR' in the firmware's set-up, then reboot; or register less at a time");
  return pass("this GPU's BAR1 aperture is ", size_text(*bytes));
}

Ruling judge_bar1_use(const Patient&, const Gpu& gpu, const GpuAnswers& answers, Findings& findings) {
  const std::string source = "nvmlDeviceGetBAR1MemoryInfo of " + gpu.address.to_string();
  if (!answers.bar1_used_bytes || answers.bar1_total_bytes.value_or(0) == 0) {
    findings.reading(source, "not told");
    return unknown("NVML did not say how much of this GPU's BAR1 aperture is in use", "nvidia-smi -q -d MEMORY");
  }
  const std::uint64_t total = *answers.bar1_total_bytes;
  const std::uint64_t free_bytes = total - std::min(total, *answers.bar1_used_bytes);
  const std::string share = text(size_text(free_bytes), " of ", size_text(total));
  const char* const remedy =
      "end the programs that hold mappings (nvidia-smi and 'sudo fuser -v /dev/nvidia*' list them), or pin less at a time";
  findings.reading(source, text("total ", size_text(total), ", used ", size_text(*answers.bar1_used_bytes)));
  if (free_bytes < kMinFree) return fail(text("this GPU's BAR1 aperture is full: ", share, " is free"), remedy);
  if (free_bytes < total / kFewFree) return warn(text("little of this GPU's BAR1 aperture is left: ", share, " is free"), remedy);
  return pass(share, " of this GPU's BAR1 aperture is free");
}

constexpr std::size_t kMaxListed = 64;         // pairs with a finding of their own; the rest is counted
constexpr std::int64_t kSystemNotReady = 802;  // CUDA_ERROR_SYSTEM_NOT_READY

// --- gpu.p2p

// What decides a pair's verdict; pairs with the same belong together.
struct PeerState {
  std::string access, read, write, atomics;  // "yes", "no", "ok", NVML's words, "not told"

  auto operator<=>(const PeerState&) const = default;
};

PeerState state_of(const PeerAnswers& pair) {
  const auto word = [](const std::optional<std::string>& fact) { return fact ? printable(*fact, 40) : std::string("not told"); };
  return {yes_or_no(pair.can_access), word(pair.read), word(pair.write), word(pair.atomics)};
}

struct Reason {
  std::string_view status;
  const char* meaning;
  const char* remedy;
};
// NVML's P2P statuses, with the letters of 'nvidia-smi topo -p2p'.
constexpr std::array<Reason, 5> kReasons{
    {{"chipset_not_supported", "the chipset is not one that the driver lets peers cross (CNS)",
      "put the GPUs below one PCI switch, or stage copies through host memory; a newer driver may know the chipset"},
     {"gpu_not_supported", "these GPUs do not support it (GNS)", "stage copies through host memory, or use boards that support it"},
     {"topology_not_supported", "the PCI topology between them does not allow it (TNS)",
      "move the GPUs below one PCI switch or one socket; see 'gigabar topology'"},
     {"disabled_by_regkey", "a setting of the driver switches it off (DR)",
      "look for the setting with: grep RegistryDwords /proc/driver/nvidia/params; remove it from /etc/modprobe.d and reboot"},
     {"not_supported", "it is not supported (NS)",
      "MIG switches it off (gpu.mig), and in a virtual machine its host decides; else see 'gigabar explain pci.acs' and 'gigabar "
      "explain iommu.mode'"}}};

const Reason* reason_of(const PeerState& state) {
  for (const std::string& status : {state.read, state.write}) {
    const auto found = std::ranges::find(kReasons, status, &Reason::status);
    if (found != kReasons.end()) return &*found;
  }
  return nullptr;
}

Ruling judge_pair_state(const PeerState& state, Findings& findings) {
  const std::string parts = text("read ", state.read, ", write ", state.write, ", atomics ", state.atomics);
  findings.reading("cuDeviceCanAccessPeer", state.access);
  findings.reading("nvmlDeviceGetP2PStatus", parts);
  const Reason* reason = reason_of(state);
  const bool can_read = state.read == "ok", can_write = state.write == "ok";
  if (can_write && !can_read && state.read != "not told")
    return warn(text("peers can write but not read: ", parts, reason ? "; " : "", reason ? reason->meaning : ""),
                "let the side that has the data push it: writes are as fast as ever, and reads fall back to host memory");
  if (state.access == "no" || (state.access == "not told" && reason != nullptr))
    return warn(
        text("no peer access: copies go through host memory; ", reason ? reason->meaning : "the driver names no reason"),
        reason ? reason->remedy : "see 'nvidia-smi topo -p2p r', 'gigabar explain pci.acs' and 'gigabar explain iommu.mode'");
  if (state.access == "yes" || (can_read && can_write)) {
    const bool is_told = state.read != "not told" || state.write != "not told";
    return pass(is_told ? text("peer access: ", parts)
                        : "peer access by CUDA's word; read, write and atomics were not told one by one");
  }
  return unknown("nothing says whether there is peer access",
                 "run this where CUDA works; 'nvidia-smi topo -p2p r' shows what NVML knows");
}

std::string pair_text(const PeerAnswers& pair) {
  return text("GPU ", printable(pair.from, 16), " to GPU ", printable(pair.to, 16));
}

void tell_pairs(const Patient& patient, Findings& findings) {
  const auto& peers = patient.answers.peers;
  std::map<PeerState, std::size_t> counts;
  for (const PeerAnswers& pair : peers) ++counts[state_of(pair)];
  // Of two that are as frequent, the one with access is what the others deviate from.
  const auto most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : a.first.access < b.first.access;
  });
  // The state that several pairs share is told once.
  const bool is_shared = most->second > 1;
  if (is_shared) {
    const std::string share = counts.size() == 1 ? text("all ", peers.size()) : text(most->second, " of ", peers.size());
    findings.say(text(share, " ordered pairs of ", counted(patient.topology.gpus.size(), "GPU")),
                 judge_pair_state(most->first, findings));
  }
  std::size_t told = 0, left = 0;
  for (const PeerAnswers& pair : peers) {
    const PeerState state = state_of(pair);
    if (is_shared && state == most->first) continue;
    if (++told > kMaxListed) {
      ++left;
    } else {
      findings.say(pair_text(pair), judge_pair_state(state, findings));
    }
  }
  if (left > 0) findings.say({}, unknown(text(left, " more pairs differ from most"), "'nvidia-smi topo -p2p r' shows all of them"));
}

// --- nvlink

constexpr const char* kStartFabric =
    "sudo systemctl enable --now nvidia-fabricmanager (its version must be the driver's exactly); on racks with NVLink switches of "
    "their own, look at the switch trays' fabric manager, and in a virtual machine at the host's";

void tell_readings(const Gpu& gpu, const NvLinkFacts& links, Findings& findings) {
  const std::string of = " of " + gpu.address.to_string();
  findings.reading("nvmlDeviceGetNvLinkState" + of,
                   links.is_told ? text(links.active, " of ", links.total, " active") : "not told");
  findings.reading("nvmlDeviceGetGpuFabricInfo" + of, links.fabric.empty() ? "not told" : printable(links.fabric, 40));
}

Ruling judge_links(const Gpu& gpu, const NvLinkFacts& links, bool is_alone, bool is_any_active, Findings& findings) {
  tell_readings(gpu, links, findings);
  if (links.is_waiting())
    return fail(
        text("this GPU waits for the NVLink fabric (", links.fabric, "): CUDA's start fails with error 802 until it is completed"),
        kStartFabric);
  if (!links.is_told) return unknown("NVML did not say which NVLinks this GPU has", "nvidia-smi nvlink -s");
  if (links.total == 0) return pass("this GPU has no NVLinks");
  if (links.active == links.total)
    return pass("all ", links.total, " NVLinks of this GPU are active", links.has_switch ? ", through NVSwitches" : "");
  if (links.active == 0 && is_alone && !links.has_switch)
    return pass("none of the ", links.total, " NVLinks of this GPU is active, and there is no other GPU to join");
  if (links.active == 0 && !is_any_active)
    return warn(text("none of the ", links.total, " NVLinks of this GPU is active: no bridge is mounted, or NVLink is off"),
                "mount the NVLink bridge where the board takes one; 'gigabar explain mod.params' tells how NVLink is switched off");
  return fail(text(links.total - links.active, " of the ", links.total, " NVLinks of this GPU are inactive"),
              "nvidia-smi nvlink -s and nvidia-smi nvlink -e show which, and their errors; reset all GPUs together or reboot; if "
              "it stays, reseat bridge or board");
}

}  // namespace

MaybeRuling check_gpu_rdma(const Patient& patient, Findings& findings) { return judge_each_gpu(patient, findings, judge_rdma); }
MaybeRuling check_gpu_persist(const Patient& patient, Findings& findings) {
  return judge_each_gpu(patient, findings, judge_persistence);
}
MaybeRuling check_gpu_mig(const Patient& patient, Findings& findings) { return judge_each_gpu(patient, findings, judge_mig); }
MaybeRuling check_gpu_ecc(const Patient& patient, Findings& findings) { return judge_each_gpu(patient, findings, judge_memory); }
MaybeRuling check_gpu_throttle(const Patient& patient, Findings& findings) {
  return judge_each_gpu(patient, findings, judge_clocks);
}
MaybeRuling check_bar1_size(const Patient& patient, Findings& findings) {
  return judge_each_gpu(patient, findings, judge_bar1_size);
}
MaybeRuling check_bar1_used(const Patient& patient, Findings& findings) {
  return judge_each_gpu(patient, findings, judge_bar1_use);
}

MaybeRuling check_gpu_p2p(const Patient& patient, Findings& findings) {
  if (MaybeRuling none = without_gpus(patient, findings)) return none;
  const std::vector<Gpu>& gpus = patient.topology.gpus;
  if (gpus.size() == 1) return skip("the machine has one GPU, which has no peer");
  const auto& peers = patient.answers.peers;
  if (peers.empty()) {
    findings.reading("cuDeviceCanAccessPeer", "not told");
    return unknown(text("nothing says whether the ", counted(gpus.size(), "GPU"), " can reach each other's memory"),
                   "run this where CUDA works; 'nvidia-smi topo -p2p r' shows what NVML knows");
  }
  tell_pairs(patient, findings);
  const std::size_t expected = gpus.size() * (gpus.size() - 1);
  if (peers.size() >= expected) return {};
  return unknown(
      text(expected - peers.size(), " of ", expected, " ordered pairs were not asked (a GPU is hidden from CUDA or NVML)"),
      "run this without CUDA_VISIBLE_DEVICES, and where every GPU is given to the container");
}

MaybeRuling check_nvlink(const Patient& patient, Findings& findings) {
  const NativeCode& start = patient.answers.cuda.native;
  if (start.domain == NativeDomain::cuda_driver && start.code == kSystemNotReady) {
    findings.reading("cuInit", text(kSystemNotReady, " CUDA_ERROR_SYSTEM_NOT_READY"));
    findings.say({}, fail("CUDA's start fails with error 802: the NVLink fabric is not set up", kStartFabric));
  }
  if (MaybeRuling none = without_gpus(patient, findings)) return none;
  const std::vector<Gpu>& gpus = patient.topology.gpus;
  bool has_any = false, is_any_active = false;
  for (const Gpu& gpu : gpus) {
    const NvLinkFacts links = nvlinks_of(patient, gpu);
    has_any = has_any || links.total > 0 || links.is_waiting() || !links.is_told;
    is_any_active = is_any_active || links.active > 0;
  }
  if (!has_any) {
    for (const Gpu& gpu : gpus) tell_readings(gpu, nvlinks_of(patient, gpu), findings);
    return skip("no GPU here has NVLinks");
  }
  for (const Gpu& gpu : gpus)
    findings.say(subject_of(gpu), judge_links(gpu, nvlinks_of(patient, gpu), gpus.size() == 1, is_any_active, findings));
  findings.join_gpus();
  return {};
}

}  // namespace gigabar::doctor
