// SPDX-License-Identifier: Apache-2.0
// What RDMA on GPU memory needs of the kernel, of the driver and of libibverbs: read once here, judged by the checks and by
// availability().
#include <algorithm>
#include <array>

#include "base/errors.hpp"
#include "doctor/gpu_facts.hpp"

namespace gigabar::doctor {
namespace {

// "y", "m", "n" ("# CONFIG_X is not set"), or empty: the file does not name the option.
std::string option_in(const std::string& config, const std::string& option) {
  if (config.starts_with(option + "=")) return config.substr(option.size() + 1, 1);
  const std::size_t at = config.find("\n" + option + "=");
  if (at != std::string::npos) return config.substr(at + option.size() + 2, 1);
  return config.find("# " + option + " is not set") == std::string::npos ? "" : "n";
}

struct Option {
  const char* name;
  bool must_be_named;  // absent from the file means absent from the kernel; else it means that this kernel has no such choice
};
constexpr std::array<Option, 3> kOptions{
    {{"CONFIG_PCI_P2PDMA", true}, {"CONFIG_DMA_SHARED_BUFFER", true}, {"CONFIG_DMABUF_MOVE_NOTIFY", false}}};

Support judge_options(const std::string& config, const std::string& path, const std::string& release, Support support) {
  std::vector<std::string> missing;
  for (const Option& option : kOptions) {
    const std::string value = option_in(config, option.name);
    support.read(text(path, ": ", option.name), value.empty() ? "not named" : value);
    if (value == "n" || (value.empty() && option.must_be_named)) missing.emplace_back(option.name);
  }
  if (missing.empty()) return support.say(Answer::yes, text("kernel ", printable(release, 60), " takes a dma-buf"));
  return support.say(Answer::no, "the kernel is built without " + joined(missing),
                     "use a kernel that has these options set (the distribution's general one, not a cloud or minimal variant)");
}

Support judge_config(const Patient& patient, const std::string& release, Support support) {
  const std::string path = "/boot/config-" + release;
  const FileText config = patient.files.read(path);
  if (config.is_present()) return judge_options(config.content, path, release, std::move(support));
  const bool has_archive = patient.files.exists("/proc/config.gz");
  support.read(path, value_of(config)).read("/proc/config.gz", has_archive ? "present, compressed" : "missing");
  return support.say(Answer::unknown, text("how kernel ", printable(release, 60), " was built could not be read"),
                     text(has_archive ? "look with: zcat /proc/config.gz" : "look on the host with: cat /boot/config-$(uname -r)",
                          " | grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY|DMA_SHARED_BUFFER'"));
}

// What CUDA says of its devices; unknown when it says nothing.
Answer exports_by_attribute(const Patient& patient, Support& support) {
  std::size_t told = 0, able = 0;
  for (const GpuAnswers& gpu : patient.answers.gpus) {
    const auto value = cuda_attribute(gpu, "dma_buf");
    if (!value) continue;
    ++told;
    if (*value != 0) ++able;
    support.read(text("cuDeviceGetAttribute(DMA_BUF_SUPPORTED) of ", gpu.pci), text(*value));
  }
  if (told == 0) return Answer::unknown;
  return able == told ? Answer::yes : Answer::no;
}

// "PeerMappingOverride=1;Other=0x2": whether the key is there with 1.
bool has_dword(const std::map<std::string, std::string>& params, std::string_view key) {
  std::string words = shown(params, "RegistryDwords");
  std::erase(words, ' ');
  std::ranges::replace(words, ';', '\n');
  for (std::string_view rest = words; !rest.empty();) {
    const std::string_view entry = next_line(rest);
    if (entry == text(key, "=1") || entry == text(key, "=0x1")) return true;
  }
  return false;
}

void take(Support& all, Support&& part) {
  all.readings.insert(all.readings.end(), part.readings.begin(), part.readings.end());
  const bool is_worse =
      (part.answer == Answer::no && all.answer != Answer::no) || (part.answer == Answer::unknown && all.answer == Answer::yes);
  if (is_worse) {
    all.answer = part.answer;
    all.reason = std::move(part.reason);
    all.remedy = std::move(part.remedy);
  } else if (part.answer == all.answer) {
    all.reason += (all.reason.empty() ? "" : "; ") + part.reason;
    if (!part.remedy.empty()) all.remedy += (all.remedy.empty() ? "" : "; ") + part.remedy;
  }
}

constexpr const char* kPeersFolder = "/sys/kernel/mm/memory_peers";

constexpr const char* kReload =
    "sudo modprobe -r nvidia-peermem && sudo modprobe nvidia-peermem; when that fails or hangs, 'sudo dmesg | grep -i "
    "peermem' says why, and a reboot is needed; or use dma-buf";

// A module that is loaded has registered with the RDMA stack only when that lists it; stacks without such a list say nothing. One
// whose start or end hangs serves nobody.
Support judge_loaded_peermem(const Patient& patient, Support support) {
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    const auto state = patient.files.word(text("/sys/module/", module, "/initstate"));
    if (!state || *state == "live") continue;
    return support.read(text("/sys/module/", module, "/initstate"), *state)
        .say(Answer::no, text(module, " is loaded and not at work: its state is '", printable(*state, 20), "', not 'live'"),
             kReload);
  }
  if (patient.files.facts(kPeersFolder).kind != NodeKind::folder) return support;
  const std::vector<std::string> peers = patient.files.names(kPeersFolder);
  support.read(kPeersFolder, peers.empty() ? "empty" : joined(peers));
  if (std::ranges::any_of(peers, [](const std::string& peer) { return peer.starts_with("nv_mem"); })) return support;
  return support.say(Answer::no, "nvidia-peermem is loaded, but the RDMA stack does not list it among its memory peers", kReload);
}

}  // namespace

