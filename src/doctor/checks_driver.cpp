// SPDX-License-Identifier: Apache-2.0
// Whether the NVIDIA driver is there and which one, and whether the libraries that go with the devices are.
#include <algorithm>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/check.hpp"
#include "doctor/device_nodes.hpp"
#include "doctor/gpu_facts.hpp"
#include "doctor/rdma_facts.hpp"
#include "platform/nvidia.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::size_t kMaxCapabilities = 256;  // two for each MIG instance of a machine

constexpr const char* kUnifiedMemoryNode = "/dev/nvidia-uvm";
constexpr const char* kCapabilitiesFolder = "/dev/nvidia-caps";

// The driver's nodes that are there.
std::vector<NodeReport> driver_nodes(const Patient& patient) {
  std::vector<NodeReport> nodes{look_at_node(patient, kControlNode), look_at_node(patient, kUnifiedMemoryNode)};
  for (const std::string& path : gpu_nodes(patient)) nodes.push_back(look_at_node(patient, path));
  return nodes;
}

// Nodes by which instances of MIG and the fabric manager are reached; a folder holds them.
std::vector<NodeReport> capability_nodes(const Patient& patient) {
  const NodeKind kind = patient.files.facts(kCapabilitiesFolder).kind;
  if (kind == NodeKind::missing) return {};
  if (kind != NodeKind::folder) {
    NodeReport folder;
    folder.path = kCapabilitiesFolder;
    folder.state = NodeState::not_a_device;
    folder.value = "not a folder";
    folder.fault = "is not the folder that the nodes of MIG instances and of the fabric manager have to be in";
    folder.remedy =
        text("sudo rm ", kCapabilitiesFolder, " (in a container: remove its mount); 'sudo nvidia-modprobe -c 0' makes it anew");
    return {folder};
  }
  std::vector<NodeReport> nodes;
  for (const std::string& name : patient.files.names(kCapabilitiesFolder)) {
    if (nodes.size() == kMaxCapabilities) break;
    if (name.starts_with("nvidia-cap")) nodes.push_back(look_at_node(patient, text(kCapabilitiesFolder, "/", name)));
  }
  return nodes;
}

void judge_absent_driver(const Patient& patient, Findings& findings, const DriverModule& module) {
  const std::string in = container(patient);
  if (module.state == FileState::unreadable || module.state == FileState::refused) {
    return findings.unknown({}, text(kVersionFile, " is there and could not be read"), text("as root: cat ", kVersionFile));
  }
  if (patient.answers.cuda.is_ok()) {
    return findings.unknown({},
                            "CUDA works, but neither /proc nor /sys tells of the kernel driver (WSL 2, or a sandbox that hides it)",
                            "nothing needs to be done for CUDA; run this on the host to see the driver");
  }
  if (!in.empty()) {
    return findings.fail({}, text("no NVIDIA driver shows inside ", in),
                         "load the driver on the host, and start the container with its GPUs: docker run --gpus all ...");
  }
  findings.fail({}, "the NVIDIA driver is not loaded, though the machine has NVIDIA GPUs or the driver's files",
                "sudo modprobe nvidia; when there is no such module, install the driver (for example: sudo apt install "
                "nvidia-open), and 'sudo dmesg | grep -i nvrm' says why a module would not load");
}

// GPUs that the driver has and that no node leads to, as "/dev/nvidia1"; a container is given some on purpose.
std::vector<std::string> missing_gpu_nodes(const Patient& patient) {
  std::vector<std::string> missing;
  if (!container(patient).empty()) return missing;
  for (const std::string& address : patient.files.names(kGpusFolder)) {
    const auto minor = nvidia_minor_in(patient.files.read(text(kGpusFolder, "/", address, "/information")).content);
    if (minor && !patient.files.exists(text("/dev/nvidia", *minor))) missing.push_back(text("/dev/nvidia", *minor));
  }
  return missing;
}

bool is_any_split(const Patient& patient) {
  return std::ranges::any_of(patient.answers.gpus, [](const GpuAnswers& gpu) { return gpu.is_mig_enabled.value_or(false); });
}

void tell_broken_nodes(Findings& findings, const std::string& driver, const std::vector<NodeReport>& nodes, Verdict verdict) {
  for (const NodeReport& node : nodes) {
    if (!node.is_broken()) continue;
    findings.reading(node.path, node.value);
    findings.say(node.path, verdict, text(driver, " is loaded, but ", node.statement()), node.remedy);
  }
}

void judge_unified_memory(const Patient& patient, Findings& findings, const std::string& driver) {
  const std::string in = container(patient);
  if (!in.empty()) {
    return findings.fail({}, text(driver, " is loaded, but /dev/nvidia-uvm is not usable in ", in, ", and CUDA needs it"),
                         "pass it on: docker run --gpus all, or --device /dev/nvidia-uvm");
  }
  findings.warn({}, text(driver, " is loaded, but /dev/nvidia-uvm is not there or not usable, and CUDA needs it"),
                "sudo nvidia-modprobe -u -c 0 (CUDA does that itself where nvidia-modprobe is installed setuid)");
}

