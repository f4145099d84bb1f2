// SPDX-License-Identifier: Apache-2.0
// What the IOMMU does to traffic of GPUs and NICs.
#include <algorithm>
#include <array>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr const char* kGroupsFolder = "/sys/kernel/iommu_groups";
constexpr const char* kClassFolder = "/sys/class/iommu";
constexpr const char* kCommandLine = "/proc/cmdline";

// The kernel's parameters that speak of the IOMMU; nothing when they cannot be read.
std::optional<std::string> iommu_words(const Patient& patient) {
  constexpr std::array<std::string_view, 4> kKeys{"iommu", "intel_iommu", "amd_iommu", "arm-smmu"};
  const FileText line = patient.files.read(kCommandLine);
  if (!line.is_present()) return {};
  std::string words;
  for (const std::string_view word : words_of(line.content, " \n")) {
    const std::string_view key = word.substr(0, word.find_first_of("=."));
    if (std::ranges::find(kKeys, key) == kKeys.end()) continue;
    words += (words.empty() ? "" : " ") + printable(word, 80);
  }
  return words;
}

// Words of the command line for people, never the whole of it.
Reading command_line_reading(const std::optional<std::string>& words) {
  if (!words) return {kCommandLine, "not readable"};
  return {kCommandLine, words->empty() ? "no word about the IOMMU" : *words};
}

// What decides about a translated device, besides its group.
struct IommuSight {
  bool is_virtual = false;
  bool is_x86 = true;                // or not told
  std::optional<std::string> words;  // of the kernel's command line
};

// "12"; empty: the device is in no group.
std::string group_of(const Patient& patient, int pci) {
  return patient.files.link_name(pci_folder(node_of(patient.topology, pci).address) + "/iommu_group").value_or("");
}

Ruling judge_translated(const IommuSight& sight, const std::string& type, Findings& findings) {
  const std::string so = "the IOMMU translates its addresses (type " + type + ")";
  findings.readings({command_line_reading(sight.words)});
  const bool is_asked_to_pass = sight.words && sight.words->find("iommu=pt") != std::string::npos;
  const std::string remedy =
      is_asked_to_pass
          ? "iommu=pt is set and this device is translated all the same: look whether the kernel takes it for untrusted, or a "
            "driver asked for it ('dmesg | grep -i iommu'); else switch the IOMMU off in the firmware's setup"
          : "add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub) and reboot, or "
            "switch the IOMMU off in the firmware's setup when no device is passed to virtual machines";
  if (sight.is_virtual) return warn(so + ", within a virtual machine, besides what the host's does", remedy, true);
  if (!sight.is_x86) return warn(so + ", which costs rate on traffic between devices", remedy, true);
  return fail(so + ": traffic between GPU and NIC goes up to it, or is refused", remedy, true);
}

Ruling judge_device(const Patient& patient, const PciDevice& device, const IommuSight& sight, Findings& findings) {
  const std::string group = group_of(patient, device.pci);
  if (group.empty()) return pass("the device is in no IOMMU group, so that nothing translates its addresses");
  findings.reading("IOMMU group", group);
  const FileText file = findings.read(patient, text(kGroupsFolder, "/", group, "/type"));
  const std::string type = printable(file.content, 32);
  if (!file.is_present())
    return unknown("the type of its IOMMU group cannot be read",
                   "as root: cat /sys/bus/pci/devices/ADDRESS/iommu_group/type; kernels before 4.19 have no such file, 'dmesg | "
                   "grep -i iommu' tells their default");
  if (type == "identity") return pass("the IOMMU passes its addresses on as they are (identity)");
  if (type == "DMA" || type == "DMA-FQ") return judge_translated(sight, type, findings);
  if (type == "unmanaged")
    return warn("a driver in user space or a virtual machine holds its IOMMU group (unmanaged)",
                "give the device back to its kernel driver when it is to be used here: 'driverctl unset-override ADDRESS'");
  if (type == "blocked")
    return fail("the IOMMU blocks every transfer of the device (blocked)", "load the device's driver; see 'dmesg | grep -i iommu'");
  return unknown("the type of its IOMMU group is not one that is known: " + type, "see 'dmesg | grep -i iommu'");
}

// Every device's group says the same where there is no IOMMU: there is none.
bool has_iommu(const Patient& patient, const std::vector<PciDevice>& devices) {
  return !patient.files.names(kClassFolder).empty() || !patient.files.names(kGroupsFolder).empty() ||
         std::ranges::any_of(devices, [&](const PciDevice& device) { return !group_of(patient, device.pci).empty(); });
}

bool is_hidden_folder(const Patient& patient, const std::string& path) {
  const NodeFacts facts = patient.files.facts(path);
  return facts.kind != NodeKind::missing && (facts.kind != NodeKind::folder || !facts.can_read);
}

Ruling no_iommu(const Patient& patient, Findings& findings) {
  findings.reading(kClassFolder, "no entry");
  findings.reading(kGroupsFolder, "no entry");
  if (is_hidden_folder(patient, kClassFolder) || is_hidden_folder(patient, kGroupsFolder) || !patient.files.exists("/sys/bus/pci"))
    return unknown("/sys does not show whether there is an IOMMU", "run as root, with the machine's own /sys");
  if (is_virtual_machine(patient))
    return skip("this virtual machine has no IOMMU of its own, and the host's cannot be seen from within");
  return pass("no IOMMU is in use");
}

