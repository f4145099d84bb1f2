// SPDX-License-Identifier: Apache-2.0
// Links and routes: whether each link runs at its width, what is narrower than a NIC's port, and how far a GPU's best NIC is.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/checks_pci.hpp"
#include "doctor/gpu_loss.hpp"
#include "platform/pci_link.hpp"

namespace gigabar::doctor {
namespace {

// One end of a link, as /sys tells of it.
struct LinkEnd {
  std::optional<double> gt_per_s, most_gt_per_s;
  std::optional<unsigned> width, most_width;
};

// "32.0 GT/s PCIe"; nothing for "Unknown".
std::optional<double> speed_in(const FileText& file) {
  if (!file.is_present()) return {};
  const std::string word = file.content.substr(0, file.content.find_first_of(" \n"));
  double gt_per_s = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), gt_per_s);
  const bool is_number = error == std::errc{} && end == word.data() + word.size();
  return is_number && std::isfinite(gt_per_s) && gt_per_s > 0 && gt_per_s < 1000 ? std::optional(gt_per_s) : std::nullopt;
}

// 0 and 255 mean that nobody knows.
std::optional<unsigned> width_in(const FileText& file) {
  if (!file.is_present()) return {};
  const auto width = parse_number(file.content.substr(0, file.content.find_first_of(" \n")), 1, 32);
  return width ? std::optional(static_cast<unsigned>(*width)) : std::nullopt;
}

LinkEnd read_end(const Patient& patient, const PciAddress& address, Note& note) {
  const std::string folder = pci_folder(address);
  return {speed_in(note.read(patient, folder + "/current_link_speed")), speed_in(note.read(patient, folder + "/max_link_speed")),
          width_in(note.read(patient, folder + "/current_link_width")), width_in(note.read(patient, folder + "/max_link_width"))};
}

// The kernel has these files for PCIe devices only; an emulated or an old one has no link to judge.
bool has_link(const Note& note) {
  return std::any_of(note.readings.begin(), note.readings.end(), [](const Reading& reading) { return reading.value != "missing"; });
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
  std::reverse(way.begin(), way.end());
  const bool is_wanted = device.is_gpu || device.is_rdma;
  const auto add = [&](int lower, int upper) {
    const auto known = std::find_if(links.begin(), links.end(), [&](const Link& link) { return link.lower == lower; });
    const bool is_end = lower == device.pci;
    if (known != links.end()) {
      known->is_wanted = known->is_wanted || is_wanted;
      return;
    }
    const std::string name = "bridge " + topology.pci[static_cast<std::size_t>(lower)].address.to_string();
    links.push_back({lower, upper, is_end && device.is_gpu, is_wanted, is_end ? device.subject : name});
  };
  for (std::size_t i = 1; i < way.size(); i += 2) add(way[i], way[i - 1]);
  if (way.size() == 1) add(way[0], -1);
}

constexpr const char* kReseat =
    "reseat the card, the cable or the riser; look in the firmware's setup for how the slot's lanes are divided; compare LnkCap "
    "and "
    "LnkSta of 'lspci -vv' (as root)";

void judge_speed(Note& note, const Link& link, const LinkEnd& lower, const std::optional<LinkEnd>& upper) {
  const std::string_view idle = "idle GPUs lower it, and probe.link reads it under load";
  if (!lower.gt_per_s || !lower.most_gt_per_s) {
    return note.say(Verdict::unknown, "its PCIe link runs at full width; its speed is not told",
                    "'lspci -vv' (as root) shows LnkSta");
  }
  const double most = upper && upper->most_gt_per_s ? std::min(*lower.most_gt_per_s, *upper->most_gt_per_s) : *lower.most_gt_per_s;
  if (*lower.gt_per_s >= most) return note.say(Verdict::pass, "the PCIe link runs at full width and speed");
  const std::string speeds = text(one_digit(*lower.gt_per_s), " of ", one_digit(most), " GT/s");
  if (link.is_gpu) {
    return note.say(Verdict::pass, text("the PCIe link runs at full width, now at ", speeds, ": ", idle));
  }
  if (!upper) return note.say(Verdict::pass, text("the PCIe link runs at full width, at ", speeds, " that the device could do"));
  note.say(Verdict::warn, text("the PCIe link runs at ", speeds, " that both ends can do"), kReseat);
}

constexpr const char* kAskLspci =
    "'lspci -vv' (as root) shows LnkCap and LnkSta; in a virtual machine or container ask on the host";

