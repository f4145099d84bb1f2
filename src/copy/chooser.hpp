// SPDX-License-Identifier: Apache-2.0
// The calibration in use for each device, as tables that a copy can afford to read.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "gigabar/copy.hpp"
#include "gigabar/device.hpp"

namespace gigabar::inline v0 {

// Calibration::choose for every size, eight cells per power of two. Exact at the first size of each cell, which includes the powers
// of two that measure() uses.
class MethodTable {
 public:
  explicit MethodTable(const Calibration& calibration);
  struct Methods {
    CopyMethod pageable;
    CopyMethod pinned;
  };
  // With the readback kernel or without it.
  Methods methods(CopyDirection direction, std::size_t bytes, bool with_readback = false) const noexcept {
    return tables_[with_readback ? 1 : 0][static_cast<std::size_t>(direction)][cell(bytes)];
  }
  // Copies of fewer bytes are the CPU's, whatever the host memory.
  std::size_t cpu_below_bytes(CopyDirection direction, bool with_readback = false) const noexcept;

 private:
  static constexpr std::size_t kCells = std::size_t{64} * 8;
  // The position of the highest set bit and the three bits below it.
  static std::size_t cell(std::size_t bytes) noexcept {
    if (bytes == 0) return 0;
    const auto top = static_cast<std::size_t>(std::bit_width(bytes)) - 1;
    const std::size_t below = top >= 3 ? bytes >> (top - 3) : bytes << (3 - top);
    return top * 8 + (below & 7);
  }
  static std::size_t first_bytes_of(std::size_t cell) noexcept;

  using Table = std::array<std::array<Methods, kCells>, 2>;  // by direction
  std::array<Table, 2> tables_;                              // without and with the readback kernel
};

// The method for one copy through `mapping`; the readback kernel only where `with_readback`. Asks what `host` is only where pinned
// and pageable memory differ.
CopyMethod choose_method(CopyDirection direction, const Mapping& mapping, const void* host, std::size_t bytes,
                         bool with_readback = false);

// One of devices(), as far as they can have a calibration. Errors of `operation`: invalid_argument.
Result<DeviceInfo> find_device(const char* operation, int device);

unsigned calibrated_thread_count(const Mapping& mapping);

}  // namespace gigabar::inline v0