// ---- iommu.group: groups of a coherent platform's DMA functions

// A ConnectX NIC's function for direct transfers to a GPU: a DMA controller by its class.
bool is_dma_function(const PciNode& node) noexcept {
  constexpr std::uint16_t kMellanox = 0x15b3, kDataDirect = 0x2100;
  constexpr std::uint32_t kDmaController = 0x0801;
  return node.vendor == kMellanox && (node.device == kDataDirect || node.class_code >> 8U == kDmaController);
}

// The coherent GPU below a common bridge; else one of the same NUMA node; else null.
const PciDevice* partner_of(const Topology& topology, const std::vector<PciDevice>& gpus, int function, bool& shares_bridge) {
  for (const PciDevice& gpu : gpus) {
    shares_bridge = gpu.is_coherent && common_bridge(topology, gpu.pci, function) >= 0;
    if (shares_bridge) return &gpu;
  }
  const int node = node_of(topology, function).numa_node;
  const auto near = std::ranges::find_if(
      gpus, [&](const PciDevice& gpu) { return gpu.is_coherent && node >= 0 && node_of(topology, gpu.pci).numa_node == node; });
  return near == gpus.end() ? nullptr : &*near;
}

constexpr const char* kSetAcs =
    "'rdma_topo check' of rdma-core tells what ACS has to be; 'rdma_topo write-grub-acs' writes the kernel parameter "
    "pci=config_acs=, then update-grub and reboot";

Ruling judge_apart(const ConfigAnswer& answer, bool is_same, Findings& findings) {
  if (is_same) return fail("the DMA function shares the GPU's IOMMU group, and here each needs one of its own", kSetAcs, true);
  if (answer.config.ats.is_hidden) return hidden(findings, answer, "whether the DMA function has ATS");
  findings.reading(answer.path, answer.config.ats ? "ATS present" : "no ATS");
  if (answer.config.ats) return pass("the DMA function has an IOMMU group of its own, and ATS");
  return fail("the DMA function has no ATS, which it needs in an IOMMU group of its own",
              "enable it in the NIC's firmware: mlxconfig -d DEVICE set ATS_ENABLED=true, then a cold reset", true);
}

Ruling judge_function(const Patient& patient, int function, const PciDevice& gpu, bool has_to_share, ConfigReader& reader,
                      Findings& findings) {
  const PciAddress& address = node_of(patient.topology, function).address;
  const std::string its = group_of(patient, function), group = group_of(patient, gpu.pci);
  findings.reading(pci_folder(address) + "/iommu_group", its.empty() ? "missing" : its);
  findings.reading("iommu_group of " + gpu.subject, group.empty() ? "missing" : group);
  if (its.empty() || group.empty())
    return unknown("an IOMMU group is missing, which this platform has for every device",
                   "readlink /sys/bus/pci/devices/*/iommu_group on the machine itself");
  if (!has_to_share) return judge_apart(reader.of(function), its == group, findings);
  if (its == group) return pass("the NIC's DMA function and the GPU are in one IOMMU group");
  return fail(
      "the NIC's DMA function and the GPU are in different IOMMU groups, so that the direct mapping (forced PCIe) is refused; it "
      "is right only for a host that passes them to virtual machines",
      kSetAcs, true);
}

}  // namespace

MaybeRuling check_iommu_mode(const Patient& patient, Findings& findings) {
  const std::vector<PciDevice> devices = pci_ends(patient.topology);
  if (devices.empty()) return findings.no_end(patient, "this machine has no GPU and no RDMA NIC on PCI");
  if (!has_iommu(patient, devices)) return no_iommu(patient, findings);
  if (std::ranges::any_of(devices, &PciDevice::is_coherent))
    return pass("GPUs that share their CPU's memory need the IOMMU's translation; it is part of the platform");
  const CpuFacts cpu = cpu_facts(patient);
  const IommuSight sight{is_virtual_machine(patient), cpu.is_x86() || !cpu.is_known(), iommu_words(patient)};
  for (const PciDevice& device : devices) findings.say(device.subject, judge_device(patient, device, sight, findings));
  return findings.join_alike("there is no device to look at");
}

MaybeRuling check_iommu_group(const Patient& patient, Findings& findings) {
  const Topology& topology = patient.topology;
  const std::vector<PciDevice> gpus = pci_gpus(topology);
  if (std::ranges::none_of(gpus, &PciDevice::is_coherent))
    return findings.no_device(patient, "only machines whose GPUs share their CPU's memory need this, and none here does");
  const bool is_virtual = is_virtual_machine(patient);
  ConfigReader reader(patient);
  for (int i = 0; i < std::ssize(topology.pci); ++i) {
    if (!is_dma_function(node_of(topology, i))) continue;
    bool shares_bridge = false;
    const std::string function = "DMA function " + node_of(topology, i).address.to_string();
    if (const PciDevice* const gpu = partner_of(topology, gpus, i, shares_bridge)) {
      findings.say(text(function, " and ", gpu->subject),
                   judge_function(patient, i, *gpu, shares_bridge && !is_virtual, reader, findings));
    } else {
      findings.say(function, unknown("no GPU below a common bridge or on the same NUMA node: which one it serves is not told",
                                     "'rdma_topo topo' of rdma-core shows which GPU and NIC belong together"));
    }
  }
  return findings.join_alike("no NIC here has a function for direct transfers to the GPU (ConnectX-8 and later have one)");
}

}  // namespace gigabar::doctor
