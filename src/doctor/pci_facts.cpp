// SPDX-License-Identifier: Apache-2.0
// Devices, pairs and configuration spaces, for the checks of PCI; whether this is a virtual machine, and what CPU it has.
#include "doctor/pci_facts.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"

namespace gigabar::doctor {
namespace {

bool is_node(const Topology& topology, int pci) noexcept { return pci >= 0 && static_cast<std::size_t>(pci) < topology.pci.size(); }

// A thousand logical CPUs at two kilobytes each.
constexpr std::size_t kMaxCpuInfoBytes = std::size_t{8} << 20;

unsigned number_in(std::string_view text) { return static_cast<unsigned>(parse_number(text, 0, UINT32_MAX).value_or(0)); }

void take_field(CpuFacts& cpu, std::set<std::string, std::less<>>& packages, std::string_view key, std::string_view value) {
  if (key == "physical id") packages.emplace(value);
  if (key == "vendor_id" && cpu.vendor.empty()) cpu.vendor = printable(value, 32);
  if (key == "model name" && cpu.name.empty()) cpu.name = printable(value, 80);
  if (key == "CPU implementer" && cpu.implementer.empty()) cpu.implementer = printable(value, 32);
  if (key == "CPU part" && cpu.part.empty()) cpu.part = printable(value, 32);
  if (key == "cpu family" && cpu.family == 0) cpu.family = number_in(value);
  if (key == "model" && cpu.model == 0) cpu.model = number_in(value);
  if (key == "flags" && text(' ', value, ' ').find(" hypervisor ") != std::string::npos) cpu.has_hypervisor_flag = true;
}

// What hypervisors and clouds write where a maker writes its name. Source: DMI of QEMU, VMware, VirtualBox, Hyper-V, Xen,
// Parallels, bhyve and of the clouds named, as systemd-detect-virt(1) lists them.
constexpr std::array<std::string_view, 13> kVirtualNames{
    "QEMU",      "KVM",   "VMware",    "VirtualBox", "innotek",           "Virtual Machine",      "Xen",
    "Parallels", "BHYVE", "OpenStack", "Bochs",      "Alibaba Cloud ECS", "Google Compute Engine"};

// Instances of Amazon are virtual unless their name ends in ".metal" or has "metal-" in it ("c7g.metal-48xl").
bool names_virtual_machine(std::string_view maker, std::string_view product) {
  if (maker == "Amazon EC2") return product.find("metal") == std::string_view::npos;
  return std::ranges::any_of(kVirtualNames, [&](std::string_view name) {
    return maker.find(name) != std::string_view::npos || product.find(name) != std::string_view::npos;
  });
}

}  // namespace

std::vector<PciDevice> pci_gpus(const Topology& topology) {
  std::vector<PciDevice> devices;
  for (int i = 0; i < std::ssize(topology.gpus); ++i) {
    const Gpu& gpu = topology.gpus[static_cast<std::size_t>(i)];
    if (is_node(topology, gpu.pci)) devices.push_back({gpu.pci, i, true, gpu.is_coherent, false, subject_of(gpu)});
  }
  return devices;
}

std::vector<PciDevice> pci_nics(const Topology& topology) {
  std::vector<PciDevice> devices;
  for (int i = 0; i < std::ssize(topology.nics); ++i) {
    const Nic& nic = topology.nics[static_cast<std::size_t>(i)];
    if (is_node(topology, nic.pci)) devices.push_back({nic.pci, i, false, false, !nic.rdma_device.empty(), nic.name});
  }
  return devices;
}

std::vector<PciDevice> rdma_nics(const Topology& topology) {
  std::vector<PciDevice> devices = pci_nics(topology);
  std::erase_if(devices, [](const PciDevice& nic) { return !nic.is_rdma; });
  return devices;
}

std::vector<PciDevice> pci_ends(const Topology& topology) {
  std::vector<PciDevice> devices = pci_gpus(topology);
  for (PciDevice& nic : rdma_nics(topology)) devices.push_back(std::move(nic));
  return devices;
}

std::vector<PciPair> pci_pairs(const Topology& topology) {
  const std::vector<PciDevice> gpus = pci_gpus(topology);
  const std::vector<PciDevice> nics = rdma_nics(topology);
  std::vector<PciPair> pairs;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (const PciDevice& nic : nics) pairs.push_back({gpus[i], nic});
    for (std::size_t other = i + 1; other < gpus.size(); ++other) pairs.push_back({gpus[i], gpus[other]});
  }
  return pairs;
}

Route route_of(const Topology& topology, const PciPair& pair) {
  const auto end = [](const PciDevice& device) {
    return Endpoint{device.is_gpu ? Endpoint::Kind::gpu : Endpoint::Kind::nic, device.index};
  };
  return route_between(topology, end(pair.first), end(pair.second));
}