// CUDA needs the unified memory node besides the resource manager's.
void judge_nodes(const Patient& patient, Findings& findings, const DriverModule& module, const std::vector<NodeReport>& nodes) {
  const std::string driver = module.version.empty() ? "the NVIDIA driver" : "NVIDIA driver " + module.version;
  tell_broken_nodes(findings, driver, nodes, Verdict::fail);
  tell_broken_nodes(findings, driver, capability_nodes(patient), is_any_split(patient) ? Verdict::fail : Verdict::warn);
  if (findings.count() > 0) return;
  const Availability usable = resource_manager_nodes(patient);
  if (!usable.is_ok()) return findings.fail({}, text(driver, " is loaded, but ", usable.reason), usable.remedy);
  if (const std::vector<std::string> missing = missing_gpu_nodes(patient); !missing.empty()) {
    return findings.fail({}, text(driver, " is loaded, but it has GPUs whose nodes are missing: ", joined(missing)),
                         "sudo nvidia-modprobe -c NUMBER for each, or run 'nvidia-smi' as root");
  }
  if (!look_at_node(patient, kUnifiedMemoryNode).works()) return judge_unified_memory(patient, findings, driver);
  findings.pass({}, text(driver, " is loaded, and ", usable.reason));
}

// --- libraries

struct Providers {
  std::vector<std::string> found, kinds, missing, unlisted, unknown, wanted;  // devices; kinds and wanted: providers
};

// The device's node works, and still the library that was asked does not list it: its provider's file is there, and it does not
// load.
bool is_passed_over(const Patient& patient, const std::string& device) {
  if (!patient.answers.verbs.is_ok() || is_not_asked(patient.answers.verbs)) return false;
  const std::string node = uverbs_node(patient, device);
  return !node.empty() && look_at_node(patient, node).works();
}

void add_once(std::vector<std::string>& list, const std::string& word) {
  if (std::ranges::find(list, word) == list.end()) list.push_back(word);
}

Providers look_for_providers(const Patient& patient, Findings& findings, const std::vector<std::string>& devices) {
  const std::vector<std::string> files = patient.files.names("/etc/libibverbs.d");
  findings.reading("/etc/libibverbs.d", files.empty() ? "missing or empty" : joined(files));
  Providers all;
  for (const std::string& device : devices) {
    const std::string driver = rdma_driver(patient, device);
    const std::string provider(provider_of(driver));
    findings.reading("driver of " + device, driver.empty() ? "not told" : driver);
    const bool is_named = !provider.empty();
    const bool has_file = is_named && std::ranges::binary_search(files, provider + ".driver");
    // The library listed the device: its provider works, whatever the files say.
    const bool is_listed = answers_of(patient, device) != nullptr;
    if (has_file && !is_listed && is_passed_over(patient, device)) {
      all.unlisted.push_back(device);
    } else if (is_listed || has_file) {
      all.found.push_back(device);
      if (is_named) add_once(all.kinds, provider);
    } else if (!is_named || files.empty()) {
      all.unknown.push_back(device);
    } else {
      all.missing.push_back(device);
      add_once(all.wanted, provider);
    }
  }
  return all;
}

void tell_missing_providers(Findings& findings, const Providers& all) {
  findings.fail("libibverbs",
                text("libibverbs has no provider '", joined(all.wanted), "' for ", printable(joined(all.missing)),
                     ", so it says that there is no such device"),
                "install the providers: sudo apt install ibverbs-providers (Debian, Ubuntu), sudo dnf install libibverbs (others); "
                "for a vendor's own stack, its user-space package");
}

// The library that finds none of the devices may lack their providers, which is worth more than its own words.
void tell_unusable_verbs(const Patient& patient, Findings& findings, const std::vector<std::string>& devices) {
  const Availability& verbs = patient.answers.verbs;
  if (verbs.code == AvailabilityCode::no_device) {
    const Providers all = look_for_providers(patient, findings, devices);
    if (!all.missing.empty()) return tell_missing_providers(findings, all);
  }
  findings.fail("libibverbs",
                text("the machine has ", counted(devices.size(), "RDMA device"),
                     ", but libibverbs cannot be used: ", printable(verbs.reason)),
                verbs.remedy.empty() ? "install it: sudo apt install libibverbs1 ibverbs-providers" : verbs.remedy);
}

// Whether anybody asked the library; says so when not.
bool was_asked(Findings& findings, const char* subject, const char* file, const Availability& library) {
  findings.reading(file, library.is_ok() ? "available " + library.reason : library.reason);
  if (!is_not_asked(library)) return true;
  findings.unknown(subject, "the capture does not hold what this library said",
                   "capture the machine with 'gigabar topology --capture'");
  return false;
}

