// SPDX-License-Identifier: Apache-2.0
// rdma.dev, rdma.port, and rdma.counters: errors of the wire and of the transport, and whether they grow.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <thread>

#include "base/errors.hpp"
#include "base/hexadecimal.hpp"
#include "base/options.hpp"
#include "doctor/facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr const char* kConnectionNode = "/dev/infiniband/rdma_cm";

// ---- rdma.dev

std::string remedy_for_missing_node(const Patient& patient, const std::string& node) {
  if (!container(patient).empty()) {
    return "pass the device into this container: docker run --device=" + node +
           " --device=/dev/infiniband/rdma_cm --ulimit memlock=-1 (Kubernetes: an RDMA device plugin)";
  }
  return "as root: modprobe ib_uverbs; if the node is still missing, let udev make it: udevadm trigger -s infiniband_verbs";
}

Ruling judge_node(const Patient& patient, const std::string& device, const std::string& node, Findings& findings) {
  const NodeReport report = look_at_node(patient, node);
  findings.reading(node, report.value);
  if (report.state == NodeState::missing)
    return fail(text("its device node ", node, " is missing, so no program can open it"), remedy_for_missing_node(patient, node));
  if (report.is_broken())
    return fail(text("its device node ", report.statement(), ", so no program can use the adapter"), report.remedy);
  if (report.state == NodeState::no_permission)
    return fail(text("this user may not open its device node ", node),
                "as root, write KERNEL==\"uverbs*\", GROUP=\"rdma\", MODE=\"0660\" to /etc/udev/rules.d/90-rdma.rules, run udevadm "
                "control --reload && udevadm trigger -s infiniband_verbs, and add the user: usermod -aG rdma USER");
  const RdmaDeviceAnswers* answer = answers_of(patient, device);
  if (answer != nullptr && answer->error) {
    findings.reading("ibv_open_device(" + device + ")", *answer->error);
    return fail(text("its device node is in order, but libibverbs cannot open it: ", printable(*answer->error)),
                "install the provider of this device (Debian and Ubuntu: ibverbs-providers; RHEL: libibverbs) in a version that "
                "fits the kernel's driver, then see ibv_devinfo");
  }
  return pass("its device node ", node, " is there and may be opened");
}

Ruling judge_device(const Patient& patient, const std::string& name, Findings& findings) {
  const std::string device = printable(name, 64);
  const std::string node = uverbs_node(patient, name);
  findings.reading("/sys/class/infiniband_verbs/*/ibdev", node.empty() ? "none names " + device : node + " is " + device);
  if (!node.empty()) return judge_node(patient, device, node, findings);
  if (!uverbs_nodes(patient).empty())
    return unknown("the kernel does not say which node below /dev/infiniband belongs to it", "see 'ibv_devinfo' and 'rdma link'");
  findings.reading("/dev/infiniband/uverbs*", "missing");
  return fail("the kernel has this RDMA device, but no device node through which a program could use it",
              remedy_for_missing_node(patient, "/dev/infiniband/uverbs0"));
}

