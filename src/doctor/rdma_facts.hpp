// SPDX-License-Identifier: Apache-2.0
// RDMA devices and ports as the checks of rdma.* and the probes see them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/check.hpp"

namespace gigabar::doctor {

enum class RdmaTransport {
  infiniband,
  roce,
  iwarp,    // RDMA over TCP: neither GIDs of version 2 nor an InfiniBand MTU matter
  other,    // EFA, usNIC, ...
  unknown,  // the link layer is not told
};

// Names below /sys/class/infiniband, and those of the topology.
std::vector<std::string> rdma_devices(const Patient& patient);
// Of the kernel, "mlx5_core", else by the device's name; empty: not told.
std::string rdma_driver(const Patient& patient, const std::string& device);
// The file that a provider of libibverbs for that driver brings, without ".driver"; empty: not known.
std::string_view provider_of(std::string_view driver);
// An adapter whose doorbells a GPU can ring.
bool has_mlx5(const Patient& patient);

// A port with its device; both live as long as the topology.
struct RdmaPortView {
  const Nic* nic = nullptr;
  const RdmaPort* port = nullptr;

  std::string subject() const;  // "mlx5_0 port 1"
  std::string folder() const;   // "/sys/class/infiniband/mlx5_0/ports/1"
};

// All ports of the topology. A device that has none there gets an `unknown`, and a machine without any device one `skip`.
std::vector<RdmaPortView> rdma_ports(const Patient& patient, Findings& findings);

// The adapter with that RDMA device; null: the topology does not have it.
const Nic* nic_of(const Patient& patient, const std::string& rdma_device);
// What libibverbs said of the device; null: it did not list it.
const RdmaDeviceAnswers* answers_of(const Patient& patient, const std::string& rdma_device);

// "/dev/infiniband/uverbs0" of "mlx5_0"; empty when the kernel does not say.
std::string uverbs_node(const Patient& patient, const std::string& device);

// Those below /dev/infiniband.
std::vector<std::string> uverbs_nodes(const Patient& patient);

RdmaTransport transport_of(const Patient& patient, const RdmaPortView& view);

// A driver that makes an RDMA device of an ordinary network device: it has no hardware counters, no ECN settings, no cable.
bool is_software(const Nic& nic);

// Network devices behind a port: those of its GIDs, else the adapter's when the adapter has one port only.
std::vector<std::string> net_devices_of(const RdmaPortView& view);

}  // namespace gigabar::doctor
