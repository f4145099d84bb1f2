// SPDX-License-Identifier: Apache-2.0
// What the IOMMU does to traffic of GPUs and NICs.
#include <algorithm>
#include <array>

#include "base/errors.hpp"
#include "doctor/checks_pci.hpp"

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
  std::string_view rest = line.content;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find_first_of(" \n"));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    const std::string_view key = word.substr(0, word.find_first_of("=."));
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) continue;
    words += (words.empty() ? "" : " ") + printable(word, 80);
  }
  return words;
}

// Words of the command line for people, never the whole of it.
Reading command_line_reading(const std::optional<std::string>& words) {
  if (!words) return {kCommandLine, "not readable"};
  return {kCommandLine, words->empty() ? "no word about the IOMMU" : *words};
}

enum class Platform : std::uint8_t { x86, other };

struct IommuSight {
  HostAnswer host;
  Platform platform = Platform::x86;
  std::optional<std::string> words;  // of the kernel's command line
};

// "12"; empty: the device is in no group.
std::string group_of(const Patient& patient, const PciDevice& device) {
  const PciAddress& address = patient.topology.pci[static_cast<std::size_t>(device.pci)].address;
  return patient.files.link_name(pci_folder(address) + "/iommu_group").value_or("");
}

void judge_translated(const IommuSight& sight, const std::string& type, Note& note) {
  const std::string so = "the IOMMU translates its addresses (type " + type + ")";
  note.readings.push_back(command_line_reading(sight.words));
  const bool is_asked_to_pass = sight.words && sight.words->find("iommu=pt") != std::string::npos;
  const std::string remedy =
      is_asked_to_pass
          ? "iommu=pt is set and this device is translated all the same: look whether the kernel takes it for untrusted, or "
            "a driver asked for it ('dmesg | grep -i iommu'); else switch the IOMMU off in the firmware's setup"
          : "add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub) and "
            "reboot, or switch the IOMMU off in the firmware's setup when no device is passed to virtual machines";
  if (sight.host.host == Host::virtual_machine) {
    return note.say(Verdict::warn, so + ", within a virtual machine, besides what the host's does", remedy, true);
  }
  if (sight.platform != Platform::x86) {
    return note.say(Verdict::warn, so + ", which costs rate on traffic between devices", remedy, true);
  }
  note.say(Verdict::fail, so + ": traffic between GPU and NIC goes up to it, or is refused", remedy, true);
}

void judge_type(const IommuSight& sight, const FileText& file, Note& note) {
  const std::string type = printable(file.content, 32);
  if (!file.is_present()) {
    return note.say(
        Verdict::unknown, "the type of its IOMMU group cannot be read",
        "as root: cat /sys/bus/pci/devices/ADDRESS/iommu_group/type; kernels before 4.19 have no such file, 'dmesg | grep -i "
        "iommu' tells their default");
  }
  if (type == "identity") return note.say(Verdict::pass, "the IOMMU passes its addresses on as they are (identity)");
  if (type == "DMA" || type == "DMA-FQ") return judge_translated(sight, type, note);
  if (type == "unmanaged") {
    return note.say(Verdict::warn, "a driver in user space or a virtual machine holds its IOMMU group (unmanaged)",
                    "give the device back to its kernel driver when it is to be used here: 'driverctl unset-override ADDRESS'");
  }
  if (type == "blocked") {
    return note.say(Verdict::fail, "the IOMMU blocks every transfer of the device (blocked)",
                    "load the device's driver; see 'dmesg | grep -i iommu'");
  }
  note.say(Verdict::unknown, "the type of its IOMMU group is not one that is known: " + type, "see 'dmesg | grep -i iommu'");
}

// Every device's group says the same where there is no IOMMU: there is none.
bool has_iommu(const Patient& patient, const std::vector<PciDevice>& devices) {
  return !patient.files.names(kClassFolder).empty() || !patient.files.names(kGroupsFolder).empty() ||
         std::any_of(devices.begin(), devices.end(), [&](const PciDevice& device) { return !group_of(patient, device).empty(); });
}

bool is_hidden_folder(const Patient& patient, const std::string& path) {
  const NodeFacts facts = patient.files.facts(path);
  return facts.kind != NodeKind::missing && (facts.kind != NodeKind::folder || !facts.can_read);
}

void judge_device(const Patient& patient, const PciDevice& device, const IommuSight& sight, Notes& notes) {
  Note note;
  note.subject = device.subject;
  const std::string group = group_of(patient, device);
  if (group.empty()) {
    note.say(Verdict::pass, "the device is in no IOMMU group, so that nothing translates its addresses");
  } else {
    note.readings.push_back({"IOMMU group", group});
    judge_type(sight, note.read(patient, text(kGroupsFolder, "/", group, "/type")), note);
  }
  notes.add(std::move(note));
}

