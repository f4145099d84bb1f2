// SPDX-License-Identifier: Apache-2.0
// rdma.dev and rdma.port, and the table of all checks of RDMA devices.
#include <algorithm>
#include <array>
#include <charconv>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/check.hpp"
#include "doctor/device_nodes.hpp"
#include "doctor/gpu_facts.hpp"
#include "doctor/rdma_facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::string_view kNodeFolder = "/dev/infiniband";
constexpr std::string_view kConnectionNode = "/dev/infiniband/rdma_cm";

// ---- rdma.dev

bool has_any_node(const Patient& patient) {
  const std::vector<std::string> names = patient.files.names(std::string(kNodeFolder));
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("uverbs"); });
}

std::string remedy_for_missing_node(const Patient& patient, const std::string& node) {
  if (!container(patient).empty()) {
    return "pass the device into this container: docker run --device=" + node +
           " --device=/dev/infiniband/rdma_cm --ulimit memlock=-1 (Kubernetes: an RDMA device plugin)";
  }
  return "as root: modprobe ib_uverbs; if the node is still missing, let udev make it: udevadm trigger -s infiniband_verbs";
}

const RdmaDeviceAnswers* answers_of(const Patient& patient, const std::string& device) {
  const auto& all = patient.answers.rdma_devices;
  const auto found = std::find_if(all.begin(), all.end(), [&](const RdmaDeviceAnswers& answer) { return answer.name == device; });
  return found == all.end() ? nullptr : &*found;
}

void judge_node(const Patient& patient, const std::string& device, const std::string& node, Findings& findings) {
  const NodeReport report = look_at_node(patient, node);
  findings.reading(node, report.value);
  switch (report.state) {
    case NodeState::missing:
      return findings.fail(device, text("its device node ", node, " is missing, so no program can open it"),
                           remedy_for_missing_node(patient, node));
    case NodeState::not_a_device:
    case NodeState::wrong_number:
    case NodeState::refused:
      return findings.fail(device, text("its device node ", report.statement(), ", so no program can use the adapter"),
                           report.remedy);
    case NodeState::no_permission:
      return findings.fail(
          device, text("this user may not open its device node ", node),
          "as root, write KERNEL==\"uverbs*\", GROUP=\"rdma\", MODE=\"0660\" to /etc/udev/rules.d/90-rdma.rules, run "
          "udevadm control --reload && udevadm trigger -s infiniband_verbs, and add the user: usermod -aG rdma USER");
    case NodeState::works: break;
  }
  const RdmaDeviceAnswers* answer = answers_of(patient, device);
  if (answer != nullptr && answer->error) {
    findings.reading("ibv_open_device(" + device + ")", *answer->error);
    findings.fail(device, text("its device node is in order, but libibverbs cannot open it: ", printable(*answer->error)),
                  "install the provider of this device (Debian and Ubuntu: ibverbs-providers; RHEL: libibverbs) in a version that "
                  "fits the kernel's driver, then see ibv_devinfo");
    return;
  }
  findings.pass(device, text("its device node ", node, " is there and may be opened"));
}

void judge_device(const Patient& patient, const std::string& name, Findings& findings) {
  const std::string device = printable(name, 64);
  const std::string node = uverbs_node(patient, name);
  findings.reading("/sys/class/infiniband_verbs/*/ibdev", node.empty() ? "none names " + device : node + " is " + device);
  if (!node.empty()) return judge_node(patient, device, node, findings);
  if (has_any_node(patient)) {
    findings.unknown(device, "the kernel does not say which node below /dev/infiniband belongs to it",
                     "see 'ibv_devinfo' and 'rdma link'");
    return;
  }
  findings.reading(text(kNodeFolder, "/uverbs*"), "missing");
  findings.fail(device, "the kernel has this RDMA device, but no device node through which a program could use it",
                remedy_for_missing_node(patient, text(kNodeFolder, "/uverbs0")));
}

