// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_facts.hpp"

#include <algorithm>
#include <sstream>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/device_nodes.hpp"
#include "platform/nvidia.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::uint32_t kDisplay = 0x03;  // base class

// "overlay / overlay rw,...": the root of a container that leaves no other mark.
bool is_root_overlay(const Patient& patient) {
  std::istringstream lines(patient.files.read("/proc/self/mounts").content);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what, where, kind;
    words >> what >> where >> kind;
    if (where == "/" && kind == "overlay") return true;
  }
  return false;
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
    const std::string folder = text(kPciFolder, "/", address);
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
  for (std::string_view rest = file.content; !rest.empty();) {
    const std::string_view line = next_line(rest);
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
  if (usable == 0) return {AvailabilityCode::no_device, "there is no /dev/nvidia0, /dev/nvidia1, ...", pass_on, {}};
  return {AvailabilityCode::ok, text(kControlNode, " and the nodes of ", counted(usable, "GPU"), " are usable"), {}, {}};
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

void judge_each_gpu(const Patient& patient, Findings& findings, GpuJudge judge) {
  for (const Gpu& gpu : gpus_to_check(patient, findings)) judge(patient, gpu, answers_of(patient, gpu), findings);
  findings.join_gpus();
}

std::vector<Gpu> gpus_to_check(const Patient& patient, Findings& findings) {
  if (!patient.topology.gpus.empty()) return patient.topology.gpus;
  if (has_nvidia(patient)) {
    findings.unknown({}, "the NVIDIA driver is here, but no GPU could be found",
                     "'gigabar explain drv.gpus' tells how a GPU is lost; 'lspci -d 10de:' lists what the bus has");
  } else {
    findings.no_device(patient, kNoGpu);
  }
  return {};
}

}  // namespace gigabar::doctor
