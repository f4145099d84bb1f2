// SPDX-License-Identifier: Apache-2.0
// Availability, topology and doctor.
#include "gigabar/machine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <vector>

#include "c/call.hpp"
#include "c/json.hpp"
#include "gigabar/device.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/topology.hpp"

namespace gigabar::c {
namespace {

constexpr const char* kDoctor = "gigabar_doctor_json";

Machine machine_at(const char* path) { return path == nullptr ? Machine::here() : take(Machine::open(path)); }

std::string availability_json(const Machine& machine) {
  JsonText json;
  json.object([&] {
    json.objects("paths", availability(machine), [&](const PathReport& path) {
      json.member("path", path.path);
      json.member("description", path.description);
      json.members(path.availability);
    });
    const auto all = machine.is_live() ? drivers() : std::vector<DriverReport>();
    json.objects("drivers", all, [&](const DriverReport& driver) {
      json.member("name", driver.name);
      json.members(driver.availability);
    });
  });
  return json.take();
}

void write_finding(JsonText& json, const Finding& finding) {
  const CheckInfo* const check = find_check(finding.check);
  const auto about = [&](std::string_view CheckInfo::* member) {
    return check == nullptr ? std::nullopt : std::optional(check->*member);
  };
  json.member("check", finding.check);
  json.member("title", about(&CheckInfo::title));
  json.member("subject", finding.subject);
  json.member("verdict", name_of(finding.verdict));
  json.member("statement", finding.statement);
  json.objects("readings", finding.readings, [&](const Reading& reading) {
    json.member("source", reading.source);
    json.member("value", reading.value);
  });
  json.member("why", about(&CheckInfo::why));
  json.member("remedy", finding.remedy);
  json.member("needs_reboot", finding.needs_reboot);
}

std::string doctor_json(const Examination& examination) {
  std::set<std::string_view> checks;
  for (const Finding& finding : examination.findings) checks.insert(finding.check);
  JsonText json;
  json.object([&] {
    json.object("summary", [&] {
      json.member("checks", checks.size());
      json.member("findings", examination.findings.size());
      for (const Verdict verdict : {Verdict::fail, Verdict::warn, Verdict::unknown, Verdict::pass, Verdict::skip}) {
        json.member(name_of(verdict), examination.count(verdict));
      }
    });
    json.objects("findings", examination.findings, [&](const Finding& finding) { write_finding(json, finding); });
    json.list("notes", examination.topology.notes);
  });
  return json.take();
}

// Routes between more GPUs and NICs than any machine has are left out: a hostile archive cannot ask for millions.
constexpr std::size_t kMaxEnds = 160;

std::optional<double> positive(double value) { return value > 0 ? std::optional(value) : std::nullopt; }
std::optional<unsigned> positive(unsigned value) { return value > 0 ? std::optional(value) : std::nullopt; }
std::optional<int> index_of(int value) { return value >= 0 ? std::optional(value) : std::nullopt; }

// A topology as `topology` of docs/schema/common.schema.json.
class TopologyWriter {
 public:
  explicit TopologyWriter(const Topology& topology) : topology_(topology) {}

  std::string write() {
    json_.object([&] {
      json_.member("what", "topology");
      json_.objects("numa_nodes", topology_.numa_nodes, [&](const NumaNode& node) { write_node(node); });
      json_.objects("pci", topology_.pci, [&](const PciNode& node) { write_pci(node); });
      json_.objects("gpus", topology_.gpus, [&](const Gpu& gpu) { write_gpu(gpu); });
      json_.objects("nics", topology_.nics, [&](const Nic& nic) { write_nic(nic); });
      json_.objects("nvlinks", topology_.nvlinks, [&](const NvLinkBond& bond) { write_bond(bond); });
      json_.array("routes", [&] { write_routes(); });
      write_nearest();
      json_.list("could_not_be_found_out", topology_.notes);
    });
    return json_.take();
  }

