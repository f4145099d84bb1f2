// SPDX-License-Identifier: Apache-2.0
#include "doctor/facts.hpp"

#include <algorithm>
#include <array>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "platform/nvidia.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::uint32_t kDisplay = 0x03;  // base class

// "overlay / overlay rw,...": the root of a container that leaves no other mark.
bool is_root_overlay(const Patient& patient) {
  const FileText mounts = patient.files.read("/proc/self/mounts");
  return std::ranges::any_of(words_of(mounts.content, "\n"), [](std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    return words.size() > 2 && words[1] == "/" && words[2] == "overlay";
  });
}

// --- what RDMA on GPU memory needs: read once here, judged by the checks and by availability()

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

Ruling judge_options(const std::string& config, const std::string& path, const std::string& release, Findings& findings) {
  std::vector<std::string> missing;
  for (const Option& option : kOptions) {
    const std::string value = option_in(config, option.name);
    findings.reading(text(path, ": ", option.name), value.empty() ? "not named" : value);
    if (value == "n" || (value.empty() && option.must_be_named)) missing.emplace_back(option.name);
  }
  if (missing.empty()) return pass("kernel ", printable(release, 60), " takes a dma-buf");
  return fail("the kernel is built without " + joined(missing),
              "use a kernel that has these options set (the distribution's general one, not a cloud or minimal variant)");
}

Ruling judge_config(const Patient& patient, const std::string& release, Findings& findings) {
  const std::string path = "/boot/config-" + release;
  const FileText config = patient.files.read(path);
  if (config.is_present()) return judge_options(config.content, path, release, findings);
  const bool has_archive = patient.files.exists("/proc/config.gz");
  findings.reading(path, value_of(config));
  findings.reading("/proc/config.gz", has_archive ? "present, compressed" : "missing");
  return unknown(text("how kernel ", printable(release, 60), " was built could not be read"),
                 text(has_archive ? "look with: zcat /proc/config.gz" : "look on the host with: cat /boot/config-$(uname -r)",
                      " | grep -E 'PCI_P2PDMA|DMABUF_MOVE_NOTIFY|DMA_SHARED_BUFFER'"));
}

// What CUDA says of its devices; unknown when it says nothing.
Answer exports_by_attribute(const Patient& patient, Findings& findings) {
  std::size_t told = 0, able = 0;
  for (const GpuAnswers& gpu : patient.answers.gpus) {
    const auto value = cuda_attribute(gpu, "dma_buf");
    if (!value) continue;
    ++told;
    if (*value != 0) ++able;
    findings.reading(text("cuDeviceGetAttribute(DMA_BUF_SUPPORTED) of ", gpu.pci), text(*value));
  }
  if (told == 0) return Answer::unknown;
  return able == told ? Answer::yes : Answer::no;
}

Ruling dmabuf_of_gpus(const Patient& patient, Findings& findings) {
  const DriverModule module = driver_module(patient);
  const Answer told = exports_by_attribute(patient, findings);
  if (told == Answer::yes) return pass("every GPU can export its memory as a dma-buf");
  findings.reading(kVersionFile, module.version.empty() ? "no version" : module.version);
  if (told == Answer::no || module.is_open == Answer::no)
    return fail(module.is_open == Answer::no ? "the proprietary kernel modules do not export GPU memory as a dma-buf"
                                             : "CUDA reports a GPU whose memory cannot be exported as a dma-buf",
                "install the driver's open kernel modules (Turing or newer), for example: sudo apt install nvidia-open");
  if (module.is_open == Answer::yes && module.branch >= kFirstOpenBranch)
    return pass("the open kernel modules ", module.version, " export GPU memory as a dma-buf");
  return unknown("which NVIDIA kernel modules are loaded could not be told",
                 text("look on the host with: cat ", kVersionFile, "; or run this where CUDA works"));
}

// "PeerMappingOverride=1;Other=0x2": whether the key is there with 1.
bool has_dword(const std::map<std::string, std::string>& params, std::string_view key) {
  std::string words = text(';', shown(params, "RegistryDwords"), ';');
  std::erase(words, ' ');
  return words.find(text(';', key, "=1;")) != std::string::npos || words.find(text(';', key, "=0x1;")) != std::string::npos;
}

