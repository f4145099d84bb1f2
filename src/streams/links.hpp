// SPDX-License-Identifier: Apache-2.0
// The physical link that a transfer crosses, and what it can carry.
#pragma once

#include <span>

#include "gigabar/device.hpp"
#include "gigabar/streams.hpp"

namespace gigabar::inline v0 {

// Read while the transfer runs: an idle GPU lowers its PCIe link's speed. `uses_peer_access` tells whether a copy between GPUs goes
// directly from one to the other. What the machine does not tell is "unknown" with the reason, never a guess. Threads: any.
StreamLink link_of(const Transfer& transfer, std::span<const DeviceInfo> devices, bool uses_peer_access);

}  // namespace gigabar::inline v0
