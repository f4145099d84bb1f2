// SPDX-License-Identifier: Apache-2.0
// Waits of Python: other threads run meanwhile, and a signal (Ctrl-C) ends them.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>

#include "errors.hpp"
#include "gigabar/types.hpp"

namespace gigabar::python {

// Seconds of a caller: a number from 0 on, or None, which waits until the operation ends.
Timeout timeout_of(nb::handle seconds, const char* operation);

// Handlers of signals run between such parts of a wait.
inline constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);

// Calls `call(Timeout)`, which returns a Result and can be made again after timed_out, until it ends or the time is over. A
// timed_out before the end of its part is the operation's own, or of a fabric that another thread closes, which the next call says.
template <class Call>
auto wait_in_slices(const Timeout& timeout, const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::chrono::nanoseconds whole =
      timeout.is_forever() ? std::chrono::nanoseconds::max() : std::chrono::nanoseconds(timeout.ns());
  while (true) {
    const auto slice_begin = Clock::now();
    const std::chrono::nanoseconds left = std::max(whole - (slice_begin - begin), std::chrono::nanoseconds(0));
    bool is_last = left <= kSlice;
    auto result = [&] {
      const nb::gil_scoped_release released;
      auto ended = call(Timeout(std::min(left, kSlice)));
      if (is_last || Clock::now() - slice_begin >= kSlice || ended.status() != Status::timed_out) return ended;
      is_last = true;
      return call(Timeout::test());
    }();
    if (is_last || result.status() != Status::timed_out) return result;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace gigabar::python
