// SPDX-License-Identifier: Apache-2.0
// Memory of a device or of the host that the library allocates, as an object of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <variant>

#include "gigabar/memory.hpp"

namespace gigabar::python {

namespace nb = nanobind;

class Memory {
 public:
  explicit Memory(DeviceMemory&& memory) noexcept : memory_(std::move(memory)) {}
  explicit Memory(HostMemory&& memory) noexcept : memory_(std::move(memory)) {}

  void* address() const noexcept;
  std::size_t bytes() const noexcept;
  int device() const noexcept;  // -1: the host's
  bool is_stand_in() const noexcept;
  bool is_of_gpu() const noexcept { return device() >= 0 && !is_stand_in(); }

 private:
  std::variant<DeviceMemory, HostMemory> memory_;
};

void add_memory(nb::module_& module);

}  // namespace gigabar::python
