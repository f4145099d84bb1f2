// SPDX-License-Identifier: Apache-2.0
#include "device/soft_hca/memory_table.hpp"

#include <algorithm>
#include <mutex>

#include "base/errors.hpp"

namespace gigabar::soft_hca {
namespace {

constexpr std::size_t kMaxEntries = (std::size_t{1} << 24) - 1;

}  // namespace

Result<std::uint32_t> MemoryTable::register_memory(const MemoryRange& range) {
  const bool wraps = range.device_address + range.bytes < range.device_address;
  if (range.cpu == nullptr || range.bytes == 0 || wraps) {
    return make_error(Status::invalid_argument, "register memory",
                      range_text(reinterpret_cast<std::uintptr_t>(range.cpu), static_cast<std::size_t>(range.bytes)),
                      range.cpu == nullptr ? "no address" : "no bytes, or beyond the end of the address space");
  }
  const std::lock_guard lock(mutex_);
  auto place = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return !entry.is_used; });
  if (place == entries_.end()) {
    if (entries_.size() == kMaxEntries) {
      return make_error(Status::out_of_memory, "register memory", "software HCA", "no key is left", "deregister what is not used");
    }
    place = entries_.insert(place, Entry{});
  }
  place->range = range;
  place->is_used = true;
  const auto index = static_cast<std::uint32_t>(place - entries_.begin());
  return (index + 1) << 8 | place->generation;
}

const MemoryTable::Entry* MemoryTable::entry_of(std::uint32_t key) const {
  const std::size_t index = std::size_t{key >> 8} - 1;  // of key 0: beyond every vector
  if (index >= entries_.size()) return nullptr;
  const Entry& entry = entries_[index];
  return entry.is_used && entry.generation == (key & 0xff) ? &entry : nullptr;
}

bool MemoryTable::deregister_memory(std::uint32_t key) {
  const std::lock_guard lock(mutex_);
  if (entry_of(key) == nullptr) return false;
  Entry& entry = entries_[std::size_t{key >> 8} - 1];
  entry.is_used = false;
  ++entry.generation;
  return true;
}

std::byte* MemoryTable::find(std::uint32_t key, std::uint64_t address, std::uint64_t bytes, Access wanted) const {
  const std::shared_lock lock(mutex_);
  const Entry* entry = entry_of(key);
  if (entry == nullptr || !includes(entry->range.access, wanted)) return nullptr;
  const MemoryRange& range = entry->range;
  const std::uint64_t offset = address - range.device_address;  // wraps below the start, and is too large then
  if (offset > range.bytes || bytes > range.bytes - offset) return nullptr;
  return static_cast<std::byte*>(range.cpu) + offset;
}

}  // namespace gigabar::soft_hca
