// SPDX-License-Identifier: Apache-2.0
// Which RDMA devices and which GID are taken first where none are named: questions to the machine's tree, without the devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gigabar/topology.hpp"

namespace gigabar::rdma {

// Indexes into `devices` (RDMA device names; a device may be there once per port), nearest to CUDA device `device` first; equally
// near ones are dealt to GPUs and ranks by nic_orders(), which sees no others than `devices`. What the tree does not know comes
// last; all where the GPU is not known keep their order. `local_rank`: of the caller among the ranks of this host.
std::vector<std::size_t> nearest_first(const Topology& topology, int device, std::span<const std::string> devices,
                                       std::size_t local_rank = 0);

// How far packets with a GID for their address go.
enum class GidReach : std::uint8_t { none, segment, routed };
// The first of RoCE version 2 that reaches so far; null: there is none.
const GidEntry* first_gid_v2(std::span<const GidEntry> gids, GidReach reach) noexcept;

}  // namespace gigabar::rdma
