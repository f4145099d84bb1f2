// SPDX-License-Identifier: Apache-2.0
// GDRCopy's kernel module, when a machine has it: the ioctls of /dev/gdrdrv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/in_place.hpp"
#include "gigabar/status.hpp"

namespace gigabar::gdrdrv {

// The module pins and maps whole GPU pages.
inline constexpr std::size_t kPageBytes = 65536;

// What the module says of a mapping's type.
enum class CacheType : std::uint32_t { none = 0, write_combined = 1, cached = 2, device = 3 };

struct PinnedMapping {
  std::uint64_t handle = 0;
  void* address = nullptr;  // CPU address of the first pinned page
  std::size_t bytes = 0;
  CacheType type = CacheType::none;
};

// One open device file. Threads: any; the module serialises. Only the process that opened it may use it.
class Module : InPlace {
 public:
  // Opens <dev>/gdrdrv and shakes hands. Errors: unavailable (no such file, version before 2.0 or one that refuses our API
  // version), no_permission, out_of_descriptors, device_error.
  static Result<std::unique_ptr<Module>> open(const std::string& device_folder);
  ~Module();

  std::string version() const;  // "2.5"
  // True when memory freed under a mapping stays valid until it is unpinned (2.5 and newer, module parameter).
  bool is_persistent() const noexcept { return is_persistent_; }
  // Whether it may be used: only where it is_persistent().
  Availability availability() const;

  // Pins and maps [device_address, +bytes), both multiples of kPageBytes. Errors: not_supported (as availability(), or the
  // module refuses this memory), out_of_memory, out_of_bar1, no_permission, device_error.
  Result<PinnedMapping> map(std::uint64_t device_address, std::size_t bytes);
  // Unmaps, then unpins: in that order, since old modules mishandle the other one.
  void unmap(const PinnedMapping& mapping) noexcept;

 private:
  explicit Module(int descriptor) noexcept : descriptor_(descriptor) {}
  Result<void> call(const char* operation, unsigned long number, void* argument);
  Result<std::uint64_t> pin(std::uint64_t device_address, std::size_t bytes);
  void unpin(std::uint64_t handle) noexcept;
  CacheType type_of(std::uint64_t handle);

  const int descriptor_;
  std::uint32_t version_ = 0;  // major << 16 | minor
  bool is_persistent_ = false;
};

}  // namespace gigabar::gdrdrv
