// SPDX-License-Identifier: Apache-2.0
#include "c/topology_json.hpp"

#include <algorithm>
#include <vector>

#include "c/json.hpp"

namespace gigabar::c {
namespace {

// Routes between more GPUs and NICs than any machine has are left out: a hostile archive cannot ask for millions.
constexpr std::size_t kMaxEnds = 160;

std::optional<double> positive(double value) { return value > 0 ? std::optional(value) : std::nullopt; }
std::optional<unsigned> positive(unsigned value) { return value > 0 ? std::optional(value) : std::nullopt; }
std::optional<int> index_of(int value) { return value >= 0 ? std::optional(value) : std::nullopt; }

class Writer {
 public:
  explicit Writer(const Topology& topology) : topology_(topology) {}

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

}  // namespace

std::string topology_json(const Topology& topology) { return Writer(topology).write(); }

}  // namespace gigabar::c