// Connections by address are made through one node for all adapters.
void judge_connection_manager(const Patient& patient, const std::vector<std::string>& names, Findings& findings) {
  const NodeReport report = look_at_node(patient, std::string(kConnectionNode));
  const bool has_usable = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::string node = uverbs_node(patient, name);
    return !node.empty() && look_at_node(patient, node).works();
  });
  if (report.works() || (report.state == NodeState::missing && !has_usable)) return;
  findings.reading(report.path, report.value);
  const std::string statement =
      text(report.statement(), ", so connections by address (rdma_cm), as Gigabar makes them, cannot be opened");
  if (report.is_broken()) return findings.fail("rdma_cm", statement, report.remedy);
  findings.warn("rdma_cm", statement,
                report.state == NodeState::missing && container(patient).empty() ? "as root: modprobe rdma_ucm" : report.remedy);
}

void check_rdma_dev(const Patient& patient, Findings& findings) {
  const std::vector<std::string> names = rdma_devices(patient);
  if (names.empty()) return findings.skip(kNoRdma);
  for (const std::string& name : names) judge_device(patient, name, findings);
  judge_connection_manager(patient, names, findings);
}

// ---- rdma.port

std::string link_up_remedy(const RdmaPortView& view) {
  std::string remedy;
  for (const std::string& device : net_devices_of(view)) {
    remedy += text(remedy.empty() ? "as root: " : "; ", "ip link set ", printable(device, 32), " up");
  }
  return remedy;
}

std::string down_remedy(const Patient& patient, const RdmaPortView& view) {
  const std::string remedy = transport_of(patient, view) == RdmaTransport::infiniband ? std::string() : link_up_remedy(view);
  return text("check cable, transceiver and the port of the switch (rdma link, mlxlink -d DEVICE)", remedy.empty() ? "" : "; ",
              remedy);
}

// "0xffff".
std::optional<unsigned> parse_hex(std::string_view word) {
  if (!word.starts_with("0x")) return {};
  word.remove_prefix(2);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, 16);
  if (error != std::errc{} || end != word.data() + word.size() || number > 0xffff) return {};
  return number;
}

void judge_port_that_is_down(const Patient& patient, const RdmaPortView& view, bool has_other, Findings& findings) {
  const FileText physical = findings.read(patient, view.folder() + "/phys_state");
  const bool had_link = physical.is_present() && physical.content.find("LinkErrorRecovery") != std::string::npos;
  const std::string phrase = physical.is_present() ? text(" (physically ", printable(physical.content, 40), ")") : std::string();
  if (has_other && !had_link) {
    findings.warn(view.subject(), text("the port is DOWN", phrase, "; another port of this machine is active"),
                  text("if it is meant to carry traffic, ", down_remedy(patient, view)));
  } else {
    findings.fail(view.subject(), text("the port is DOWN", phrase, ", so nothing can be sent through it"),
                  down_remedy(patient, view));
  }
}

void judge_initial_port(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  if (transport_of(patient, view) == RdmaTransport::infiniband) {
    findings.fail(view.subject(), "the port has a link but no address yet: no subnet manager has set it up",
                  "start a subnet manager on the switch or on one host (systemctl start opensm), then look with sminfo and ibstat");
    return;
  }
  const std::string remedy = link_up_remedy(view);
  findings.fail(view.subject(), "the port stays in state INIT, so nothing can be sent through it",
                remedy.empty() ? std::string("set its network device up: ip link set DEVICE up") : remedy);
}

// InfiniBand Architecture Specification, partition keys: the lower 15 bits name the partition, 0 none; the highest is set for a
// full member.
struct PartitionKeys {
  bool is_told = false;           // each could be read
  bool is_first_full = false;     // at index 0
  std::vector<std::string> full;  // "0x8001 (index 1)"
  std::size_t limited_count = 0;
};