void judge_verbs(const Patient& patient, Findings& findings) {
  const std::vector<std::string> devices = rdma_devices(patient);
  if (devices.empty()) return;
  const Availability& verbs = patient.answers.verbs;
  if (!was_asked(findings, "libibverbs", "libibverbs", verbs)) return;
  if (!verbs.is_ok()) return tell_unusable_verbs(patient, findings, devices);
  const Providers all = look_for_providers(patient, findings, devices);
  if (!all.missing.empty()) tell_missing_providers(findings, all);
  if (!all.unlisted.empty()) {
    findings.fail(
        "libibverbs",
        text("libibverbs has a provider's file for ", printable(joined(all.unlisted)),
             ", whose node can be opened, and does not list it: the provider does not load or does not fit the kernel's driver"),
        "'ibv_devices' prints what it cannot load; install the providers of the same release as libibverbs: sudo apt install "
        "--reinstall ibverbs-providers libibverbs1");
  }
  if (!all.unknown.empty()) {
    findings.unknown("libibverbs",
                     text("whether libibverbs has a provider for ", printable(joined(all.unknown)), " cannot be told"),
                     "'ibv_devices' lists the devices that have one");
  }
  if (!all.found.empty()) {
    findings.pass("libibverbs", text("libibverbs has a provider for ", printable(joined(all.found)),
                                     all.kinds.empty() ? "" : " (" + joined(all.kinds) + ")"));
  }
}

void judge_cuda(const Patient& patient, Findings& findings) {
  const Availability& cuda = patient.answers.cuda;
  if (!was_asked(findings, "CUDA", "libcuda.so.1", cuda)) return;
  if (cuda.is_ok()) {
    findings.pass("CUDA", text("CUDA's driver library can be used", cuda.reason.empty() ? "" : ": ", printable(cuda.reason)));
  } else {
    findings.fail("CUDA", text("CUDA cannot be used: ", cuda.reason.empty() ? "no reason was told" : printable(cuda.reason)),
                  cuda.remedy.empty() ? "'nvidia-smi' shows whether the driver and its libraries fit together" : cuda.remedy);
  }
}

void judge_nvml(const Patient& patient, Findings& findings) {
  const Availability& nvml = patient.answers.nvml;
  if (!was_asked(findings, "NVML", "libnvidia-ml.so.1", nvml)) return;
  if (nvml.is_ok()) {
    findings.pass("NVML", "NVML can be used");
  } else {
    findings.warn("NVML", text("NVML cannot be used, so much about the GPUs stays unknown: ", printable(nvml.reason)),
                  nvml.remedy.empty() ? "install the driver's libnvidia-ml.so.1 of the same version" : nvml.remedy);
  }
}

}  // namespace

void check_drv_loaded(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  findings.read(patient, kVersionFile);
  const std::vector<NodeReport> nodes = driver_nodes(patient);
  for (const NodeReport& node : nodes) findings.reading(node.path, node.value);
  const DriverModule module = driver_module(patient);
  if (!module.is_loaded) return judge_absent_driver(patient, findings, module);
  judge_nodes(patient, findings, module, nodes);
}

void check_drv_flavour(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  findings.read(patient, kVersionFile);
  const DriverModule module = driver_module(patient);
  if (module.is_open == Answer::no) {
    return findings.warn({},
                         text("the proprietary kernel modules ", module.version,
                              " are loaded: GPU memory cannot be exported as a dma-buf, only nvidia-peermem can register it"),
                         "install the open kernel modules (Turing or newer), for example: sudo apt install nvidia-open", true);
  }
  if (module.is_open == Answer::unknown) {
    return findings.unknown({}, "whether the driver's open or proprietary kernel modules are loaded could not be read",
                            text("look on the host with: cat ", kVersionFile));
  }
  if (module.branch == 0) {
    return findings.unknown({}, "the open kernel modules are loaded, but their version could not be read",
                            "'modinfo -F version nvidia' tells it; 515 or newer exports dma-bufs");
  }
  if (module.branch < kFirstOpenBranch) {
    return findings.warn({}, text("the open kernel modules ", module.version, " are older than 515 and export no dma-buf"),
                         "install a newer driver", true);
  }
  findings.pass({}, text("the open kernel modules ", module.version, " are loaded: GPU memory can be exported as a dma-buf"));
}

void check_libs(const Patient& patient, Findings& findings) {
  const bool has_gpu = has_nvidia(patient);
  if (!has_gpu && rdma_devices(patient).empty())
    return findings.no_end(patient, "this machine has neither an NVIDIA GPU nor an RDMA device");
  if (has_gpu) judge_cuda(patient, findings);
  if (has_gpu) judge_nvml(patient, findings);
  judge_verbs(patient, findings);
}

}  // namespace gigabar::doctor
