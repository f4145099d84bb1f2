// SPDX-License-Identifier: Apache-2.0
#include "streams/links.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "driver/nvml/nvml.hpp"
#include "memory/runtime.hpp"
#include "platform/pci_link.hpp"
#include "streams/measure.hpp"

namespace gigabar::inline v0 {
namespace {

StreamLink unknown(std::string reason) { return {"unknown", 0, std::move(reason)}; }

StreamLink link_of_many(const char* kind, std::size_t count, unsigned mb_per_s, std::string reason) {
  return {text(kind, " ", count, " x ", rounded(mb_per_s / 1000.0), " GB/s"), static_cast<double>(count) * mb_per_s / 1000,
          std::move(reason)};
}

// An unknown one when there is one: which is the slower cannot be said then.
StreamLink slower(const StreamLink& first, const StreamLink& second) {
  if (first.gb_per_s == 0) return first;
  return second.gb_per_s < first.gb_per_s ? second : first;
}

// The slowest of the hops that tell, and which do not.
StreamLink slowest_of(const std::vector<PcieHop>& path, const char* what) {
  const PcieHop* slowest = nullptr;
  std::string silent;
  for (const PcieHop& hop : path) {
    if (!hop.link) {
      silent += text(silent.empty() ? "" : ", ", hop.device);
    } else if (slowest == nullptr || hop.link->gb_per_s() < slowest->link->gb_per_s()) {
      slowest = &hop;
    }
  }
  if (slowest == nullptr) return unknown(text("neither sysfs nor NVML tells speed and width of ", silent));
  std::string reason = path.size() == 1 ? text("the link of ", slowest->device, ", from ", slowest->source)
                                        : text(slowest->device, " is the slowest of ", path.size(), " PCI devices ", what,
                                               ", from ", slowest->source);
  if (!silent.empty()) reason += text("; not told of ", silent);
  return {slowest->link->name(), slowest->link->gb_per_s(), std::move(reason)};
}

bool is_coherent(const DeviceInfo& device) {
  Runtime* const runtime = cuda_runtime();
  if (runtime == nullptr) return false;
  const auto traits = runtime->traits(device.index);
  return traits && traits->is_coherent;
}

StreamLink host_link(const DeviceInfo& device) {
  const std::string pci = device.pci->to_string();
  const auto coherent = nvml::c2c_links(pci);
  if (coherent && coherent->active_count > 0)
    return link_of_many("NVLink-C2C", coherent->active_count, coherent->mb_per_s, "active links between GPU and CPU, from NVML");
  if (is_coherent(device)) return unknown(text("GPU and CPU share a coherent link, and NVML does not tell the rate of ", pci));
  return slowest_of(pcie_path(*device.pci), "up to the root port");
}

StreamLink through_host(const DeviceInfo& source, const DeviceInfo& destination, const char* how) {
  StreamLink link = slower(host_link(source), host_link(destination));
  link.reason = text(how, ": ", link.reason);
  return link;
}

// The active links of one GPU, by what is at their other end.
struct NvLinks {
  std::vector<unsigned> to_peer;  // MB/s of each
  std::vector<unsigned> to_switch;
  std::size_t hidden_count = 0;  // NVML does not say
};

NvLinks sorted(const std::vector<nvml::NvLink>& links, const PciAddress& peer) {
  NvLinks found;
  for (const nvml::NvLink& link : links) {
    if (!link.is_active) continue;
    const auto remote = PciAddress::parse(link.remote_pci);
    if (link.is_switch) {
      found.to_switch.push_back(link.mb_per_s);
    } else if (!remote) {
      ++found.hidden_count;
    } else if (*remote == peer) {
      found.to_peer.push_back(link.mb_per_s);
    }
  }
  return found;
}

// As many links as both ends have, at the rate of the slowest.
StreamLink nvlink_of(const std::vector<unsigned>& first, const std::vector<unsigned>& second, const char* where) {
  const std::size_t count = std::min(first.size(), second.size());
  const unsigned mb_per_s =
      std::min(*std::min_element(first.begin(), first.end()), *std::min_element(second.begin(), second.end()));
  if (mb_per_s == 0) return {text("NVLink ", count), 0, "NVML does not tell the rate of the links"};
  return link_of_many("NVLink", count, mb_per_s, text("active links ", where, ", from NVML"));
}

StreamLink peer_link(const DeviceInfo& source, const DeviceInfo& destination) {
  const auto of_source = nvml::nvlinks(source.pci->to_string());
  const auto of_destination = nvml::nvlinks(destination.pci->to_string());
  if (!of_source || !of_destination) {
    const Availability& nvml = nvml::availability();
    return unknown(text("whether NVLinks connect the two is not known: ",
                        nvml.is_ok() ? std::string("NVML does not tell the NVLinks of both") : nvml.reason));
  }
  const NvLinks first = sorted(*of_source, *destination.pci), second = sorted(*of_destination, *source.pci);
  if (!first.to_peer.empty() && !second.to_peer.empty()) return nvlink_of(first.to_peer, second.to_peer, "between the two");
  if (!first.to_switch.empty() && !second.to_switch.empty())
    return nvlink_of(first.to_switch, second.to_switch, "of each to NVSwitches");
  if (first.hidden_count > 0 && second.hidden_count > 0) {
    return unknown(text("NVML does not tell what is at the other end of ", std::min(first.hidden_count, second.hidden_count),
                        " active NVLinks"));
  }
  return slowest_of(pcie_path_between(pcie_path(*source.pci), pcie_path(*destination.pci)), "between the two, without NVLink");
}

StreamLink memory_of(const DeviceInfo& device) {
  const auto bus = nvml::memory_bus(device.pci->to_string());
  if (!bus) {
    const Availability& nvml = nvml::availability();
    return unknown(nvml.is_ok() ? "NVML does not tell the device's memory clock and bus width" : nvml.reason);
  }
  const double gb_per_s = bus->width_bits / 8.0 * bus->max_clock_mhz * 2 / 1000;
  return {"device memory", gb_per_s / 2,
          text("half of ", bus->width_bits, " bit x ", bus->max_clock_mhz, " MHz x 2 from NVML: every byte is read and written")};
}

}  // namespace

StreamLink link_of(const Transfer& transfer, std::span<const DeviceInfo> devices, bool uses_peer_access) {
  const StreamPlace& source = transfer.source;
  const StreamPlace& destination = transfer.destination;
  if (source.is_host() && destination.is_host()) return unknown("no device is involved, and the rate of host memory is not told");

  const auto find = [devices](const StreamPlace& place) {
    return std::find_if(devices.begin(), devices.end(), [&](const DeviceInfo& device) { return device.index == place.device; });
  };
  for (const StreamPlace* place : {&source, &destination}) {
    if (place->is_host()) continue;
    const auto device = find(*place);
    if (device == devices.end()) return unknown(text("there is no device ", place->device));
    if (device->is_stand_in) return unknown("stand-in devices are host memory, whose rate is not told");
    if (!device->pci) return unknown(text("the PCI address of device ", place->device, " is not known"));
  }
  if (source.is_host()) return host_link(*find(destination));
  if (destination.is_host()) return host_link(*find(source));
  if (transfer.executor == StreamExecutor::cpu) return through_host(*find(source), *find(destination), "copied by the CPU");
  if (source.device == destination.device) return memory_of(*find(source));
  if (uses_peer_access) return peer_link(*find(source), *find(destination));
  return through_host(*find(source), *find(destination), "staged through the host");
}

}  // namespace gigabar::inline v0
