// SPDX-License-Identifier: Apache-2.0
#include "fabric/notifications.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errors.hpp"
#include "base/rounding.hpp"
#include "memory/host_pages.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kBytes = transport::bytes_of_words(kNotifications);

}  // namespace

Result<WordPages::Taken> WordPages::take(std::size_t wanted_bytes) {
  const std::size_t bytes = round_up(wanted_bytes, host_page_bytes());
  Taken taken;
  if (file_ == nullptr) {
    Descriptor made(::memfd_create("gigabar-notifications", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (made.is_open()) {
      // A peer that has the descriptor seals nothing, or the next pages could not be mapped.
      ::fcntl(made.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
      file_ = std::make_shared<const Descriptor>(std::move(made));
    } else {
      taken.why_no_file = std::strerror(errno);
    }
  }
  auto file = file_;
  if (file != nullptr && ::ftruncate(file->get(), static_cast<off_t>(used_bytes_ + bytes)) != 0) {
    taken.why_no_file = std::strerror(errno);
    file = nullptr;
  }
  const int flags = MAP_NORESERVE | (file != nullptr ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  taken.descriptor = file != nullptr ? file->get() : -1;
  taken.offset_bytes = file != nullptr ? used_bytes_ : 0;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, taken.descriptor, static_cast<off_t>(taken.offset_bytes));
  if (memory == MAP_FAILED) {
    const int code = errno;
    return make_error(status_of_errno(code, Status::out_of_memory), "register", text(kNotifications, " notifications"),
                      errno_code(code).name, "free memory, or raise vm.max_map_count", errno_code(code));
  }
  ::madvise(memory, bytes, MADV_DONTFORK);
  used_bytes_ += file != nullptr ? bytes : 0;
  // The last reference gives the pages back.
  taken.memory = {static_cast<std::byte*>(memory),
                  [bytes, file, offset = static_cast<off_t>(taken.offset_bytes)](std::byte* pages) {
                    ::munmap(pages, bytes);
                    if (file == nullptr) return;
                    ::fallocate(file->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(bytes));
                  }};
  return taken;
}

Notifications::~Notifications() {
  for (auto& region : regions) region.reset();  // before the memory goes
}

Result<std::unique_ptr<Notifications>> Notifications::make(WordPages& pages) {
  auto taken = pages.take(kBytes);
  if (!taken) return std::move(taken).error();
  return std::unique_ptr<Notifications>(new Notifications(std::move(*taken)));
}

void Notifications::register_with(transport::Transport& transport) {
  const auto kind = static_cast<std::size_t>(transport.kind());
  if (regions[kind] != nullptr || !why_not[kind].empty()) return;
  const bool is_local = transport.kind() == TransportKind::local;
  why_not[kind] = transport.why_no_words();
  if (is_local && pages_.descriptor < 0) why_not[kind] = text("the peer has no memory file for its words: ", pages_.why_no_file);
  if (!why_not[kind].empty()) return;
  transport::MemoryRange range{pages_.memory.get(), is_local ? kBytes : transport::bytes_of_words(transport::kCountedWords)};
  range.descriptor = pages_.descriptor;
  range.descriptor_offset_bytes = pages_.offset_bytes;
  range.holds_words = true;
  range.pages = pages_.memory;
  auto region = transport.register_memory(range);
  if (!region) {
    why_not[kind] = region.error().record().cause;
    return;
  }
  regions[kind] = std::move(*region);
  if (transport.kind() == TransportKind::verbs) has_counters_ = true;
}

bool Notifications::take_all(NotificationId id, Seen seen) noexcept {
  if (!stored_at(id).compare_exchange_strong(seen.stored, 0, std::memory_order_acq_rel, std::memory_order_acquire)) return false;
  if (seen.counted != 0) taken_[id] += seen.counted;
  return true;
}

// Of the stored value first: a peer that sets it next overwrites nothing that was counted.
bool Notifications::take(NotificationId id, std::uint32_t value) noexcept {
  const std::atomic_ref<std::uint32_t> word = stored_at(id);
  for (Seen seen = look(id); seen.is_at_least(value); seen = look(id)) {
    const std::uint32_t part = std::min(seen.stored, value);
    if (!word.compare_exchange_strong(seen.stored, seen.stored - part, std::memory_order_acq_rel)) continue;
    if (part != value) taken_[id] += value - part;
    return true;
  }
  return false;
}

void Notifications::raise(transport::WordKind kind, NotificationId id, std::uint32_t value) noexcept {
  if (kind == transport::WordKind::add) {
    stored_at(id).fetch_add(value, std::memory_order_release);
  } else {
    stored_at(id).store(value, std::memory_order_release);
  }
}

}  // namespace gigabar::fabric
