// SPDX-License-Identifier: Apache-2.0
// What configuration space tells: redirection by ACS, sizes of packets, relaxed ordering; and root complexes that refuse reads.
#include <algorithm>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/checks_pci.hpp"

namespace gigabar::doctor {
namespace {

const PciNode& node_of(const Topology& topology, int pci) { return topology.pci[static_cast<std::size_t>(pci)]; }

// Below a common switch -----------------------------------------------------------------------------------------------------------

// A bridge between two devices, below the lowest bridge above both, and the pairs that cross it.
struct CrossedPort {
  int pci = -1;
  std::string pair;  // the first
  std::size_t pairs = 0;
};

void add_port(std::vector<CrossedPort>& ports, int pci, const PciPair& pair) {
  auto known = std::find_if(ports.begin(), ports.end(), [&](const CrossedPort& port) { return port.pci == pci; });
  if (known == ports.end()) known = ports.insert(known, CrossedPort{pci, pair.subject(), 0});
  ++known->pairs;
}

// A bridge above both that has no bridge above itself is a root port: the two are functions of one card, without a switch.
bool add_ports_between(const Topology& topology, const PciPair& pair, std::vector<CrossedPort>& ports) {
  const int common = common_bridge(topology, pair.first.pci, pair.second.pci);
  if (common < 0 || node_of(topology, common).parent < 0) return false;
  for (const int end : {pair.first.pci, pair.second.pci}) {
    const std::vector<int> way = way_up(topology, end);
    for (std::size_t i = 1; i < way.size() && way[i] != common; ++i) add_port(ports, way[i], pair);
  }
  return true;
}

void judge_acs(const Patient& patient, const CrossedPort& port, ConfigReader& reader, Host host, Note& note) {
  const std::string address = node_of(patient.topology, port.pci).address.to_string();
  const ConfigReader::Answer& answer = reader.of(node_of(patient.topology, port.pci).address);
  note.subject = "port " + address;
  if (!answer.config || answer.config->acs.is_hidden) {
    say_hidden(note, answer, "ACS of the ports below a common switch");
    return;
  }
  const auto& acs = answer.config->acs;
  note.readings.push_back({answer.path, acs ? text("ACS control: ", acs_text(acs->control), " (can: ", acs_text(acs->can), ")")
                                            : std::string("no ACS capability")});
  if (!acs || !acs->redirects()) {
    note.say(Verdict::pass, "the port lets traffic between devices below one switch pass directly");
    return;
  }
  const std::string others = port.pairs > 2    ? text(" (and of ", port.pairs - 1, " more pairs)")
                             : port.pairs == 2 ? std::string(" (and of another pair)")
                                               : std::string{};
  note.say(host == Host::bare_metal ? Verdict::fail : Verdict::warn,
           text("ACS (", acs_text(acs->control), ") sends traffic between ", port.pair, others,
                " up to the root complex and back, though they share a switch"),
           text("as root, until the next reboot: setpci -s ", address,
                " ECAP_ACS+6.w=0; for good: kernel parameter "
                "pci=disable_acs_redir=",
                address, " or pci=config_acs=00xx@", address,
                " (all ports in one list, separated by semicolons); both give up the isolation that passing devices to virtual "
                "machines needs"));
}

void run_pci_acs(const Patient& patient, Findings& findings) {
  const Topology& topology = patient.topology;
  const std::vector<PciPair> pairs = pci_pairs(topology);
  if (pairs.empty()) return findings.skip(why_no_pair(topology));
  std::vector<CrossedPort> ports;
  bool has_coherent = false;
  bool has_switch = false;
  for (const PciPair& pair : pairs) {
    if (pair.first.is_coherent || pair.second.is_coherent) {
      has_coherent = true;
    } else if (add_ports_between(topology, pair, ports)) {
      has_switch = true;
    }
  }
  if (!has_switch) {
    return findings.skip(has_coherent ? "coherent GPUs need ACS set in a way of their own: see iommu.group"
                                      : "no GPU shares a PCIe switch with a NIC or another GPU");
  }
  const HostAnswer host = host_of(patient);
  if (host.host == Host::virtual_machine) {
    for (const Reading& reading : host.readings) findings.reading(reading.source, reading.value);
    return findings.skip(
        "in a virtual machine the rule is inverted: the host needs ACS that lets translated requests through, and ATS "
        "in both devices, and only the host can see either");
  }
  ConfigReader reader(patient);
  Notes notes;
  for (const CrossedPort& port : ports) {
    Note note;
    judge_acs(patient, port, reader, host.host, note);
    notes.add(std::move(note));
  }
  notes.give(findings, "no port lies between the devices below a common switch");
}

// Sizes of packets ----------------------------------------------------------------------------------------------------------------

constexpr unsigned kWantedReadBytes = 4096;

// Between a device and its root. In a virtual machine the ports above are emulated, and their registers say nothing.
void judge_payload(const Patient& patient, const PciDevice& device, ConfigReader& reader, Note& note) {
  std::set<unsigned> sizes;
  std::string list;
  for (const int pci : way_up(patient.topology, device.pci)) {
    const ConfigReader::Answer& answer = reader.of(node_of(patient.topology, pci).address);
    if (!answer.config || answer.config->express.is_hidden) return say_hidden(note, answer, "the payload size of the PCIe path");
    const auto& express = answer.config->express;
    if (!express) continue;
    const std::string size = express->payload_bytes ? counted(*express->payload_bytes, "byte") : std::string("a reserved value");
    note.readings.push_back({answer.path, "MPS " + size});
    if (express->payload_bytes) sizes.insert(*express->payload_bytes);
    list += text(list.empty() ? "" : ", ", node_of(patient.topology, pci).address.to_string(), " ", size);
  }
  if (sizes.empty()) return note.say(Verdict::unknown, "no PCIe register on the path tells a payload size", "'lspci -vv' as root");
  if (sizes.size() == 1) {
    return note.say(Verdict::pass,
                    text("every device on the path to the root sends payloads of up to ", counted(*sizes.begin(), "byte")));
  }
  note.say(Verdict::warn, "payload sizes on the path to the root differ: " + list,
           "kernel parameter pci=pcie_bus_perf (or pci=pcie_bus_safe), so that the kernel sets them", true);
}

void judge_read_request(const Patient& patient, const PciDevice& nic, ConfigReader& reader, Notes& notes) {
  Note note;
  note.subject = nic.subject;
  const PciAddress& address = node_of(patient.topology, nic.pci).address;
  const ConfigReader::Answer& answer = reader.of(address);
  if (!answer.config || answer.config->express.is_hidden) {
    say_hidden(note, answer, "the read request size of the NIC");
    return notes.add(std::move(note));
  }
  const auto& express = answer.config->express;
  if (!express) return;
  const auto bytes = express->most_read_request_bytes;
  note.readings.push_back({answer.path, bytes ? text("MRRS ", counted(*bytes, "byte")) : std::string("MRRS: a reserved value")});
  const std::string set = "as root, until the next reboot: setpci -s " + address.to_string() + " CAP_EXP+8.w=5000:7000";
  if (!bytes) {
    note.say(Verdict::unknown, "the read request size has a reserved value", set);
  } else if (*bytes < kWantedReadBytes) {
    note.say(Verdict::warn, text("the NIC reads at most ", counted(*bytes, "byte"), " at once, of ", kWantedReadBytes, " possible"),
             set);
  } else {
    note.say(Verdict::pass, text("the NIC reads up to ", counted(*bytes, "byte"), " at once"));
  }
  notes.add(std::move(note));
}

void run_pci_mps(const Patient& patient, Findings& findings) {
  const bool is_virtual = is_virtual_machine(patient);
  ConfigReader reader(patient);
  Notes notes;
  for (const PciDevice& end : pci_ends(patient.topology)) {
    const PciDevice device = with_registers(patient, end);
    if (!is_virtual) {
      Note note;
      note.subject = device.subject;
      judge_payload(patient, device, reader, note);
      notes.add(std::move(note));
    }
    if (!device.is_gpu) judge_read_request(patient, device, reader, notes);
  }
  const bool is_unseen = is_virtual && !pci_ends(patient.topology).empty();
  notes.give(findings, is_unseen ? "in a virtual machine the ports above the devices are emulated: look on the host"
                                 : "this machine has no GPU and no RDMA NIC on PCI");
}

// Relaxed ordering ----------------------------------------------------------------------------------------------------------------

// Hosts whose root complex keeps writes in order at a price.
bool gains_from_relaxed_ordering(const CpuFacts& cpu) {
  const bool is_epyc = cpu.vendor == "AuthenticAMD" && cpu.name.find("EPYC") != std::string::npos;
  return is_epyc || (cpu.vendor == "GenuineIntel" && cpu.packages > 1);
}

void judge_ordering(const PciAddress& address, const ConfigReader::Answer& answer, const CpuFacts& cpu, Note& note) {
  if (!answer.config || answer.config->express.is_hidden) return say_hidden(note, answer, "whether relaxed ordering is enabled");
  const auto& express = answer.config->express;
  if (!express) return note.say(Verdict::pass, "no PCIe device, so that there is no ordering to relax");
  note.readings.push_back({answer.path, express->has_relaxed_ordering ? "relaxed ordering enabled" : "relaxed ordering off"});
  if (express->has_relaxed_ordering) return note.say(Verdict::pass, "relaxed ordering is enabled");
  note.readings.push_back({std::string(kCpuInfoPath), cpu.is_known ? cpu.text() : cpu.trouble});
  const std::string enable = "as root, until the next reboot: setpci -s " + address.to_string() + " CAP_EXP+8.w=10:10";
  if (!cpu.is_known) {
    return note.say(Verdict::unknown,
                    "relaxed ordering is off, and the CPU, which decides whether that costs anything, is not told",
                    "look at 'lscpu'; on AMD EPYC and on Intel with several sockets enable it: " + enable);
  }
  if (!gains_from_relaxed_ordering(cpu)) return note.say(Verdict::pass, "relaxed ordering is off, which this CPU does not need");
  note.say(Verdict::warn, "relaxed ordering is off, and this CPU's root complex is slow with ordered writes",
           enable + "; of a Mellanox NIC let its firmware follow the memory keys: mlxconfig -d " + address.to_string() +
               " set PCI_WR_ORDERING=per_mkey");
}

void run_pci_ro(const Patient& patient, Findings& findings) {
  const CpuFacts cpu = cpu_facts(patient);
  ConfigReader reader(patient);
  Notes notes;
  for (const PciDevice& end : pci_ends(patient.topology)) {
    const PciAddress& address = node_of(patient.topology, with_registers(patient, end).pci).address;
    Note note;
    note.subject = end.subject;
    judge_ordering(address, reader.of(address), cpu, note);
    notes.add(std::move(note));
  }
  notes.give(findings, "this machine has no GPU and no RDMA NIC on PCI");
}

// Root complexes of client CPUs ---------------------------------------------------------------------------------------------------

enum class IntelKind : std::uint8_t { other_maker, server, client, unknown };

IntelKind intel_kind(const CpuFacts& cpu) {
  if (cpu.vendor != "GenuineIntel") return IntelKind::other_maker;
  if (cpu.name.find("Xeon") != std::string::npos) return IntelKind::server;
  for (const char* name : {"Core", "Pentium", "Celeron", "Atom", "N100", "N200"}) {
    if (cpu.name.find(name) != std::string::npos) return IntelKind::client;
  }
  return IntelKind::unknown;
}

void judge_root_ports(const Patient& patient, const PciPair& pair, Notes& notes) {
  const Topology& topology = patient.topology;
  if (pair.second.is_gpu && route_of(topology, pair).relation == Relation::nvlink) return;
  const std::vector<int> first = way_up(topology, pair.first.pci), second = way_up(topology, pair.second.pci);
  Note note;
  note.subject = pair.subject();
  if (first.back() == second.back()) {
    note.say(Verdict::pass, "the two hang below one root port, so that reads need not cross the root complex");
    return notes.add(std::move(note));
  }
  const std::string ports =
      node_of(topology, first.back()).address.to_string() + " and " + node_of(topology, second.back()).address.to_string();
  note.readings.push_back({"root ports", ports});
  note.say(
      Verdict::warn,
      "the two hang below different root ports of an Intel client CPU, whose root complex does not carry reads "
      "between devices",
      "write instead of reading (push), put both below one switch, or stage through host memory; gpu.p2p and probe.loop tell what "
      "works");
  notes.add(std::move(note));
}

void run_pci_vendorp2p(const Patient& patient, Findings& findings) {
  const std::vector<PciPair> pairs = pci_pairs(patient.topology);
  if (pairs.empty()) return findings.skip(why_no_pair(patient.topology));
  const CpuFacts cpu = cpu_facts(patient);
  findings.reading(std::string(kCpuInfoPath), cpu.is_known ? cpu.text() : cpu.trouble);
  if (!cpu.is_known) {
    return findings.unknown({}, "the CPU is not told, so that nothing is known of its root complex", "look at 'lscpu'");
  }
  if (is_virtual_machine(patient)) {
    return findings.skip("in a virtual machine the root ports are emulated: the host's root complex decides");
  }
  switch (intel_kind(cpu)) {
    case IntelKind::other_maker:
    case IntelKind::server: return findings.pass({}, "this CPU is not one of Intel's client CPUs");
    case IntelKind::unknown:
      return findings.unknown({}, "the name of this Intel CPU tells neither a server nor a client model",
                              "look the model up; when it is a client CPU, do not read between devices below different root ports");
    case IntelKind::client: break;
  }
  Notes notes;
  for (const PciPair& pair : pairs) judge_root_ports(patient, pair, notes);
  notes.give(findings, "the GPUs are joined by NVLink, and there is no RDMA NIC on PCI");
}

}  // namespace

Check pci_acs_check() {
  return {
      CheckInfo{
          .id = "pci.acs",
          .title = "ACS redirection below a common switch",
          .why =
              "ACS that redirects sends peer-to-peer traffic up to the CPU although a switch could pass it on: slow, and on some "
              "machines it hangs or corrupts data.",
          .is_probe = false,
          .what =
              "Access Control Services are bits in each port of a PCIe switch. Request Redirect (RR) and Completion Redirect (CR) "
              "make the port send everything upwards, so that an IOMMU can check it. The check reads them in every port that lies "
              "between two devices and the lowest bridge above both. It needs the whole configuration space, which only root is "
              "given.",
          .impact =
              "Traffic between a GPU and a NIC of one switch crosses the switch's uplink twice and the root complex once: rates "
              "drop to a half or less, and all pairs of the switch share the uplink. Some root complexes do not send such traffic "
              "back: jobs hang at the first kernel, or data arrive wrong. In a virtual machine with devices passed through the "
              "rule is inverted: there the host wants ACS on, with Direct Translated (DT) set and ATS enabled in both devices.",
          .confirm = "sudo lspci -vvv -s ADDRESS | grep -A2 'Access Control Services'\nACSCtl with 'ReqRedir+' or 'CmpltRedir+' is "
                     "what hurts.",
          .remedy =
              "On bare metal, until the next reboot, for each port named: sudo setpci -s ADDRESS ECAP_ACS+6.w=0\nFor good: the "
              "kernel parameter pci=disable_acs_redir=ADDRESS;ADDRESS (Linux 4.19), or pci=config_acs=00xx@ADDRESS (Linux 6.11), "
              "or ACS off in the firmware's setup. The kernel sets ACS again when it starts with the IOMMU on, so see iommu.mode "
              "too. Leave ACS on where devices are passed to virtual machines: it is what isolates them.",
          .source = "PCI Express Base Specification, 6.12 and 7.7.11 (Access Control Services); Linux "
                    "Documentation/admin-guide/kernel-parameters (disable_acs_redir, config_acs); NCCL user guide, troubleshooting "
                    "(PCI Access Control Services); NCCL #199, #214, #304, #489, #606, #629, #1086, #1205; nccl-tests #112, #252."},
      run_pci_acs};
}

Check pci_mps_check() {
  return {
      CheckInfo{
          .id = "pci.mps",
          .title = "Payload and read request sizes",
          .why = "Small reads leave a NIC waiting for the memory it reads from, and unequal payload sizes cost rate or break "
                 "transfers.",
          .is_probe = false,
          .what =
              "The Device Control register of each PCIe device holds the largest payload it sends (MPS) and the largest read it "
              "asks for at once (MRRS). MPS has to be the same on a whole path. Both are read from the configuration space beyond "
              "its first 64 bytes, which only root is given.",
          .impact =
              "With an MRRS of 512 bytes a NIC needs eight times as many requests to read from a GPU as with 4096; long paths then "
              "leave it waiting for answers. A device that gets a payload larger than its own MPS reports a malformed packet, and "
              "the transfer fails.",
          .confirm = "sudo lspci -vv -s ADDRESS | grep -E 'MaxPayload|MaxReadReq'",
          .remedy =
              "MRRS of the NIC, until the next reboot: sudo setpci -s ADDRESS CAP_EXP+8.w=5000:7000\nMPS: the kernel parameter "
              "pci=pcie_bus_perf, which sets both for every device when the machine starts.",
          .source = "PCI Express Base Specification, 7.5.3.4 (Device Control); Linux Documentation/admin-guide/kernel-parameters "
                    "(pcie_bus_perf, pcie_bus_safe); NVIDIA networking performance tuning guide."},
      run_pci_mps};
}

Check pci_ro_check() {
  return {
      CheckInfo{
          .id = "pci.ro",
          .title = "Relaxed ordering of GPUs and NICs",
          .why = "Some root complexes reach a NIC's full rate only when they may reorder its writes.",
          .is_probe = false,
          .what =
              "A device may mark its packets as free to overtake others when bit 4 of its Device Control register is set. A NIC "
              "does so for memory registered with IBV_ACCESS_RELAXED_ORDERING, or for all, as its firmware is set.",
          .impact =
              "On AMD EPYC and on Intel machines with several sockets, ordered writes wait for one another across dies: 150 "
              "instead of 200 Gb/s, or 16 instead of 40 GB/s, have been reported. With relaxed ordering, a flag may arrive before "
              "the data written ahead of it: who polls on memory needs a fence, an immediate or an atomic to know that all data "
              "are there. A few AMD machines are slower with it, so measure both.",
          .confirm = "sudo lspci -vv -s ADDRESS | grep RlxdOrd\nmlxconfig -d ADDRESS query PCI_WR_ORDERING",
          .remedy =
              "sudo setpci -s ADDRESS CAP_EXP+8.w=10:10\nmlxconfig -d ADDRESS set PCI_WR_ORDERING=per_mkey, then reset the NIC; "
              "register memory with IBV_ACCESS_RELAXED_ORDERING. Leave it off where the kernel's log says that the root port has a "
              "fault with it.",
          .source = "PCI Express Base Specification, 2.4 (ordering) and 7.5.3.4 (Device Control); UCX #8062, #9055, #10955; NCCL "
                    "#2439; rdma-core, ibv_reg_mr(3)."},
      run_pci_ro};
}

Check pci_vendorp2p_check() {
  return {
      CheckInfo{
          .id = "pci.vendorp2p",
          .title = "Root complexes that carry no reads between devices",
          .why = "Below different root ports of a client CPU writes between devices may arrive while reads fail or return ones.",
          .is_probe = false,
          .what =
              "The PCIe specification leaves it to the maker of a root complex whether it passes requests from one root port to "
              "another. Server CPUs do. Intel's client CPUs (Core, Pentium, Celeron) pass on writes at best.",
          .impact =
              "RDMA reads from a GPU, and peer-to-peer reads between two GPUs, fail, time out or return ones, while the other "
              "direction works. NVIDIA's open driver reports the read capability only for CPUs it knows to carry reads.",
          .confirm = "grep -m3 -E 'vendor_id|model name|model\\s' /proc/cpuinfo\nlspci -tv\nnvidia-smi topo -p2p r",
          .remedy =
              "Write instead of reading: let the side that has the data push them. Put both devices below one PCIe switch. Else "
              "stage through host memory.",
          .source =
              "PCI Express Base Specification, 1.3.1 (root complex: routing between ports is optional); open-gpu-kernel-modules "
              "#1253; Linux Documentation/driver-api/pci/p2pdma."},
      run_pci_vendorp2p};
}

}  // namespace gigabar::doctor