void say_no_iommu(const Patient& patient, Findings& findings) {
  findings.reading(kClassFolder, "no entry");
  findings.reading(kGroupsFolder, "no entry");
  if (is_hidden_folder(patient, kClassFolder) || is_hidden_folder(patient, kGroupsFolder) ||
      !patient.files.exists("/sys/bus/pci")) {
    return findings.unknown({}, "/sys does not show whether there is an IOMMU", "run as root, with the machine's own /sys");
  }
  if (is_virtual_machine(patient)) {
    return findings.skip("this virtual machine has no IOMMU of its own, and the host's cannot be seen from within");
  }
  findings.pass({}, "no IOMMU is in use");
}

void run_iommu_mode(const Patient& patient, Findings& findings) {
  const std::vector<PciDevice> devices = pci_ends(patient.topology);
  if (devices.empty()) return findings.skip("this machine has no GPU and no RDMA NIC on PCI");
  if (!has_iommu(patient, devices)) return say_no_iommu(patient, findings);
  if (std::any_of(devices.begin(), devices.end(), [](const PciDevice& device) { return device.is_coherent; })) {
    return findings.pass({}, "GPUs that share their CPU's memory need the IOMMU's translation; it is part of the platform");
  }
  const CpuFacts cpu = cpu_facts(patient);
  const IommuSight sight{host_of(patient), cpu.is_known && !cpu.is_x86() ? Platform::other : Platform::x86, iommu_words(patient)};
  Notes notes;
  for (const PciDevice& device : devices) judge_device(patient, device, sight, notes);
  notes.give(findings, "there is no device to look at");
}

// Groups of a coherent platform's DMA functions -----------------------------------------------------------------------------------

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
  const int node = topology.pci[static_cast<std::size_t>(function)].numa_node;
  const auto near = std::find_if(gpus.begin(), gpus.end(), [&](const PciDevice& gpu) {
    return gpu.is_coherent && node >= 0 && topology.pci[static_cast<std::size_t>(gpu.pci)].numa_node == node;
  });
  return near == gpus.end() ? nullptr : &*near;
}

constexpr const char* kSetAcs =
    "'rdma_topo check' of rdma-core tells what ACS has to be; 'rdma_topo write-grub-acs' writes the kernel parameter "
    "pci=config_acs=, "
    "then update-grub and reboot";

void judge_apart(const ConfigReader::Answer& answer, bool is_same, Note& note) {
  if (is_same) {
    return note.say(Verdict::fail, "the DMA function shares the GPU's IOMMU group, and here each needs one of its own", kSetAcs,
                    true);
  }
  if (!answer.config || answer.config->ats.is_hidden) return say_hidden(note, answer, "whether the DMA function has ATS");
  note.readings.push_back({answer.path, answer.config->ats ? "ATS present" : "no ATS"});
  if (answer.config->ats) return note.say(Verdict::pass, "the DMA function has an IOMMU group of its own, and ATS");
  note.say(Verdict::fail, "the DMA function has no ATS, which it needs in an IOMMU group of its own",
           "enable it in the NIC's firmware: mlxconfig -d DEVICE set ATS_ENABLED=true, then a cold reset", true);
}

void judge_function(const Patient& patient, int function, const PciDevice& gpu, bool has_to_share, ConfigReader& reader,
                    Note& note) {
  const PciAddress& address = patient.topology.pci[static_cast<std::size_t>(function)].address;
  PciDevice device;
  device.pci = function;
  const std::string its = group_of(patient, device), group = group_of(patient, gpu);
  note.readings.push_back({pci_folder(address) + "/iommu_group", its.empty() ? "missing" : its});
  note.readings.push_back({"iommu_group of " + gpu.subject, group.empty() ? "missing" : group});
  if (its.empty() || group.empty()) {
    return note.say(Verdict::unknown, "an IOMMU group is missing, which this platform has for every device",
                    "readlink /sys/bus/pci/devices/*/iommu_group on the machine itself");
  }
  if (!has_to_share) return judge_apart(reader.of(address), its == group, note);
  if (its == group) return note.say(Verdict::pass, "the NIC's DMA function and the GPU are in one IOMMU group");
  note.say(Verdict::fail,
           "the NIC's DMA function and the GPU are in different IOMMU groups, so that the direct mapping (forced PCIe) is refused; "
           "it is "
           "right only for a host that passes them to virtual machines",
           kSetAcs, true);
}

