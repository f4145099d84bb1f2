// SPDX-License-Identifier: Apache-2.0
// GPUs among each other: peer access pair by pair, and NVLink.
#include <algorithm>
#include <array>
#include <map>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/check.hpp"
#include "doctor/gpu_facts.hpp"

namespace gigabar::doctor {
namespace {

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

void judge_pair_state(Findings& findings, const std::string& subject, const PeerState& state) {
  const std::string parts = text("read ", state.read, ", write ", state.write, ", atomics ", state.atomics);
  findings.reading("cuDeviceCanAccessPeer", state.access);
  findings.reading("nvmlDeviceGetP2PStatus", parts);
  const Reason* reason = reason_of(state);
  const bool can_read = state.read == "ok", can_write = state.write == "ok";
  if (can_write && !can_read && state.read != "not told") {
    findings.warn(subject, text("peers can write but not read: ", parts, reason ? "; " : "", reason ? reason->meaning : ""),
                  "let the side that has the data push it: writes are as fast as ever, and reads fall back to host memory");
  } else if (state.access == "no" || (state.access == "not told" && reason != nullptr)) {
    findings.warn(
        subject, text("no peer access: copies go through host memory; ", reason ? reason->meaning : "the driver names no reason"),
        reason ? reason->remedy : "see 'nvidia-smi topo -p2p r', 'gigabar explain pci.acs' and 'gigabar explain iommu.mode'");
  } else if (state.access == "yes" || (can_read && can_write)) {
    const bool is_told = state.read != "not told" || state.write != "not told";
    findings.pass(subject, is_told ? text("peer access: ", parts)
                                   : "peer access by CUDA's word; read, write and atomics were not told one by one");
  } else {
    findings.unknown(subject, "nothing says whether there is peer access",
                     "run this where CUDA works; 'nvidia-smi topo -p2p r' shows what NVML knows");
  }
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
    judge_pair_state(findings, text(share, " ordered pairs of ", counted(patient.topology.gpus.size(), "GPU")), most->first);
  }
  std::size_t told = 0, left = 0;
  for (const PeerAnswers& pair : peers) {
    const PeerState state = state_of(pair);
    if (is_shared && state == most->first) continue;
    if (++told > kMaxListed) {
      ++left;
    } else {
      judge_pair_state(findings, pair_text(pair), state);
    }
  }
  if (left > 0) findings.unknown({}, text(left, " more pairs differ from most"), "'nvidia-smi topo -p2p r' shows all of them");
}

// --- nvlink

constexpr const char* kStartFabric =
    "sudo systemctl enable --now nvidia-fabricmanager (its version must be the driver's exactly); on racks with NVLink switches of "
    "their own, look at the switch trays' fabric manager, and in a virtual machine at the host's";

// What the other GPUs say of a GPU without active links.
struct Others {
  bool has_active = false;
  bool is_alone = false;
};

void tell_readings(const Gpu& gpu, const NvLinkFacts& links, Findings& findings) {
  const std::string of = " of " + gpu.address.to_string();
  findings.reading("nvmlDeviceGetNvLinkState" + of,
                   links.is_told ? text(links.active, " of ", links.total, " active") : "not told");
  findings.reading("nvmlDeviceGetGpuFabricInfo" + of, links.fabric.empty() ? "not told" : printable(links.fabric, 40));
}

void judge_links(const Gpu& gpu, const NvLinkFacts& links, const Others& others, Findings& findings) {
  const std::string subject = subject_of(gpu);
  tell_readings(gpu, links, findings);
  if (links.is_waiting()) {
    findings.fail(
        subject,
        text("this GPU waits for the NVLink fabric (", links.fabric, "): CUDA's start fails with error 802 until it is completed"),
        kStartFabric);
  } else if (!links.is_told) {
    findings.unknown(subject, "NVML did not say which NVLinks this GPU has", "nvidia-smi nvlink -s");
  } else if (links.total == 0) {
    findings.pass(subject, "this GPU has no NVLinks");
  } else if (links.active == links.total) {
    findings.pass(subject,
                  text("all ", links.total, " NVLinks of this GPU are active", links.has_switch ? ", through NVSwitches" : ""));
  } else if (links.active == 0 && others.is_alone && !links.has_switch) {
    findings.pass(subject, text("none of the ", links.total, " NVLinks of this GPU is active, and there is no other GPU to join"));
  } else if (links.active == 0 && !others.has_active) {
    findings.warn(
        subject, text("none of the ", links.total, " NVLinks of this GPU is active: no bridge is mounted, or NVLink is off"),
        "mount the NVLink bridge where the board takes one; 'gigabar explain mod.params' tells how NVLink is switched off");
  } else {
    findings.fail(
        subject, text(links.total - links.active, " of the ", links.total, " NVLinks of this GPU are inactive"),
        "nvidia-smi nvlink -s and nvidia-smi nvlink -e show which, and their errors; reset all GPUs together or reboot; if "
        "it stays, reseat bridge or board");
  }
}

}  // namespace

void check_gpu_p2p(const Patient& patient, Findings& findings) {
  const std::vector<Gpu> gpus = gpus_to_check(patient, findings);
  if (gpus.empty()) return;
  if (gpus.size() == 1) return findings.skip("the machine has one GPU, which has no peer");
  const auto& peers = patient.answers.peers;
  if (peers.empty()) {
    findings.reading("cuDeviceCanAccessPeer", "not told");
    return findings.unknown({}, text("nothing says whether the ", counted(gpus.size(), "GPU"), " can reach each other's memory"),
                            "run this where CUDA works; 'nvidia-smi topo -p2p r' shows what NVML knows");
  }
  tell_pairs(patient, findings);
  const std::size_t expected = gpus.size() * (gpus.size() - 1);
  if (peers.size() < expected) {
    findings.unknown(
        {}, text(expected - peers.size(), " of ", expected, " ordered pairs were not asked (a GPU is hidden from CUDA or NVML)"),
        "run this without CUDA_VISIBLE_DEVICES, and where every GPU is given to the container");
  }
}

void check_nvlink(const Patient& patient, Findings& findings) {
  const NativeCode& start = patient.answers.cuda.native;
  if (start.domain == NativeDomain::cuda_driver && start.code == kSystemNotReady) {
    findings.reading("cuInit", text(kSystemNotReady, " CUDA_ERROR_SYSTEM_NOT_READY"));
    findings.fail({}, "CUDA's start fails with error 802: the NVLink fabric is not set up", kStartFabric);
  }
  const std::vector<Gpu> gpus = gpus_to_check(patient, findings);
  if (gpus.empty()) return;
  bool has_any = false;
  Others others{false, gpus.size() == 1};
  for (const Gpu& gpu : gpus) {
    const NvLinkFacts links = nvlinks_of(patient, gpu);
    has_any = has_any || links.total > 0 || links.is_waiting() || !links.is_told;
    others.has_active = others.has_active || links.active > 0;
  }
  if (!has_any) {
    for (const Gpu& gpu : gpus) tell_readings(gpu, nvlinks_of(patient, gpu), findings);
    return findings.skip("no GPU here has NVLinks");
  }
  for (const Gpu& gpu : gpus) judge_links(gpu, nvlinks_of(patient, gpu), others, findings);
  findings.join_gpus();
}

}  // namespace gigabar::doctor
