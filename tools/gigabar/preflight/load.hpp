// SPDX-License-Identifier: Apache-2.0
// What other work uses a path at this moment, so that a link that is shared is told from one that is broken.
#pragma once

#include <span>
#include <string>

#include "gigabar/device.hpp"
#include "preflight/paths.hpp"

namespace gigabar::tool::preflight {

// A clause, "23.1 GB/s cross the PCIe link of GPU 0000:3b:00.0 (process 4711 'train')"; empty: no such work was seen. This process
// must be idle. Takes about 0.1 s. For stand-ins, whose bytes the CPUs move: what else the CPUs do.
std::string load_of(const Path& path, std::span<const DeviceInfo> devices);

// The share of their time that the CPUs work, between two texts of /proc/stat; 0 when they say nothing.
double busy_share(std::string_view before, std::string_view after);

}  // namespace gigabar::tool::preflight
