// SPDX-License-Identifier: Apache-2.0
#include "gdrapi/table.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/ranges.hpp"
#include "base/rounding.hpp"
#include "mapping/access.hpp"
#include "memory/host_pages.hpp"

namespace gigabar::gdrapi {
namespace {

static_assert(sizeof(unsigned long) == 8, "a handle holds a slot and a generation");

gdr_mapping_type_t type_of(const Mapping& mapping) {
  constexpr std::array<gdr_mapping_type_t, kMappingTypeCount> kTypes{GDR_MAPPING_TYPE_WC, GDR_MAPPING_TYPE_DEVICE,
                                                                     GDR_MAPPING_TYPE_CACHING};
  return kTypes[static_cast<std::size_t>(mapping.type())];
}

// A counter for the calling thread: threads' control blocks lie far apart, so the high bits of a multiplicative hash differ.
std::size_t counter_index() noexcept {
  constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
  static_assert(Slot::kCounterCount == 8, "three bits of the hash");
  return (std::uint64_t{pthread_self()} * kGoldenRatio) >> 61;
}

}  // namespace

Table& Table::instance() {
  static Table* const table = new Table;
  return *table;
}

// The mutex is held across fork, so that the child finds the table whole and unlocked.
Table::Table() {
  static Table* forked;
  forked = this;
  pthread_atfork([] { forked->mutex_.lock(); }, [] { forked->mutex_.unlock(); }, [] { forked->mutex_.unlock(); });
}

gdr_t Table::open(const Session& session) {
  const std::lock_guard lock(mutex_);
  // Odd, which no address of an object is, and never given twice.
  const auto g = reinterpret_cast<gdr_t>((session_count_ << 4) | 0xd);
  sessions_.emplace(g, session);
  ++session_count_;
  return g;
}

int Table::check_session(gdr_t g) const {
  const auto found = sessions_.find(g);
  if (found == sessions_.end()) return EINVAL;
  return found->second.process_generation == detail::process_generation() ? 0 : EACCES;
}

int Table::find(gdr_t g, Session& session) {
  const std::lock_guard lock(mutex_);
  const int code = check_session(g);
  if (code == 0) session = sessions_.find(g)->second;
  return code;
}

int Table::close(gdr_t g) {
  std::size_t slot_count = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const int code = check_session(g); code != 0) return code;
    sessions_.erase(g);  // from here on no pin can be added
    slot_count = slot_count_;
  }
  for (std::size_t index = 0; index < slot_count; ++index) {
    std::unique_ptr<const Pin> pin;
    const std::lock_guard lock(mutex_);
    Slot& slot = *slot_of(index);
    if (slot.pin != nullptr && slot.session == g && !slot.is_retired) pin = retire(slot);
  }
  // What the session mapped faults from now on, as with GDRCopy: windows are not kept for a next pin.
  trim_idle_windows(0);
  return 0;
}