void take(Ruling& all, const Ruling& part) {
  const bool is_worse = (part.verdict == Verdict::fail && all.verdict != Verdict::fail) ||
                        (part.verdict == Verdict::unknown && all.verdict == Verdict::pass);
  if (is_worse) {
    all = part;
  } else if (part.verdict == all.verdict) {
    all.statement += (all.statement.empty() ? "" : "; ") + part.statement;
    if (!part.remedy.empty()) all.remedy += (all.remedy.empty() ? "" : "; ") + part.remedy;
  }
}

constexpr const char* kPeersFolder = "/sys/kernel/mm/memory_peers";

constexpr const char* kReload =
    "sudo modprobe -r nvidia-peermem && sudo modprobe nvidia-peermem; when that fails or hangs, 'sudo dmesg | grep -i peermem' "
    "says why, and a reboot is needed; or use dma-buf";

// A module that is loaded has registered with the RDMA stack only when that lists it; stacks without such a list say nothing. One
// whose start or end hangs serves nobody.
Ruling judge_loaded_peermem(const Patient& patient, const Ruling& loaded, Findings& findings) {
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    const auto state = patient.files.word(text("/sys/module/", module, "/initstate"));
    if (!state || *state == "live") continue;
    findings.reading(text("/sys/module/", module, "/initstate"), *state);
    return fail(text(module, " is loaded and not at work: its state is '", printable(*state, 20), "', not 'live'"), kReload);
  }
  if (patient.files.facts(kPeersFolder).kind != NodeKind::folder) return loaded;
  const std::vector<std::string> peers = patient.files.names(kPeersFolder);
  findings.reading(kPeersFolder, peers.empty() ? "empty" : joined(peers));
  if (std::ranges::any_of(peers, [](const std::string& peer) { return peer.starts_with("nv_mem"); })) return loaded;
  return fail("nvidia-peermem is loaded, but the RDMA stack does not list it among its memory peers", kReload);
}

}  // namespace

std::vector<std::string> gpus_on_pci(const Patient& patient) {
  std::vector<std::string> addresses;
  for (const PciNode& node : patient.topology.pci) {
    if (node.vendor == kNvidia && node.class_code >> 16 == kDisplay) addresses.push_back(node.address.to_string());
  }
  if (!patient.topology.pci.empty()) return addresses;
  // No topology, since discovery failed: the files say it too.
  for (const std::string& address : patient.files.names(kPciFolder)) {
    const std::string folder = pci_folder(address);
    if (patient.files.word(folder + "/vendor") != "0x10de") continue;
    if (patient.files.word(folder + "/class").value_or("").starts_with("0x03")) addresses.push_back(address);
  }
  return addresses;
}

bool has_nvidia(const Patient& patient) {
  return !patient.topology.gpus.empty() || !patient.answers.gpus.empty() || !gpus_on_pci(patient).empty() ||
         driver_module(patient).is_loaded || patient.files.exists(kControlNode);
}

std::string container(const Patient& patient) {
  if (patient.files.exists("/.dockerenv")) return "a Docker container";
  if (patient.files.exists("/run/.containerenv")) return "a Podman container";
  if (const auto kind = patient.files.word("/run/systemd/container")) return "a container (" + printable(*kind, 40) + ")";
  if (is_root_overlay(patient)) return "a container (its root is an overlay)";
  return {};
}

DriverModule driver_module(const Patient& patient) {
  DriverModule module;
  const FileText file = patient.files.read(kVersionFile);
  module.state = file.state;
  const std::string line = file.content.substr(0, file.content.find('\n'));
  if (file.is_present()) {
    module.is_loaded = true;
    module.version = nvidia_version_in(line);
    if (line.find("Open Kernel Module") != std::string::npos) {
      module.is_open = Answer::yes;
    } else if (line.find("Kernel Module") != std::string::npos) {
      module.is_open = Answer::no;
    }
  } else if (const auto version = patient.files.word("/sys/module/nvidia/version")) {
    module.is_loaded = true;
    module.version = nvidia_version_in(*version);
  }
  if (module.version.empty()) module.version = nvidia_version_in(patient.answers.driver_version);
  const auto branch = parse_number(module.version.substr(0, module.version.find('.')), 1, 99999);
  module.branch = static_cast<unsigned>(branch.value_or(0));
  return module;
}

std::optional<std::map<std::string, std::string>> driver_params(const Patient& patient) {
  const FileText file = patient.files.read(kParamsFile);
  if (!file.is_present()) return {};
  std::map<std::string, std::string> params;
  for (const std::string_view line : words_of(file.content, "\n")) {
    const std::size_t colon = line.find(':');
    constexpr std::string_view kAround = " \t\r\n\"";
    if (colon == std::string_view::npos) continue;
    params[std::string(trimmed(line.substr(0, colon), kAround))] = trimmed(line.substr(colon + 1), kAround);
  }
  return params;
}

