// SPDX-License-Identifier: Apache-2.0
// rdma.mtu, rdma.gid, rdma.qos: what two ends and the network between them have to agree on.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/facts.hpp"
#include "rdma/rail_order.hpp"

namespace gigabar::doctor {
namespace {

// ---- rdma.mtu

constexpr unsigned kLargestRdmaMtu = 4096;  // bytes of payload of one packet; Source: InfiniBand Architecture Specification
// Below this a network device cannot carry such a packet with its headers (UDP/IP, transport, checksum; a VLAN tag).
constexpr unsigned kEnoughNetMtu = 4200;

struct NetMtu {
  std::string device;
  unsigned mtu = 0;
};

// Of the topology, else of /sys/class/net; nothing when neither tells.
std::optional<unsigned> mtu_of(const Patient& patient, const Nic& nic, const std::string& net_device) {
  for (const NetDevice& device : nic.net_devices) {
    if (device.name == net_device && device.mtu) return device.mtu;
  }
  const auto mtu = parse_number(patient.files.word("/sys/class/net/" + net_device + "/mtu").value_or(""), 1, 1U << 20);
  if (!mtu) return {};
  return static_cast<unsigned>(*mtu);
}

// The network device behind a port that has the smallest MTU; nothing when none tells.
std::optional<NetMtu> smallest_mtu(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  std::optional<NetMtu> smallest;
  for (const std::string& device : net_devices_of(view)) {
    const auto mtu = mtu_of(patient, *view.nic, device);
    findings.reading("/sys/class/net/" + printable(device, 32) + "/mtu", mtu ? std::to_string(*mtu) : "not told");
    if (mtu && (!smallest || *mtu < smallest->mtu)) smallest = NetMtu{device, *mtu};
  }
  return smallest;
}

// Says what the port's MTU is.
std::optional<unsigned> read_active_mtu(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  std::optional<unsigned> active = view.port->active_mtu;
  const RdmaDeviceAnswers* const answers = answers_of(patient, view.nic->rdma_device);
  const auto index = static_cast<std::size_t>(view.port->number) - 1;
  if (!active && answers != nullptr && view.port->number >= 1 && index < answers->active_mtu.size() &&
      answers->active_mtu[index] != 0) {
    active = answers->active_mtu[index];
  }
  findings.reading(text("ibv_query_port(", view.subject(), ").active_mtu"), active ? text(*active) : "not told");
  return active;
}

std::string larger_mtu_remedy(const std::string& device) {
  return text("on both ends and every switch between: ip link set ", printable(device, 32),
              " mtu 9000; then write it into the network settings so that it lasts");
}

Ruling judge_roce_mtu(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  const auto active = read_active_mtu(patient, view, findings);
  const auto net = smallest_mtu(patient, view, findings);
  const bool is_net_small = net && net->mtu < kEnoughNetMtu;
  const std::string because = is_net_small ? text(": the MTU of ", printable(net->device, 32), " is ", net->mtu) : std::string();
  if (active && *active >= kLargestRdmaMtu) return pass("RDMA packets carry ", counted(*active, "byte"));
  if (active) {
    const std::string known =
        net ? text("the MTU of ", printable(net->device, 32),
                   " is large enough; compare max_mtu and active_mtu in ibv_devinfo, and set ", "the device down and up again")
            : std::string("look at the MTU of the port's network device (ip link), 9000 is wanted on both ends and every switch");
    return warn(text("RDMA packets carry ", counted(*active, "byte"), " of ", kLargestRdmaMtu, because),
                is_net_small ? larger_mtu_remedy(net->device) : known);
  }
  if (is_net_small)
    return warn(text("RDMA packets cannot carry ", kLargestRdmaMtu, " bytes", because), larger_mtu_remedy(net->device));
  return unknown("the active MTU of the port is not told", "see active_mtu in 'ibv_devinfo'");
}

Ruling judge_infiniband_mtu(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  constexpr unsigned kUsual = 2048;  // what many fabrics run with: the default of the partitions of older subnet managers
  const auto active = read_active_mtu(patient, view, findings);
  if (!active) return unknown("the active MTU of the port is not told", "see active_mtu in 'ibv_devinfo'");
  if (*active < kUsual)
    return warn(text("RDMA packets carry ", counted(*active, "byte"), " of ", kLargestRdmaMtu),
                "set mtu=5 (4096 bytes) for the partition in the subnet manager's partitions.conf and let it sweep again");
  return pass("RDMA packets carry ", counted(*active, "byte"));
}

// ---- rdma.gid

// "10.0.0.1" for an IPv4 address in its IPv6 form, else the short form of IPv6.
std::string address_text(const std::string& gid) {
  in6_addr address{};
  std::array<char, INET6_ADDRSTRLEN> words{};
  if (inet_pton(AF_INET6, gid.c_str(), &address) != 1) return printable(gid, 64);
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
  const char* written = is_ipv4 ? inet_ntop(AF_INET, &address.s6_addr[12], words.data(), words.size())
                                : inet_ntop(AF_INET6, &address, words.data(), words.size());
  return written == nullptr ? printable(gid, 64) : std::string(written);
}

std::string address_remedy(const RdmaPortView& view) {
  const std::vector<std::string> devices = net_devices_of(view);
  const std::string device = devices.empty() ? std::string("DEVICE") : printable(devices.front(), 32);
  return text("give its network device an address: ip addr add ADDRESS/PREFIX dev ", device, "; then look again for the index");
}

Ruling judge_gids(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  constexpr std::size_t kMaxShown = 16;
  const auto& gids = view.port->gids;
  for (std::size_t i = 0; i < std::min(gids.size(), kMaxShown); ++i) {
    findings.reading(text(view.folder(), "/gids/", gids[i].index),
                     text(gids[i].gid, " ", gids[i].type.empty() ? "(type not told)" : gids[i].type, " ", gids[i].netdev));
  }
  if (const GidEntry* entry = rdma::first_gid_v2(gids, rdma::GidReach::routed)) {
    const std::string device = entry->netdev.empty() ? std::string() : " of " + printable(entry->netdev, 32);
    return pass("GID index ", entry->index, " is RoCE v2 with the routable address ", address_text(entry->gid), device);
  }
  if (const GidEntry* entry = rdma::first_gid_v2(gids, rdma::GidReach::segment))
    return warn(text("RoCE v2 has link-local addresses only (GID index ", entry->index,
                     "): it works within one Ethernet segment and ", "fails across a router"),
                address_remedy(view));
  const bool has_types = std::ranges::any_of(gids, [](const GidEntry& entry) { return !entry.type.empty(); });
  if (gids.empty() ? !patient.files.exists(view.folder() + "/gids") : !has_types)
    return unknown(gids.empty() ? "its table of GIDs could not be read" : "the types of its GIDs are not told",
                   "see 'show_gids' or 'ibv_devinfo -v'");
  if (gids.empty()) {
    findings.reading(view.folder() + "/gids/*", "all are zero");
    return fail("it has no GID at all: its network device has no address", address_remedy(view));
  }
  return fail(
      "it has no GID of RoCE v2, so that nothing beyond one Ethernet segment can be reached",
      text(address_remedy(view), "; choose RoCE v2 for rdma_cm: cma_roce_mode -d ", printable(view.nic->rdma_device, 64), " -m 2"));
}

// ---- rdma.qos

// The setting of one end of DCQCN, for priorities 0 to 7.
struct EcnSetting {
  std::set<int> enabled;
  bool is_complete = false;  // all eight could be read
};

EcnSetting read_ecn(const Patient& patient, const std::string& device, std::string_view point, Findings& findings) {
  constexpr int kPriorities = 8;  // Source: IEEE 802.1Q
  EcnSetting setting;
  std::string line;
  std::size_t told = 0;
  const std::string folder = text("/sys/class/net/", device, "/ecn/", point, "/enable");
  for (int priority = 0; priority < kPriorities; ++priority) {
    const FileText file = patient.files.read(text(folder, "/", priority));
    const std::string word = file.is_present() ? printable(file.content, 8) : value_of(file);
    line += text(priority == 0 ? "" : " ", word);
    if (word == "1") setting.enabled.insert(priority);
    if (word == "0" || word == "1") ++told;
  }
  setting.is_complete = told == kPriorities;
  findings.reading(folder + "/0-7", line);
  return setting;
}

std::string priorities_text(const std::set<int>& priorities) {
  std::vector<std::string> words;
  for (const int priority : priorities) words.push_back(std::to_string(priority));
  return text(words.size() == 1 ? "priority " : "priorities ", list_text(words));
}

constexpr const char* kPfcRemedy =
    "see 'dcb pfc show dev DEVICE' or 'mlnx_qos -i DEVICE': one priority should have PFC or ECN, on the switches too";

std::string ecn_remedy(const std::string& device, const RdmaPortView& view) {
  return text("unless PFC is on (dcb pfc show dev ", device, "), as root: echo 1 > /sys/class/net/", device,
              "/ecn/roce_np/enable/3; the same for roce_rp; mlnx_qos -i ", device,
              " --trust dscp; echo 106 > /sys/class/infiniband/", printable(view.nic->rdma_device, 64), "/tc/", view.port->number,
              "/traffic_class; and ECN on every switch");
}

Ruling judge_ecn(const Patient& patient, const RdmaPortView& view, const std::string& device, Findings& findings) {
  const EcnSetting marks = read_ecn(patient, device, "roce_np", findings);
  const EcnSetting slows = read_ecn(patient, device, "roce_rp", findings);
  const FileText tclass =
      findings.read(patient, text("/sys/class/infiniband/", view.nic->rdma_device, "/tc/", view.port->number, "/traffic_class"));
  std::set<int> both;
  std::ranges::set_intersection(marks.enabled, slows.enabled, std::inserter(both, both.end()));
  const std::string shown = printable(device, 32);
  if (!both.empty())
    return pass(
        shown, " controls congestion by ECN for ", priorities_text(both),
        tclass.is_present() && !tclass.content.empty() ? text("; RDMA sends with ", printable(tclass.content, 60)) : std::string());
  if (!marks.is_complete || !slows.is_complete)
    return unknown(text("not every ECN setting of ", shown, " could be read"), kPfcRemedy);
  const bool has_half = !marks.enabled.empty() || !slows.enabled.empty();
  return warn(
      text(shown, has_half ? " has no priority for which both ends of ECN are on (np and rp)" : " has ECN off for every priority",
           ": unless PFC is on, lost packets are sent again in bursts"),
      ecn_remedy(shown, view));
}

// The network device behind the port that has ECN settings: behind a bond it is the adapter's own one.
std::string device_with_ecn(const Patient& patient, const RdmaPortView& view) {
  std::vector<std::string> candidates = net_devices_of(view);
  for (const NetDevice& device : view.nic->net_devices) candidates.push_back(device.name);
  const auto found = std::ranges::find_if(candidates, [&](const std::string& device) {
    return device.find('/') == std::string::npos && patient.files.exists("/sys/class/net/" + device + "/ecn");
  });
  return found == candidates.end() ? std::string() : *found;
}

Ruling judge_qos(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  const std::string device = device_with_ecn(patient, view);
  if (!device.empty()) return judge_ecn(patient, view, device, findings);
  findings.reading("/sys/class/net/*/ecn", "missing");
  return unknown("this driver does not say whether ECN or PFC is on", kPfcRemedy);
}

// What the kernel says of the port is not that it is down; a port that says nothing counts as usable.
bool may_be_active(const RdmaPort& port) { return port.state.empty() || port.state.starts_with("ACTIVE"); }

using PortJudge = Ruling(const Patient& patient, const RdmaPortView& view, Findings& findings);

// Judges the ports that may carry traffic, those of InfiniBand only where there is a judge of them. A port whose link layer nobody
// tells gets its `unknown`.
MaybeRuling judge_ports(const Patient& patient, const std::vector<RdmaPortView>& ports, Findings& findings, PortJudge* roce,
                        PortJudge* infiniband, std::string_view otherwise) {
  for (const RdmaPortView& view : ports) {
    if (!may_be_active(*view.port)) continue;
    const RdmaTransport transport = transport_of(patient, view);
    if (transport == RdmaTransport::roce) findings.say(view.subject(), roce(patient, view, findings));
    if (transport == RdmaTransport::infiniband && infiniband != nullptr)
      findings.say(view.subject(), infiniband(patient, view, findings));
    if (transport != RdmaTransport::unknown) continue;
    findings.reading(view.folder() + "/link_layer", "not told");
    findings.say(view.subject(), unknown("the link layer of the port is not told", "see link_layer in 'ibv_devinfo'"));
  }
  return findings.count() > 0 ? MaybeRuling() : skip(otherwise);
}

}  // namespace

MaybeRuling check_rdma_mtu(const Patient& patient, Findings& findings) {
  return judge_ports(patient, rdma_ports(patient, findings), findings, judge_roce_mtu, judge_infiniband_mtu,
                     "no port of InfiniBand or RoCE is active, and iWARP has no MTU of its own");
}

MaybeRuling check_rdma_gid(const Patient& patient, Findings& findings) {
  return judge_ports(patient, rdma_ports(patient, findings), findings, judge_gids, nullptr,
                     "no port of RoCE is active; only RoCE chooses between kinds of GIDs");
}

MaybeRuling check_rdma_qos(const Patient& patient, Findings& findings) {
  std::vector<RdmaPortView> ports = rdma_ports(patient, findings);
  std::erase_if(ports, [](const RdmaPortView& view) { return is_software(*view.nic); });
  return judge_ports(patient, ports, findings, judge_qos, nullptr,
                     "no port of a RoCE adapter is active; only RoCE needs ECN or PFC (soft-RoCE has neither)");
}

}  // namespace gigabar::doctor
