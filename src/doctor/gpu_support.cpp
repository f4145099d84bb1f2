// SPDX-License-Identifier: Apache-2.0
// What RDMA on GPU memory needs of the kernel, of the driver and of libibverbs: read once here, judged by the checks and by
// availability().
#include <algorithm>
#include <array>
#include <charconv>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/gpu_facts.hpp"

namespace gigabar::doctor {
namespace {

struct KernelVersion {
  unsigned major = 0;
  unsigned minor = 0;
};

// "6.1.0-28-amd64"
std::optional<KernelVersion> version_of_release(const std::string& release) {
  KernelVersion version;
  const char* const end = release.data() + release.size();
  const auto major = std::from_chars(release.data(), end, version.major);
  if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.') return {};
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  if (minor.ec != std::errc{}) return {};
  return version;
}

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

void judge_options(const std::string& config, const std::string& path, Support& support) {
  std::vector<std::string> missing;
  for (const Option& option : kOptions) {
    const std::string value = option_in(config, option.name);
    support.readings.push_back({text(path, ": ", option.name), value.empty() ? "not named" : value});
    if (value == "n" || (value.empty() && option.must_be_named)) missing.emplace_back(option.name);
  }
  if (missing.empty()) {
    support.answer = Answer::yes;
  } else {
    support.answer = Answer::no;
    support.reason = "the kernel is built without " + joined(missing);
    support.remedy = "use a kernel that has these options set (the distribution's general one, not a cloud or minimal variant)";
  }
}

void judge_config(const Patient& patient, const std::string& release, Support& support) {
  const std::string path = "/boot/config-" + release;
  const FileText config = patient.files.read(path);
  if (config.is_present()) return judge_options(config.content, path, support);
  const bool has_archive = patient.files.exists("/proc/config.gz");
  support.answer = Answer::unknown;
  support.reason = text("how kernel ", printable(release, 60), " was built could not be read");
  support.readings.push_back({path, config.state == FileState::missing ? "missing" : config.reason});
  support.readings.push_back({"/proc/config.gz", has_archive ? "present, compressed" : "missing"});
  support.remedy = text(has_archive ? "look with: zcat /proc/config.gz" : "look on the host with: cat /boot/config-$(uname -r)",
                        " | grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY|DMA_SHARED_BUFFER'");
}

// What CUDA says of its devices; unknown when it says nothing.
Answer exports_by_attribute(const Patient& patient, Support& support) {
  std::size_t told = 0;
  std::size_t able = 0;
  for (const GpuAnswers& gpu : patient.answers.gpus) {
    const auto value = cuda_attribute(&gpu, "dma_buf");
    if (!value) continue;
    ++told;
    if (*value != 0) ++able;
    support.readings.push_back({text("cuDeviceGetAttribute(DMA_BUF_SUPPORTED) of ", gpu.pci), std::to_string(*value)});
  }
  if (told == 0) return Answer::unknown;
  return able == told ? Answer::yes : Answer::no;
}

bool is_true(const std::map<std::string, std::string>& params, const std::string& name) {
  const auto found = params.find(name);
  return found != params.end() && found->second != "0" && !found->second.empty();
}

// "PeerMappingOverride=1;Other=0x2": whether the key is there with 1.
bool has_dword(const std::map<std::string, std::string>& params, std::string_view key) {
  const auto found = params.find("RegistryDwords");
  if (found == params.end()) return false;
  std::string_view rest = found->second;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    std::string entry(rest.substr(0, end));
    std::erase(entry, ' ');
    if (entry == text(key, "=1") || entry == text(key, "=0x1")) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::string shown(const std::map<std::string, std::string>& params, const std::string& name) {
  const auto found = params.find(name);
  return found == params.end() ? "not named" : found->second;
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
  const auto refuse = [&](std::string reason) {
    support.answer = Answer::no;
    support.reason = std::move(reason);
    support.remedy = kReload;
    return support;
  };
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    const auto state = patient.files.word(text("/sys/module/", module, "/initstate"));
    if (!state || *state == "live") continue;
    support.readings.push_back({text("/sys/module/", module, "/initstate"), *state});
    return refuse(text(module, " is loaded and not at work: its state is '", printable(*state, 20), "', not 'live'"));
  }
  if (patient.files.facts(kPeersFolder).kind != NodeKind::folder) return support;
  const std::vector<std::string> peers = patient.files.names(kPeersFolder);
  support.readings.push_back({kPeersFolder, peers.empty() ? "empty" : joined(peers)});
  const bool is_listed =
      std::any_of(peers.begin(), peers.end(), [](const std::string& peer) { return peer.starts_with("nv_mem"); });
  if (is_listed) return support;
  return refuse("nvidia-peermem is loaded, but the RDMA stack does not list it among its memory peers");
}

}  // namespace

Support dmabuf_of_kernel(const Patient& patient) {
  Support support;
  const std::string release = kernel_release(patient);
  support.readings.push_back({"/proc/sys/kernel/osrelease", release.empty() ? "missing" : release});
  const auto version = version_of_release(release);
  if (!version) {
    support.reason = "the kernel's version could not be read";
    support.remedy = "'uname -r' tells it; 5.12 is needed";
    return support;
  }
  if (version->major < 5 || (version->major == 5 && version->minor < 12)) {
    support.answer = Answer::no;
    support.reason = text("kernel ", printable(release, 60), " is older than 5.12, the first whose RDMA core takes a dma-buf");
    support.remedy = "install kernel 5.12 or newer";
    return support;
  }
  judge_config(patient, release, support);
  if (support.answer == Answer::yes) support.reason = text("kernel ", printable(release, 60), " takes a dma-buf");
  return support;
}

Support dmabuf_of_gpus(const Patient& patient) {
  Support support;
  const DriverModule module = driver_module(patient);
  support.answer = exports_by_attribute(patient, support);
  if (support.answer == Answer::yes) {
    support.reason = "every GPU can export its memory as a dma-buf";
    return support;
  }
  support.readings.push_back({kVersionFile, module.version.empty() ? "no version" : module.version});
  if (support.answer == Answer::no || module.is_open == Answer::no) {
    support.answer = Answer::no;
    support.reason = module.is_open == Answer::no ? "the proprietary kernel modules do not export GPU memory as a dma-buf"
                                                  : "CUDA reports a GPU whose memory cannot be exported as a dma-buf";
    support.remedy = "install the driver's open kernel modules (Turing or newer), for example: sudo apt install nvidia-open";
    return support;
  }
  if (module.is_open == Answer::yes && module.branch >= 515) {
    support.answer = Answer::yes;
    support.reason = text("the open kernel modules ", module.version, " export GPU memory as a dma-buf");
    return support;
  }
  support.reason = "which NVIDIA kernel modules are loaded could not be told";
  support.remedy = text("look on the host with: cat ", kVersionFile, "; or run this where CUDA works");
  return support;
}

Support dmabuf_of_verbs(const Patient& patient) {
  Support support;
  const auto& has = patient.answers.verbs_has_dmabuf;
  support.readings.push_back({"libibverbs: ibv_reg_dmabuf_mr", !has ? "not told" : *has ? "present" : "absent"});
  if (!has) {
    support.reason = "libibverbs could not be asked whether it has ibv_reg_dmabuf_mr";
    support.remedy = "install libibverbs 34 or newer (package libibverbs1 or rdma-core), then run this again";
  } else if (*has) {
    support.answer = Answer::yes;
    support.reason = "libibverbs has ibv_reg_dmabuf_mr";
  } else {
    support.answer = Answer::no;
    support.reason = "libibverbs has no ibv_reg_dmabuf_mr";
    support.remedy = "install rdma-core 34 or newer";
  }
  return support;
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
    if (version) {
      support.answer = Answer::yes;
      support.reason = text(file, " says ", version->empty() ? "nothing, but is there" : printable(*version, 40));
    }
    support.readings.push_back({file, version.value_or("missing")});
  }
  // A module built without a version has a folder all the same.
  for (const char* folder : {"/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem"}) {
    if (support.answer == Answer::yes || !patient.files.exists(folder)) continue;
    support.answer = Answer::yes;
    support.reason = text(folder, " is there");
  }
  if (support.answer == Answer::yes) return judge_loaded_peermem(patient, std::move(support));
  if (patient.files.names("/sys/module").empty()) {
    support.reason = "/sys/module cannot be listed here, so which modules are loaded is not known";
    support.remedy = "look on the host with: lsmod | grep -E 'nvidia_peermem|nv_peer_mem'";
    return support;
  }
  support.answer = Answer::no;
  support.reason = "nvidia-peermem is not loaded";
  support.remedy =
      "sudo modprobe nvidia-peermem; when that says 'Invalid argument', the module was built without the peer-memory interface of "
      "an RDMA stack: install DOCA-OFED (or MLNX_OFED) first and then the NVIDIA driver again, or use dma-buf";
  return support;
}

