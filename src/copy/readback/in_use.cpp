// SPDX-License-Identifier: Apache-2.0
// The readback kernels of this process, by device, and whether copies may use them; the kernel's fat binary, inside the library.
#include <array>
#include <atomic>
#include <mutex>

#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "base/uncancelled.hpp"
#include "copy/chooser.hpp"
#include "copy/readback/readback.hpp"
#include "gigabar/copy.hpp"
#include "mapping/access.hpp"

#if defined(GIGABAR_DEVICE_CODE)
GIGABAR_EMBED_FILE(gigabar_readback_kernel, GIGABAR_DEVICE_CODE);
#else
static const unsigned char* const gigabar_readback_kernel = nullptr;
#endif

namespace gigabar::inline v0 {
namespace {

struct Slot {
  std::atomic<Readback*> in_use{nullptr};
  std::atomic<bool> has_heeded_environment{false};
  std::atomic<Readback*> opened{nullptr};  // never closed: copies of static destructors still find it
};
constinit std::array<Slot, detail::kMaxDevices> slots{};

std::mutex& opening() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// Under opening().
Result<Readback*> open_in(Slot& slot, int device) {
  if (Readback* const known = slot.opened) return known;
  auto opened = Readback::open(device, readback_kernel_image());
  if (!opened) return std::move(opened).error();
  slot.opened = std::move(opened).value().release();
  return slot.opened.load();
}

// A call of use_readback_kernel() before has the last word.
void heed_environment(Slot& slot, int device) {
  const Uncancelled uncancelled;
  const std::lock_guard lock(opening());
  if (slot.has_heeded_environment || environment("GIGABAR_READBACK_KERNEL") != "1") {
    slot.has_heeded_environment = true;
    return;
  }
  const auto opened = open_in(slot, device);
  if (!opened) log(LogLevel::warning, text("GIGABAR_READBACK_KERNEL: ", opened.error().message()));
  slot.in_use = opened ? *opened : nullptr;
  slot.has_heeded_environment = true;
}

}  // namespace

const void* readback_kernel_image() noexcept { return gigabar_readback_kernel; }

Result<Readback*> readback_of(int device) {
  const auto index = static_cast<std::size_t>(device);  // beyond all for one that is negative
  if (index < slots.size()) {
    if (Readback* const opened = slots[index].opened.load(std::memory_order_acquire)) return opened;
  }
  const auto known = find_device("readback", device);
  if (!known) return known.error();
  const std::lock_guard lock(opening());
  return open_in(slots[index], device);
}

Readback* readback_in_use(int device) noexcept {
  const auto index = static_cast<std::size_t>(device);  // beyond all for one that is negative
  if (index >= slots.size()) return nullptr;
  Slot& slot = slots[index];
  if (!slot.has_heeded_environment.load(std::memory_order_acquire)) [[unlikely]] {
    quietly([&] { heed_environment(slot, device); });
  }
  return slot.in_use.load(std::memory_order_acquire);
}

bool has_copied_by_readback(void* destination, const Mapping& mapping, std::size_t offset_bytes, std::size_t bytes) noexcept {
  Readback* const readback = readback_in_use(mapping.device());
  if (readback == nullptr) return false;
  bool has_copied = false;
  quietly([&] {
    const Uncancelled uncancelled;
    has_copied = choose_method(CopyDirection::from_device, mapping, destination, bytes, true) == CopyMethod::readback &&
                 memory_at_address(mapping) == AtAddress::mapped &&
                 readback->try_copy(mapping.device_address() + offset_bytes, destination, bytes);
  });
  return has_copied;
}

Result<void> use_readback_kernel(int device, bool is_used) try {
  const Uncancelled uncancelled;
  const auto known = find_device("use_readback_kernel", device);
  if (!known) return known.error();
  Slot& slot = slots[static_cast<std::size_t>(device)];
  {
    const std::lock_guard lock(opening());
    slot.has_heeded_environment = true;
    if (is_used) {
      const auto opened = open_in(slot, device);
      if (!opened) return opened.error();
      slot.in_use = *opened;
    } else {
      slot.in_use = nullptr;
    }
  }
  note_readback(device);
  return {};
} catch (...) {
  return error_of_exception("use_readback_kernel");
}

}  // namespace gigabar::inline v0
