#include "transport/verbs/rail_order.hpp"

#include <algorithm>
#include <numeric>

#include "base/insertion_sort.hpp"

namespace gigabar::transport::rdma {

std::vector<std::size_t> nearest_first(const Topology& topology, int device, std::span<const std::string> devices) {
  std::vector<std::size_t> indexes(devices.size());
  std::iota(indexes.begin(), indexes.end(), std::size_t{0});
  const auto gpu =
      std::find_if(topology.gpus.begin(), topology.gpus.end(), [&](const Gpu& one) { return one.cuda_index == device; });
  if (device < 0 || gpu == topology.gpus.end()) return indexes;
  const std::vector<int> order = nearest_nics(topology, static_cast<int>(gpu - topology.gpus.begin()));
  const auto place = [&](std::size_t index) {
    return std::find_if(order.begin(), order.end(),
                        [&](int nic) { return topology.nics[static_cast<std::size_t>(nic)].rdma_device == devices[index]; }) -
           order.begin();
  };
  insertion_sort(indexes, [&](std::size_t first, std::size_t second) { return place(first) < place(second); });
  return indexes;
}

}  // namespace gigabar::transport::rdma
