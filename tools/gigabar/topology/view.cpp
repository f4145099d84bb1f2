// SPDX-License-Identifier: Apache-2.0
#include "topology/view.hpp"

#include <fmt/format.h>

#include <utility>

#include "doctor/document.hpp"
#include "doctor/members.hpp"
#include "platform/cpu_set.hpp"
#include "platform/pci_link.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::topology {
namespace {

constexpr std::size_t kMaxPartsOfList = 24;

std::string gpu_text(const Gpu& gpu) {
  std::string text = gpu.name.empty() ? "GPU of unknown name" : plain(gpu.name, 120);
  text += " at " + gpu.address.to_string();
  if (gpu.pci < 0) text += " (not in the PCI tree)";
  if (gpu.cuda_index) text += fmt::format(", CUDA {}", *gpu.cuda_index);
  if (gpu.nvlinks_total > 0) text += fmt::format(", {} of {} NVLinks active", gpu.nvlinks_active, gpu.nvlinks_total);
  if (gpu.is_coherent) text += ", coherent with its CPU";
  return text;
}

// "mlx5_0, eth0 at 0000:3b:00.0, mlx5_core, port 1 ACTIVE InfiniBand 400 Gb/s".
std::string nic_text(const Topology& topology, const Nic& nic) {
  std::string text = plain(nic.rdma_device.empty() ? nic.name : nic.rdma_device, 64);
  for (const NetDevice& device : nic.net_devices) {
    if (device.name != nic.name || !nic.rdma_device.empty()) text += ", " + plain(device.name, 64);
  }
  const PciNode* const node = element(topology.pci, nic.pci);
  text += node == nullptr ? ", no PCI device" : " at " + node->address.to_string();
  text += nic.driver.empty() ? ", no driver" : ", " + plain(nic.driver, 64);
  if (nic.rdma_device.empty()) text += ", no RDMA";
  for (const RdmaPort& port : nic.ports) {
    text += fmt::format(", port {} {}", port.number, port.state.empty() ? "of unknown state" : plain(port.state, 32));
    if (!port.link_layer.empty()) text += " " + plain(port.link_layer, 32);
    if (port.rate_gbit_per_s > 0) text += fmt::format(" {:g} Gb/s", port.rate_gbit_per_s);
  }
  for (const NetDevice& device : nic.net_devices) {
    if (!nic.ports.empty()) break;
    text += fmt::format(", link {}", device.state.empty() ? "unknown" : plain(device.state, 32));
    if (device.gbit_per_s) text += fmt::format(" {:g} Gb/s", *device.gbit_per_s);
  }
  return text;
}

}  // namespace

View::View(Topology topology) : topology_(std::move(topology)), nic_orders_(nic_orders_to_show(topology_)) {
  for (const Endpoint& point : ends_of(topology_)) ends_.push_back(end_of(point));
}

End View::end_of(Endpoint point) const {
  if (point.kind == Endpoint::Kind::gpu) {
    const Gpu& gpu = topology_.gpus[static_cast<std::size_t>(point.index)];
    return {point, fmt::format("GPU{}", point.index), gpu.numa_node, gpu.pci};
  }
  if (point.kind == Endpoint::Kind::nic) {
    const Nic& nic = topology_.nics[static_cast<std::size_t>(point.index)];
    return {point, fmt::format("NIC{}", point.index), nic.numa_node, nic.pci};
  }
  const int number = topology_.numa_nodes[static_cast<std::size_t>(point.index)].index;
  return {point, fmt::format("host {}", number), number};
}

const NicOrder* View::nic_order(const End& end) const {
  return end.point.kind == Endpoint::Kind::gpu ? element(nic_orders_, end.point.index) : nullptr;
}

std::string View::mark(int pci) const {
  std::string mark;
  for (const End& end : ends_) {
    if (pci >= 0 && end.pci == pci) mark += (mark.empty() ? "" : " ") + end.label;
  }
  return mark;
}

std::string View::text_of(const End& end) const {
  const auto index = static_cast<std::size_t>(end.point.index);
  return end.point.kind == Endpoint::Kind::gpu ? gpu_text(topology_.gpus[index]) : nic_text(topology_, topology_.nics[index]);
}

std::string cpus_text(const Topology& topology, int numa_node) {
  const NumaNode* const node = element(topology.numa_nodes, topology.find_numa_node(numa_node));
  if (node == nullptr) return "unknown";
  if (node->cpus.empty()) return "none";
  const std::string list = cpu_list_text(node->cpus);
  std::size_t end = 0;
  for (std::size_t part = 0; part < kMaxPartsOfList && end != std::string::npos; ++part) end = list.find(',', end + 1);
  return end == std::string::npos ? list : list.substr(0, end) + ",...";
}

std::string node_text(const Topology& topology, int numa_node) {
  const NumaNode* const node = element(topology.numa_nodes, topology.find_numa_node(numa_node));
  return fmt::format("NUMA node {}: CPUs {}, {:.1f} GiB of host memory on this node", numa_node, cpus_text(topology, numa_node),
                     node == nullptr ? 0.0 : static_cast<double>(node->memory_bytes) / 1073741824.0);
}

namespace {

// What is no generation of PCIe (PCI Express Base Specification, sections on link speeds) is told as a number.
std::string link_text(double gt_per_s, unsigned width) {
  const std::string name = PcieLink{gt_per_s, width}.name();
  std::string text = name.substr(0, name.rfind(' '));
  if (!pcie_link_of_speed(gt_per_s, 1)) text = gt_per_s > 0 ? fmt::format("{:g} GT/s", gt_per_s) : "speed unknown";
  return text + (width > 0 ? fmt::format(" x{}", width) : " width unknown");
}

}  // namespace

std::string link_text(const PciLinkFacts& link) {
  if (link.gt_per_s <= 0 && link.width == 0) return {};
  const std::string now = link_text(link.gt_per_s, link.width);
  const bool can_more = link.most_gt_per_s > link.gt_per_s || link.most_width > link.width;
  return can_more ? fmt::format("{} of {}", now, link_text(link.most_gt_per_s, link.most_width)) : now;
}

std::string device_text(const PciNode& node) {
  const std::string ids = fmt::format("{:04x}:{:04x}", node.vendor, node.device);
  return node.name.empty() ? ids : plain(node.name, 120);
}

Json to_json(const View& view) { return doctor::document_of(view.topology()); }

}  // namespace gigabar::tool::topology