std::string why_no_pair(const Topology& topology) {
  if (pci_gpus(topology).empty()) return "this machine has no GPU on PCI";
  return "this machine has one GPU and no RDMA NIC on PCI: no pair to look at";
}

const PciNode& node_of(const Topology& topology, int pci) { return topology.pci[static_cast<std::size_t>(pci)]; }

PciDevice with_registers(const Patient& patient, PciDevice device) {
  const PciAddress& address = node_of(patient.topology, device.pci).address;
  const auto owner = PciAddress::parse(patient.files.link_name(pci_folder(address) + "/physfn").value_or(""));
  const int pci = owner ? patient.topology.find_pci(*owner) : -1;
  if (pci >= 0) device.pci = pci;
  return device;
}

ConfigAnswer config_of(const Patient& patient, const std::string& address) {
  ConfigAnswer answer;
  answer.path = pci_folder(address) + "/config";
  const FileText content = patient.files.read(answer.path);
  const auto config = PciConfig::parse(content.content);
  if (!content.is_present()) {
    answer.trouble = value_of(content);
  } else if (!config) {
    answer.trouble = text(counted(content.content.size(), "byte"), " are no configuration space");
  } else {
    answer.config = *config;
    if (config->is_gone) answer.trouble = "the device does not answer (every byte is 0xff)";
  }
  return answer;
}

const ConfigAnswer& ConfigReader::of(int pci) {
  const auto [found, is_new] = answers_.try_emplace(pci);
  if (is_new) found->second = config_of(patient_, node_of(patient_.topology, pci).address.to_string());
  return found->second;
}

void say_hidden(Findings& findings, const std::string& subject, const ConfigAnswer& answer, std::string_view what) {
  findings.reading(answer.path, answer.trouble.empty() ? counted(answer.config.bytes, "byte") : answer.trouble);
  if (answer.trouble.empty()) {
    findings.unknown(subject,
                     text(what, " cannot be read: the kernel gives only the first bytes of the configuration space to this user"),
                     "run as root; in a container with CAP_SYS_ADMIN of the host, or on the host itself");
  } else if (answer.config.is_gone) {
    findings.unknown(subject, text(what, " cannot be read: the device does not answer"),
                     "'gigabar explain pci.link' tells how a device is lost and what brings it back");
  } else {
    findings.unknown(subject, text(what, " cannot be read: no configuration space to read it from"),
                     "run as root and with the machine's own /sys; 'lspci -vv' shows the same registers");
  }
}

std::string CpuFacts::text() const {
  if (!is_known()) return trouble;
  std::string line = name.empty() ? (vendor.empty() ? "not an x86 CPU" : vendor) : name;
  if (is_x86()) line += gigabar::text(", ", vendor, " family ", family, " model ", model);
  if (packages != 0) line += gigabar::text(", ", counted(packages, "socket"));
  return line;
}

CpuFacts cpu_facts(const Patient& patient) {
  CpuFacts cpu;
  const FileText file = patient.files.read(kCpuInfoPath, kMaxCpuInfoBytes);
  std::set<std::string, std::less<>> packages;
  bool has_fields = false;
  for (std::string_view rest = file.content; !rest.empty();) {
    const std::string_view line = next_line(rest);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    take_field(cpu, packages, trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
    has_fields = true;
  }
  cpu.packages = packages.size();
  if (!has_fields) cpu.trouble = file.is_present() ? "empty" : value_of(file);
  return cpu;
}

HostAnswer host_of(const Patient& patient) {
  HostAnswer answer;
  const CpuFacts cpu = cpu_facts(patient);
  const char* const flag = !cpu.is_x86() ? "" : cpu.has_hypervisor_flag ? ", flag hypervisor" : ", no flag hypervisor";
  answer.readings.push_back({kCpuInfoPath, cpu.text() + flag});
  std::array<std::string, 2> words;
  constexpr std::array<const char*, 2> kPaths{"/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"};
  for (std::size_t i = 0; i < kPaths.size(); ++i) {
    const FileText file = patient.files.read(kPaths[i]);
    words[i] = printable(file.content, 80);
    answer.readings.push_back({kPaths[i], file.is_present() ? words[i] : value_of(file)});
  }
  const bool has_dmi = !words[0].empty() || !words[1].empty();
  const std::string named =
      has_dmi ? gigabar::text(" (", words[0], words[0].empty() || words[1].empty() ? "" : " ", words[1], ")") : std::string();
  if (cpu.has_hypervisor_flag || (has_dmi && names_virtual_machine(words[0], words[1]))) {
    answer.host = Host::virtual_machine;
    answer.statement = "this is a virtual machine" + named;
  } else if (cpu.is_x86() || has_dmi) {
    answer.host = Host::bare_metal;
    answer.statement = "this is bare metal, not a virtual machine" + named;
  } else {
    answer.statement = "neither the CPU's flags nor DMI tell whether this is a virtual machine";
  }
  return answer;
}

}  // namespace gigabar::doctor
