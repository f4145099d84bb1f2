// SPDX-License-Identifier: Apache-2.0
#include "rdma/rail_order.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <numeric>

#include "base/insertion_sort.hpp"

namespace gigabar::rdma {

namespace {

// The machine with these RDMA devices only: a device without an address is not dealt to any GPU.
Topology with_only(Topology topology, std::span<const std::string> devices) {
  for (Nic& nic : topology.nics) {
    if (std::find(devices.begin(), devices.end(), nic.rdma_device) == devices.end()) nic.rdma_device.clear();
  }
  return topology;
}

// How many ranks of this host work with the same GPU before this one, as ranks are spread over GPUs by default. A process that sees
// one GPU of several was given its own.
std::size_t turn_of(const Topology& topology, std::size_t local_rank) {
  const auto visible = static_cast<std::size_t>(
      std::count_if(topology.gpus.begin(), topology.gpus.end(), [](const Gpu& gpu) { return gpu.cuda_index.has_value(); }));
  return local_rank / (visible > 1 ? visible : topology.gpus.size());
}

// Source: RFC 4291 (fe80::/10), RFC 3927 (169.254.0.0/16).
GidReach reach_of(const std::string& gid) noexcept {
  in6_addr address{};
  if (::inet_pton(AF_INET6, gid.c_str(), &address) != 1 || IN6_IS_ADDR_UNSPECIFIED(&address)) return GidReach::none;
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
  const bool is_link_local = is_ipv4 ? address.s6_addr[12] == 169 && address.s6_addr[13] == 254 : IN6_IS_ADDR_LINKLOCAL(&address);
  return is_link_local ? GidReach::segment : GidReach::routed;
}

}  // namespace

std::vector<std::size_t> nearest_first(const Topology& topology, int device, std::span<const std::string> devices,
                                       std::size_t local_rank) {
  std::vector<std::size_t> indexes(devices.size());
  std::iota(indexes.begin(), indexes.end(), std::size_t{0});
  const auto gpu =
      std::find_if(topology.gpus.begin(), topology.gpus.end(), [&](const Gpu& one) { return one.cuda_index == device; });
  if (device < 0 || gpu == topology.gpus.end()) return indexes;
  const auto gpu_index = static_cast<std::size_t>(gpu - topology.gpus.begin());
  const Topology usable = with_only(topology, devices);
  const std::vector<int> order = std::move(nic_orders(usable, true, turn_of(topology, local_rank))[gpu_index].nics);
  const auto place = [&](std::size_t index) {
    return std::find_if(order.begin(), order.end(),
                        [&](int nic) { return usable.nics[static_cast<std::size_t>(nic)].rdma_device == devices[index]; }) -
           order.begin();
  };
  insertion_sort(indexes, [&](std::size_t first, std::size_t second) { return place(first) < place(second); });
  return indexes;
}

const GidEntry* first_gid_v2(std::span<const GidEntry> gids, GidReach reach) noexcept {
  const auto found = std::find_if(gids.begin(), gids.end(), [reach](const GidEntry& entry) {
    return entry.type.find("v2") != std::string::npos && reach_of(entry.gid) == reach;
  });
  return found == gids.end() ? nullptr : &*found;
}

}  // namespace gigabar::rdma