PartitionKeys partition_keys(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  constexpr unsigned kFullMember = 0x8000, kPartition = 0x7fff;
  constexpr std::size_t kMaxShown = 8;
  PartitionKeys keys;
  std::string shown;
  const std::string folder = view.folder() + "/pkeys";
  keys.is_told = patient.files.facts(folder).kind == NodeKind::folder;
  for (const std::string& index : patient.files.names(folder)) {
    const std::string word = patient.files.word(text(folder, "/", index)).value_or("");
    const auto key = parse_hex(word);
    keys.is_told = keys.is_told && key.has_value();
    if (!key) continue;
    if (index == "0") keys.is_first_full = (*key & kFullMember) != 0 && (*key & kPartition) != 0;
    if ((*key & kPartition) == 0) continue;
    if ((*key & kFullMember) != 0) keys.full.push_back(text(printable(word, 8), " (index ", printable(index, 8), ")"));
    if ((*key & kFullMember) == 0) ++keys.limited_count;
    if (keys.full.size() + keys.limited_count <= kMaxShown) shown += text(shown.empty() ? "" : ", ", printable(word, 8));
  }
  if (keys.is_told) findings.reading(folder, shown.empty() ? "no P_Key" : shown);
  return keys;
}

// Whether a port in state ACTIVE is a member of no partition, or one that others like it cannot talk to.
bool has_said_bad_partition(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  constexpr const char* kRemedy =
      "let the subnet manager make the port a full member: 'Default=0x7fff, ipoib : ALL=full;' or GUID=full for its partition in "
      "partitions.conf, then let it sweep again (kill -HUP of opensm); on a managed switch the same in its partition settings";
  const PartitionKeys keys = partition_keys(patient, view, findings);
  if (!keys.is_told || keys.is_first_full) return false;
  if (keys.full.empty() && keys.limited_count == 0) {
    findings.warn(view.subject(),
                  "the port is ACTIVE, but has no P_Key: it is a member of no partition, and every packet is refused", kRemedy);
    return true;
  }
  if (keys.full.empty()) {
    findings.warn(view.subject(),
                  "the port is ACTIVE, but only a limited member of its partitions: two limited members cannot talk to each other",
                  kRemedy);
    return true;
  }
  findings.warn(
      view.subject(),
      text("the port is ACTIVE, but the P_Key that programs take by default (index 0) is not that of a full member, as is ",
           printable(joined(keys.full)), ": two limited members cannot talk to each other"),
      text("choose the other index in each program (UCX_IB_PKEY, NCCL_IB_PKEY, ib_write_bw --pkey_index), or ", kRemedy));
  return true;
}

// What an ACTIVE port cannot do all the same; false: nothing was said.
bool has_said_what_it_lacks(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  switch (transport_of(patient, view)) {
    case RdmaTransport::infiniband: return has_said_bad_partition(patient, view, findings);
    case RdmaTransport::roce:
    case RdmaTransport::iwarp:
    case RdmaTransport::unknown: return false;
    case RdmaTransport::other: break;
  }
  const std::string type =
      printable(patient.files.word(text("/sys/class/infiniband/", view.nic->rdma_device, "/node_type")).value_or(""), 40);
  findings.reading(text("node_type of ", printable(view.nic->rdma_device, 64)), type.empty() ? "not told" : type);
  findings.reading(view.folder() + "/link_layer", printable(view.port->link_layer, 40));
  findings.warn(
      view.subject(),
      text("the port is ACTIVE, but neither InfiniBand, RoCE nor iWARP",
           view.nic->driver.empty() ? std::string() : text(" (driver ", printable(view.nic->driver, 32), ")"),
           ": it has no RC queue pairs, on which Gigabar's verbs transport, perftest's defaults and NCCL's own InfiniBand "
           "support rest"),
      "use software that knows this adapter: libfabric's provider for it (EFA: NCCL with the aws-ofi-nccl plugin, Open MPI or "
      "MPICH over libfabric); Gigabar's ranks reach other hosts by ucx over TCP (GIGABAR_TRANSPORTS=local,ucx)");
  return true;
}

