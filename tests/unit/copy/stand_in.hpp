// SPDX-License-Identifier: Apache-2.0
// Stand-in memory and its mapping, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gigabar/copy.hpp"

namespace gigabar::test {

// Asks for stand-ins before anything asks what devices there are, and for no calibration of this machine.
struct StandInEnvironment {
  StandInEnvironment() {
    ::setenv("GIGABAR_STAND_IN", "5", 1);
    ::setenv("GIGABAR_CALIBRATION", "/nonexistent/calibration.json", 1);
  }
};
inline const StandInEnvironment stand_in_environment;

struct MappedStandIn {
  DeviceMemory memory;
  Mapping mapping;

  // What is in the memory, not seen through the mapping's copy functions.
  std::byte* bytes() const { return static_cast<std::byte*>(memory.address()); }
  std::vector<std::byte> content() const { return {bytes(), bytes() + memory.bytes()}; }
};

inline MappedStandIn mapped_stand_in(std::size_t bytes, const MapOptions& options = {}, int device = 0) {
  auto memory = DeviceMemory::allocate(device, bytes);
  if (!memory) throw std::runtime_error(memory.error().message());
  auto mapping = map(memory.value().address(), bytes, options);
  if (!mapping) throw std::runtime_error(mapping.error().message());
  return {std::move(memory).value(), std::move(mapping).value()};
}

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed = 1) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(seed * 31 + i * 7 + i / 251);
  return data;
}

inline bool has(const std::string& line, std::string_view part) { return line.find(part) != std::string::npos; }

}  // namespace gigabar::test