Support dmabuf_of_kernel(const Patient& patient) {
  Support support;
  const std::string release = patient.files.word("/proc/sys/kernel/osrelease").value_or("");
  support.read("/proc/sys/kernel/osrelease", release.empty() ? "missing" : release);
  const auto version = version_of(release);
  if (!version)
    return support.say(Answer::unknown, "the kernel's version could not be read", "'uname -r' tells it; 5.12 is needed");
  if (*version >= Version{5, 12}) return judge_config(patient, release, std::move(support));
  return support.say(Answer::no,
                     text("kernel ", printable(release, 60), " is older than 5.12, the first whose RDMA core takes a dma-buf"),
                     "install kernel 5.12 or newer");
}

Support dmabuf_of_gpus(const Patient& patient) {
  Support support;
  const DriverModule module = driver_module(patient);
  const Answer told = exports_by_attribute(patient, support);
  if (told == Answer::yes) return support.say(Answer::yes, "every GPU can export its memory as a dma-buf");
  support.read(kVersionFile, module.version.empty() ? "no version" : module.version);
  if (told == Answer::no || module.is_open == Answer::no) {
    return support.say(Answer::no,
                       module.is_open == Answer::no ? "the proprietary kernel modules do not export GPU memory as a dma-buf"
                                                    : "CUDA reports a GPU whose memory cannot be exported as a dma-buf",
                       "install the driver's open kernel modules (Turing or newer), for example: sudo apt install nvidia-open");
  }
  if (module.is_open == Answer::yes && module.branch >= kFirstOpenBranch)
    return support.say(Answer::yes, text("the open kernel modules ", module.version, " export GPU memory as a dma-buf"));
  return support.say(Answer::unknown, "which NVIDIA kernel modules are loaded could not be told",
                     text("look on the host with: cat ", kVersionFile, "; or run this where CUDA works"));
}

