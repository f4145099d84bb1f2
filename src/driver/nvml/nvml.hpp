// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1, opened at run time: what the driver says about a device that CUDA does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/status.hpp"

namespace gigabar::nvml {

struct Bar1 {
  std::uint64_t total_bytes = 0;
  std::uint64_t used_bytes = 0;
};

// As it runs now: an idle GPU lowers the generation.
struct PcieLinkState {
  unsigned generation = 0;
  unsigned width = 0;
};

// One NVLink port of a device.
struct NvLink {
  bool is_active = false;
  bool is_switch = false;  // the other end is an NVSwitch
  std::string remote_pci;  // of the other end, in NVML's form ("00000000:3B:00.0"); empty or all F when NVML does not say
  unsigned mb_per_s = 0;   // megabytes (10^6) per second each way; 0 when NVML does not say
};

// The links between a GPU and its coherent CPU (NVLink-C2C).
struct C2cLinks {
  unsigned active_count = 0;
  unsigned mb_per_s = 0;  // of one link, each way
};

struct MemoryBus {
  unsigned width_bits = 0;
  unsigned max_clock_mhz = 0;  // two transfers per clock
};

// What decides about paths and speed, and changes at most by the hour. Nothing: NVML does not know.
struct DeviceFacts {
  std::string name;                                               // "NVIDIA H200"; empty: not told
  std::string uuid;                                               // "GPU-..."; empty: not told
  std::optional<unsigned> pcie_most_generation, pcie_most_width;  // that the device and its slot can do together
  std::optional<bool> is_mig_enabled;                             // now, not after the next reset
  std::optional<bool> is_persistence_enabled;                     // the driver stays initialised without a client
  std::optional<std::string> fabric_state;                        // "not_supported", "not_started", "in_progress", "completed"
  std::optional<std::uint64_t> clocks_event_reasons;              // NVML's bits
  std::optional<bool> is_row_remap_pending, has_row_remap_failed, is_page_retirement_pending;
};

enum class PeerCapability : std::uint8_t { read, write, atomics };

// ok when the library was opened and initialised. Threads: any; the first call loads it.
const Availability& availability();
// "580.159.04"; nothing without NVML.
std::optional<std::string> driver_version();
// Of the device at that PCI address ("0000:3b:00.0"); nothing when NVML does not know.
std::optional<Bar1> bar1(const std::string& pci_address);
std::optional<unsigned> device_minor(const std::string& pci_address);
std::optional<PcieLinkState> pcie_link(const std::string& pci_address);
// Every port the device has; empty: it has none. Nothing when NVML does not know, or is too old to say what is at the other end.
std::optional<std::vector<NvLink>> nvlinks(const std::string& pci_address);
// active_count is 0 for a device without such links; nothing when NVML does not know.
std::optional<C2cLinks> c2c_links(const std::string& pci_address);
std::optional<MemoryBus> memory_bus(const std::string& pci_address);
// What crosses the device's PCIe link now, of all processes, in the busier direction: GB/s over some 20 ms, for which it waits.
std::optional<double> pcie_traffic_gb_per_s(const std::string& pci_address);
// What all NVLinks of the device have carried so far, in both directions.
std::optional<std::uint64_t> nvlink_carried_bytes(const std::string& pci_address);
// The processes that compute on the device, as this process's PID namespace numbers them; at most kMaxProcesses.
inline constexpr unsigned kMaxProcesses = 256;
std::vector<unsigned> compute_processes(const std::string& pci_address);
// PCI addresses of the GPUs in NVML's order ("0000:3b:00.0"), those that this user may not open left out; at most kMaxDevices.
inline constexpr unsigned kMaxDevices = 64;
std::vector<std::string> devices();
// Of the GPU with that UUID ("GPU-..."), also one that this process does not see through CUDA; nothing when NVML does not know.
std::optional<std::string> address_of_uuid(const std::string& uuid);
// Every fact absent when NVML does not know the device.
DeviceFacts facts(const std::string& pci_address);
// What the first device can do to the second one's memory: "ok", "chipset_not_supported", "gpu_not_supported",
// "topology_not_supported", "disabled_by_regkey", "not_supported", "unknown".
std::optional<std::string> peer_status(const std::string& from, const std::string& to, PeerCapability capability);

}  // namespace gigabar::nvml