std::string shown(const std::map<std::string, std::string>& params, const std::string& name) {
  const auto found = params.find(name);
  return found == params.end() ? std::string(kNotNamed) : found->second;
}

std::vector<std::string> gpu_nodes(const Patient& patient) {
  constexpr std::string_view kPrefix = "nvidia";
  std::vector<std::string> nodes;
  for (const std::string& name : patient.files.names("/dev")) {
    if (name.starts_with(kPrefix) && parse_number(std::string_view(name).substr(kPrefix.size()), 0, 1023)) {
      nodes.push_back("/dev/" + name);
    }
  }
  return nodes;
}

Availability resource_manager_nodes(const Patient& patient) {
  const std::string in = container(patient);
  const std::string pass_on = in.empty()
                                  ? "run 'nvidia-smi' or 'sudo nvidia-modprobe -c 0', which make the nodes of a loaded driver"
                                  : "give the GPUs to the container (docker run --gpus all, or the NVIDIA device plug-in)";
  const std::string rights = "'ls -l /dev/nvidia*' shows who may: join that group, or set NVreg_DeviceFileMode=0666";
  const auto unusable = [&](const NodeReport& node) { return node.availability(node.statement(), pass_on, rights); };
  const NodeReport control = look_at_node(patient, kControlNode);
  if (!control.works()) return unusable(control);
  std::size_t usable = 0;
  std::optional<NodeReport> first_unusable;
  for (const std::string& path : gpu_nodes(patient)) {
    NodeReport node = look_at_node(patient, path);
    if (node.works()) ++usable;
    if (!node.works() && !first_unusable) first_unusable = std::move(node);
  }
  if (usable == 0 && first_unusable) return unusable(*first_unusable);
  if (usable == 0) return {AvailabilityCode::no_device, "there is no /dev/nvidia0, /dev/nvidia1, ...", pass_on};
  return {AvailabilityCode::ok, text(kControlNode, " and the nodes of ", counted(usable, "GPU"), " are usable"), {}};
}

const GpuAnswers& answers_of(const Patient& patient, const Gpu& gpu) {
  static const GpuAnswers none;
  const auto found = std::ranges::find(patient.answers.gpus, gpu.address.to_string(), &GpuAnswers::pci);
  return found == patient.answers.gpus.end() ? none : *found;
}

std::optional<int> cuda_attribute(const GpuAnswers& answers, const std::string& name) {
  const auto found = answers.cuda_attributes.find(name);
  return found == answers.cuda_attributes.end() ? std::nullopt : std::optional(found->second);
}

NvLinkFacts nvlinks_of(const Patient& patient, const Gpu& gpu) {
  const GpuAnswers& answers = answers_of(patient, gpu);
  const std::string fabric = answers.fabric_state.value_or("");
  if (!answers.nvlinks) return {gpu.nvlinks_active, gpu.nvlinks_total, gpu.nvlinks_total > 0, false, fabric};
  const auto& links = *answers.nvlinks;
  return {static_cast<std::size_t>(std::ranges::count_if(links, &nvml::NvLink::is_active)), links.size(), true,
          std::ranges::any_of(links, &nvml::NvLink::is_switch), fabric};
}

std::vector<std::string> log_lines(const Patient& patient, std::initializer_list<std::string_view> words) {
  std::vector<std::string> found;
  if (!patient.answers.kernel_log) return found;
  for (const std::string& line : *patient.answers.kernel_log) {
    const auto has = [small = lower(line)](std::string_view word) { return small.find(lower(word)) != std::string::npos; };
    if (std::ranges::all_of(words, has)) found.push_back(line);
  }
  return found;
}

std::optional<std::uint64_t> xid_in(const std::string& line) {
  const std::string small = lower(line);
  const std::size_t at = small.find("xid (");
  const std::size_t closed = at == std::string::npos ? at : small.find("): ", at);
  if (closed == std::string::npos) return {};
  const std::size_t begin = closed + 3;
  return parse_number(small.substr(begin, small.find_first_not_of("0123456789", begin) - begin), 0, UINT64_MAX);
}

