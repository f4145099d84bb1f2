// SPDX-License-Identifier: Apache-2.0
// A session of the gdrapi.h interface for one device, closed at the end.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "gdrapi.h"
#include "gigabar/device.hpp"

namespace gigabar::tool {

// gdr_open serves stand-in devices only when the environment asks for them: asks, when `device` is one.
inline void ask_for_stand_ins(const DeviceInfo& device, std::size_t device_count) {
  if (device.is_stand_in) setenv("GIGABAR_STAND_IN", std::to_string(device_count).c_str(), 0);
}

struct CloseGdr {
  void operator()(gdr_t g) const noexcept { gdr_close(g); }
};
// Of gdr_open(); null when that failed, and errno tells why.
using GdrSession = std::unique_ptr<gdr, CloseGdr>;

}  // namespace gigabar::tool
