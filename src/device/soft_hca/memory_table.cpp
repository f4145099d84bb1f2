// SPDX-License-Identifier: Apache-2.0
#include "device/soft_hca/memory_table.hpp"

#include <mutex>

#include "base/errors.hpp"
#include "base/ranges.hpp"

namespace gigabar::soft_hca {

Result<std::uint32_t> MemoryTable::register_memory(const MemoryRange& range) {
  const bool wraps = range.device_address + range.bytes < range.device_address;
  if (range.cpu == nullptr || range.bytes == 0 || wraps) {
    return make_error(Status::invalid_argument, "register memory",
                      range_text(reinterpret_cast<std::uintptr_t>(range.cpu), static_cast<std::size_t>(range.bytes)),
                      range.cpu == nullptr ? "no address" : "no bytes, or beyond the end of the address space");
  }
  const std::lock_guard lock(mutex_);
  while (next_key_ == 0 || ranges_.contains(next_key_)) ++next_key_;
  ranges_.emplace(next_key_, range);
  return next_key_++;
}

bool MemoryTable::deregister_memory(std::uint32_t key) {
  const std::lock_guard lock(mutex_);
  return ranges_.erase(key) == 1;
}

std::byte* MemoryTable::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, Access wanted) const {
  const std::shared_lock lock(mutex_);
  const auto found = ranges_.find(key);
  if (found == ranges_.end() || !includes(found->second.access, wanted)) return nullptr;
  const MemoryRange& range = found->second;
  const std::uint64_t offset = address - range.device_address;  // wraps below the start, and is too large then
  return fits(offset, bytes, range.bytes) ? static_cast<std::byte*>(range.cpu) + offset : nullptr;
}

}  // namespace gigabar::soft_hca
