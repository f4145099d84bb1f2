// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_facts.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <sstream>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/device_nodes.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::uint32_t kDisplay = 0x03;  // base class

std::string lower(std::string_view mixed) {
  std::string small(mixed);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return small;
}

std::string trimmed(std::string_view content) {
  const std::size_t begin = content.find_first_not_of(" \t\r\n\"");
  if (begin == std::string_view::npos) return {};
  return std::string(content.substr(begin, content.find_last_not_of(" \t\r\n\"") - begin + 1));
}

bool is_version(std::string_view word) {
  return word.find('.') != std::string_view::npos && word.front() != '.' && word.size() < 32 &&
         word.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::string version_in(const std::string& line) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (is_version(word)) return word;
  }
  return {};
}

// "overlay / overlay rw,...": the root of a container that leaves no other mark.
bool is_root_overlay(const Patient& patient) {
  const FileText mounts = patient.files.read("/proc/self/mounts");
  std::istringstream lines(mounts.content);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what;
    std::string where;
    std::string kind;
    words >> what >> where >> kind;
    if (where == "/" && kind == "overlay") return true;
  }
  return false;
}

struct NamedDriver {
  std::string_view prefix;  // of an RDMA device's name
  std::string_view driver;
};
// Names that the kernel gives; udev may have renamed devices of PCI, which have a link to their driver instead.
constexpr std::array<NamedDriver, 14> kNames{{{"mlx5", "mlx5_core"},
                                              {"mlx4", "mlx4_core"},
                                              {"bnxt_re", "bnxt_en"},
                                              {"rdmap", "efa"},
                                              {"efa", "efa"},
                                              {"irdma", "irdma"},
                                              {"hns", "hns3"},
                                              {"cxgb4", "cxgb4"},
                                              {"qedr", "qede"},
                                              {"erdma", "erdma"},
                                              {"mana", "mana"},
                                              {"ionic", "ionic"},
                                              {"rxe", "rxe"},
                                              {"siw", "siw"}}};

}  // namespace

