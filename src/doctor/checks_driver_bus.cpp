// SPDX-License-Identifier: Apache-2.0
// The driver and the PCI bus: whether it has every GPU of the bus, and which network adapters it lets reach GPU memory.
#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::size_t kMaxListed = 64;  // findings of one kind; the rest is counted

// --- drv.gpus

std::string information_path(const std::string& address) { return text(kGpusFolder, "/", address, "/information"); }

// Reads the last line of the kernel's log about the device, written "0000:3b:00.0" by the kernel, "PCI:0000:3b:00" by the driver.
void read_last_complaint(const Patient& patient, Findings& findings, const std::string& address) {
  const std::string short_address = address.substr(0, address.find('.'));
  for (const std::string_view word : {"Xid", "RmInitAdapter failed", "fallen off", "probe", "NVRM"}) {
    const std::vector<std::string> lines = log_lines(patient, {word, short_address});
    if (!lines.empty()) return findings.reading("the kernel's log", lines.back());
  }
}

Ruling judge_lost_gpu(const Patient& patient, Findings& findings, const std::string& address) {
  const std::string folder = pci_folder(address);
  const std::string driver = patient.files.link_name(folder + "/driver").value_or("");
  findings.reading(folder + "/driver", driver.empty() ? "none" : driver);
  findings.reading(text(kGpusFolder, "/", address), "missing");
  read_last_complaint(patient, findings, address);
  if (driver.starts_with("vfio") || driver == "pci-stub")
    return warn(text("this GPU is kept for a virtual machine by ", printable(driver, 40), ", so nothing here can use it"),
                text("to take it back: echo ", address, " | sudo tee ", folder, "/driver/unbind; echo ", address,
                     " | sudo tee /sys/bus/pci/drivers/nvidia/bind"));
  if (driver == "nouveau" || driver == "nova_core" || driver == "nova-core")
    return fail(text("this GPU belongs to ", driver, ", with which CUDA does not work"),
                text("write 'blacklist ", driver, "' to /etc/modprobe.d/blacklist-", driver,
                     ".conf, run 'sudo update-initramfs -u' (or 'sudo dracut -f'), and reboot"),
                true);
  if (driver == "nvidia")
    return fail(
        "this GPU is on the bus but lost to its driver (fallen off the bus, Xid 79, or its start failed)",
        text("sudo dmesg | grep -E 'NVRM|Xid' says why; a cold restart brings it back unless power, riser or card are at fault"),
        true);
  return fail(
      text("no NVIDIA driver has this GPU", driver.empty() ? "" : ", which belongs to ", printable(driver, 40)),
      text("echo ", address, " | sudo tee /sys/bus/pci/drivers/nvidia/bind; sudo dmesg | grep -i nvrm says why it was refused"));
}

Ruling judge_ghost(const Patient& patient, Findings& findings, const std::string& address) {
  findings.reading(text(kGpusFolder, "/", address), "present");
  read_last_complaint(patient, findings, address);
  return fail("the driver names this GPU, but it is no longer on the PCI bus",
              "sudo dmesg | grep -E 'Xid|AER|pciehp' says why it left; reseat the card and its power, then restart the machine",
              true);
}

// A GPU that fell off the bus while the machine ran, by the word of the driver or of the bus itself.
struct FallenGpu {
  std::string address;     // "0000:3b:00.0"; empty: the kernel's log does not name it
  bool is_silent = false;  // its configuration space reads all ones
  std::string log_line;    // the last one that says so; empty: none does
};

constexpr std::size_t kMaxFallen = 64;

// "0000:3b:00.0" of "0000:3b:00.0", "0000:3B:00", "00000000:3b:00.0" and "3b:00.0"; nothing for other words.
std::optional<std::string> address_in(std::string_view word) {
  std::string whole(trimmed(word, ":."));
  if (whole.find('.') == std::string::npos) whole += ".0";
  const auto address = PciAddress::parse(whole);
  return address ? std::optional(address->to_string()) : std::nullopt;
}

