// SPDX-License-Identifier: Apache-2.0
// A session of the gdrapi.h interface for one device, closed at the end.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

#include "gdrapi.h"
#include "gigabar/device.hpp"

namespace gigabar::tool {

// gdr_open serves stand-in devices only when the environment asks for them: asks, when `device` is one.
inline void ask_for_stand_ins(const DeviceInfo& device, std::size_t device_count) {
  if (device.is_stand_in) setenv("GIGABAR_STAND_IN", std::to_string(device_count).c_str(), 0);
}

class GdrSession {
 public:
  GdrSession() : g_(gdr_open()) {}
  GdrSession(const GdrSession&) = delete;
  GdrSession& operator=(const GdrSession&) = delete;
  ~GdrSession() {
    if (g_ != nullptr) gdr_close(g_);
  }
  gdr_t get() const noexcept { return g_; }  // null when gdr_open failed; errno tells
  gdr_t release() noexcept { return std::exchange(g_, nullptr); }

 private:
  gdr_t g_;
};

}  // namespace gigabar::tool
