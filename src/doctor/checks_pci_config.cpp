// SPDX-License-Identifier: Apache-2.0
// What configuration space tells: redirection by ACS, sizes of packets, relaxed ordering; and root complexes that refuse reads.
#include <algorithm>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/pci_facts.hpp"

namespace gigabar::doctor {
namespace {

std::string address_of(const Patient& patient, int pci) { return node_of(patient.topology, pci).address.to_string(); }

constexpr const char* kNoEnd = "this machine has no GPU and no RDMA NIC on PCI";

// ---- pci.acs

// A bridge between two devices, below the lowest bridge above both, and the pairs that cross it.
struct CrossedPort {
  int pci = -1;
  std::string pair;  // the first
  std::size_t pairs = 0;
};

// A bridge above both that has no bridge above itself is a root port: the two are functions of one card, without a switch.
bool add_ports_between(const Topology& topology, const PciPair& pair, std::vector<CrossedPort>& ports) {
  const int common = common_bridge(topology, pair.first.pci, pair.second.pci);
  if (common < 0 || node_of(topology, common).parent < 0) return false;
  for (const int end : {pair.first.pci, pair.second.pci}) {
    const std::vector<int> way = way_up(topology, end);
    for (std::size_t i = 1; i < way.size() && way[i] != common; ++i) {
      auto known = std::ranges::find(ports, way[i], &CrossedPort::pci);
      if (known == ports.end()) known = ports.insert(known, CrossedPort{way[i], pair.subject(), 0});
      ++known->pairs;
    }
  }
  return true;
}

void judge_acs(const Patient& patient, const CrossedPort& port, ConfigReader& reader, Host host, Findings& findings) {
  const std::string address = address_of(patient, port.pci), subject = "port " + address;
  const ConfigAnswer& answer = reader.of(port.pci);
  if (answer.config.acs.is_hidden) return say_hidden(findings, subject, answer, "ACS of the ports below a common switch");
  const auto& acs = answer.config.acs;
  findings.reading(answer.path, acs ? text("ACS control: ", acs_text(acs->control), " (can: ", acs_text(acs->can), ")")
                                    : std::string("no ACS capability"));
  if (!acs || !acs->redirects())
    return findings.pass(subject, "the port lets traffic between devices below one switch pass directly");
  const std::string others = port.pairs > 2    ? text(" (and of ", port.pairs - 1, " more pairs)")
                             : port.pairs == 2 ? std::string(" (and of another pair)")
                                               : std::string{};
  findings.say(
      subject, host == Host::bare_metal ? Verdict::fail : Verdict::warn,
      text("ACS (", acs_text(acs->control), ") sends traffic between ", port.pair, others,
           " up to the root complex and back, though they share a switch"),
      text("as root, until the next reboot: setpci -s ", address,
           " ECAP_ACS+6.w=0; for good: kernel parameter pci=disable_acs_redir=", address, " or pci=config_acs=00xx@", address,
           " (all ports in one list, separated by semicolons); both give up the isolation that passing devices to "
           "virtual machines needs"));
}

// ---- pci.mps

constexpr unsigned kWantedReadBytes = 4096;

// Between a device and its root. In a virtual machine the ports above are emulated, and their registers say nothing.
void judge_payload(const Patient& patient, const PciDevice& device, ConfigReader& reader, Findings& findings) {
  std::set<unsigned> sizes;
  std::vector<std::string> list;
  for (const int pci : way_up(patient.topology, device.pci)) {
    const ConfigAnswer& answer = reader.of(pci);
    if (answer.config.express.is_hidden) return say_hidden(findings, device.subject, answer, "the payload size of the PCIe path");
    const auto& express = answer.config.express;
    if (!express) continue;
    const std::string size = express->payload_bytes ? counted(*express->payload_bytes, "byte") : std::string("a reserved value");
    findings.reading(answer.path, "MPS " + size);
    if (express->payload_bytes) sizes.insert(*express->payload_bytes);
    list.push_back(text(address_of(patient, pci), " ", size));
  }
  if (sizes.empty())
    return findings.unknown(device.subject, "no PCIe register on the path tells a payload size", "'lspci -vv' as root");
  if (sizes.size() == 1) {
    return findings.pass(device.subject,
                         text("every device on the path to the root sends payloads of up to ", counted(*sizes.begin(), "byte")));
  }
  findings.warn(device.subject, "payload sizes on the path to the root differ: " + joined(list),
                "kernel parameter pci=pcie_bus_perf (or pci=pcie_bus_safe), so that the kernel sets them", true);
}

void judge_read_request(const Patient& patient, const PciDevice& nic, ConfigReader& reader, Findings& findings) {
  const ConfigAnswer& answer = reader.of(nic.pci);
  if (answer.config.express.is_hidden) return say_hidden(findings, nic.subject, answer, "the read request size of the NIC");
  const auto& express = answer.config.express;
  if (!express) return;
  const auto bytes = express->most_read_request_bytes;
  findings.reading(answer.path, bytes ? text("MRRS ", counted(*bytes, "byte")) : std::string("MRRS: a reserved value"));
  const std::string set = "as root, until the next reboot: setpci -s " + address_of(patient, nic.pci) + " CAP_EXP+8.w=5000:7000";
  if (!bytes) {
    findings.unknown(nic.subject, "the read request size has a reserved value", set);
  } else if (*bytes < kWantedReadBytes) {
    findings.warn(nic.subject,
                  text("the NIC reads at most ", counted(*bytes, "byte"), " at once, of ", kWantedReadBytes, " possible"), set);
  } else {
    findings.pass(nic.subject, text("the NIC reads up to ", counted(*bytes, "byte"), " at once"));
  }
}

// ---- pci.ro

// Hosts whose root complex keeps writes in order at a price.
bool gains_from_relaxed_ordering(const CpuFacts& cpu) {
  const bool is_epyc = cpu.vendor == "AuthenticAMD" && cpu.name.find("EPYC") != std::string::npos;
  return is_epyc || (cpu.vendor == "GenuineIntel" && cpu.packages > 1);
}

void judge_ordering(const std::string& subject, const std::string& address, const ConfigAnswer& answer, const CpuFacts& cpu,
                    Findings& findings) {
  if (answer.config.express.is_hidden) return say_hidden(findings, subject, answer, "whether relaxed ordering is enabled");
  const auto& express = answer.config.express;
  if (!express) return findings.pass(subject, "no PCIe device, so that there is no ordering to relax");
  findings.reading(answer.path, express->has_relaxed_ordering ? "relaxed ordering enabled" : "relaxed ordering off");
  if (express->has_relaxed_ordering) return findings.pass(subject, "relaxed ordering is enabled");
  findings.reading(kCpuInfoPath, cpu.text());
  const std::string enable = "as root, until the next reboot: setpci -s " + address + " CAP_EXP+8.w=10:10";
  if (!cpu.is_known()) {
    return findings.unknown(subject, "relaxed ordering is off, and the CPU, which decides whether that costs anything, is not told",
                            "look at 'lscpu'; on AMD EPYC and on Intel with several sockets enable it: " + enable);
  }
  if (!gains_from_relaxed_ordering(cpu)) return findings.pass(subject, "relaxed ordering is off, which this CPU does not need");
  findings.warn(subject, "relaxed ordering is off, and this CPU's root complex is slow with ordered writes",
                enable + "; of a Mellanox NIC let its firmware follow the memory keys: mlxconfig -d " + address +
                    " set PCI_WR_ORDERING=per_mkey");
}

// ---- pci.vendorp2p

enum class IntelKind : std::uint8_t { client, other, unknown };  // a server's or another maker's is other

IntelKind intel_kind(const CpuFacts& cpu) {
  if (cpu.vendor != "GenuineIntel" || cpu.name.find("Xeon") != std::string::npos) return IntelKind::other;
  for (const char* name : {"Core", "Pentium", "Celeron", "Atom", "N100", "N200"}) {
    if (cpu.name.find(name) != std::string::npos) return IntelKind::client;
  }
  return IntelKind::unknown;
}

int root_port_of(const Patient& patient, const PciDevice& device) { return way_up(patient.topology, device.pci).back(); }

bool share_root_port(const Patient& patient, const PciPair& pair) {
  return root_port_of(patient, pair.first) == root_port_of(patient, pair.second);
}

void judge_root_ports(const Patient& patient, const PciPair& pair, Findings& findings) {
  if (pair.second.is_gpu && route_of(patient.topology, pair).relation == Relation::nvlink) return;
  if (share_root_port(patient, pair))
    return findings.pass(pair.subject(), "the two hang below one root port, so that reads need not cross the root complex");
  findings.reading("root ports", address_of(patient, root_port_of(patient, pair.first)) + " and " +
                                     address_of(patient, root_port_of(patient, pair.second)));
  findings.warn(pair.subject(),
                "the two hang below different root ports of an Intel client CPU, whose root complex does not carry reads "
                "between devices",
                "write instead of reading (push), put both below one switch, or stage through host memory; gpu.p2p and probe.loop "
                "tell what works");
}

}  // namespace

void check_pci_acs(const Patient& patient, Findings& findings) {
  const std::vector<PciPair> pairs = pci_pairs(patient.topology);
  if (pairs.empty()) return findings.no_end(patient, why_no_pair(patient.topology));
  std::vector<CrossedPort> ports;
  bool has_coherent = false, has_switch = false;
  for (const PciPair& pair : pairs) {
    if (pair.first.is_coherent || pair.second.is_coherent) {
      has_coherent = true;
    } else if (add_ports_between(patient.topology, pair, ports)) {
      has_switch = true;
    }
  }
  if (!has_switch) {
    return findings.skip(has_coherent ? "coherent GPUs need ACS set in a way of their own: see iommu.group"
                                      : "no GPU shares a PCIe switch with a NIC or another GPU");
  }
  const HostAnswer host = host_of(patient);
  if (host.host == Host::virtual_machine) {
    findings.readings(host.readings);
    return findings.skip(
        "in a virtual machine the rule is inverted: the host needs ACS that lets translated requests through, and ATS "
        "in both devices, and only the host can see either");
  }
  ConfigReader reader(patient);
  for (const CrossedPort& port : ports) judge_acs(patient, port, reader, host.host, findings);
  findings.join_alike("no port lies between the devices below a common switch");
}

void check_pci_mps(const Patient& patient, Findings& findings) {
  const bool is_virtual = is_virtual_machine(patient);
  const std::vector<PciDevice> ends = pci_ends(patient.topology);
  ConfigReader reader(patient);
  for (const PciDevice& end : ends) {
    const PciDevice device = with_registers(patient, end);
    if (!is_virtual) judge_payload(patient, device, reader, findings);
    if (!device.is_gpu) judge_read_request(patient, device, reader, findings);
  }
  findings.join_alike(patient,
                      ends.empty() ? kNoEnd : "in a virtual machine the ports above the devices are emulated: look on the host");
}

void check_pci_ro(const Patient& patient, Findings& findings) {
  const CpuFacts cpu = cpu_facts(patient);
  ConfigReader reader(patient);
  for (const PciDevice& end : pci_ends(patient.topology)) {
    const int pci = with_registers(patient, end).pci;
    judge_ordering(end.subject, address_of(patient, pci), reader.of(pci), cpu, findings);
  }
  findings.join_alike(patient, kNoEnd);
}

void check_pci_vendorp2p(const Patient& patient, Findings& findings) {
  const std::vector<PciPair> pairs = pci_pairs(patient.topology);
  if (pairs.empty()) return findings.no_end(patient, why_no_pair(patient.topology));
  const CpuFacts cpu = cpu_facts(patient);
  findings.reading(kCpuInfoPath, cpu.text());
  if (!cpu.is_known())
    return findings.unknown({}, "the CPU is not told, so that nothing is known of its root complex", "look at 'lscpu'");
  if (is_virtual_machine(patient))
    return findings.skip("in a virtual machine the root ports are emulated: the host's root complex decides");
  const IntelKind kind = intel_kind(cpu);
  if (kind == IntelKind::other) return findings.pass({}, "this CPU is not one of Intel's client CPUs");
  if (kind == IntelKind::unknown) {
    return findings.unknown({}, "the name of this Intel CPU tells neither a server nor a client model",
                            "look the model up; when it is a client CPU, do not read between devices below different root ports");
  }
  // First those that have something to complain of: the reading of the CPU is theirs.
  for (const bool is_turn_of_apart : {true, false}) {
    for (const PciPair& pair : pairs) {
      if (share_root_port(patient, pair) != is_turn_of_apart) judge_root_ports(patient, pair, findings);
    }
  }
  findings.join_alike(patient, "the GPUs are joined by NVLink, and there is no RDMA NIC on PCI");
}

}  // namespace gigabar::doctor
