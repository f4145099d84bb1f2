// SPDX-License-Identifier: Apache-2.0
#include "doctor/rdma_facts.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/errors.hpp"
#include "doctor/gpu_facts.hpp"

namespace gigabar::doctor {
namespace {

// A name becomes part of a path; one that leads elsewhere comes from a capture made by hand.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos && name.size() <= 64;
}

// Adapters that one provider of libibverbs serves.
struct Family {
  std::string_view provider;  // its file below /etc/libibverbs.d, without ".driver"
  // Of names that the kernel gives; udev may have renamed devices of PCI, which have a link to their driver instead.
  std::array<std::string_view, 2> prefixes;
  std::array<std::string_view, 4> drivers;  // of the kernel
};
constexpr std::array<Family, 16> kFamilies{{{"mlx5", {"mlx5"}, {"mlx5_core", "mlx5_ib"}},
                                            {"mlx4", {"mlx4"}, {"mlx4_core", "mlx4_ib"}},
                                            {"bnxt_re", {"bnxt_re"}, {"bnxt_en", "bnxt_re"}},
                                            {"efa", {"rdmap", "efa"}, {"efa"}},
                                            {"irdma", {"irdma"}, {"irdma", "ice", "i40e", "idpf"}},
                                            {"hns", {"hns"}, {"hns3", "hns_roce_hw_v2"}},
                                            {"cxgb4", {"cxgb4"}, {"cxgb4"}},
                                            {"qedr", {"qedr"}, {"qede", "qedr"}},
                                            {"erdma", {"erdma"}, {"erdma"}},
                                            {"mana", {"mana"}, {"mana"}},
                                            {"ionic", {"ionic"}, {"ionic"}},
                                            {"hfi1verbs", {}, {"hfi1"}},
                                            {"ocrdma", {}, {"ocrdma", "be2net"}},
                                            {"vmw_pvrdma", {}, {"vmw_pvrdma"}},
                                            {"rxe", {"rxe"}, {"rxe", "rdma_rxe"}},
                                            {"siw", {"siw"}, {"siw"}}}};

}  // namespace

std::vector<std::string> rdma_devices(const Patient& patient) {
  const std::vector<std::string> names = patient.files.names(kInfinibandFolder);
  std::set<std::string> devices(names.begin(), names.end());
  for (const Nic& nic : patient.topology.nics) {
    if (!nic.rdma_device.empty()) devices.insert(nic.rdma_device);
  }
  return {devices.begin(), devices.end()};
}

std::string rdma_driver(const Patient& patient, const std::string& device) {
  if (auto driver = patient.files.link_name("/sys/class/infiniband/" + device + "/device/driver")) return *driver;
  if (const Nic* nic = nic_of(patient, device); nic != nullptr && !nic->driver.empty()) return nic->driver;
  for (const Family& family : kFamilies) {
    for (const std::string_view prefix : family.prefixes) {
      if (!prefix.empty() && device.starts_with(prefix)) return std::string(family.drivers[0]);
    }
  }
  return {};
}

std::string_view provider_of(std::string_view driver) {
  const auto has = [driver](const Family& family) { return std::ranges::find(family.drivers, driver) != family.drivers.end(); };
  const auto found = std::ranges::find_if(kFamilies, has);
  return driver.empty() || found == kFamilies.end() ? std::string_view() : found->provider;
}

bool has_mlx5(const Patient& patient) {
  return std::ranges::any_of(rdma_devices(patient),
                             [&](const std::string& device) { return rdma_driver(patient, device).starts_with("mlx5"); });
}

const Nic* nic_of(const Patient& patient, const std::string& rdma_device) {
  const auto found = std::ranges::find(patient.topology.nics, rdma_device, &Nic::rdma_device);
  return found == patient.topology.nics.end() ? nullptr : &*found;
}

