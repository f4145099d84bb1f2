// SPDX-License-Identifier: Apache-2.0
#include "support/gdr_session.hpp"

#include <cstdlib>
#include <string>

namespace gigabar::tool {

void ask_for_stand_ins(const DeviceInfo& device, std::size_t device_count) {
  if (device.is_stand_in) setenv("GIGABAR_STAND_IN", std::to_string(device_count).c_str(), 0);
}

}  // namespace gigabar::tool