std::vector<std::string> gpus_on_pci(const Patient& patient) {
  std::vector<std::string> addresses;
  for (const PciNode& node : patient.topology.pci) {
    if (node.vendor == kNvidia && node.class_code >> 16 == kDisplay) addresses.push_back(node.address.to_string());
  }
  if (!patient.topology.pci.empty()) return addresses;
  // No topology, since discovery failed: the files say it too.
  for (const std::string& address : patient.files.names("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + address;
    if (patient.files.word(folder + "/vendor") != "0x10de") continue;
    if (patient.files.word(folder + "/class").value_or("").starts_with("0x03")) addresses.push_back(address);
  }
  return addresses;
}

bool has_nvidia(const Patient& patient) {
  return !patient.topology.gpus.empty() || !patient.answers.gpus.empty() || !gpus_on_pci(patient).empty() ||
         driver_module(patient).is_loaded || patient.files.exists(kControlNode);
}

std::vector<std::string> rdma_devices(const Patient& patient) {
  std::set<std::string> devices;
  for (const std::string& name : patient.files.names("/sys/class/infiniband")) devices.insert(name);
  for (const Nic& nic : patient.topology.nics) {
    if (!nic.rdma_device.empty()) devices.insert(nic.rdma_device);
  }
  return {devices.begin(), devices.end()};
}

std::string rdma_driver(const Patient& patient, const std::string& device) {
  if (auto driver = patient.files.link_name("/sys/class/infiniband/" + device + "/device/driver")) return *driver;
  for (const Nic& nic : patient.topology.nics) {
    if (nic.rdma_device == device && !nic.driver.empty()) return nic.driver;
  }
  for (const NamedDriver& known : kNames) {
    if (device.starts_with(known.prefix)) return std::string(known.driver);
  }
  return {};
}

std::string container(const Patient& patient) {
  if (patient.files.exists("/.dockerenv")) return "a Docker container";
  if (patient.files.exists("/run/.containerenv")) return "a Podman container";
  if (const auto kind = patient.files.word("/run/systemd/container")) return "a container (" + printable(*kind, 40) + ")";
  if (is_root_overlay(patient)) return "a container (its root is an overlay)";
  return {};
}

std::string kernel_release(const Patient& patient) { return patient.files.word("/proc/sys/kernel/osrelease").value_or(""); }

DriverModule driver_module(const Patient& patient) {
  DriverModule module;
  const FileText file = patient.files.read(kVersionFile);
  module.state = file.state;
  const std::string line = file.content.substr(0, file.content.find('\n'));
  if (file.is_present()) {
    module.is_loaded = true;
    module.version = version_in(line);
    if (line.find("Open Kernel Module") != std::string::npos) {
      module.is_open = Answer::yes;
    } else if (line.find("Kernel Module") != std::string::npos) {
      module.is_open = Answer::no;
    }
  } else if (const auto version = patient.files.word("/sys/module/nvidia/version")) {
    module.is_loaded = true;
    module.version = version_in(*version);
  }
  if (module.version.empty() && is_version(patient.answers.driver_version)) module.version = patient.answers.driver_version;
  const auto branch = parse_number(module.version.substr(0, module.version.find('.')), 1, 99999);
  module.branch = static_cast<unsigned>(branch.value_or(0));
  return module;
}

std::optional<std::map<std::string, std::string>> driver_params(const Patient& patient) {
  const FileText file = patient.files.read(kParamsFile);
  if (!file.is_present()) return {};
  std::map<std::string, std::string> params;
  std::istringstream lines(file.content);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    params[trimmed(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  return params;
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
  const auto unusable = [&](const NodeReport& node) -> Availability {
    switch (node.state) {
      case NodeState::missing: return {AvailabilityCode::no_device, node.statement(), pass_on, {}};
      case NodeState::no_permission:
        return {AvailabilityCode::no_permission, text("this user may not read and write ", node.path), rights, {}};
      case NodeState::refused: return {AvailabilityCode::no_permission, node.statement(), node.remedy, {}};
      default: return {AvailabilityCode::no_device, node.statement(), node.remedy, {}};
    }
  };
  const NodeReport control = look_at_node(patient, kControlNode);
  if (!control.works()) return unusable(control);
  std::size_t usable = 0;
  std::optional<NodeReport> first_unusable;
  for (const std::string& path : gpu_nodes(patient)) {
    NodeReport node = look_at_node(patient, path);
    if (node.works()) {
      ++usable;
    } else if (!first_unusable) {
      first_unusable = std::move(node);
    }
  }
  if (usable == 0 && first_unusable) return unusable(*first_unusable);
  if (usable == 0) return {AvailabilityCode::no_device, "there is no /dev/nvidia0, /dev/nvidia1, ...", pass_on, {}};
  return {AvailabilityCode::ok, text(kControlNode, " and the nodes of ", counted(usable, "GPU"), " are usable"), {}, {}};
}

const GpuAnswers* answers_of(const Patient& patient, const Gpu& gpu) {
  const std::string address = gpu.address.to_string();
  for (const GpuAnswers& answers : patient.answers.gpus) {
    if (answers.pci == address) return &answers;
  }
  return nullptr;
}

std::optional<int> cuda_attribute(const GpuAnswers* answers, const std::string& name) {
  if (answers == nullptr) return {};
  const auto found = answers->cuda_attributes.find(name);
  if (found == answers->cuda_attributes.end()) return {};
  return found->second;
}

std::vector<std::string> log_lines(const Patient& patient, std::initializer_list<std::string_view> words) {
  std::vector<std::string> found;
  if (!patient.answers.kernel_log) return found;
  for (const std::string& line : *patient.answers.kernel_log) {
    const std::string small = lower(line);
    if (std::all_of(words.begin(), words.end(),
                    [&](std::string_view word) { return small.find(lower(word)) != std::string::npos; })) {
      found.push_back(line);
    }
  }
  return found;
}

void say(Findings& findings, std::string subject, Verdict verdict, std::string statement, std::string remedy, bool needs_reboot) {
  switch (verdict) {
    case Verdict::pass: return findings.pass(std::move(subject), std::move(statement));
    case Verdict::warn: return findings.warn(std::move(subject), std::move(statement), std::move(remedy), needs_reboot);
    case Verdict::fail: return findings.fail(std::move(subject), std::move(statement), std::move(remedy), needs_reboot);
    case Verdict::unknown: return findings.unknown(std::move(subject), std::move(statement), std::move(remedy));
    case Verdict::skip: return findings.skip(std::move(statement));
  }
}

void read_all(Findings& findings, const std::vector<Reading>& readings) {
  for (const Reading& reading : readings) findings.reading(reading.source, reading.value);
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  const std::uint64_t unit = bytes >= kGiB ? kGiB : kMiB;
  const std::uint64_t tenth = bytes % unit * 10 / unit;
  return text(bytes / unit, tenth == 0 ? "" : text('.', tenth), unit == kGiB ? " GiB" : " MiB");
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string line;
  for (const std::string& word : words) line += text(line.empty() ? "" : between, word);
  return line;
}

void PerGpu::add(const Gpu& gpu, Verdict verdict, std::string statement, std::string remedy, std::vector<Reading> readings) {
  entries_.push_back({subject_of(gpu), verdict, std::move(statement), std::move(remedy), std::move(readings)});
}

bool PerGpu::are_alike() const {
  return entries_.size() > 1 && std::all_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
           const Entry& first = entries_.front();
           return entry.verdict == first.verdict && entry.statement == first.statement && entry.remedy == first.remedy;
         });
}

void PerGpu::say_to(Findings& findings) {
  if (are_alike()) {
    for (const Entry& entry : entries_) read_all(findings, entry.readings);
    Entry& first = entries_.front();
    say(findings, text("all ", counted(entries_.size(), "GPU")), first.verdict, std::move(first.statement),
        std::move(first.remedy));
    return;
  }
  for (Entry& entry : entries_) {
    read_all(findings, entry.readings);
    say(findings, std::move(entry.subject), entry.verdict, std::move(entry.statement), std::move(entry.remedy));
  }
}

std::vector<Gpu> gpus_to_check(const Patient& patient, Findings& findings) {
  if (!patient.topology.gpus.empty()) return patient.topology.gpus;
  if (has_nvidia(patient)) {
    findings.unknown({}, "the NVIDIA driver is here, but no GPU could be found",
                     "'gigabar explain drv.gpus' tells how a GPU is lost; 'lspci -d 10de:' lists what the bus has");
  } else {
    findings.skip(kNoGpu);
  }
  return {};
}

}  // namespace gigabar::doctor
