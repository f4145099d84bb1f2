// SPDX-License-Identifier: Apache-2.0
// Whether this is a virtual machine, and what CPU it has.
#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/checks_pci.hpp"

namespace gigabar::doctor {
namespace {

// A thousand logical CPUs at two kilobytes each.
constexpr std::size_t kMaxCpuInfoBytes = std::size_t{8} << 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

unsigned number_in(std::string_view text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? number : 0;
}

bool has_word(std::string_view words, std::string_view wanted) {
  for (std::size_t at = words.find(wanted); at != std::string_view::npos; at = words.find(wanted, at + 1)) {
    const bool begins = at == 0 || words[at - 1] == ' ';
    const std::size_t end = at + wanted.size();
    if (begins && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

void take_line(CpuFacts& cpu, std::set<std::string, std::less<>>& packages, std::string_view key, std::string_view value) {
  if (key == "physical id") packages.emplace(value);
  if (key == "vendor_id" && cpu.vendor.empty()) cpu.vendor = printable(value, 32);
  if (key == "model name" && cpu.name.empty()) cpu.name = printable(value, 80);
  if (key == "cpu family" && cpu.family == 0) cpu.family = number_in(value);
  if (key == "model" && cpu.model == 0) cpu.model = number_in(value);
  if (key == "flags" && !cpu.has_hypervisor_flag) cpu.has_hypervisor_flag = has_word(value, "hypervisor");
}

// What hypervisors and clouds write where a maker writes its name. Source: DMI of QEMU, VMware, VirtualBox, Hyper-V, Xen,
// Parallels, bhyve and of the clouds named, as systemd-detect-virt(1) lists them.
constexpr std::array<std::string_view, 13> kVirtualNames{
    "QEMU",      "KVM",   "VMware",    "VirtualBox", "innotek",           "Virtual Machine",      "Xen",
    "Parallels", "BHYVE", "OpenStack", "Bochs",      "Alibaba Cloud ECS", "Google Compute Engine"};

// Instances of Amazon are virtual unless their name ends in ".metal" or has "metal-" in it ("c7g.metal-48xl").
bool names_virtual_machine(std::string_view maker, std::string_view product) {
  if (maker == "Amazon EC2") return product.find("metal") == std::string_view::npos;
  return std::any_of(kVirtualNames.begin(), kVirtualNames.end(), [&](std::string_view name) {
    return maker.find(name) != std::string_view::npos || product.find(name) != std::string_view::npos;
  });
}

void run_vm_detect(const Patient& patient, Findings& findings) {
  const HostAnswer answer = host_of(patient);
  for (const Reading& reading : answer.readings) findings.reading(reading.source, reading.value);
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

}  // namespace

std::string CpuFacts::text() const {
  std::string line = name.empty() ? (vendor.empty() ? "not an x86 CPU" : vendor) : name;
  if (is_x86()) line += gigabar::text(", ", vendor, " family ", family, " model ", model);
  if (packages != 0) line += gigabar::text(", ", counted(packages, "socket"));
  return line;
}

CpuFacts cpu_facts(const Patient& patient) {
  CpuFacts cpu;
  const FileText content = patient.files.read(std::string(kCpuInfoPath), kMaxCpuInfoBytes);
  if (!content.is_present()) {
    cpu.trouble = content.state == FileState::missing ? "missing" : content.reason;
    return cpu;
  }
  std::set<std::string, std::less<>> packages;
  std::string_view rest = content.content;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) take_line(cpu, packages, trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
    cpu.is_known = cpu.is_known || colon != std::string_view::npos;
  }
  cpu.packages = packages.size();
  if (!cpu.is_known) cpu.trouble = "empty";
  return cpu;
}

HostAnswer host_of(const Patient& patient) {
  HostAnswer answer;
  const CpuFacts cpu = cpu_facts(patient);
  std::string flag = cpu.is_known ? cpu.text() : cpu.trouble;
  if (cpu.is_x86()) flag += cpu.has_hypervisor_flag ? ", flag hypervisor" : ", no flag hypervisor";
  answer.readings.push_back({std::string(kCpuInfoPath), std::move(flag)});
  std::array<std::string, 2> words;
  constexpr std::array<const char*, 2> kPaths{"/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"};
  for (std::size_t i = 0; i < kPaths.size(); ++i) {
    const FileText content = patient.files.read(kPaths[i]);
    if (content.is_present()) words[i] = printable(trimmed(content.content), 80);
    answer.readings.push_back({kPaths[i], content.is_present()                  ? words[i]
                                          : content.state == FileState::missing ? "missing"
                                                                                : content.reason});
  }
  const bool has_dmi = !words[0].empty() || !words[1].empty();
  const std::string named = words[0] + (words[0].empty() || words[1].empty() ? "" : " ") + words[1];
  if (cpu.has_hypervisor_flag || (has_dmi && names_virtual_machine(words[0], words[1]))) {
    answer.host = Host::virtual_machine;
    answer.statement = "this is a virtual machine" + (has_dmi ? " (" + named + ")" : std::string{});
  } else if (cpu.is_x86() || has_dmi) {
    answer.host = Host::bare_metal;
    answer.statement = "this is bare metal, not a virtual machine" + (has_dmi ? " (" + named + ")" : std::string{});
  } else {
    answer.statement = "neither the CPU's flags nor DMI tell whether this is a virtual machine";
  }
  return answer;
}

Check vm_detect_check() {
  return {
      CheckInfo{
          .id = "vm.detect",
          .title = "Virtual machine",
          .why =
              "In a virtual machine the rules for ACS and the IOMMU are inverted, and the host decides whether devices reach each "
              "other directly.",
          .is_probe = false,
          .what =
              "A hypervisor sets a flag among those of the CPU, and writes its own name where firmware writes that of the maker. "
              "Devices passed through to a virtual machine sit below emulated bridges, which say nothing of the switches and "
              "links that their traffic takes.",
          .impact =
              "Addresses in a virtual machine are not those on the bus, so that requests between devices have to be translated. "
              "Without ATS in both devices and ACS that lets translated requests through, they go up to the root complex and its "
              "IOMMU and come back: a third to a half of the rate. Advice for bare metal, such as switching ACS off, would take "
              "away the isolation that the host relies on.",
          .confirm = "systemd-detect-virt\ngrep -c hypervisor /proc/cpuinfo\ncat /sys/class/dmi/id/sys_vendor "
                     "/sys/class/dmi/id/product_name",
          .remedy =
              "Nothing has to be mended in the machine itself. Run 'gigabar doctor' on the host, where switches, ACS and the IOMMU "
              "can be seen. Let the host's owner enable ATS in the NIC ('mlxconfig -d DEVICE set ATS_ENABLED=true', then a cold "
              "reset), and pass GPU and NIC of one switch to the same machine. Where a cloud gives a topology file, hand it to "
              "NCCL by NCCL_TOPO_FILE.",
          .source =
              "NVIDIA GPUDirect RDMA manual, chapter on supported systems; NCCL user guide, troubleshooting of GPU Direct, and "
              "NCCL #1205; systemd-detect-virt(1)."},
      run_vm_detect};
}

}  // namespace gigabar::doctor
