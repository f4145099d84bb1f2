// SPDX-License-Identifier: Apache-2.0
// Links and routes: whether each link runs at its width, what is narrower than a NIC's port, and how far a GPU's best NIC is. What
// configuration space tells: redirection by ACS, sizes of packets, relaxed ordering; and root complexes that refuse reads.
#include <algorithm>
#include <set>
#include <tuple>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "doctor/facts.hpp"
#include "platform/pci_link.hpp"

namespace gigabar::doctor {
namespace {

// Why a check of pairs has nothing to do.
std::string why_no_pair(const Topology& topology) {
  if (pci_gpus(topology).empty()) return "this machine has no GPU on PCI";
  return "this machine has one GPU and no RDMA NIC on PCI: no pair to look at";
}

// A virtual function's link and most of its control registers are its physical function's: the device with `pci` of that one, when
// the tree has it; else as it is.
PciDevice with_registers(const Patient& patient, PciDevice device) {
  const PciAddress& address = node_of(patient.topology, device.pci).address;
  const auto owner = PciAddress::parse(patient.files.link_name(pci_folder(address) + "/physfn").value_or(""));
  const int pci = owner ? patient.topology.find_pci(*owner) : -1;
  if (pci >= 0) device.pci = pci;
  return device;
}

// ---- pci.link

// One end of a link, as /sys tells of it.
struct LinkEnd {
  PciLinkFacts link;
  std::vector<Reading> readings;