const RdmaDeviceAnswers* answers_of(const Patient& patient, const std::string& rdma_device) {
  const auto found = std::ranges::find(patient.answers.rdma_devices, rdma_device, &RdmaDeviceAnswers::name);
  return found == patient.answers.rdma_devices.end() ? nullptr : &*found;
}

std::string RdmaPortView::subject() const { return text(printable(nic->rdma_device, 64), " port ", port->number); }

std::string RdmaPortView::folder() const { return text(kInfinibandFolder, "/", nic->rdma_device, "/ports/", port->number); }

std::vector<RdmaPortView> rdma_ports(const Patient& patient, Findings& findings) {
  std::vector<RdmaPortView> ports;
  const std::vector<std::string> names = rdma_devices(patient);
  if (names.empty()) findings.no_device(patient, kNoRdma, kInfinibandFolder);
  for (const std::string& name : names) {
    const Nic* nic = nic_of(patient, name);
    if (nic == nullptr || nic->ports.empty()) {
      findings.unknown(printable(name, 64), "the ports of this RDMA device are not known",
                       "look at the notes below 'gigabar topology', and at 'rdma link show'");
      continue;
    }
    for (const RdmaPort& port : nic->ports) ports.push_back({nic, &port});
  }
  return ports;
}

std::string uverbs_node(const Patient& patient, const std::string& device) {
  const std::string folder = "/sys/class/infiniband_verbs";
  for (const std::string& name : patient.files.names(folder)) {
    if (name.starts_with("uverbs") && patient.files.word(text(folder, "/", name, "/ibdev")) == device)
      return "/dev/infiniband/" + name;
  }
  return {};
}

std::vector<std::string> uverbs_nodes(const Patient& patient) {
  std::vector<std::string> nodes;
  for (const std::string& name : patient.files.names("/dev/infiniband")) {
    if (name.starts_with("uverbs")) nodes.push_back("/dev/infiniband/" + name);
  }
  return nodes;
}

RdmaTransport transport_of(const Patient& patient, const RdmaPortView& view) {
  const std::string& layer = view.port->link_layer;
  const auto node_type = patient.files.word(text(kInfinibandFolder, "/", view.nic->rdma_device, "/node_type"));
  // Source: kernel, Documentation/ABI/stable/sysfs-class-infiniband, and include/rdma/ib_verbs.h (rdma_node_type): 1 to 3 are
  // InfiniBand's, "4: RNIC" speaks iWARP, 5 and 6 are usNIC, "7: unspecified" is EFA and others with queue pairs of their own.
  const bool is_foreign =
      node_type && (node_type->find("usNIC") != std::string::npos || node_type->find("unspecified") != std::string::npos);
  if (is_foreign || view.nic->driver == "efa") return RdmaTransport::other;
  if (layer.empty()) return RdmaTransport::unknown;
  if (layer == "InfiniBand") return RdmaTransport::infiniband;
  if (layer != "Ethernet") return RdmaTransport::other;
  if (node_type && node_type->find("RNIC") != std::string::npos) return RdmaTransport::iwarp;
  if (!node_type && (view.nic->driver == "siw" || view.nic->driver == "cxgb4")) return RdmaTransport::iwarp;
  return RdmaTransport::roce;
}

bool is_software(const Nic& nic) {
  constexpr std::array<std::string_view, 4> kDrivers{"rxe", "rdma_rxe", "siw", "siw_tcp"};
  if (std::ranges::find(kDrivers, nic.driver) != kDrivers.end()) return true;
  return nic.pci < 0 && (nic.rdma_device.starts_with("rxe") || nic.rdma_device.starts_with("siw"));
}

std::vector<std::string> net_devices_of(const RdmaPortView& view) {
  std::set<std::string> names;
  for (const GidEntry& entry : view.port->gids) {
    if (is_plain_name(entry.netdev)) names.insert(entry.netdev);
  }
  if (names.empty() && view.nic->ports.size() == 1) {
    for (const NetDevice& device : view.nic->net_devices) {
      if (is_plain_name(device.name)) names.insert(device.name);
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace gigabar::doctor