void run_iommu_group(const Patient& patient, Findings& findings) {
  const Topology& topology = patient.topology;
  const std::vector<PciDevice> gpus = pci_gpus(topology);
  if (std::none_of(gpus.begin(), gpus.end(), [](const PciDevice& gpu) { return gpu.is_coherent; })) {
    return findings.skip("only machines whose GPUs share their CPU's memory need this, and none here does");
  }
  const bool is_virtual = is_virtual_machine(patient);
  ConfigReader reader(patient);
  Notes notes;
  for (std::size_t i = 0; i < topology.pci.size(); ++i) {
    if (!is_dma_function(topology.pci[i])) continue;
    Note note;
    note.subject = "DMA function " + topology.pci[i].address.to_string();
    bool shares_bridge = false;
    const PciDevice* gpu = partner_of(topology, gpus, static_cast<int>(i), shares_bridge);
    if (gpu == nullptr) {
      note.say(Verdict::unknown, "no GPU below a common bridge or on the same NUMA node: which one it serves is not told",
               "'rdma_topo topo' of rdma-core shows which GPU and NIC belong together");
    } else {
      note.subject += " and " + gpu->subject;
      judge_function(patient, static_cast<int>(i), *gpu, shares_bridge && !is_virtual, reader, note);
    }
    notes.add(std::move(note));
  }
  notes.give(findings, "no NIC here has a function for direct transfers to the GPU (ConnectX-8 and later have one)");
}

}  // namespace

Check iommu_mode_check() {
  return {
      CheckInfo{
          .id = "iommu.mode",
          .title = "IOMMU of GPUs and NICs",
          .why =
              "An IOMMU that translates sends traffic between devices up to the CPU, and on x86 breaks GPUDirect or makes it slow.",
          .is_probe = false,
          .what = "The IOMMU stands between devices and memory. The kernel sorts devices into groups; a group's type says whether "
                  "addresses are translated (DMA, DMA-FQ), passed on as they are (identity), or left to a virtual machine "
                  "(unmanaged).",
          .impact =
              "With translation on, the addresses of another device's memory have to be mapped first, which drivers do not do for "
              "every kind of peer; where they do, each packet goes up to the IOMMU instead of through the switch. Seen as a third "
              "of the rate, as hangs, or as wrong data. Machines with coherent GPUs (NVLink-C2C) are built with their SMMU on, and "
              "are exempt.",
          .confirm = "cat /sys/bus/pci/devices/ADDRESS/iommu_group/type\ncat /proc/cmdline\nsudo dmesg | grep -i -E 'iommu|dmar'",
          .remedy = "Add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub (or grub2-mkconfig -o "
                    "/boot/grub2/grub.cfg), and reboot. intel_iommu=off or amd_iommu=off, or VT-d and AMD-Vi off in the firmware's "
                    "setup, go further, for machines that pass no device to virtual machines.",
          .source = "Linux Documentation/ABI/testing/sysfs-kernel-iommu_groups and Documentation/admin-guide/kernel-parameters "
                    "(iommu=); NVIDIA GPUDirect RDMA manual, chapter on supported systems; NCCL user guide, troubleshooting; NCCL "
                    "#257."},
      run_iommu_mode};
}

Check iommu_group_check() {
  return {
      CheckInfo{
          .id = "iommu.group",
          .title = "IOMMU groups of a NIC's DMA functions",
          .why =
              "On machines with coherent GPUs the direct path between NIC and GPU is open only when both are in one IOMMU group.",
          .is_probe = false,
          .what =
              "ConnectX-8 and later NICs on such boards have a second PCI function that transfers straight to the GPU below the "
              "same switch, besides the one that goes through the CPU. Groups are formed when the machine starts, after the ACS "
              "settings of the ports above.",
          .impact =
              "On bare metal with different groups the GPU's driver refuses the mapping over PCIe (errno 524, 'topology not "
              "supported for mapping type FORCE_PCIE' in the kernel's log), and transfers take the slower way through the CPU or "
              "fail to register. For virtual machines, and where function and GPU share no bridge, it is the other way round: each "
              "needs a group of its own, and the function needs ATS.",
          .confirm = "readlink /sys/bus/pci/devices/*/iommu_group\nsudo rdma_topo check",
          .remedy =
              "sudo rdma_topo write-grub-acs, then update-grub and reboot. It writes the kernel parameter pci=config_acs= for the "
              "ports of this board. A change of ACS with setpci after the start does not form the groups anew.",
          .source =
              "rdma-core #1644, #1725, #1779 (rdma_topo); Linux Documentation/admin-guide/kernel-parameters (config_acs); PCI "
              "Express Base Specification, 6.12 (ACS) and 10 (ATS)."},
      run_iommu_group};
}

}  // namespace gigabar::doctor