Ruling dmabuf_of_kernel(const Patient& patient, Findings& findings) {
  const std::string release = patient.files.word("/proc/sys/kernel/osrelease").value_or("");
  findings.reading("/proc/sys/kernel/osrelease", release.empty() ? "missing" : release);
  const auto version = version_of(release);
  if (!version) return unknown("the kernel's version could not be read", "'uname -r' tells it; 5.12 is needed");
  if (*version >= Version{5, 12}) return judge_config(patient, release, findings);
  return fail(text("kernel ", printable(release, 60), " is older than 5.12, the first whose RDMA core takes a dma-buf"),
              "install kernel 5.12 or newer");
}

Ruling dmabuf_of_verbs(const Patient& patient, Findings& findings) {
  const auto& has = patient.answers.verbs_has_dmabuf;
  findings.reading("libibverbs: ibv_reg_dmabuf_mr", !has ? "not told" : *has ? "present" : "absent");
  if (!has)
    return unknown("libibverbs could not be asked whether it has ibv_reg_dmabuf_mr",
                   "install libibverbs 34 or newer (package libibverbs1 or rdma-core), then run this again");
  return *has ? pass("libibverbs has ibv_reg_dmabuf_mr")
              : fail("libibverbs has no ibv_reg_dmabuf_mr", "install rdma-core 34 or newer");
}

Ruling dmabuf(const Patient& patient, Findings& findings) {
  Ruling all = dmabuf_of_gpus(patient, findings);
  take(all, dmabuf_of_kernel(patient, findings));
  take(all, dmabuf_of_verbs(patient, findings));
  return all;
}

Ruling peermem(const Patient& patient, Findings& findings) {
  MaybeRuling loaded;
  for (const char* file : {"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version",
                           "/sys/kernel/mm/memory_peers/nv_mem_nc/version", "/sys/module/nv_peer_mem/version"}) {
    const auto version = patient.files.word(file);
    if (version) loaded = pass(file, " says ", version->empty() ? "nothing, but is there" : printable(*version, 40));
    findings.reading(file, version.value_or("missing"));
  }
  // A module built without a version has a folder all the same.
  for (const char* folder : {"/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem"}) {
    if (!loaded && patient.files.exists(folder)) loaded = pass(folder, " is there");
  }
  if (loaded) return judge_loaded_peermem(patient, *loaded, findings);
  if (patient.files.names("/sys/module").empty())
    return unknown("/sys/module cannot be listed here, so which modules are loaded is not known",
                   "look on the host with: lsmod | grep -E 'nvidia_peermem|nv_peer_mem'");
  return fail(
      "nvidia-peermem is not loaded",
      "sudo modprobe nvidia-peermem; when that says 'Invalid argument', the module was built without the peer-memory interface of "
      "an RDMA stack: install DOCA-OFED (or MLNX_OFED) first and then the NVIDIA driver again, or use dma-buf");
}

Ruling gin_of_driver(const Patient& patient, Findings& findings) {
  const DriverModule module = driver_module(patient);
  findings.reading(kVersionFile, module.version.empty() ? "no version" : module.version);
  if (module.is_open == Answer::no)
    return fail("the proprietary kernel modules do not let a GPU write to a network adapter's doorbells",
                "install the driver's open kernel modules, for example: sudo apt install nvidia-open");
  const auto params = driver_params(patient);
  if (!params || module.is_open == Answer::unknown) {
    findings.reading(kParamsFile, params ? "present" : "not readable");
    return unknown(text(params ? kVersionFile : kParamsFile, " could not be read"),
                   text("look on the host with: grep -E 'EnableStreamMemOPs|RegistryDwords' ", kParamsFile));
  }
  const std::string memops = shown(*params, "EnableStreamMemOPs");
  const bool has_memops = memops != kNotNamed && memops != "0" && !memops.empty();
  const bool has_mapping = has_dword(*params, "PeerMappingOverride");
  findings.reading(text(kParamsFile, ": EnableStreamMemOPs"), memops);
  findings.reading(text(kParamsFile, ": RegistryDwords"), shown(*params, "RegistryDwords"));
  if (has_memops && has_mapping) return pass("the driver runs with PeerMappingOverride=1 and EnableStreamMemOPs=1");
  return fail(text("the driver runs without ", has_mapping ? "" : "PeerMappingOverride=1", has_mapping || has_memops ? "" : " and ",
                   has_memops ? "" : "EnableStreamMemOPs=1"),
              "write the line: options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" NVreg_EnableStreamMemOPs=1 to "
              "/etc/modprobe.d/nvidia-gin.conf, run 'sudo update-initramfs -u' (or 'sudo dracut -f'), and reboot");
}

}  // namespace gigabar::doctor