void judge_link(Note& note, const Link& link, const LinkEnd& lower, const std::optional<LinkEnd>& upper) {
  if (!lower.width || !lower.most_width) return note.say(Verdict::unknown, "the width of its PCIe link is not told", kAskLspci);
  if (!upper) {
    if (*lower.width >= *lower.most_width) return judge_speed(note, link, lower, upper);
    return note.say(Verdict::unknown,
                    text("its PCIe link runs at x", *lower.width, " of x", *lower.most_width,
                         " lanes, and the port above, which may have no more, cannot be seen"),
                    kAskLspci);
  }
  if (!upper->most_width) return note.say(Verdict::unknown, "the port above does not tell how wide it can be", kAskLspci);
  if (upper->width && *upper->width != *lower.width) {
    return note.say(Verdict::unknown,
                    text("the two ends of its link tell different widths, x", *lower.width, " and x", *upper->width), kAskLspci);
  }
  const unsigned most = std::min(*lower.most_width, *upper->most_width);
  if (*lower.width >= most) return judge_speed(note, link, lower, upper);
  note.say(link.is_wanted ? Verdict::fail : Verdict::warn,
           text("the PCIe link runs at x", *lower.width, " of the x", most, " lanes that both ends have"), kReseat);
}

void run_pci_link(const Patient& patient, Findings& findings) {
  const Topology& topology = patient.topology;
  std::vector<PciDevice> devices = pci_gpus(topology);
  for (PciDevice& nic : pci_nics(topology)) devices.push_back(std::move(nic));
  std::vector<Link> links;
  Notes notes;
  for (const PciDevice& device : devices) add_links_of(topology, with_registers(patient, device), links);
  for (const Link& link : links) {
    Note note;
    note.subject = link.subject;
    const std::string address = topology.pci[static_cast<std::size_t>(link.lower)].address.to_string();
    if (is_silent(patient, address)) {
      note.readings.push_back({"/sys/bus/pci/devices/" + address + "/config", "every byte is 0xff"});
      note.say(
          link.is_wanted ? Verdict::fail : Verdict::warn,
          "the device does not answer: its configuration space reads all ones, as after it was lost or without power",
          "look for the reason in 'sudo dmesg | grep -E \"AER|pcieport|Xid\"', restart the machine, best by switching its power "
          "off and on; when it comes back so, check seat, riser and power of the card");
      notes.add(std::move(note));
      continue;
    }
    const LinkEnd lower = read_end(patient, topology.pci[static_cast<std::size_t>(link.lower)].address, note);
    if (!link.is_wanted && !has_link(note)) continue;
    std::optional<LinkEnd> upper;
    if (link.upper >= 0) upper = read_end(patient, topology.pci[static_cast<std::size_t>(link.upper)].address, note);
    judge_link(note, link, lower, upper);
    notes.add(std::move(note));
  }
  notes.give(findings,
             devices.empty() ? "this machine has no GPU and no NIC on PCI" : "no NIC here is a PCIe device, and there is no GPU");
}

std::string rate_text(double gb_per_s) { return one_digit(gb_per_s) + " GB/s"; }

Reading route_reading(const Route& route) {
  std::string hops = short_name(route.relation, route.nvlink_count);
  for (const PciAddress& hop : route.hops) hops += " " + hop.to_string();
  return {"route", hops};
}

// The rate of the link above a GPU, as both its ends can run it; nothing: not told.
std::optional<double> own_link_gb_per_s(const Topology& topology, const PciDevice& device) {
  const PciNode& node = topology.pci[static_cast<std::size_t>(device.pci)];
  double gt_per_s = node.link.most_gt_per_s;
  if (node.parent >= 0 && static_cast<std::size_t>(node.parent) < topology.pci.size()) {
    const double above = topology.pci[static_cast<std::size_t>(node.parent)].link.most_gt_per_s;
    if (above > 0) gt_per_s = std::min(gt_per_s, above);
  }
  const auto link = pcie_link_of_speed(gt_per_s, node.link.width);
  return link ? std::optional(link->gb_per_s()) : std::nullopt;
}

// Index into Topology::nics of the first one that is a PCI device; -1: none.
int first_on_pci(const Topology& topology, const NicOrder& order) {
  const auto best = std::find_if(order.nics.begin(), order.nics.end(),
                                 [&](int nic) { return topology.nics[static_cast<std::size_t>(nic)].pci >= 0; });
  return best == order.nics.end() ? -1 : *best;
}

// Rates are sums and products of floating point.
bool is_below(double rate, double wanted) noexcept { return rate < wanted * 0.999; }

