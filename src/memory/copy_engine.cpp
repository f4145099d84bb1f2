// SPDX-License-Identifier: Apache-2.0
#include "memory/copy_engine.hpp"

namespace gigabar::inline v0 {
namespace {

Result<void> copy_one(int device, CopyWay way, const EngineCopy& piece) {
  const auto runtime = active_runtime();
  if (!runtime) return runtime.error();
  return (*runtime)->engine_copy(device, way, {&piece, 1});
}

}  // namespace

Result<void> engine_copy_to(int device, std::uintptr_t device_destination, const void* source, std::size_t bytes) {
  return copy_one(device, CopyWay::to_device, {const_cast<void*>(source), device_destination, bytes});
}

Result<void> engine_copy_from(int device, void* destination, std::uintptr_t device_source, std::size_t bytes) {
  return copy_one(device, CopyWay::from_device, {destination, device_source, bytes});
}

}  // namespace gigabar::inline v0