 private:
  void write_node(const NumaNode& node) {
    json_.member("index", node.index);
    json_.member("package", index_of(node.package));
    json_.list("cpus", node.cpus);
    json_.member("memory_bytes", node.memory_bytes);
  }

  void write_pci(const PciNode& node) {
    json_.member("address", node.address.to_string());
    json_.member("vendor", node.vendor);
    json_.member("device", node.device);
    json_.member("class_code", node.class_code);
    json_.text_or_null("name", node.name);
    json_.member("is_bridge", node.is_bridge);
    json_.member("parent", index_of(node.parent));
    json_.text_or_null("root_complex", node.root_complex);
    json_.member("numa_node", index_of(node.numa_node));
    json_.object("link", [&] {
      json_.member("gt_per_s", positive(node.link.gt_per_s));
      json_.member("width", positive(node.link.width));
      json_.member("most_gt_per_s", positive(node.link.most_gt_per_s));
      json_.member("most_width", positive(node.link.most_width));
    });
    json_.text_or_null("driver", node.driver);
  }

  void write_gpu(const Gpu& gpu) {
    json_.member("pci", index_of(gpu.pci));
    json_.member("address", gpu.address.to_string());
    json_.member("cuda_index", gpu.cuda_index);
    json_.text_or_null("name", gpu.name);
    json_.text_or_null("uuid", gpu.uuid);
    json_.member("numa_node", index_of(gpu.numa_node));
    json_.member("is_coherent", gpu.is_coherent);
    json_.member("nvlinks_active", gpu.nvlinks_active);
    json_.member("nvlinks_total", gpu.nvlinks_total);
  }

  void write_port(const RdmaPort& port) {
    json_.member("number", port.number);
    json_.text_or_null("state", port.state);
    json_.text_or_null("link_layer", port.link_layer);
    json_.member("rate_gbit_per_s", positive(port.rate_gbit_per_s));
    json_.member("active_mtu_bytes", port.active_mtu);
    json_.objects("gids", port.gids, [&](const GidEntry& entry) {
      json_.member("index", entry.index);
      json_.member("gid", entry.gid);
      json_.text_or_null("type", entry.type);
      json_.text_or_null("netdev", entry.netdev);
    });
  }

  void write_nic(const Nic& nic) {
    json_.member("pci", index_of(nic.pci));
    json_.member("name", nic.name);
    json_.text_or_null("rdma_device", nic.rdma_device);
    json_.text_or_null("driver", nic.driver);
    json_.member("numa_node", index_of(nic.numa_node));
    json_.member("rate_gbit_per_s", positive(nic.rate_gbit_per_s()));
    json_.objects("ports", nic.ports, [&](const RdmaPort& port) { write_port(port); });
    json_.objects("net_devices", nic.net_devices, [&](const NetDevice& device) {
      json_.member("name", device.name);
      json_.text_or_null("state", device.state);
      json_.member("mtu_bytes", device.mtu);
      json_.member("gbit_per_s", device.gbit_per_s);
    });
  }

  void write_bond(const NvLinkBond& bond) {
    json_.member("first", bond.first);
    json_.member("second", bond.second);
    json_.member("count", bond.count);
    json_.member("gb_per_s", positive(bond.gb_per_s));
    json_.member("is_switched", bond.is_switched);
  }

  void write_end(const char* name, const Endpoint& end) {
    static constexpr const char* kKinds[] = {"gpu", "nic", "numa_node"};
    json_.object(name, [&] {
      json_.member("kind", kKinds[static_cast<std::size_t>(end.kind)]);
      json_.member("index", end.index);
    });
  }

  void write_route(const Endpoint& first, const Endpoint& second) {
    const Route route = route_between(topology_, first, second);
    json_.object([&] {
      write_end("first", first);
      write_end("second", second);
      json_.member("relation", name_of(route.relation));
      json_.member("symbol", short_name(route.relation, route.nvlink_count));
      json_.member("nvlink_count", route.nvlink_count);
      json_.member("gb_per_s", route.gb_per_s);
      json_.text_or_null("bottleneck", route.bottleneck);
      json_.list("hops", route.hops, [&](const PciAddress& hop) { json_.value(hop.to_string()); });
    });
  }