// The first address in a line of the driver's: "NVRM: Xid (PCI:0000:3b:00): 79, ...", "NVRM: GPU 0000:3b:00.0: GPU has fallen off
// the bus.". Behind "PCI:" the digits of an address begin at once.
std::optional<std::string> address_of_line(std::string_view line) {
  constexpr std::string_view kOfAddress = "0123456789abcdefABCDEF:.";
  std::size_t end = 0;
  for (std::size_t at = line.find_first_of(kOfAddress); at != std::string_view::npos; at = line.find_first_of(kOfAddress, end)) {
    end = std::min(line.find_first_not_of(kOfAddress, at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const bool is_behind_letters = at > 0 && std::isalpha(static_cast<unsigned char>(line[at - 1])) != 0 && word.front() != ':';
    if (is_behind_letters || word.find(':') == std::string_view::npos) continue;
    if (auto address = address_in(word)) return address;
  }
  return {};
}

bool tells_of_loss(const std::string& line) {
  constexpr std::uint64_t kOffTheBus = 79;
  return lower(line).find("fallen off the bus") != std::string::npos || xid_in(line) == kOffTheBus;
}

// A line may leave out the PCI domain or the function, and the function of a GPU need not be 0.
std::string known_address(const std::vector<std::string>& known, const std::string& address) {
  const std::string device = address.substr(0, address.rfind('.'));
  const auto found = std::ranges::find_if(known, [&](const std::string& one) { return one.starts_with(device + "."); });
  return found == known.end() ? address : *found;
}

// Of the bus's NVIDIA GPUs and of those that the kernel's log names, by address.
std::map<std::string, FallenGpu> fallen_gpus(const Patient& patient) {
  std::map<std::string, FallenGpu> fallen;
  const std::vector<std::string> known = gpus_on_pci(patient);
  for (const std::string& address : known) {
    if (fallen.size() < kMaxFallen && is_silent(patient, address)) fallen[address] = {address, true, {}};
  }
  for (const std::string& line : patient.answers.kernel_log.value_or(std::vector<std::string>{})) {
    if (!tells_of_loss(line)) continue;
    const auto named = address_of_line(line);
    const std::string address = named ? known_address(known, *named) : std::string();
    if (fallen.size() >= kMaxFallen && !fallen.contains(address)) continue;
    FallenGpu& gpu = fallen[address];
    gpu.address = address;
    gpu.log_line = line;
  }
  return fallen;
}

std::string statement_of(const FallenGpu& gpu) {
  if (gpu.address.empty()) return "a GPU has fallen off the bus, as the kernel's log says without naming it";
  if (gpu.is_silent && !gpu.log_line.empty())
    return "this GPU has fallen off the bus: the kernel's log says so, and the device does not answer";
  if (gpu.is_silent)
    return "this GPU does not answer: its configuration space reads all ones, as after it has fallen off the bus or lost its power";
  return "this GPU has fallen off the bus since the machine started, as the kernel's log says";
}

Ruling judge_fallen_gpu(const Patient& patient, Findings& findings, const FallenGpu& gpu) {
  const bool is_lost = !patient.files.exists(text(kGpusFolder, "/", gpu.address));
  if (gpu.is_silent) findings.reading(pci_folder(gpu.address) + "/config", "every byte is 0xff");
  if (!gpu.log_line.empty()) findings.reading("the kernel's log", gpu.log_line);
  return fail(text(statement_of(gpu), is_lost ? ", and it is lost to its driver" : ""),
              "end the programs on it and restart the machine, best by switching its power off and on; when the GPU falls off "
              "again, check its power cables, seat, riser and temperature, and the lines before the first one of 'sudo dmesg | "
              "grep -E \"NVRM|AER|pcieport\"'",
              true);
}

struct GpuSets {
  std::set<std::string> bus, driver, lost, ghosts, excluded;
  std::map<std::string, FallenGpu> fallen;

  bool is_whole() const { return lost.empty() && ghosts.empty() && excluded.empty() && fallen.empty(); }
};

GpuSets compare(const Patient& patient) {
  GpuSets sets;
  for (const std::string& address : gpus_on_pci(patient)) sets.bus.insert(address);
  for (const std::string& address : patient.files.names(kGpusFolder)) {
    sets.driver.insert(address);
    const std::string information = patient.files.read(information_path(address)).content;
    const auto says = [&](std::string_view field, std::string_view word) {
      return field_of(information, field).value_or("").find(word) != std::string::npos;
    };
    if (says("GPU Excluded", "Yes")) sets.excluded.insert(address);
    // A GPU inside of a chip is not on the bus.
    const bool is_of_bus = says("Bus Type", "PCI") || information.empty();
    if (is_of_bus && sets.bus.count(address) == 0) sets.ghosts.insert(address);
  }
  std::ranges::set_difference(sets.bus, sets.driver, std::inserter(sets.lost, sets.lost.end()));
  sets.fallen = fallen_gpus(patient);
  for (const auto& [address, gpu] : sets.fallen) {  // that is why it is not there
    sets.lost.erase(address);
    sets.ghosts.erase(address);
  }
  return sets;
}

// A container's /proc names only the GPUs that it was given, where /sys shows all.
void drop_not_given(const Patient& patient, GpuSets& sets) {
  if (container(patient).empty() || sets.driver.empty()) return;
  const auto is_of_others = [&](const std::string& address) {
    return sets.driver.count(address) == 0 && patient.files.link_name(pci_folder(address) + "/driver") == "nvidia";
  };
  std::erase_if(sets.lost, is_of_others);
  std::erase_if(sets.fallen, [&](const auto& entry) { return is_of_others(entry.first); });
}

template <class Judge>
void judge_each(Findings& findings, const std::set<std::string>& addresses, const Judge& judge) {
  std::size_t told = 0;
  for (const std::string& address : addresses) {
    if (++told > kMaxListed)
      return findings.say({}, unknown(text(addresses.size() - kMaxListed, " more GPUs like these were not looked at"),
                                      "look at those listed first"));
    findings.say("GPU " + address, judge(address));
  }
}

MaybeRuling judge_sets(const Patient& patient, Findings& findings, const GpuSets& sets) {
  judge_each(findings, sets.lost, [&](const std::string& address) { return judge_lost_gpu(patient, findings, address); });
  judge_each(findings, sets.ghosts, [&](const std::string& address) { return judge_ghost(patient, findings, address); });
  judge_each(findings, sets.excluded, [&](const std::string& address) {
    findings.reading(information_path(address), "GPU Excluded: Yes");
    return warn("the driver is told to leave this GPU out",
                "remove NVreg_ExcludedGpus from the files in /etc/modprobe.d, and reboot", true);
  });
  if (!sets.is_whole()) return {};
  findings.reading(kPciFolder, text(sets.bus.size(), " NVIDIA display devices"));
  findings.reading(kGpusFolder, counted(sets.driver.size(), "GPU"));
  if (sets.driver.size() < sets.bus.size())
    return pass(sets.driver.size(), " of the machine's ", counted(sets.bus.size(), "GPU"), " are given to ", container(patient));
  return pass("the driver has every GPU of the bus (", sets.bus.size(), ")");
}

// --- drv.grdma_topo

enum class Chipset : std::uint8_t { free, restricted, perhaps };

struct ChipsetFacts {
  Chipset kind = Chipset::free;
  std::string name;
};

// Root ports by which the driver knows the chipsets where it wants a common switch (open kernel modules, chipset table).
std::string restricted_root_port(std::uint16_t vendor, std::uint16_t device) {
  constexpr std::uint16_t kNvidia = 0x10de;
  constexpr std::uint16_t kAmpere = 0x1def;
  constexpr std::array<std::uint16_t, 6> kGrace{0x22b1, 0x22b2, 0x22b3, 0x22b4, 0x22b8, 0x22b9};
  constexpr std::array<std::uint16_t, 6> kAltra{0xe000, 0xe00d, 0xe00e, 0xe010, 0xe100, 0xe110};
  if (vendor == kNvidia && std::ranges::find(kGrace, device) != kGrace.end()) return "NVIDIA Grace";
  if (vendor != kAmpere) return {};
  if (std::ranges::find(kAltra, device) != kAltra.end()) return "Ampere Altra";
  return device >= 0xe200 && device <= 0xe207 ? "AmpereOne-160" : "";
}

// The cores of these CPUs are sold by others too, so without a root port that names the chipset they decide nothing.
ChipsetFacts chipset_of_cores(const Patient& patient, std::vector<Reading>& readings) {
  if (!patient.files.read(kCpuInfoPath).is_present()) {
    readings.push_back({kCpuInfoPath, "not readable"});
    return {Chipset::perhaps, "a CPU that could not be read"};
  }
  const CpuFacts cpu = cpu_facts(patient);
  const auto& [implementer, part] = std::pair(cpu.implementer, cpu.part);
  readings.push_back({kCpuInfoPath, implementer.empty() ? "no Arm CPU" : text("CPU implementer ", implementer, ", part ", part)});
  if (patient.files.word("/sys/class/dmi/id/sys_vendor").value_or("").starts_with("Amazon")) return {Chipset::free, "Graviton"};
  if (implementer == "0xc0") return {Chipset::perhaps, "an Ampere CPU"};
  if (implementer == "0x41" && part == "0xd0c") return {Chipset::perhaps, "a CPU with the cores of Ampere Altra"};
  if (implementer == "0x41" && part == "0xd4f") return {Chipset::perhaps, "a CPU with the cores of NVIDIA Grace"};
  return {};
}

ChipsetFacts chipset_of(const Patient& patient, std::vector<Reading>& readings) {
  for (const PciNode& node : patient.topology.pci) {
    const std::string name = restricted_root_port(node.vendor, node.device);
    if (name.empty()) continue;
    readings.push_back({"PCI root port " + node.address.to_string(), name});
    return {Chipset::restricted, name};
  }
  return chipset_of_cores(patient, readings);
}

// Of GrdmaPciTopoCheckOverride: its value; kNotNamed: the driver has no such setting, and so no such rule; or "not readable".
std::string topo_setting(const Patient& patient) {
  const auto params = driver_params(patient);
  const std::string value = params ? shown(*params, "GrdmaPciTopoCheckOverride") : "not readable";
  return value.empty() ? std::string(kNotNamed) : value;
}

constexpr const char* kOfPair = " of GPU and adapter";

struct Pairs {
  std::vector<std::string> refused;
  std::size_t count = 0;
};

Pairs refused_pairs(const Topology& topology) {
  Pairs pairs;
  for (const PciPair& pair : pci_pairs(topology)) {
    if (pair.second.is_gpu) continue;
    ++pairs.count;
    // A coherent GPU's memory is reached through its CPU.
    const bool is_let = pair.first.is_coherent || common_bridge(topology, pair.first.pci, pair.second.pci) >= 0;
    if (!is_let) pairs.refused.push_back(pair.subject());
  }
  return pairs;
}

// Why the rule asks nothing of this machine's pairs, or what they fulfil; empty: it refuses some.
std::string exemption_of(const Patient& patient, const Pairs& pairs, const ChipsetFacts& chipset, const std::string& setting) {
  if (chipset.kind == Chipset::free)
    return "on this CPU the driver asks for no common switch of GPU and adapter: no such restriction";
  if (setting == kNotNamed) return "this driver has no rule about the PCI topology of GPU and adapter";
  if (setting == "1")
    return text("on ", chipset.name, " the driver wants GPU and adapter below a common switch, but its check is overridden");
  if (is_virtual_machine(patient)) return "in a virtual machine the driver asks for no common switch of GPU and adapter";
  if (!pairs.refused.empty()) return {};
  return text("on ", chipset.name, " GPU and adapter must share a PCI switch; of ", pairs.count,
              " pairs every one does, or need not");
}

void judge_pairs(Findings& findings, const Pairs& pairs, const ChipsetFacts& chipset, const std::vector<Reading>& readings) {
  const Ruling ruling = chipset.kind == Chipset::restricted
                            ? fail(text("on ", chipset.name,
                                        " the NVIDIA driver refuses an adapter that shares no PCI switch with the GPU, so it "
                                        "cannot use this GPU's memory"),
                                   "use an adapter below the GPU's own switch ('gigabar topology' shows them); or, at your own "
                                   "risk, set NVreg_GrdmaPciTopoCheckOverride=1 in /etc/modprobe.d and reboot",
                                   true)
                            : unknown(text("this is ", chipset.name,
                                           ": if the driver counts its chipset among those where adapter and GPU must share a PCI "
                                           "switch, it refuses this pair"),
                                      "register GPU memory to find out ('gigabar doctor --only probe'): errno 524, and 'PCI "
                                      "topology not supported for dma-buf' in the kernel's log, mean refused");
  const auto tell = [&](std::string subject) {
    findings.readings(readings);
    findings.say(std::move(subject), ruling);
  };
  if (pairs.refused.size() == pairs.count && pairs.count > 1) return tell(text("all ", counted(pairs.count, "pair"), kOfPair));
  for (std::size_t i = 0; i < std::min(pairs.refused.size(), kMaxListed); ++i) tell(pairs.refused[i]);
  if (pairs.refused.size() > kMaxListed) tell(text(pairs.refused.size() - kMaxListed, " more pairs"));
  if (pairs.count == pairs.refused.size()) return;
  findings.readings(readings);
  findings.say(text(pairs.count - pairs.refused.size(), " of ", counted(pairs.count, "pair"), kOfPair),
               pass("a common PCI switch, or a coherent GPU: the driver lets the adapter use the GPU's memory"));
}

// --- drv.dmabuf.log

struct Refusal {
  const char* words;
  const char* meaning;
  const char* remedy;
};
// The texts that the open kernel modules write when they refuse an importer.
constexpr std::array<Refusal, 3> kRefusals{
    {{"topology not supported for mapping type FORCE_PCIE",
      "the driver refused a dma-buf of the PCIe mapping type, which it exports only on coherent GPUs in the adapter's IOMMU group",
      "export without the PCIe mapping type; on coherent boards put GPU and adapter into one IOMMU group ('gigabar explain "
      "iommu.group')"},
     {"importer unable to handle MMIO without struct page",
      "the driver refused a dma-buf to an RDMA driver that cannot do peer-to-peer",
      "use a newer kernel or RDMA stack (DOCA-OFED), whose importer can"},
     {"PCI topology not supported for dma-buf",
      "the driver refused a dma-buf to an adapter because of where it sits in the PCI tree",
      "'gigabar explain drv.grdma_topo' tells the rule: use an adapter below the GPU's own switch"}}};

}  // namespace

MaybeRuling check_drv_gpus(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  GpuSets sets = compare(patient);
  drop_not_given(patient, sets);
  for (const auto& [address, gpu] : sets.fallen)
    findings.say(address.empty() ? std::string() : "GPU " + address, judge_fallen_gpu(patient, findings, gpu));
  if (!driver_module(patient).is_loaded && sets.driver.empty()) {
    findings.reading(kGpusFolder, "missing");
    return unknown(text("the NVIDIA driver is not loaded or does not show, so which of the bus's ", sets.bus.size(),
                        " GPUs it has is not known"),
                   "'gigabar explain drv.loaded' tells how to load it");
  }
  const FolderNames bus = patient.files.list(kPciFolder);
  if (patient.topology.pci.empty() && bus.names.empty()) {
    findings.reading(kPciFolder, bus.reason.empty() ? "missing or empty" : bus.reason);
    return unknown(
        text("the PCI bus does not show here, so the driver's ", counted(sets.driver.size(), "GPU"), " cannot be compared with it"),
        "run this on the host");
  }
  if (sets.bus.empty() && sets.driver.empty() && sets.fallen.empty()) {
    findings.reading(kPciFolder, "no NVIDIA display device");
    return warn("the NVIDIA driver is loaded, but no NVIDIA GPU is on the PCI bus",
                "'lspci -d 10de:' lists what is there; check power and seat of the card, or that the virtual machine was given it");
  }
  return judge_sets(patient, findings, sets);
}

MaybeRuling check_drv_grdma_topo(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  if (rdma_devices(patient).empty()) return findings.no_device(patient, kNoRdma, kInfinibandFolder);
  const Pairs pairs = refused_pairs(patient.topology);
  if (pairs.count == 0) return findings.no_end(patient, "there is no pair of a GPU and an RDMA adapter on the PCI bus");
  const std::string setting = topo_setting(patient);
  std::vector<Reading> readings{{text(kParamsFile, ": GrdmaPciTopoCheckOverride"), setting}};
  if (setting == "2") {
    findings.readings(readings);
    return fail("the driver is told to refuse every adapter that wants a GPU's memory (NVreg_GrdmaPciTopoCheckOverride=2)",
                "remove the setting from the files in /etc/modprobe.d, and reboot", true);
  }
  const ChipsetFacts chipset = chipset_of(patient, readings);
  const std::string exemption = exemption_of(patient, pairs, chipset, setting);
  if (exemption.empty()) {
    judge_pairs(findings, pairs, chipset, readings);
    return {};
  }
  findings.readings(readings);
  return pass(exemption);
}

MaybeRuling check_drv_dmabuf_log(const Patient& patient, Findings& findings) {
  if (!has_nvidia(patient)) return findings.no_device(patient, kNoGpu);
  if (!patient.answers.kernel_log) {
    findings.reading("the kernel's log", "not readable");
    return unknown("the kernel's log, where the driver says why it refuses a dma-buf, could not be read",
                   "sudo dmesg | grep 'dma-buf attach failed'");
  }
  std::size_t explained = 0;
  const std::vector<std::string> all = log_lines(patient, {"NVRM", "dma-buf attach failed"});
  for (const Refusal& refusal : kRefusals) {
    const std::vector<std::string> lines = log_lines(patient, {"NVRM", "dma-buf attach failed", refusal.words});
    if (lines.empty()) continue;
    explained += lines.size();
    findings.reading("the kernel's log", lines.back());
    findings.say({},
                 fail(text(refusal.meaning, " (", counted(lines.size(), "time"), " since the machine started)"), refusal.remedy));
  }
  if (all.empty()) return pass("the kernel's log holds no dma-buf that the driver refused");
  if (explained >= all.size()) return {};
  findings.reading("the kernel's log", all.back());
  return fail("the driver refused a dma-buf, for a reason that has no page yet",
              "read the line: sudo dmesg | grep 'dma-buf attach failed'");
}

}  // namespace gigabar::doctor