// The low bits name the slot, whatever the generation says.
Slot* Table::slot_of(unsigned long handle) const noexcept {
  const std::size_t index = handle & (kSlotCount - 1);
  Chunk* const chunk = chunks_[index / kSlotsPerChunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk->slots[index % kSlotsPerChunk];
}

// A slot with its next handle, or null when the table is full.
Slot* Table::take_free_slot() {
  Slot* slot = free_slots_;
  if (slot != nullptr) {
    free_slots_ = slot->next_free;
  } else {
    if (slot_count_ == kSlotCount) return nullptr;
    std::atomic<Chunk*>& chunk = chunks_[slot_count_ / kSlotsPerChunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr) chunk.store(new Chunk, std::memory_order_release);
    slot = slot_of(slot_count_);
    slot->handle = slot_count_++;
  }
  slot->handle += kSlotCount;  // the next generation; the first is 1, so that no handle is 0
  return slot;
}

int Table::insert(gdr_t g, std::unique_ptr<const Pin> pin, gdr_mh_t& handle) {
  const std::lock_guard lock(mutex_);
  if (const int code = check_session(g); code != 0) return code;  // closed while the pin was made
  Slot* const slot = take_free_slot();
  if (slot == nullptr) return ENOMEM;
  slot->pin = std::move(pin);
  slot->session = g;
  handle.h = slot->handle;
  return 0;
}

int Table::check(gdr_t g, gdr_mh_t handle, Slot*& slot) const {
  if (const int code = check_session(g); code != 0) return code;
  slot = slot_of(handle.h);
  const bool is_pinned = slot != nullptr && slot->handle == handle.h && slot->pin != nullptr && !slot->is_retired;
  return is_pinned && slot->session == g ? 0 : EINVAL;
}

int Table::remove(gdr_t g, gdr_mh_t handle) {
  std::unique_ptr<const Pin> pin;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  Slot* slot = nullptr;
  if (const int code = check(g, handle, slot); code != 0) return code;
  pin = retire(*slot);
  return 0;
}

// Withdraws the mapping. Returns the pin when no copy is in flight; otherwise the last of them will reclaim it.
std::unique_ptr<const Pin> Table::retire(Slot& slot) noexcept {
  slot.mapped_bytes.store(0);
  slot.is_retired = true;
  return reclaim(slot);
}

std::unique_ptr<const Pin> Table::reclaim(Slot& slot) noexcept {
  const auto is_idle = [](const Slot::Counter& counter) { return counter.copies.load() == 0; };
  if (!slot.is_retired || !std::all_of(slot.counters.begin(), slot.counters.end(), is_idle)) return nullptr;
  slot.is_retired = false;
  if (slot.handle <= ~0UL - kSlotCount) slot.next_free = std::exchange(free_slots_, &slot);  // else all its handles were given
  return std::exchange(slot.pin, nullptr);
}

void Table::leave(Slot& slot) noexcept {
  std::unique_ptr<const Pin> pin;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  pin = reclaim(slot);
}

int Table::describe(gdr_t g, gdr_mh_t handle, gdr_info_v2_t& info) {
  const std::lock_guard lock(mutex_);
  Slot* slot = nullptr;
  if (const int code = check(g, handle, slot); code != 0) return code;
  const Mapping& mapping = slot->pin->mapping;
  const bool is_mapped = slot->mapped_bytes.load() != 0;
  info = {};
  info.va = mapping.device_address();
  info.mapped_size = mapping.bytes();
  info.page_size = GPU_PAGE_SIZE;
  info.tm_cycles = slot->pin->pin_cycles;
  info.cycles_per_ms = slot->pin->cycles_per_ms;
  info.mapped = is_mapped ? 1 : 0;
  info.wc_mapping = is_mapped && type_of(mapping) == GDR_MAPPING_TYPE_WC ? 1 : 0;
  info.mapping_type = is_mapped ? type_of(mapping) : GDR_MAPPING_TYPE_NONE;
  return 0;
}

int Table::map(gdr_t g, gdr_mh_t handle, std::size_t bytes, gdr_mapping_type_t required, void*& address) {
  const std::lock_guard lock(mutex_);
  Slot* slot = nullptr;
  if (const int code = check(g, handle, slot); code != 0) return code;
  const Mapping& mapping = slot->pin->mapping;
  if (slot->mapped_bytes.load() != 0) return EAGAIN;
  if (bytes == 0 || bytes > slot->pin->page_bytes) return EINVAL;
  if (required != GDR_MAPPING_TYPE_NONE && required != type_of(mapping)) return EOPNOTSUPP;
  slot->asked_bytes = bytes;
  slot->mapped_bytes.store(std::min(round_up(slot->pin->lead_bytes + bytes, host_page_bytes()), mapping.bytes()));
  address = mapping.address();
  return 0;
}

int Table::unmap(gdr_t g, gdr_mh_t handle, const void* address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Slot* slot = nullptr;
  if (const int code = check(g, handle, slot); code != 0) return code;
  if (slot->mapped_bytes.load() == 0 || address != slot->pin->mapping.address()) return EINVAL;
  // The caller may have rounded either size to host pages.
  const std::size_t page_bytes = host_page_bytes();
  if (bytes == 0 || bytes > round_up(slot->asked_bytes, page_bytes)) return EINVAL;
  if (round_up(bytes, page_bytes) != round_up(slot->asked_bytes, page_bytes)) return EINVAL;
  slot->mapped_bytes.store(0);
  return 0;
}

CopyGuard::CopyGuard(Table& table, gdr_mh_t handle) noexcept : table_(table), slot_(table.slot_of(handle.h)) {
  if (slot_ == nullptr) return;
  copies_ = &slot_->counters[counter_index()].copies;
  copies_->fetch_add(1);
  const std::size_t mapped_bytes = slot_->mapped_bytes.load();
  if (mapped_bytes != 0 && slot_->handle == handle.h) mapped_bytes_ = mapped_bytes;
}

CopyGuard::~CopyGuard() {
  if (slot_ == nullptr) return;
  copies_->fetch_sub(1);
  if (slot_->mapped_bytes.load() == 0) [[unlikely]]
    table_.leave(*slot_);
}

int CopyGuard::check(const void* address, std::size_t bytes, std::size_t& offset_bytes) const noexcept {
  if (mapped_bytes_ == 0) return EINVAL;
  if (!mapping().is_usable()) return EACCES;
  // An address below the mapping wraps to an offset beyond every mapping.
  offset_bytes = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(mapping().address());
  return fits(offset_bytes, bytes, mapped_bytes_) ? 0 : EINVAL;
}

}  // namespace gigabar::gdrapi
