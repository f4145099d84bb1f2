// SPDX-License-Identifier: Apache-2.0
#include "fabric/local_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "copy/readback/readback.hpp"
#include "gigabar/copy.hpp"
#include "memory/runtime.hpp"

namespace gigabar::fabric {
namespace {

// CPU loads from GPU memory cost about 1 µs per 4 lines (docs: the calibration's defaults); above this the copy engine is faster.
constexpr std::size_t kMaxCpuLoadBytes = 4096;
// One CPU's stores are as fast as the link until about here.
constexpr std::size_t kMaxCpuStoreBytes = 131072;
// What is kept stays mapped, all together no more than 16 MiB of the smallest windows of 256 MiB.
constexpr std::size_t kMaxKeptBytes = 1 << 20;

Result<void> outcome_of(Result<CopyMethod> copied) {
  if (!copied) return std::move(copied).error();
  return {};
}

}  // namespace

bool is_memory_of_this_process(std::uintptr_t begin, std::size_t bytes) {
  constexpr std::size_t kPagesAtOnce = 65536;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> present(std::min(bytes / page + 2, kPagesAtOnce));
  const std::uintptr_t end = begin + bytes;
  for (std::uintptr_t at = begin / page * page; at < end; at += present.size() * page) {
    const std::size_t length = std::min<std::size_t>(end - at, present.size() * page);
    if (mincore(reinterpret_cast<void*>(at), length, present.data()) != 0 && errno == ENOMEM) return false;
  }
  return true;
}

Result<LocalMemory> LocalMemory::look_at(void* address, std::size_t bytes) {
  if (address == nullptr)
    return make_error(Status::invalid_argument, "register", "address", "it is null", "give memory of this process");
  if (bytes == 0) return make_error(Status::invalid_argument, "register", "bytes", "there are none", "give at least one byte");
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin + bytes < begin) {
    return make_error(Status::invalid_argument, "register", range_text(begin, bytes), "the range wraps round",
                      "give a valid length");
  }
  auto info = describe(address);
  if (!info) return std::move(info).error();
  if (info->length_bytes != 0 && info->device >= 0 && bytes > info->length_bytes - info->offset_bytes) {
    return make_error(Status::invalid_argument, "register", range_text(begin, bytes),
                      text("it leaves its allocation of ", info->length_bytes, " bytes"), "give a range within one allocation");
  }
  LocalMemory memory;
  memory.address_ = static_cast<std::byte*>(address);
  memory.bytes_ = bytes;
  memory.kind_ = info->kind;
  memory.device_ = info->device;
  memory.buffer_id_ = info->buffer_id;
  memory.is_plain_ = info->device < 0 || info->kind == MemoryKind::stand_in || info->kind == MemoryKind::managed;
  if (!memory.is_plain_) {
    auto mapping = map(address, bytes);
    if (mapping) memory.mapping_ = std::move(*mapping);
  }
  return memory;
}

bool LocalMemory::is_same_allocation() const {
  Runtime* const runtime = kind_ == MemoryKind::stand_in ? &stand_in_runtime() : cuda_runtime();
  return buffer_id_ != 0 && runtime != nullptr && runtime->buffer_id(reinterpret_cast<std::uintptr_t>(address_)) == buffer_id_;
}

Result<std::shared_ptr<const LocalMemory>> RecentMemory::look_at(void* address, std::size_t bytes) {
  for (std::size_t index = 0; index < std::min<std::size_t>(next_, recent_.size()); ++index) {
    auto& known = recent_[index];
    if (known == nullptr || known->address() != address || known->bytes() < bytes || bytes == 0) continue;
    if (known->is_same_allocation()) return known;
    known.reset();
  }
  const std::shared_ptr<const LocalMemory> host;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  Runtime* const cuda = cuda_runtime();
  const std::uint64_t cuda_id = cuda != nullptr ? cuda->buffer_id(begin) : 0;
  const bool is_known = cuda_id == 0 || std::find(pinned_.begin(), pinned_.end(), cuda_id) != pinned_.end();
  if (address != nullptr && begin + bytes >= begin && is_known && stand_in_runtime().buffer_id(begin) == 0) return host;
  const Uncancelled uncancelled;
  auto seen = LocalMemory::look_at(address, bytes);
  if (!seen) return std::move(seen).error();
  if (seen->is_plain() && !seen->is_device()) {
    if (cuda_id != 0) pinned_[next_pinned_++ % pinned_.size()] = cuda_id;
    return host;
  }
  auto memory = std::make_shared<const LocalMemory>(std::move(*seen));
  if (memory->is_device() && bytes <= kMaxKeptBytes) recent_[next_++ % recent_.size()] = memory;
  return memory;
}

std::uint64_t LocalMemory::mapped_load_bytes() const noexcept {
  return mapping_ && readback_in_use(device_) != nullptr ? kMaxReadbackBytes : kMaxMappedLoadBytes;
}

Result<void> LocalMemory::load_mapped(std::uint64_t offset_bytes, void* destination, std::size_t bytes) const noexcept {
  return copy_from(*mapping_, offset_bytes, destination, bytes);
}

Result<void> LocalMemory::load(std::uint64_t offset_bytes, void* destination, std::size_t bytes) const {
  if (bytes == 0) return {};
  if (is_plain_) {
    std::memcpy(destination, address_ + offset_bytes, bytes);
    return {};
  }
  if (mapping_ && bytes <= kMaxReadbackBytes && has_copied_by_readback(destination, *mapping_, offset_bytes, bytes)) return {};
  if (mapping_ && bytes <= kMaxCpuLoadBytes) return copy_from(*mapping_, offset_bytes, destination, bytes);
  if (mapping_) return outcome_of(copy(destination, MappedPlace{*mapping_, offset_bytes}, bytes, CopyMethod::copy_engine));
  return engine_copy_from(device_, destination, reinterpret_cast<std::uintptr_t>(address_ + offset_bytes), bytes);
}

Result<void> LocalMemory::store(std::uint64_t offset_bytes, const void* source, std::size_t bytes) const {
  if (bytes == 0) return {};
  if (is_plain_) {
    std::memcpy(address_ + offset_bytes, source, bytes);
    return {};
  }
  if (mapping_ && bytes <= kMaxCpuStoreBytes) return copy_to(*mapping_, offset_bytes, source, bytes);
  return engine_copy_to(device_, reinterpret_cast<std::uintptr_t>(address_ + offset_bytes), source, bytes);
}

Result<void> LocalMemory::publish(std::uint64_t offset_bytes, const void* source, std::size_t bytes) const {
  std::byte* const to = address_ + offset_bytes;
  const bool is_aligned = bytes != 0 && reinterpret_cast<std::uintptr_t>(to) % bytes == 0;
  if (!is_plain_ || !is_aligned || (bytes != 4 && bytes != 8)) return store(offset_bytes, source, bytes);
  std::uint64_t value = 0;
  std::memcpy(&value, source, bytes);
  if (bytes == 8) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(to), static_cast<std::uint32_t>(value), __ATOMIC_RELEASE);
  }
  return {};
}

}  // namespace gigabar::fabric
