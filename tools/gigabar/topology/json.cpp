// SPDX-License-Identifier: Apache-2.0
// The whole topology as JSON: numbers are numbers, and what is not known is null.
#include "support/plain_text.hpp"
#include "topology/view.hpp"

namespace gigabar::tool::topology {
namespace {

Json to_json(const PciLinkFacts& link) {
  return {{"gt_per_s", positive_or_null(link.gt_per_s)},
          {"width", positive_or_null(link.width)},
          {"most_gt_per_s", positive_or_null(link.most_gt_per_s)},
          {"most_width", positive_or_null(link.most_width)}};
}

Json to_json(const PciNode& node) {
  return {{"address", node.address.to_string()},
          {"vendor", node.vendor},
          {"device", node.device},
          {"class_code", node.class_code},
          {"name", text_or_null(plain(node.name))},
          {"is_bridge", node.is_bridge},
          {"parent", index_or_null(node.parent)},
          {"root_complex", text_or_null(plain(node.root_complex))},
          {"numa_node", index_or_null(node.numa_node)},
          {"link", to_json(node.link)},
          {"driver", text_or_null(plain(node.driver))}};
}

Json to_json(const NumaNode& node) {
  return {
      {"index", node.index}, {"package", index_or_null(node.package)}, {"cpus", node.cpus}, {"memory_bytes", node.memory_bytes}};
}

Json to_json(const Gpu& gpu) {
  return {
      {"pci", index_or_null(gpu.pci)},         {"address", gpu.address.to_string()},    {"cuda_index", or_null(gpu.cuda_index)},
      {"name", text_or_null(plain(gpu.name))}, {"uuid", text_or_null(plain(gpu.uuid))}, {"numa_node", index_or_null(gpu.numa_node)},
      {"is_coherent", gpu.is_coherent},        {"nvlinks_active", gpu.nvlinks_active},  {"nvlinks_total", gpu.nvlinks_total}};
}

Json to_json(const GidEntry& entry) {
  return {{"index", entry.index},
          {"gid", plain(entry.gid)},
          {"type", text_or_null(plain(entry.type))},
          {"netdev", text_or_null(plain(entry.netdev))}};
}

Json to_json(const RdmaPort& port) {
  return {{"number", port.number},
          {"state", text_or_null(plain(port.state))},
          {"link_layer", text_or_null(plain(port.link_layer))},
          {"rate_gbit_per_s", positive_or_null(port.rate_gbit_per_s)},
          {"active_mtu_bytes", or_null(port.active_mtu)},
          {"gids", list_of(port.gids, [](const GidEntry& entry) { return to_json(entry); })}};
}

Json to_json(const NetDevice& device) {
  return {{"name", plain(device.name)},
          {"state", text_or_null(plain(device.state))},
          {"mtu_bytes", or_null(device.mtu)},
          {"gbit_per_s", or_null(device.gbit_per_s)}};
}

Json to_json(const Nic& nic) {
  return {{"pci", index_or_null(nic.pci)},
          {"name", plain(nic.name)},
          {"rdma_device", text_or_null(plain(nic.rdma_device))},
          {"driver", text_or_null(plain(nic.driver))},
          {"numa_node", index_or_null(nic.numa_node)},
          {"rate_gbit_per_s", positive_or_null(nic.rate_gbit_per_s())},
          {"ports", list_of(nic.ports, [](const RdmaPort& port) { return to_json(port); })},
          {"net_devices", list_of(nic.net_devices, [](const NetDevice& device) { return to_json(device); })}};
}

Json to_json(const NvLinkBond& bond) {
  return {{"first", bond.first},
          {"second", bond.second},
          {"count", bond.count},
          {"gb_per_s", positive_or_null(bond.gb_per_s)},
          {"is_switched", bond.is_switched}};
}

Json to_json(const Endpoint& point) {
  static constexpr const char* kKinds[] = {"gpu", "nic", "numa_node"};
  return {{"kind", kKinds[static_cast<std::size_t>(point.kind)]}, {"index", point.index}};
}

Json to_json(const Pair& pair) {
  return {{"first", to_json(pair.first.point)},
          {"second", to_json(pair.second.point)},
          {"relation", name_of(pair.route.relation)},
          {"symbol", short_name(pair.route.relation, pair.route.nvlink_count)},
          {"nvlink_count", pair.route.nvlink_count},
          {"gb_per_s", or_null(pair.route.gb_per_s)},
          {"bottleneck", text_or_null(plain(pair.route.bottleneck))},
          {"hops", list_of(pair.route.hops, [](const PciAddress& hop) { return hop.to_string(); })}};
}

}  // namespace

Json to_json(const View& view) {
  const Topology& topology = view.topology();
  const auto convert = [](const auto& one) { return to_json(one); };
  Json nearest = Json::array();
  for (const End& end : view.ends()) {
    if (const NicOrder* const order = view.nic_order(end))
      nearest.push_back({{"gpu", end.point.index}, {"nics", order->nics}, {"reason", order->reason}});
  }
  return {{"what", "topology"},
          {"numa_nodes", list_of(topology.numa_nodes, convert)},
          {"pci", list_of(topology.pci, convert)},
          {"gpus", list_of(topology.gpus, convert)},
          {"nics", list_of(topology.nics, convert)},
          {"nvlinks", list_of(topology.nvlinks, convert)},
          {"routes", list_of(view.pairs(), convert)},
          {"nearest_nics", std::move(nearest)},
          {"could_not_be_found_out", list_of(topology.notes, [](const std::string& note) { return plain(note); })}};
}

}  // namespace gigabar::tool::topology
