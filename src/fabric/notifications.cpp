// SPDX-License-Identifier: Apache-2.0
#include "fabric/notifications.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/errors.hpp"

namespace gigabar::fabric {
namespace {

constexpr std::size_t kBytes = kNotifications * transport::kWordBytes;

Error failed(int code) {
  return make_error(status_of_errno(code, Status::out_of_memory), "register", text(kNotifications, " notifications"),
                    errno_code(code).name, "free memory, or raise the descriptor limit (ulimit -n)", errno_code(code));
}

}  // namespace

void Notifications::Unmap::operator()(std::byte* memory) const noexcept { ::munmap(memory, kBytes); }

Notifications::~Notifications() {
  for (auto& region : regions) region.reset();  // before the memory goes
}

Result<std::unique_ptr<Notifications>> Notifications::make(Descriptor& file) {
  std::unique_ptr<Notifications> made(new Notifications);
  file = Descriptor(::memfd_create("gigabar-notifications", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open() || ::ftruncate(file.get(), static_cast<off_t>(kBytes)) != 0) return failed(errno);
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (memory == MAP_FAILED) return failed(errno);
  made->memory_.reset(static_cast<std::byte*>(memory));
  ::madvise(memory, kBytes, MADV_DONTFORK);
  made->taken_.reset(static_cast<std::uint32_t*>(std::calloc(kNotifications, sizeof(std::uint32_t))));
  if (!made->taken_) return failed(ENOMEM);
  return made;
}

void Notifications::register_with(transport::Transport& transport, const Descriptor& file) {
  const auto kind = static_cast<std::size_t>(transport.kind());
  why_not[kind] = transport.why_no_words();
  if (!why_not[kind].empty()) return;
  transport::MemoryRange range{memory_.get(), kBytes};
  range.descriptor = file.get();
  range.holds_words = true;
  auto region = transport.register_memory(range);
  if (!region) {
    why_not[kind] = region.error().record().cause;
    return;
  }
  regions[kind] = std::move(*region);
  has_counters_ = has_counters_ || transport.kind() == TransportKind::verbs;
}

std::uint32_t Notifications::reset(NotificationId id) noexcept {
  std::uint32_t value = stored_at(id).exchange(0, std::memory_order_acq_rel);
  if (has_counters_) {
    const std::uint32_t more = counted(id);
    taken_[id] += more;
    value += more;
  }
  return value;
}

// Of the stored value first: a peer that sets it next overwrites nothing that was counted.
bool Notifications::take(NotificationId id, std::uint32_t value) noexcept {
  const std::atomic_ref<std::uint32_t> word = stored_at(id);
  std::uint32_t stored = word.load(std::memory_order_acquire);
  for (;;) {
    const std::uint32_t more = has_counters_ ? counted(id) : 0;
    if (std::uint64_t{stored} + more < value) return false;
    const std::uint32_t part = std::min(stored, value);
    if (!word.compare_exchange_weak(stored, stored - part, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    taken_[id] += value - part;
    return true;
  }
}

void Notifications::raise(transport::WordKind kind, NotificationId id, std::uint32_t value) noexcept {
  if (kind == transport::WordKind::add) {
    stored_at(id).fetch_add(value, std::memory_order_release);
  } else {
    stored_at(id).store(value, std::memory_order_release);
  }
}

}  // namespace gigabar::fabric