  // GPUs, then NICs.
  std::vector<Endpoint> ends() const {
    std::vector<Endpoint> all;
    for (std::size_t i = 0; i < topology_.gpus.size(); ++i) all.push_back({Endpoint::Kind::gpu, static_cast<int>(i)});
    for (std::size_t i = 0; i < topology_.nics.size(); ++i) all.push_back({Endpoint::Kind::nic, static_cast<int>(i)});
    all.resize(std::min(all.size(), kMaxEnds));
    return all;
  }

  // Of any two ends, then of each GPU and the memory of its node.
  void write_routes() {
    const std::vector<Endpoint> all = ends();
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i + 1; j < all.size(); ++j) write_route(all[i], all[j]);
    }
    for (const Endpoint& end : all) {
      if (end.kind != Endpoint::Kind::gpu) continue;
      const int node = topology_.find_numa_node(topology_.gpus[static_cast<std::size_t>(end.index)].numa_node);
      if (node >= 0) write_route(end, {Endpoint::Kind::numa_node, node});
    }
  }

  // Those with RDMA, unless no NIC has it.
  void write_nearest() {
    const bool has_rdma =
        std::any_of(topology_.nics.begin(), topology_.nics.end(), [](const Nic& nic) { return !nic.rdma_device.empty(); });
    int gpu = 0;
    json_.objects("nearest_nics", nic_orders(topology_, has_rdma), [&](const NicOrder& order) {
      json_.member("gpu", gpu++);
      json_.list("nics", order.nics);
      json_.member("reason", order.reason);
    });
  }

  const Topology& topology_;
  JsonText json_;
};

struct Order {
  const char* machine = nullptr;
  ExamineOptions options;
};

Order order_of(const gigabar_doctor_options* given) {
  using Given = gigabar_doctor_options;
  const Fields fields(given, GIGABAR_DOCTOR_DEADLINE_NS * 2 - 1, kDoctor, "options");
  Order order;
  if (const auto* machine = fields.find(GIGABAR_DOCTOR_MACHINE, &Given::machine)) {
    order.machine = &object_at(*machine, kDoctor, "options->machine");
  }
  if (const auto* only = fields.find(GIGABAR_DOCTOR_ONLY, &Given::only)) {
    order.options.only = parts_of(&object_at(*only, kDoctor, "options->only"));
  }
  if (const auto* probes = fields.find(GIGABAR_DOCTOR_WITH_PROBES, &Given::with_probes)) order.options.with_probes = *probes != 0;
  if (const auto* deadline = fields.find(GIGABAR_DOCTOR_DEADLINE_NS, &Given::deadline_ns)) {
    if (*deadline <= 0) refuse(kDoctor, "options->deadline_ns", text("it is ", *deadline), "pass nanoseconds, more than 0");
    order.options.deadline = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(*deadline));
  }
  return order;
}

}  // namespace
}  // namespace gigabar::c

using namespace gigabar;
using namespace gigabar::c;

gigabar_status gigabar_availability_json(const char* machine, char** text) {
  return guarded("gigabar_availability_json", [&](const char* function) {
    char*& result = object_at(text, function, "text");
    result = new_text(availability_json(machine_at(machine)));
  });
}

gigabar_status gigabar_topology_json(const char* machine, char** text) {
  return guarded("gigabar_topology_json", [&](const char* function) {
    char*& result = object_at(text, function, "text");
    const Topology topology = take(gigabar::discover_topology(machine_at(machine)));
    result = new_text(TopologyWriter(topology).write());
  });
}

gigabar_status gigabar_doctor_json(const gigabar_doctor_options* options, char** text) {
  return guarded(kDoctor, [&](const char* function) {
    char*& result = object_at(text, function, "text");
    const Order order = order_of(options);
    const Examination examination = take(gigabar::examine(machine_at(order.machine), order.options));
    result = new_text(doctor_json(examination));
  });
}
