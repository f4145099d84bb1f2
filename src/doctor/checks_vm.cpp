// SPDX-License-Identifier: Apache-2.0
// Whether this is a virtual machine, and what CPU it has.
#include <algorithm>
#include <array>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/pci_facts.hpp"

namespace gigabar::doctor {
namespace {

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

void check_vm_detect(const Patient& patient, Findings& findings) {
  const HostAnswer answer = host_of(patient);
  findings.readings(answer.readings);
  switch (answer.host) {
    case Host::bare_metal: return findings.pass({}, answer.statement);
    case Host::virtual_machine:
      return findings.warn(
          {}, answer.statement + "; whether devices reach each other directly is decided by the host",
          "run 'gigabar doctor' on the host too; for direct traffic between passed-through devices the host needs ACS "
          "with translated requests let through, and ATS enabled in GPU and NIC");
    case Host::unknown:
      return findings.unknown({}, answer.statement, "ask 'systemd-detect-virt', or read /sys/class/dmi/id/product_name as root");
  }
}

}  // namespace gigabar::doctor