  // The kernel has these files for PCIe devices only; an emulated or an old one has no link to judge.
  bool is_there() const {
    return std::ranges::any_of(readings, [](const Reading& reading) { return reading.value != "missing"; });
  }
};

LinkEnd read_end(const Patient& patient, int pci) {
  LinkEnd end;
  const auto word_of = [&](const char* name) {
    const std::string path = pci_folder(node_of(patient.topology, pci).address) + name;
    const FileText file = patient.files.read(path);
    end.readings.push_back({path, value_of(file)});
    return file.content.substr(0, file.content.find_first_of(" \n"));
  };
  end.link.gt_per_s = link_speed_in(word_of("/current_link_speed"));
  end.link.most_gt_per_s = link_speed_in(word_of("/max_link_speed"));
  end.link.width = link_lanes_in(word_of("/current_link_width"));
  end.link.most_width = link_lanes_in(word_of("/max_link_width"));
  return end;
}

// What a link is, seen from the end that looks up: an endpoint's or a switch's upper port.
struct Link {
  int lower = -1;  // index into Topology::pci
  int upper = -1;  // the port above; -1: the tree does not have it
  bool is_gpu = false;
  bool is_wanted = false;  // a GPU or an RDMA NIC depends on it
  std::string subject;
};

// Root ports and a switch's lower ports look down, and what is below them looks up: from the root, every second step is a link, and
// those between are within a switch.
void add_links_of(const Topology& topology, const PciDevice& device, std::vector<Link>& links) {
  std::vector<int> way = way_up(topology, device.pci);
  std::ranges::reverse(way);
  const bool is_wanted = device.is_gpu || device.is_rdma;
  const auto add = [&](int lower, int upper) {
    const auto known = std::ranges::find(links, lower, &Link::lower);
    if (known != links.end()) {
      known->is_wanted = known->is_wanted || is_wanted;
      return;
    }
    const bool is_end = lower == device.pci;
    const std::string name = "bridge " + node_of(topology, lower).address.to_string();
    links.push_back({lower, upper, is_end && device.is_gpu, is_wanted, is_end ? device.subject : name});
  };
  for (std::size_t i = 1; i < way.size(); i += 2) add(way[i], way[i - 1]);
  if (way.size() == 1) add(way[0], -1);
}

constexpr const char* kReseat =
    "reseat the card, the cable or the riser; look in the firmware's setup for how the slot's lanes are divided; compare LnkCap "
    "and LnkSta of 'lspci -vv' (as root)";

Ruling judge_speed(const Link& link, const PciLinkFacts& lower, const std::optional<PciLinkFacts>& upper) {
  if (lower.gt_per_s == 0 || lower.most_gt_per_s == 0)
    return unknown("its PCIe link runs at full width; its speed is not told", "'lspci -vv' (as root) shows LnkSta");
  const double most =
      upper && upper->most_gt_per_s != 0 ? std::min(lower.most_gt_per_s, upper->most_gt_per_s) : lower.most_gt_per_s;
  if (lower.gt_per_s >= most) return pass("the PCIe link runs at full width and speed");
  const std::string speeds = text(rounded(lower.gt_per_s, 1), " of ", rounded(most, 1), " GT/s");
  if (link.is_gpu)
    return pass("the PCIe link runs at full width, now at ", speeds, ": idle GPUs lower it, and probe.link reads it under load");
  if (!upper) return pass("the PCIe link runs at full width, at ", speeds, " that the device could do");
  return warn(text("the PCIe link runs at ", speeds, " that both ends can do"), kReseat);
}

constexpr const char* kAskLspci =
    "'lspci -vv' (as root) shows LnkCap and LnkSta; in a virtual machine or container ask on the host";

Ruling judge_link(const Link& link, const PciLinkFacts& lower, const std::optional<PciLinkFacts>& upper) {
  if (lower.width == 0 || lower.most_width == 0) return unknown("the width of its PCIe link is not told", kAskLspci);
  if (!upper && lower.width < lower.most_width)
    return unknown(text("its PCIe link runs at x", lower.width, " of x", lower.most_width,
                        " lanes, and the port above, which may have no more, cannot be seen"),
                   kAskLspci);
  if (upper && upper->most_width == 0) return unknown("the port above does not tell how wide it can be", kAskLspci);
  if (upper && upper->width != 0 && upper->width != lower.width)
    return unknown(text("the two ends of its link tell different widths, x", lower.width, " and x", upper->width), kAskLspci);
  const unsigned most = upper ? std::min(lower.most_width, upper->most_width) : lower.most_width;
  if (lower.width >= most) return judge_speed(link, lower, upper);
  return Ruling{link.is_wanted ? Verdict::fail : Verdict::warn,
                text("the PCIe link runs at x", lower.width, " of the x", most, " lanes that both ends have"), kReseat};
}

MaybeRuling look_at_link(const Patient& patient, const Link& link, Findings& findings) {
  const std::string address = node_of(patient.topology, link.lower).address.to_string();
  if (is_silent(patient, address)) {
    findings.reading(pci_folder(address) + "/config", "every byte is 0xff");
    return Ruling{link.is_wanted ? Verdict::fail : Verdict::warn,
                  "the device does not answer: its configuration space reads all ones, as after it was lost or without power",
                  "look for the reason in 'sudo dmesg | grep -E \"AER|pcieport|Xid\"', restart the machine, best by switching its "
                  "power off and on; when it comes back so, check seat, riser and power of the card"};
  }
  const LinkEnd lower = read_end(patient, link.lower);
  if (!link.is_wanted && !lower.is_there()) return {};
  findings.readings(lower.readings);
  std::optional<PciLinkFacts> upper;
  if (link.upper >= 0) {
    const LinkEnd end = read_end(patient, link.upper);
    findings.readings(end.readings);
    upper = end.link;
  }
  return judge_link(link, lower.link, upper);
}

// ---- pci.bottleneck

std::string rate_text(double gb_per_s) { return rounded(gb_per_s, 1) + " GB/s"; }

Reading route_reading(const Route& route) {
  std::string hops = short_name(route.relation, route.nvlink_count);
  for (const PciAddress& hop : route.hops) hops += " " + hop.to_string();
  return {"route", hops};
}

// The rate of the link above a GPU, as both its ends can run it; nothing: not told.
std::optional<double> own_link_gb_per_s(const Topology& topology, const PciDevice& device) {
  const PciNode& node = node_of(topology, device.pci);
  const std::vector<int> way = way_up(topology, device.pci);
  const double above = way.size() > 1 ? node_of(topology, way[1]).link.most_gt_per_s : 0;
  const double gt_per_s = above > 0 ? std::min(node.link.most_gt_per_s, above) : node.link.most_gt_per_s;
  const auto link = pcie_link_of_speed(gt_per_s, node.link.width);
  return link ? std::optional(link->gb_per_s()) : std::nullopt;
}

// Each GPU with the best of its NICs on PCI, then each two GPUs.
std::vector<PciPair> best_pairs(const Topology& topology) {
  const std::vector<NicOrder> orders = nic_orders(topology);
  std::vector<PciPair> pairs = pci_pairs(topology);
  std::erase_if(pairs, [&](const PciPair& pair) {
    const std::vector<int>& nics = orders[static_cast<std::size_t>(pair.first.index)].nics;
    const auto best = std::ranges::find_if(nics, [&](int nic) { return topology.nics[static_cast<std::size_t>(nic)].pci >= 0; });
    return !pair.second.is_gpu && (best == nics.end() || *best != pair.second.index);
  });
  std::ranges::sort(pairs, {},
                    [](const PciPair& pair) { return std::tuple(pair.second.is_gpu, pair.first.index, pair.second.index); });
  return pairs;
}

// Between a coherent GPU and a NIC the data go through the CPU's memory system, not over the GPU's own PCIe link: what counts is
// the NIC's way to the CPU.
Route data_route(const Topology& topology, const PciPair& pair) {
  const int node = topology.find_numa_node(pair.first.numa_node);
  if (pair.first.is_coherent && node >= 0 && common_bridge(topology, pair.first.pci, pair.second.pci) < 0)
    return route_between(topology, {Endpoint::Kind::nic, pair.second.index}, {Endpoint::Kind::numa_node, node});
  return route_of(topology, pair);
}

// Whether the route carries the rate; `end` says what would otherwise wait: " of the NIC's port".
Ruling judge_rate(const Route& route, const std::optional<double>& wanted, std::string_view end, std::string_view enough) {
  if (!route.gb_per_s || !wanted)
    return unknown("speed or width of a PCIe link on the way is not told", "pci.link tells which; ask on the host of a VM");
  if (*route.gb_per_s < *wanted * 0.999) {  // rates are sums and products of floating point
    return warn(text(printable(route.bottleneck), " carries ", rate_text(*route.gb_per_s), " each way, less than the ",
                     rate_text(*wanted), end),
                "move the card to a slot whose links all carry that rate, or repair the narrow one (pci.link); 'gigabar topology' "
                "shows the way");
  } else {
    return pass(enough);
  }
}

Ruling judge_port(const Topology& topology, const PciPair& pair, Findings& findings) {
  const Nic& nic = topology.nics[static_cast<std::size_t>(pair.second.index)];
  const Route route = data_route(topology, pair);
  const double port_gb_per_s = nic.rate_gbit_per_s() / 8;
  findings.readings(
      {route_reading(route), {"rate of the ports of " + nic.name, port_gb_per_s > 0 ? rate_text(port_gb_per_s) : "not told"}});
  if (port_gb_per_s <= 0)
    return unknown("the NIC tells no rate of an active port to compare the PCIe links with",
                   "bring a port up (rdma.port tells more) and run the check again");
  return judge_rate(route, port_gb_per_s, " of the NIC's port",
                    "every PCIe link between the GPU and its best NIC carries the port's rate");
}

MaybeRuling judge_gpus(const Topology& topology, const PciPair& pair, Findings& findings) {
  const Route route = route_of(topology, pair);
  if (route.relation == Relation::nvlink || route.relation == Relation::same_device) return {};
  findings.readings({route_reading(route)});
  const auto first = own_link_gb_per_s(topology, pair.first), second = own_link_gb_per_s(topology, pair.second);
  return judge_rate(route, first && second ? std::min(first, second) : std::nullopt, " of the GPUs' own links",
                    "no PCIe link between the GPUs is narrower than their own");
}

// ---- pci.topo

// Two NUMA nodes of one CPU package, as with NPS4 of AMD EPYC.
bool is_one_package(const Topology& topology, const PciPair& pair) {
  const auto package_of = [&](const PciDevice& device) {
    const int node = topology.find_numa_node(device.numa_node);
    return node < 0 ? -1 : topology.numa_nodes[static_cast<std::size_t>(node)].package;
  };
  return package_of(pair.first) >= 0 && package_of(pair.first) == package_of(pair.second);
}

Ruling judge_far(const Topology& topology, const PciPair& pair, Relation relation) {
  const bool is_nic = !pair.second.is_gpu;
  const std::string remedy(
      is_nic ? "bind the rank to the GPU's NUMA node and count on less; better, move the NIC below the GPU's switch or to its CPU"
             : "join the GPUs by NVLink, put both below one switch, or bind ranks so that these two talk seldom");
  std::string where;
  if (relation != Relation::other_node) {
    where = text("reached through the CPU's root complex (", short_name(relation), "), where reads are slower than writes");
  } else if (is_one_package(topology, pair)) {
    where = "on another NUMA node of the same CPU (SYS), reached through its dies";
  } else {
    where = "on another NUMA node (SYS): expect a half to a third of the rate";
  }
  return warn(text(is_nic ? "the best NIC is " : "the other GPU is ", where), remedy);
}

Ruling judge_relation(const Topology& topology, const PciPair& pair, bool is_virtual, Findings& findings) {
  const Route route = route_of(topology, pair);
  const bool is_coherent = pair.first.is_coherent && (!pair.second.is_gpu || pair.second.is_coherent);
  findings.readings({route_reading(route)});
  if (route.relation == Relation::nvlink) return pass("the GPUs are joined by NVLink");
  if (route.relation == Relation::same_device) return pass("both are one device");
  if (is_virtual)
    return unknown("this virtual machine's bridges are emulated, and do not tell where the two are to each other on the host",
                   "run 'gigabar topology' on the host, or take the topology file that the cloud gives (NCCL_TOPO_FILE)");
  if (route.relation == Relation::unknown)
    return unknown("where the two are to each other is not told (no common bridge, and a NUMA node is missing)",
                   "look at numa_node of both in /sys/bus/pci/devices; the firmware's setup may have a setting for it");
  if (is_coherent && route.relation != Relation::other_node)
    return pass("the GPU shares its CPU's memory, so that the way through the CPU is the intended one");
  if (route.relation == Relation::same_switch || route.relation == Relation::several_switches)
    return pass(pair.second.is_gpu ? "the GPUs reach each other without crossing the CPU"
                                   : "the best NIC is reached without crossing the CPU");
  return judge_far(topology, pair, route.relation);
}

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

Ruling judge_acs(const Patient& patient, const CrossedPort& port, ConfigReader& reader, Host host, Findings& findings) {
  const std::string address = address_of(patient, port.pci);
  const ConfigAnswer& answer = reader.of(port.pci);
  if (answer.config.acs.is_hidden) return hidden(findings, answer, "ACS of the ports below a common switch");
  const auto& acs = answer.config.acs;
  findings.reading(answer.path, acs ? text("ACS control: ", acs_text(acs->control), " (can: ", acs_text(acs->can), ")")
                                    : std::string("no ACS capability"));
  if (!acs || !acs->redirects()) return pass("the port lets traffic between devices below one switch pass directly");
  const std::string others = port.pairs > 2    ? text(" (and of ", port.pairs - 1, " more pairs)")
                             : port.pairs == 2 ? std::string(" (and of another pair)")
                                               : std::string{};
  return Ruling{
      host == Host::bare_metal ? Verdict::fail : Verdict::warn,
      text("ACS (", acs_text(acs->control), ") sends traffic between ", port.pair, others,
           " up to the root complex and back, though they share a switch"),
      text("as root, until the next reboot: setpci -s ", address,
           " ECAP_ACS+6.w=0; for good: kernel parameter pci=disable_acs_redir=", address, " or pci=config_acs=00xx@", address,
           " (all ports in one list, separated by semicolons); both give up the isolation that passing devices to virtual machines "
           "needs")};
}

// ---- pci.mps

constexpr unsigned kWantedReadBytes = 4096;

// Between a device and its root. In a virtual machine the ports above are emulated, and their registers say nothing.
Ruling judge_payload(const Patient& patient, const PciDevice& device, ConfigReader& reader, Findings& findings) {
  std::set<unsigned> sizes;
  std::vector<std::string> list;
  for (const int pci : way_up(patient.topology, device.pci)) {
    const ConfigAnswer& answer = reader.of(pci);
    if (answer.config.express.is_hidden) return hidden(findings, answer, "the payload size of the PCIe path");
    const auto& express = answer.config.express;
    if (!express) continue;
    const std::string size = express->payload_bytes ? counted(*express->payload_bytes, "byte") : std::string("a reserved value");
    findings.reading(answer.path, "MPS " + size);
    if (express->payload_bytes) sizes.insert(*express->payload_bytes);
    list.push_back(text(address_of(patient, pci), " ", size));
  }
  if (sizes.empty()) return unknown("no PCIe register on the path tells a payload size", "'lspci -vv' as root");
  if (sizes.size() == 1)
    return pass("every device on the path to the root sends payloads of up to ", counted(*sizes.begin(), "byte"));
  return warn("payload sizes on the path to the root differ: " + joined(list),
              "kernel parameter pci=pcie_bus_perf (or pci=pcie_bus_safe), so that the kernel sets them", true);
}

MaybeRuling judge_read_request(const Patient& patient, const PciDevice& nic, ConfigReader& reader, Findings& findings) {
  const ConfigAnswer& answer = reader.of(nic.pci);
  if (answer.config.express.is_hidden) return hidden(findings, answer, "the read request size of the NIC");
  const auto& express = answer.config.express;
  if (!express) return {};
  const auto bytes = express->most_read_request_bytes;
  findings.reading(answer.path, bytes ? text("MRRS ", counted(*bytes, "byte")) : std::string("MRRS: a reserved value"));
  const std::string set = "as root, until the next reboot: setpci -s " + address_of(patient, nic.pci) + " CAP_EXP+8.w=5000:7000";
  if (!bytes) return unknown("the read request size has a reserved value", set);
  if (*bytes < kWantedReadBytes)
    return warn(text("the NIC reads at most ", counted(*bytes, "byte"), " at once, of ", kWantedReadBytes, " possible"), set);
  return pass("the NIC reads up to ", counted(*bytes, "byte"), " at once");
}

// ---- pci.ro

// Hosts whose root complex keeps writes in order at a price.
bool gains_from_relaxed_ordering(const CpuFacts& cpu) {
  const bool is_epyc = cpu.vendor == "AuthenticAMD" && cpu.name.find("EPYC") != std::string::npos;
  return is_epyc || (cpu.vendor == "GenuineIntel" && cpu.packages > 1);
}

Ruling judge_ordering(const std::string& address, const ConfigAnswer& answer, const CpuFacts& cpu, Findings& findings) {
  if (answer.config.express.is_hidden) return hidden(findings, answer, "whether relaxed ordering is enabled");
  const auto& express = answer.config.express;
  if (!express) return pass("no PCIe device, so that there is no ordering to relax");
  findings.reading(answer.path, express->has_relaxed_ordering ? "relaxed ordering enabled" : "relaxed ordering off");
  if (express->has_relaxed_ordering) return pass("relaxed ordering is enabled");
  findings.reading(kCpuInfoPath, cpu.text());
  const std::string enable = "as root, until the next reboot: setpci -s " + address + " CAP_EXP+8.w=10:10";
  if (!cpu.is_known())
    return unknown("relaxed ordering is off, and the CPU, which decides whether that costs anything, is not told",
                   "look at 'lscpu'; on AMD EPYC and on Intel with several sockets enable it: " + enable);
  if (!gains_from_relaxed_ordering(cpu)) return pass("relaxed ordering is off, which this CPU does not need");
  return warn("relaxed ordering is off, and this CPU's root complex is slow with ordered writes",
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

MaybeRuling judge_root_ports(const Patient& patient, const PciPair& pair, Findings& findings) {
  if (pair.second.is_gpu && route_of(patient.topology, pair).relation == Relation::nvlink) return {};
  if (share_root_port(patient, pair))
    return pass("the two hang below one root port, so that reads need not cross the root complex");
  findings.reading("root ports", address_of(patient, root_port_of(patient, pair.first)) + " and " +
                                     address_of(patient, root_port_of(patient, pair.second)));
  return warn(
      "the two hang below different root ports of an Intel client CPU, whose root complex does not carry reads between devices",
      "write instead of reading (push), put both below one switch, or stage through host memory; gpu.p2p and probe.loop tell what "
      "works");
}

}  // namespace

MaybeRuling check_pci_link(const Patient& patient, Findings& findings) {
  const std::vector<PciDevice> devices = pci_devices(patient.topology);
  std::vector<Link> links;
  for (const PciDevice& device : devices) add_links_of(patient.topology, with_registers(patient, device), links);
  for (const Link& link : links) findings.say(link.subject, look_at_link(patient, link, findings));
  return findings.join_alike(
      patient, devices.empty() ? "this machine has no GPU and no NIC on PCI" : "no NIC here is a PCIe device, and there is no GPU");
}

MaybeRuling check_pci_bottleneck(const Patient& patient, Findings& findings) {
  const Topology& topology = patient.topology;
  for (const PciPair& pair : best_pairs(topology))
    findings.say(pair.subject(), pair.second.is_gpu ? judge_gpus(topology, pair, findings) : judge_port(topology, pair, findings));
  return findings.join_alike(patient, pci_pairs(topology).empty()
                                          ? why_no_pair(topology)
                                          : "the GPUs are joined by NVLink, and there is no RDMA NIC on PCI");
}

MaybeRuling check_pci_topo(const Patient& patient, Findings& findings) {
  const bool is_virtual = is_virtual_machine(patient);
  for (const PciPair& pair : best_pairs(patient.topology))
    findings.say(pair.subject(), judge_relation(patient.topology, pair, is_virtual, findings));
  return findings.join_alike(patient, why_no_pair(patient.topology));
}

MaybeRuling check_pci_acs(const Patient& patient, Findings& findings) {
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
  if (!has_switch)
    return skip(has_coherent ? "coherent GPUs need ACS set in a way of their own: see iommu.group"
                             : "no GPU shares a PCIe switch with a NIC or another GPU");
  const HostAnswer host = host_of(patient);
  if (host.host == Host::virtual_machine) {
    findings.readings(host.readings);
    return skip(
        "in a virtual machine the rule is inverted: the host needs ACS that lets translated requests through, and ATS in both "
        "devices, and only the host can see either");
  }
  ConfigReader reader(patient);
  for (const CrossedPort& port : ports)
    findings.say("port " + address_of(patient, port.pci), judge_acs(patient, port, reader, host.host, findings));
  return findings.join_alike("no port lies between the devices below a common switch");
}

MaybeRuling check_pci_mps(const Patient& patient, Findings& findings) {
  const bool is_virtual = is_virtual_machine(patient);
  const std::vector<PciDevice> ends = pci_ends(patient.topology);
  ConfigReader reader(patient);
  for (const PciDevice& end : ends) {
    const PciDevice device = with_registers(patient, end);
    if (!is_virtual) findings.say(device.subject, judge_payload(patient, device, reader, findings));
    if (!device.is_gpu) findings.say(device.subject, judge_read_request(patient, device, reader, findings));
  }
  return findings.join_alike(
      patient, ends.empty() ? kNoEnd : "in a virtual machine the ports above the devices are emulated: look on the host");
}

MaybeRuling check_pci_ro(const Patient& patient, Findings& findings) {
  const CpuFacts cpu = cpu_facts(patient);
  ConfigReader reader(patient);
  for (const PciDevice& end : pci_ends(patient.topology)) {
    const int pci = with_registers(patient, end).pci;
    findings.say(end.subject, judge_ordering(address_of(patient, pci), reader.of(pci), cpu, findings));
  }
  return findings.join_alike(patient, kNoEnd);
}

MaybeRuling check_pci_vendorp2p(const Patient& patient, Findings& findings) {
  const std::vector<PciPair> pairs = pci_pairs(patient.topology);
  if (pairs.empty()) return findings.no_end(patient, why_no_pair(patient.topology));
  const CpuFacts cpu = cpu_facts(patient);
  findings.reading(kCpuInfoPath, cpu.text());
  if (!cpu.is_known()) return unknown("the CPU is not told, so that nothing is known of its root complex", "look at 'lscpu'");
  if (is_virtual_machine(patient)) return skip("in a virtual machine the root ports are emulated: the host's root complex decides");
  const IntelKind kind = intel_kind(cpu);
  if (kind == IntelKind::other) return pass("this CPU is not one of Intel's client CPUs");
  if (kind == IntelKind::unknown)
    return unknown("the name of this Intel CPU tells neither a server nor a client model",
                   "look the model up; when it is a client CPU, do not read between devices below different root ports");
  // First those that have something to complain of: the reading of the CPU is theirs.
  for (const bool is_turn_of_apart : {true, false}) {
    for (const PciPair& pair : pairs) {
      if (share_root_port(patient, pair) != is_turn_of_apart)
        findings.say(pair.subject(), judge_root_ports(patient, pair, findings));
    }
  }
  return findings.join_alike(patient, "the GPUs are joined by NVLink, and there is no RDMA NIC on PCI");
}

}  // namespace gigabar::doctor
