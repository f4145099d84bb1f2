// SPDX-License-Identifier: Apache-2.0
// Copies by the GPU's copy engine, for any device of this process; memcpy on stand-ins.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gigabar/status.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

// Copies `bytes` between host memory (of any kind) and device memory and waits until they have arrived. On a stream of the
// library's own: not ordered with streams of the caller. Errors: device_error, timed_out. Threads: any.
inline Result<void> engine_copy(int device, CopyWay way, const EngineCopy& piece) {
  const auto runtime = active_runtime();
  if (!runtime) return runtime.error();
  return (*runtime)->engine_copy(device, way, {&piece, 1});
}
inline Result<void> engine_copy_to(int device, std::uintptr_t device_destination, const void* source, std::size_t bytes) {
  return engine_copy(device, CopyWay::to_device, {const_cast<void*>(source), device_destination, bytes});
}
inline Result<void> engine_copy_from(int device, void* destination, std::uintptr_t device_source, std::size_t bytes) {
  return engine_copy(device, CopyWay::from_device, {destination, device_source, bytes});
}

}  // namespace gigabar::inline v0