void judge_port(const Patient& patient, const RdmaPortView& view, bool has_other, Findings& findings) {
  const RdmaPort& port = *view.port;
  const std::string state = printable(port.state, 40);
  findings.reading(view.folder() + "/state", state.empty() ? "not told" : state);
  if (port.state == "ACTIVE") {
    if (has_said_what_it_lacks(patient, view, findings)) return;
    const std::string rate = port.rate_gbit_per_s > 0 ? text(" at ", number_text(port.rate_gbit_per_s), " Gb/s") : std::string();
    const std::string layer = port.link_layer.empty() ? std::string() : text(" (", printable(port.link_layer, 40), ")");
    findings.pass(view.subject(), text("the port is ACTIVE", rate, layer));
  } else if (port.state == "INIT") {
    judge_initial_port(patient, view, findings);
  } else if (port.state == "ARMED") {
    findings.fail(view.subject(), "the port is ARMED: the subnet manager has not finished setting it up",
                  "look at the subnet manager's log; sminfo tells which one is master");
  } else if (port.state == "DOWN") {
    judge_port_that_is_down(patient, view, has_other, findings);
  } else if (port.state == "ACTIVE_DEFER") {
    findings.warn(view.subject(), "the port has lost its link a moment ago and waits for it to come back",
                  "check cable and transceiver, then look again");
  } else {
    findings.unknown(view.subject(),
                     state.empty() ? std::string("its state is not told") : text("its state '", state, "' is not known"),
                     "see 'rdma link show' or 'ibv_devinfo'");
  }
}

void check_rdma_port(const Patient& patient, Findings& findings) {
  const RdmaPorts ports = rdma_ports(patient, findings);
  const bool has_active =
      std::any_of(ports.views.begin(), ports.views.end(), [](const RdmaPortView& view) { return view.port->state == "ACTIVE"; });
  for (const RdmaPortView& view : ports.views) judge_port(patient, view, has_active, findings);
}

// ---- the table

