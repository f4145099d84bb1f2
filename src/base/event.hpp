// SPDX-License-Identifier: Apache-2.0
// A descriptor that one thread signals and another sleeps on (eventfd). Signals add up until they are taken.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/descriptor.hpp"
#include "base/uncancelled.hpp"

namespace gigabar::inline v0 {

// Not open where the process has no descriptor left; errno says so.
inline Descriptor open_event() noexcept { return Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

inline void signal_event(const Descriptor& event) noexcept {
  const Uncancelled uncancelled;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

inline void take_event(const Descriptor& event) noexcept {
  const Uncancelled uncancelled;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event.get(), &count, sizeof count);
}

}  // namespace gigabar::inline v0