Support dmabuf_of_verbs(const Patient& patient) {
  Support support;
  const auto& has = patient.answers.verbs_has_dmabuf;
  support.read("libibverbs: ibv_reg_dmabuf_mr", !has ? "not told" : *has ? "present" : "absent");
  if (!has) {
    return support.say(Answer::unknown, "libibverbs could not be asked whether it has ibv_reg_dmabuf_mr",
                       "install libibverbs 34 or newer (package libibverbs1 or rdma-core), then run this again");
  }
  return *has ? support.say(Answer::yes, "libibverbs has ibv_reg_dmabuf_mr")
              : support.say(Answer::no, "libibverbs has no ibv_reg_dmabuf_mr", "install rdma-core 34 or newer");
}

Support dmabuf(const Patient& patient) {
  Support all = dmabuf_of_gpus(patient);
  take(all, dmabuf_of_kernel(patient));
  take(all, dmabuf_of_verbs(patient));
  return all;
}

Support peermem(const Patient& patient) {
  Support support;
  for (const char* file : {"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version",
                           "/sys/kernel/mm/memory_peers/nv_mem_nc/version", "/sys/module/nv_peer_mem/version"}) {
    const auto version = patient.files.word(file);
    if (version)
      support.say(Answer::yes, text(file, " says ", version->empty() ? "nothing, but is there" : printable(*version, 40)));
    support.read(file, version.value_or("missing"));
  }
  // A module built without a version has a folder all the same.
  for (const char* folder : {"/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem"}) {
    if (support.answer == Answer::yes || !patient.files.exists(folder)) continue;
    support.say(Answer::yes, text(folder, " is there"));
  }
  if (support.answer == Answer::yes) return judge_loaded_peermem(patient, std::move(support));
  if (patient.files.names("/sys/module").empty()) {
    return support.say(Answer::unknown, "/sys/module cannot be listed here, so which modules are loaded is not known",
                       "look on the host with: lsmod | grep -E 'nvidia_peermem|nv_peer_mem'");
  }
  return support.say(
      Answer::no, "nvidia-peermem is not loaded",
      "sudo modprobe nvidia-peermem; when that says 'Invalid argument', the module was built without the peer-memory interface of "
      "an RDMA stack: install DOCA-OFED (or MLNX_OFED) first and then the NVIDIA driver again, or use dma-buf");
}

Support gin_of_driver(const Patient& patient) {
  Support support;
  const DriverModule module = driver_module(patient);
  support.read(kVersionFile, module.version.empty() ? "no version" : module.version);
  if (module.is_open == Answer::no) {
    return support.say(Answer::no, "the proprietary kernel modules do not let a GPU write to a network adapter's doorbells",
                       "install the driver's open kernel modules, for example: sudo apt install nvidia-open");
  }
  const auto params = driver_params(patient);
  if (!params || module.is_open == Answer::unknown) {
    return support.read(kParamsFile, params ? "present" : "not readable")
        .say(Answer::unknown, text(params ? kVersionFile : kParamsFile, " could not be read"),
             text("look on the host with: grep -E 'EnableStreamMemOPs|RegistryDwords' ", kParamsFile));
  }
  const std::string memops = shown(*params, "EnableStreamMemOPs");
  const bool has_memops = memops != kNotNamed && memops != "0" && !memops.empty();
  const bool has_mapping = has_dword(*params, "PeerMappingOverride");
  support.read(text(kParamsFile, ": EnableStreamMemOPs"), memops);
  support.read(text(kParamsFile, ": RegistryDwords"), shown(*params, "RegistryDwords"));
  if (has_memops && has_mapping)
    return support.say(Answer::yes, "the driver runs with PeerMappingOverride=1 and EnableStreamMemOPs=1");
  return support.say(Answer::no,
                     text("the driver runs without ", has_mapping ? "" : "PeerMappingOverride=1",
                          has_mapping || has_memops ? "" : " and ", has_memops ? "" : "EnableStreamMemOPs=1"),
                     "write the line: options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" NVreg_EnableStreamMemOPs=1 to "
                     "/etc/modprobe.d/nvidia-gin.conf, run 'sudo update-initramfs -u' (or 'sudo dracut -f'), and reboot");
}

}  // namespace gigabar::doctor