// Connections by address are made through one node for all adapters.
MaybeRuling judge_connection_manager(const Patient& patient, const std::vector<std::string>& names, Findings& findings) {
  const NodeReport report = look_at_node(patient, kConnectionNode);
  const bool has_usable = std::ranges::any_of(names, [&](const std::string& name) {
    const std::string node = uverbs_node(patient, name);
    return !node.empty() && look_at_node(patient, node).works();
  });
  if (report.works() || (report.state == NodeState::missing && !has_usable)) return {};
  findings.reading(report.path, report.value);
  const bool is_unloaded = report.state == NodeState::missing && container(patient).empty();
  return Ruling{report.is_broken() ? Verdict::fail : Verdict::warn,
                text(report.statement(), ", so connections by address (rdma_cm), as Gigabar makes them, cannot be opened"),
                is_unloaded ? "as root: modprobe rdma_ucm" : report.remedy};
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

Ruling judge_port_that_is_down(const Patient& patient, const RdmaPortView& view, bool has_other, Findings& findings) {
  const FileText physical = findings.read(patient, view.folder() + "/phys_state");
  const bool had_link = physical.is_present() && physical.content.find("LinkErrorRecovery") != std::string::npos;
  const std::string phrase = physical.is_present() ? text(" (physically ", printable(physical.content, 40), ")") : std::string();
  if (has_other && !had_link)
    return warn(text("the port is DOWN", phrase, "; another port of this machine is active"),
                text("if it is meant to carry traffic, ", down_remedy(patient, view)));
  return fail(text("the port is DOWN", phrase, ", so nothing can be sent through it"), down_remedy(patient, view));
}

Ruling judge_initial_port(const Patient& patient, const RdmaPortView& view) {
  if (transport_of(patient, view) == RdmaTransport::infiniband)
    return fail("the port has a link but no address yet: no subnet manager has set it up",
                "start a subnet manager on the switch or on one host (systemctl start opensm), then look with sminfo and ibstat");
  const std::string remedy = link_up_remedy(view);
  return fail("the port stays in state INIT, so nothing can be sent through it",
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
    const auto key = word.starts_with("0x") ? hexadecimal<std::uint16_t>(std::string_view(word).substr(2)) : std::nullopt;
    keys.is_told = keys.is_told && key.has_value();
    if (!keys.is_told) break;
    if (index == "0") keys.is_first_full = (*key & kFullMember) != 0 && (*key & kPartition) != 0;
    if ((*key & kPartition) == 0) continue;
    if ((*key & kFullMember) != 0) keys.full.push_back(text(printable(word, 8), " (index ", printable(index, 8), ")"));
    if ((*key & kFullMember) == 0) ++keys.limited_count;
    if (keys.full.size() + keys.limited_count <= kMaxShown) shown += text(shown.empty() ? "" : ", ", printable(word, 8));
  }
  if (keys.is_told) findings.reading(folder, shown.empty() ? "no P_Key" : shown);
  return keys;
}

// Of a port in state ACTIVE that is a member of no partition, or one that others like it cannot talk to.
MaybeRuling judge_partitions(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  const PartitionKeys keys = partition_keys(patient, view, findings);
  if (!keys.is_told || keys.is_first_full) return {};
  const std::string remedy =
      "let the subnet manager make the port a full member: 'Default=0x7fff, ipoib : ALL=full;' or GUID=full for its partition in "
      "partitions.conf, then let it sweep again (kill -HUP of opensm); on a managed switch the same in its partition settings";
  if (keys.full.empty() && keys.limited_count == 0)
    return warn("the port is ACTIVE, but has no P_Key: it is a member of no partition, and every packet is refused", remedy);
  if (keys.full.empty())
    return warn("the port is ACTIVE, but only a limited member of its partitions: two limited members cannot talk to each other",
                remedy);
  return warn(text("the port is ACTIVE, but the P_Key that programs take by default (index 0) is not that of a full member, as is ",
                   printable(joined(keys.full)), ": two limited members cannot talk to each other"),
              text("choose the other index in each program (UCX_IB_PKEY, NCCL_IB_PKEY, ib_write_bw --pkey_index), or ", remedy));
}

// A port that is ACTIVE and has no use for us.
Ruling judge_foreign_port(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  const std::string type =
      printable(patient.files.word(text("/sys/class/infiniband/", view.nic->rdma_device, "/node_type")).value_or(""), 40);
  findings.reading(text("node_type of ", printable(view.nic->rdma_device, 64)), type.empty() ? "not told" : type);
  findings.reading(view.folder() + "/link_layer", printable(view.port->link_layer, 40));
  return warn(text("the port is ACTIVE, but neither InfiniBand, RoCE nor iWARP",
                   view.nic->driver.empty() ? std::string() : text(" (driver ", printable(view.nic->driver, 32), ")"),
                   ": it has no RC queue pairs, on which Gigabar's verbs transport, perftest's defaults and NCCL's own InfiniBand "
                   "support rest"),
              "use software that knows this adapter: libfabric's provider for it (EFA: NCCL with the aws-ofi-nccl plugin, Open MPI "
              "or MPICH over libfabric); Gigabar's ranks reach other hosts by ucx over TCP (GIGABAR_TRANSPORTS=local,ucx)");
}

// "400", "56.5": without the zeros of std::to_string.
std::string number_text(double number) {
  std::array<char, 64> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc{} ? std::string(digits.data(), end) : std::string("?");
}

Ruling judge_active_port(const Patient& patient, const RdmaPortView& view, Findings& findings) {
  const RdmaPort& port = *view.port;
  const RdmaTransport transport = transport_of(patient, view);
  if (transport == RdmaTransport::other) return judge_foreign_port(patient, view, findings);
  if (transport == RdmaTransport::infiniband) {
    if (const MaybeRuling bad = judge_partitions(patient, view, findings)) return *bad;
  }
  const std::string rate = port.rate_gbit_per_s > 0 ? text(" at ", number_text(port.rate_gbit_per_s), " Gb/s") : std::string();
  const std::string layer = port.link_layer.empty() ? std::string() : text(" (", printable(port.link_layer, 40), ")");
  return pass("the port is ACTIVE", rate, layer);
}

Ruling judge_port(const Patient& patient, const RdmaPortView& view, bool has_other, Findings& findings) {
  const RdmaPort& port = *view.port;
  const std::string state = printable(port.state, 40);
  findings.reading(view.folder() + "/state", state.empty() ? "not told" : state);
  if (port.state == "ACTIVE") return judge_active_port(patient, view, findings);
  if (port.state == "INIT") return judge_initial_port(patient, view);
  if (port.state == "ARMED")
    return fail("the port is ARMED: the subnet manager has not finished setting it up",
                "look at the subnet manager's log; sminfo tells which one is master");
  if (port.state == "DOWN") return judge_port_that_is_down(patient, view, has_other, findings);
  if (port.state == "ACTIVE_DEFER")
    return warn("the port has lost its link a moment ago and waits for it to come back",
                "check cable and transceiver, then look again");
  return unknown(state.empty() ? std::string("its state is not told") : text("its state '", state, "' is not known"),
                 "see 'rdma link show' or 'ibv_devinfo'");
}

// ---- rdma.counters

constexpr std::chrono::milliseconds kBetweenReadings{200};

// Below the folder of a port. Drivers name what they count differently; those of a driver that has others are missing.
// Source: kernel, Documentation/ABI/stable/sysfs-class-infiniband, and the counters of mlx5, bnxt_re and rxe.
constexpr std::string_view kSymbolErrors = "counters/symbol_error";
constexpr std::array<std::string_view, 14> kCounters{kSymbolErrors,
                                                     "counters/link_downed",
                                                     "hw_counters/out_of_sequence",
                                                     "hw_counters/packet_seq_err",
                                                     "hw_counters/local_ack_timeout_err",
                                                     "hw_counters/rnr_nak_retry_err",
                                                     "hw_counters/out_of_buffer",
                                                     "hw_counters/to_retransmits",
                                                     "hw_counters/seq_err_naks_rcvd",
                                                     "hw_counters/max_retry_exceeded",
                                                     "hw_counters/out_of_seq_request",
                                                     "hw_counters/rcvd_seq_err",
                                                     "hw_counters/retry_exceeded_err",
                                                     "hw_counters/retry_rnr_exceeded_err"};

struct Counter {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

struct PortCounters {
  std::map<std::string_view, Counter> told;
  std::map<std::string_view, std::string> refused;  // there, but not readable or not a number, with the reason
};

std::optional<std::uint64_t> number_in(const FileText& file) { return parse_number(printable(file.content, 40), 0, UINT64_MAX); }

PortCounters read_first(const Patient& patient, const RdmaPortView& view) {
  PortCounters counters;
  for (const std::string_view name : kCounters) {
    const FileText file = patient.files.read(text(view.folder(), "/", name));
    if (file.state == FileState::missing) continue;
    const auto value = file.is_present() ? number_in(file) : std::nullopt;
    if (value) {
      counters.told[name] = {*value, *value};
    } else {
      counters.refused[name] = file.is_present() ? text("'", printable(file.content, 40), "'") : file.reason;
    }
  }
  return counters;
}

void read_again(const Patient& patient, const RdmaPortView& view, PortCounters& counters) {
  for (auto& [name, counter] : counters.told) {
    const auto value = number_in(patient.files.read(text(view.folder(), "/", name)));
    // Somebody may have cleared the counters in between: then there is no growth to speak of.
    if (value) counter.last = std::max(*value, counter.first);
  }
}

std::string_view last_part(std::string_view name) { return name.substr(name.find('/') + 1); }

std::string remedy_for(const PortCounters& counters, bool has_growth) {
  const auto is_set = [&](std::string_view name) {
    const auto found = counters.told.find(name);
    return found != counters.told.end() && found->second.last != 0;
  };
  std::vector<std::string> parts;
  if (is_set(kSymbolErrors) || is_set("counters/link_downed")) parts.emplace_back("clean, seat or change cable and transceiver");
  const bool is_starved = is_set("hw_counters/out_of_buffer") || is_set("hw_counters/rnr_nak_retry_err") ||
                          is_set("hw_counters/retry_rnr_exceeded_err");
  if (is_starved) parts.emplace_back("post more receive buffers");
  const bool is_lossy = std::ranges::any_of(counters.told, [](const auto& entry) {
    return entry.second.last != 0 && entry.first.starts_with("hw_") && entry.first.find("rnr") == std::string_view::npos &&
           entry.first != "hw_counters/out_of_buffer";
  });
  if (is_lossy) parts.emplace_back("look for lost packets: rdma.qos, rdma.mtu, and the counters of the switches");
  return (has_growth ? "" : "read them again after a transfer (gigabar doctor --only rdma.counters); if they grow: ") +
         joined(parts, "; ");
}

void tell_readings(const RdmaPortView& view, const PortCounters& counters, Findings& findings) {
  for (const auto& [name, counter] : counters.told) {
    findings.reading(text(view.folder(), "/", name),
                     counter.first == counter.last ? text(counter.first) : text(counter.first, ", then ", counter.last));
  }
  for (const auto& [name, reason] : counters.refused) findings.reading(text(view.folder(), "/", name), reason);
  if (counters.told.empty() && counters.refused.empty()) findings.reading(view.folder() + "/counters/*, hw_counters/*", "missing");
}

Ruling judge_counters(const RdmaPortView& view, const PortCounters& counters, Findings& findings) {
  tell_readings(view, counters, findings);
  std::vector<std::string> grown, totals;
  bool do_symbols_grow = false;
  for (const auto& [name, counter] : counters.told) {
    const std::uint64_t growth = counter.last - counter.first;
    if (growth != 0) grown.push_back(text(last_part(name), " by ", growth));
    if (counter.last != 0) totals.push_back(text(last_part(name), " ", counter.last));
    do_symbols_grow |= growth != 0 && name == kSymbolErrors;
  }
  if (!grown.empty())
    return Ruling{do_symbols_grow ? Verdict::fail : Verdict::warn,
                  text("errors grow right now, within ", kBetweenReadings.count(), " ms: ", list_text(grown)),
                  remedy_for(counters, true)};
  if (!totals.empty())
    return warn(
        text("totals since the driver was loaded or the counters were cleared: ", list_text(totals), "; only their growth counts"),
        remedy_for(counters, false));
  if (counters.told.empty())
    return unknown(
        counters.refused.empty() ? "this driver has none of the known error counters" : "its error counters cannot be read",
        "see 'rdma statistic show' and 'ethtool -S DEVICE', as root where they refuse");
  if (!counters.refused.empty())
    return unknown(text(counters.refused.size(), " of its error counters cannot be read; the others are zero"),
                   "run as root, or see 'rdma statistic show'");
  return pass("its ", counters.told.size(), " error counters are zero");
}

}  // namespace

MaybeRuling check_rdma_dev(const Patient& patient, Findings& findings) {
  const std::vector<std::string> names = rdma_devices(patient);
  if (names.empty()) return findings.no_device(patient, kNoRdma, kInfinibandFolder);
  for (const std::string& name : names) findings.say(printable(name, 64), judge_device(patient, name, findings));
  findings.say("rdma_cm", judge_connection_manager(patient, names, findings));
  return {};
}

MaybeRuling check_rdma_port(const Patient& patient, Findings& findings) {
  const std::vector<RdmaPortView> ports = rdma_ports(patient, findings);
  const bool has_active = std::ranges::any_of(ports, [](const RdmaPortView& view) { return view.port->state == "ACTIVE"; });
  for (const RdmaPortView& view : ports) findings.say(view.subject(), judge_port(patient, view, has_active, findings));
  return {};
}

MaybeRuling check_rdma_counters(const Patient& patient, Findings& findings) {
  const std::vector<RdmaPortView> ports = rdma_ports(patient, findings);
  std::vector<PortCounters> counters;
  for (const RdmaPortView& view : ports) counters.push_back(read_first(patient, view));
  if (patient.is_live && std::ranges::any_of(counters, [](const PortCounters& port) { return !port.told.empty(); })) {
    std::this_thread::sleep_for(kBetweenReadings);
    for (std::size_t i = 0; i < counters.size(); ++i) read_again(patient, ports[i], counters[i]);
  }
  for (std::size_t i = 0; i < counters.size(); ++i)
    findings.say(ports[i].subject(), judge_counters(ports[i], counters[i], findings));
  return {};
}

}  // namespace gigabar::doctor
