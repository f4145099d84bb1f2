// SPDX-License-Identifier: Apache-2.0
#include "doctor/rdma_facts.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "doctor/gpu_facts.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::string_view kInfinibandFolder = "/sys/class/infiniband";

// A name becomes part of a path; one that leads elsewhere comes from a capture made by hand.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos && name.size() <= 64;
}

const Nic* nic_of(const Patient& patient, const std::string& rdma_device) {
  const auto& nics = patient.topology.nics;
  const auto found = std::find_if(nics.begin(), nics.end(), [&](const Nic& nic) { return nic.rdma_device == rdma_device; });
  return found == nics.end() ? nullptr : &*found;
}

}  // namespace

std::string RdmaPortView::subject() const { return text(printable(nic->rdma_device, 64), " port ", port->number); }

std::string RdmaPortView::folder() const { return text(kInfinibandFolder, "/", nic->rdma_device, "/ports/", port->number); }

RdmaPorts rdma_ports(const Patient& patient, Findings& findings) {
  RdmaPorts ports;
  const std::vector<std::string> names = rdma_devices(patient);
  for (const std::string& name : names) {
    const Nic* nic = nic_of(patient, name);
    if (nic == nullptr || nic->ports.empty()) {
      findings.unknown(printable(name, 64), "the ports of this RDMA device are not known",
                       "look at the notes below 'gigabar topology', and at 'rdma link show'");
      ports.has_said = true;
      continue;
    }
    for (const RdmaPort& port : nic->ports) ports.views.push_back({nic, &port});
  }
  if (names.empty()) {
    findings.skip(kNoRdma);
    ports.has_said = true;
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
  if (std::find(kDrivers.begin(), kDrivers.end(), nic.driver) != kDrivers.end()) return true;
  return nic.pci < 0 && (nic.rdma_device.starts_with("rxe") || nic.rdma_device.starts_with("siw"));
}

bool may_be_active(const RdmaPort& port) { return port.state.empty() || port.state.starts_with("ACTIVE"); }

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

std::optional<unsigned> mtu_of(const Patient& patient, const Nic& nic, const std::string& net_device) {
  for (const NetDevice& device : nic.net_devices) {
    if (device.name == net_device && device.mtu) return device.mtu;
  }
  const auto mtu = parse_number(patient.files.word("/sys/class/net/" + net_device + "/mtu").value_or(""), 1, 1U << 20);
  if (!mtu) return {};
  return static_cast<unsigned>(*mtu);
}

std::string number_text(double number) {
  std::array<char, 64> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc{} ? std::string(digits.data(), end) : std::string("?");
}

std::string list_text(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " and " : ", ";
    list += words[i];
  }
  return list;
}

}  // namespace gigabar::doctor