constexpr const char* kMoveCard =
    "move the card to a slot whose links all carry that rate, or mend the narrow one (pci.link); 'gigabar topology' shows the way";

// Between a coherent GPU and a NIC the data go through the CPU's memory system, not over the GPU's own PCIe link: what counts is
// the NIC's way to the CPU.
Route data_route(const Topology& topology, const PciDevice& gpu, int nic_index) {
  const int nic_pci = topology.nics[static_cast<std::size_t>(nic_index)].pci;
  const int node = topology.find_numa_node(topology.gpus[static_cast<std::size_t>(gpu.index)].numa_node);
  const Endpoint nic{Endpoint::Kind::nic, nic_index};
  if (gpu.is_coherent && node >= 0 && common_bridge(topology, gpu.pci, nic_pci) < 0) {
    return route_between(topology, nic, {Endpoint::Kind::numa_node, node});
  }
  return route_between(topology, {Endpoint::Kind::gpu, gpu.index}, nic);
}

void judge_port(const Patient& patient, const PciDevice& gpu, int nic_index, Notes& notes) {
  const Topology& topology = patient.topology;
  const Nic& nic = topology.nics[static_cast<std::size_t>(nic_index)];
  Note note;
  note.subject = gpu.subject + " and " + nic.name;
  const Route route = data_route(topology, gpu, nic_index);
  const double port_gb_per_s = nic.rate_gbit_per_s() / 8;
  note.readings.push_back(route_reading(route));
  note.readings.push_back({"rate of the ports of " + nic.name, port_gb_per_s > 0 ? rate_text(port_gb_per_s) : "not told"});
  if (port_gb_per_s <= 0) {
    note.say(Verdict::unknown, "the NIC tells no rate of an active port to compare the PCIe links with",
             "bring a port up (rdma.port tells more) and run the check again");
  } else if (!route.gb_per_s) {
    note.say(Verdict::unknown, "speed or width of a PCIe link on the way is not told",
             "pci.link tells which; ask on the host of a VM");
  } else if (is_below(*route.gb_per_s, port_gb_per_s)) {
    note.say(Verdict::warn,
             text(printable(route.bottleneck), " carries ", rate_text(*route.gb_per_s), " each way, less than the ",
                  rate_text(port_gb_per_s), " of the NIC's port"),
             kMoveCard);
  } else {
    note.say(Verdict::pass, "every PCIe link between the GPU and its best NIC carries the port's rate");
  }
  notes.add(std::move(note));
}

void judge_gpus(const Patient& patient, const PciPair& pair, Notes& notes) {
  const Route route = route_of(patient.topology, pair);
  if (route.relation == Relation::nvlink || route.relation == Relation::same_device) return;
  Note note;
  note.subject = pair.subject();
  note.readings.push_back(route_reading(route));
  const auto first = own_link_gb_per_s(patient.topology, pair.first), second = own_link_gb_per_s(patient.topology, pair.second);
  if (!route.gb_per_s || !first || !second) {
    note.say(Verdict::unknown, "speed or width of a PCIe link on the way is not told",
             "pci.link tells which; ask on the host of a VM");
  } else if (const double own = std::min(*first, *second); is_below(*route.gb_per_s, own)) {
    note.say(Verdict::warn,
             text(printable(route.bottleneck), " carries ", rate_text(*route.gb_per_s), " each way, less than the ", rate_text(own),
                  " of the GPUs' own links"),
             kMoveCard);
  } else {
    note.say(Verdict::pass, "no PCIe link between the GPUs is narrower than their own");
  }
  notes.add(std::move(note));
}

void run_pci_bottleneck(const Patient& patient, Findings& findings) {
  Notes notes;
  const std::vector<NicOrder> orders = nic_orders(patient.topology);
  for (const PciDevice& gpu : pci_gpus(patient.topology)) {
    const int nic = first_on_pci(patient.topology, orders[static_cast<std::size_t>(gpu.index)]);
    if (nic >= 0) judge_port(patient, gpu, nic, notes);
  }
  for (const PciPair& pair : pci_pairs(patient.topology)) {
    if (pair.second.is_gpu) judge_gpus(patient, pair, notes);
  }
  notes.give(findings, pci_pairs(patient.topology).empty() ? why_no_pair(patient.topology)
                                                           : "the GPUs are joined by NVLink, and there is no RDMA NIC on PCI");
}