constexpr std::array<Check, 6> kChecks{{
    {.info =
         {.id = "rdma.dev",
          .title = "Device nodes of RDMA adapters",
          .why = "Without its node below /dev/infiniband an adapter is invisible to every program, and transfers fall back to TCP.",
          .what = "The kernel lists each RDMA adapter in /sys/class/infiniband. Programs do not use that list alone: they open "
                  "/dev/infiniband/uverbsN, which the module ib_uverbs offers and udev creates. Connections by address also need "
                  "/dev/infiniband/rdma_cm.",
          .impact = "If the node is missing or may not be opened, ibv_get_device_list() returns an empty list or the open fails, "
                    "although the adapter and its driver work. In a container this is the usual case, because /sys is shared with "
                    "the host and /dev is not.",
          .confirm = "ls /sys/class/infiniband /sys/class/infiniband_verbs\n"
                     "ls -l /dev/infiniband\n"
                     "grep -H . /sys/class/infiniband_verbs/uverbs*/dev /sys/class/misc/rdma_cm/dev\n"
                     "The first lists what the kernel has, the second what programs can open, the third the numbers that the nodes "
                     "must have. ibv_devices shows what they see; "
                     "ibv_devinfo opens each.",
          .remedy = "On a host: modprobe -a ib_uverbs rdma_ucm, and a udev rule with group and mode.\n"
                    "In a container: docker run --device=/dev/infiniband/uverbs0 --device=/dev/infiniband/rdma_cm --ulimit "
                    "memlock=-1; in Kubernetes an RDMA device plugin does the same. A bind mount of /dev/infiniband alone gives no "
                    "right to open "
                    "the nodes.",
          .source = "kernel Documentation/infiniband/user_verbs.rst; kernel Documentation/ABI/stable/sysfs-class-infiniband; "
                    "rdma-core, libibverbs manual pages."},
     .run = check_rdma_dev},
    {.info =
         {.id = "rdma.port",
          .title = "State and abilities of RDMA ports",
          .why = "Only an ACTIVE port carries data; any other state means no connection, or a rail less than was paid for.",
          .what =
              "A port goes from DOWN (no link) to INIT (link, no address), ARMED and ACTIVE. On InfiniBand the subnet manager "
              "takes it from INIT to ACTIVE; on RoCE and iWARP the state follows the network device. An ACTIVE port may still be "
              "of "
              "no use: EFA and usNIC have no RC queue pairs, and on InfiniBand a port talks to members of its partitions only, of "
              "which one of two has to be a full member.",
          .impact =
              "A port that is not ACTIVE refuses every connection. A port that hangs in INIT on InfiniBand means that no subnet "
              "manager runs, or that it does not reach this port. Between two limited members (P_Key 0x7fff) connections time out, "
              "although each of them talks to the subnet manager and to servers.",
          .confirm = "grep . /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer} /sys/class/infiniband/*/node_type\n"
                     "grep . /sys/class/infiniband/*/ports/*/pkeys/* | grep -v 0x0000\n"
                     "rdma link show\n"
                     "mlxlink -d DEVICE\n"
                     "The last one says why a link of an NVIDIA adapter does not come up.",
          .remedy =
              "DOWN: seat or change cable and transceiver, enable the port of the switch, for RoCE: ip link set DEVICE up\n"
              "INIT: start a subnet manager, on the switch or on one host: systemctl start opensm\n"
              "Limited member: full membership in the subnet manager's partitions.conf, or another P_Key index in the programs.\n"
              "No RC queue pairs: libfabric's provider for the adapter; ucx over TCP.",
          .source = "kernel Documentation/ABI/stable/sysfs-class-infiniband; InfiniBand Architecture Specification, volume 1, port "
                    "state machine; rdma-core, ibstat(8)."},
     .run = check_rdma_port},
    {.info =
         {.id = "rdma.mtu",
          .title = "MTU of RDMA ports",
          .why = "Packets of 1024 bytes instead of 4096 cost some five percent of the rate, and more where the packet rate limits; "
                 "two ends that differ "
                 "may not connect.",
          .what =
              "An RDMA port sends packets of 256 to 4096 bytes. On RoCE the largest that fits into the MTU of the network device, "
              "with some 60 to 100 bytes for headers, becomes the active MTU: 1500 gives 1024, 4200 and above give 4096. On "
              "InfiniBand "
              "the subnet manager sets it.",
          .impact = "With an active MTU of 1024 four times as many packets and headers are sent, and the adapter's packet rate may "
                    "limit before the line does. Connections whose two ends were told different MTUs end in 'transport retry "
                    "exceeded'.",
          .confirm = "ibv_devinfo | grep mtu\n"
                     "ip link show DEVICE\n"
                     "ping -M do -s 8972 PEER\n"
                     "The last one tells whether 9000 bytes pass through the whole way.",
          .remedy = "On both ends and on every switch between: ip link set DEVICE mtu 9000, and the same in the system's network "
                    "settings so that it lasts.\n"
                    "InfiniBand: mtu=5 (4096 bytes) for the partition in the subnet manager's partitions.conf.",
          .source = "rdma-core, ibv_query_port(3); kernel include/rdma/ib_addr.h (iboe_get_mtu); InfiniBand Architecture "
                    "Specification, annex A17 (RoCEv2)."},
     .run = check_rdma_mtu},
    {.info =
         {.id = "rdma.gid",
          .title = "GID of RoCE ports",
          .why = "A connection made with the wrong GID index leaves in a packet format that routers drop, and ends in a time-out.",
          .what =
              "A RoCE port has a table of addresses (GIDs). Each address of the network device appears twice: as RoCE v1, which "
              "stays within one Ethernet segment, and as RoCE v2, which travels in UDP/IP and can be routed. Programs "
              "choose an entry by its index.",
          .impact =
              "Version 1, or a link-local address (fe80::, 169.254.), works between neighbours at most. Across a router the "
              "connection is set up and then fails with 'transport retry exceeded' (status 12). Indexes change when addresses "
              "are added, so an index from another host may be wrong here.",
          .confirm =
              "show_gids\n"
              "Without that script: cd /sys/class/infiniband/ADAPTER/ports/1 && grep . gids/* gid_attrs/types/* gid_attrs/ndevs/*",
          .remedy =
              "Give the network device an address: ip addr add ADDRESS/PREFIX dev DEVICE\n"
              "Then name the index that this check prints: ib_write_bw -x INDEX, NCCL_IB_GID_INDEX=INDEX, UCX_IB_GID_INDEX=INDEX.",
          .source = "InfiniBand Architecture Specification, annex A17 (RoCEv2); kernel "
                    "Documentation/ABI/stable/sysfs-class-infiniband (gid_attrs); NCCL #426, #769."},
     .run = check_rdma_gid},
    {.info =
         {.id = "rdma.qos",
          .title = "Congestion control of RoCE ports",
          .why =
              "RoCE on a lossy network sends whole windows again after one lost packet, so that a busy switch halves the rate or "
              "worse.",
          .what =
              "RoCE expects a network that loses next to nothing. Either switches pause senders by priority (PFC), or "
              "they mark packets before queues overflow (ECN) and adapters slow down (DCQCN: the notification point, np, answers "
              "marks, and the reaction point, rp, slows down), or both.",
          .impact = "With neither, any burst to one port drops packets. The receiver then discards all that follows the gap, the "
                    "sender repeats it, and the counters out_of_sequence and packet_seq_err grow.",
          .confirm = "grep . /sys/class/net/DEVICE/ecn/roce_{np,rp}/enable/*\n"
                     "dcb pfc show dev DEVICE\n"
                     "mlnx_qos -i DEVICE\n"
                     "The first needs NVIDIA's driver package. During traffic look at rdma.counters.",
          .remedy = "As root, for priority 3 and traffic class 106:\n"
                    "mlnx_qos -i DEVICE --trust dscp --pfc 0,0,0,1,0,0,0,0\n"
                    "echo 1 > /sys/class/net/DEVICE/ecn/roce_np/enable/3, and the same for roce_rp\n"
                    "echo 106 > /sys/class/infiniband/ADAPTER/tc/1/traffic_class\n"
                    "And the matching PFC and ECN on every switch.",
          .source = "Zhu et al., 'Congestion Control for Large-Scale RDMA Deployments' (SIGCOMM 2015); NVIDIA MLNX_OFED "
                    "documentation, RoCE and QoS chapters; IEEE 802.1Qbb."},
     .run = check_rdma_qos},
    {.info =
         {.id = "rdma.counters",
          .title = "Error counters of RDMA ports",
          .why = "Packets sent again and symbols in error take rate away without any message to the program.",
          .what = "Each port counts errors of the wire (symbol_error, link_downed) and of the transport (out_of_sequence, "
                  "packet_seq_err, local_ack_timeout_err, rnr_nak_retry_err, out_of_buffer). They are totals since the driver was "
                  "loaded "
                  "or the counters were cleared, so only their growth tells of now.",
          .impact =
              "Growing symbol errors are a bad cable or transceiver. Growing sequence errors and time-outs are lost packets, for "
              "which RoCE sends much again. Growing rnr_nak_retry_err and out_of_buffer are receivers without posted "
              "buffers.",
          .confirm = "Run the check, run a transfer, run it again. These print the same counters and some more:\n"
                     "rdma statistic show link ADAPTER/PORT\n"
                     "perfquery\n"
                     "ethtool -S DEVICE | grep -E 'discards|pause'",
          .remedy = "symbol_error, link_downed: clean, seat or change cable and transceiver.\n"
                    "Sequence errors and time-outs: see rdma.qos and rdma.mtu.\n"
                    "out_of_buffer, rnr_nak_retry_err: post more receive buffers, or set a longer min_rnr_timer.",
          .source = "kernel Documentation/ABI/stable/sysfs-class-infiniband (counters, hw_counters); iproute2, rdma-statistic(8)."},
     .run = check_rdma_counters},
}};

}  // namespace

std::span<const Check> rdma_checks() { return kChecks; }

}  // namespace gigabar::doctor