Support gin_of_driver(const Patient& patient) {
  Support support;
  const DriverModule module = driver_module(patient);
  support.readings.push_back({kVersionFile, module.version.empty() ? "no version" : module.version});
  if (module.is_open == Answer::no) {
    support.answer = Answer::no;
    support.reason = "the proprietary kernel modules do not let a GPU write to a network adapter's doorbells";
    support.remedy = "install the driver's open kernel modules, for example: sudo apt install nvidia-open";
    return support;
  }
  const auto params = driver_params(patient);
  if (!params || module.is_open == Answer::unknown) {
    support.reason = text(params ? kVersionFile : kParamsFile, " could not be read");
    support.readings.push_back({kParamsFile, params ? "present" : "not readable"});
    support.remedy = text("look on the host with: grep -E 'EnableStreamMemOPs|RegistryDwords' ", kParamsFile);
    return support;
  }
  const bool has_memops = is_true(*params, "EnableStreamMemOPs");
  const bool has_mapping = has_dword(*params, "PeerMappingOverride");
  support.readings.push_back({text(kParamsFile, ": EnableStreamMemOPs"), shown(*params, "EnableStreamMemOPs")});
  support.readings.push_back({text(kParamsFile, ": RegistryDwords"), shown(*params, "RegistryDwords")});
  if (has_memops && has_mapping) {
    support.answer = Answer::yes;
    support.reason = "the driver runs with PeerMappingOverride=1 and EnableStreamMemOPs=1";
    return support;
  }
  support.answer = Answer::no;
  support.reason = text("the driver runs without ", has_mapping ? "" : "PeerMappingOverride=1",
                        has_mapping || has_memops ? "" : " and ", has_memops ? "" : "EnableStreamMemOPs=1");
  support.remedy =
      "write the line: options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" NVreg_EnableStreamMemOPs=1 to "
      "/etc/modprobe.d/nvidia-gin.conf, run 'sudo update-initramfs -u' (or 'sudo dracut -f'), and reboot";
  return support;
}

}  // namespace gigabar::doctor