// Two NUMA nodes of one CPU package, as with NPS4 of AMD EPYC.
bool is_one_package(const Topology& topology, const PciDevice& first, const PciDevice& second) {
  const auto package_of = [&](const PciDevice& device) {
    const int number = device.is_gpu ? topology.gpus[static_cast<std::size_t>(device.index)].numa_node
                                     : topology.nics[static_cast<std::size_t>(device.index)].numa_node;
    const int node = topology.find_numa_node(number);
    return node < 0 ? -1 : topology.numa_nodes[static_cast<std::size_t>(node)].package;
  };
  const int package = package_of(first);
  return package >= 0 && package == package_of(second);
}

void judge_far(const Topology& topology, const PciPair& pair, Relation relation, Note& note) {
  const bool is_nic = !pair.second.is_gpu;
  const std::string other(is_nic ? "the best NIC is" : "the other GPU is");
  const std::string remedy(
      is_nic ? "bind the rank to the GPU's NUMA node and count on less; better, move the NIC below the GPU's switch or to its CPU"
             : "join the GPUs by NVLink, put both below one switch, or bind ranks so that these two talk seldom");
  if (relation != Relation::other_node) {
    return note.say(
        Verdict::warn,
        text(other, " reached through the CPU's root complex (", short_name(relation), "), where reads are slower than writes"),
        remedy);
  }
  if (is_one_package(topology, pair.first, pair.second)) {
    return note.say(Verdict::warn, other + " on another NUMA node of the same CPU (SYS), reached through its dies", remedy);
  }
  note.say(Verdict::warn, other + " on another NUMA node (SYS): expect a half to a third of the rate", remedy);
}

void judge_relation(const Topology& topology, const PciPair& pair, bool is_virtual, Note& note) {
  const Route route = route_of(topology, pair);
  const bool is_coherent = pair.first.is_coherent && (!pair.second.is_gpu || pair.second.is_coherent);
  note.subject = pair.subject();
  note.readings.push_back(route_reading(route));
  if (route.relation == Relation::nvlink || route.relation == Relation::same_device) {
    return note.say(Verdict::pass, route.relation == Relation::nvlink ? "the GPUs are joined by NVLink" : "both are one device");
  }
  if (is_virtual) {
    return note.say(Verdict::unknown,
                    "this virtual machine's bridges are emulated, and do not tell where the two are to each other on the host",
                    "run 'gigabar topology' on the host, or take the topology file that the cloud gives (NCCL_TOPO_FILE)");
  }
  if (route.relation == Relation::unknown) {
    return note.say(Verdict::unknown, "where the two are to each other is not told (no common bridge, and a NUMA node is missing)",
                    "look at numa_node of both in /sys/bus/pci/devices; the firmware's setup may have a setting for it");
  }
  if (is_coherent && route.relation != Relation::other_node) {
    return note.say(Verdict::pass, "the GPU shares its CPU's memory, so that the way through the CPU is the intended one");
  }
  if (route.relation == Relation::same_switch || route.relation == Relation::several_switches) {
    return note.say(Verdict::pass, pair.second.is_gpu ? "the GPUs reach each other without crossing the CPU"
                                                      : "the best NIC is reached without crossing the CPU");
  }
  judge_far(topology, pair, route.relation, note);
}

void run_pci_topo(const Patient& patient, Findings& findings) {
  const Topology& topology = patient.topology;
  const bool is_virtual = is_virtual_machine(patient);
  Notes notes;
  const auto judge = [&](const PciPair& pair) {
    Note note;
    judge_relation(topology, pair, is_virtual, note);
    notes.add(std::move(note));
  };
  const std::vector<PciDevice> nics = rdma_nics(topology);
  const std::vector<NicOrder> orders = nic_orders(topology);
  for (const PciDevice& gpu : pci_gpus(topology)) {
    const int best = first_on_pci(topology, orders[static_cast<std::size_t>(gpu.index)]);
    const auto nic = std::find_if(nics.begin(), nics.end(), [&](const PciDevice& one) { return one.index == best; });
    if (nic != nics.end()) judge({gpu, *nic});
  }
  for (const PciPair& pair : pci_pairs(topology)) {
    if (pair.second.is_gpu) judge(pair);
  }
  notes.give(findings, why_no_pair(topology));
}

}  // namespace

Check pci_link_check() {
  return {
      CheckInfo{
          .id = "pci.link",
          .title = "Width and speed of PCIe links",
          .why = "A link that came up with fewer lanes than both ends have halves the rate of everything that crosses it.",
          .is_probe = false,
          .what =
              "Each PCIe link is trained when the machine starts: both ends agree on a number of lanes and on a speed per lane. "
              "The "
              "check reads what was agreed and what each end could do, for every GPU and NIC and for every bridge up to the root.",
          .impact =
              "A card that is not seated well, a damaged cable or riser, or a slot whose lanes the firmware divides among several "
              "cards, leaves a x16 link at x8 or x4. All transfers through it lose a half or three quarters of their rate, at all "
              "sizes. A lower speed counts only for NICs and bridges: a GPU lowers the speed of its link while it is idle and "
              "raises it with work, and only probe.link, which loads it, tells its true speed.",
          .confirm = "cat /sys/bus/pci/devices/ADDRESS/{current,max}_link_{width,speed}\nsudo lspci -vv -s ADDRESS | grep -E "
                     "'LnkCap:|LnkSta:'\nnvidia-smi --query-gpu=pcie.link.width.current,pcie.link.width.max --format=csv",
          .remedy =
              "Switch the machine off and reseat the card; exchange the riser or the cable. Look in the firmware's setup for the "
              "slot's bifurcation and for a limit on its speed. Where two cards share the lanes of one slot, move one of them.",
          .source = "PCI Express Base Specification, 7.5.3.6 (Link Capabilities) and 7.5.3.8 (Link Status); Linux "
                    "Documentation/ABI/testing/sysfs-bus-pci (current_link_width, max_link_width); NVSentinel #890; nvtop #6."},
      run_pci_link};
}

Check pci_bottleneck_check() {
  return {
      CheckInfo{
          .id = "pci.bottleneck",
          .title = "PCIe links narrower than the NIC's port",
          .why = "The narrowest link between a GPU and its NIC is the most that GPUDirect RDMA can reach.",
          .is_probe = false,
          .what =
              "The theoretical rate of every PCIe link between a GPU and its best NIC, compared with the rate of the NIC's active "
              "ports; and between two GPUs without NVLink, compared with the links of the GPUs themselves. Widths are as trained, "
              "speeds those that both ends can do.",
          .impact =
              "A 400 Gb/s port needs 50 GB/s, which a PCIe 4.0 x16 link (31.5 GB/s) or a PCIe 5.0 x8 link does not carry. A switch "
              "with a narrow uplink slows every pair that crosses it, however good the links of the devices are. Packet headers "
              "take another 10 to 20 % of the theoretical rate.",
          .confirm =
              "gigabar topology\ncat /sys/class/infiniband/NAME/ports/1/rate\nib_write_bw between two hosts, with host memory "
              "on both sides.",
          .remedy =
              "Move the NIC or the GPU to a slot with more lanes or a newer generation, below the same switch where there is one. "
              "If pci.link reports the hop, mend that first. Where the slot is what it is, count on the rate the check names.",
          .source =
              "PCI Express Base Specification, 4.2 (line coding) and 7.5.3.6; NVIDIA GPUDirect RDMA manual, chapter on supported "
              "systems; perftest #241."},
      run_pci_bottleneck};
}

Check pci_topo_check() {
  return {
      CheckInfo{
          .id = "pci.topo",
          .title = "Where the best NIC of each GPU is",
          .why = "Traffic between devices that share no PCIe switch crosses the CPU, which costs rate and latency.",
          .is_probe = false,
          .what =
              "The relation of each GPU to its nearest RDMA NIC, and of GPUs without NVLink to each other, in the words of "
              "'nvidia-smi topo -m': PIX and PXB stay below PCIe switches, PHB and NODE cross the CPU's root complex, SYS crosses "
              "from one NUMA node to another.",
          .impact =
              "Root complexes forward writes between their ports well and reads badly, so that one direction is often half as fast "
              "as the other, and some do not forward reads at all. Across NUMA nodes a half to a third of the rate is left. GPUs "
              "that share their CPU's memory (NVLink-C2C) are meant to be reached through the CPU.",
          .confirm = "gigabar topology\nnvidia-smi topo -m\nreadlink -f /sys/bus/pci/devices/ADDRESS",
          .remedy =
              "Let each rank use the NIC nearest to its GPU (NCCL_IB_HCA, UCX_NET_DEVICES), and bind it to the CPUs of that node. "
              "Put NIC and GPU below one switch where the machine has several slots. Between GPUs, prefer writes to reads.",
          .source = "NVIDIA GPUDirect RDMA manual, chapter on supported systems; nvidia-smi manual, topo -m; perftest #241."},
      run_pci_topo};
}

}  // namespace gigabar::doctor
