// SPDX-License-Identifier: Apache-2.0
#include "copy/chooser.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "base/uncancelled.hpp"
#include "copy/kernels/kernels.hpp"
#include "copy/readback/readback.hpp"
#include "gigabar/device.hpp"
#include "mapping/access.hpp"

namespace gigabar::inline v0 {

namespace {

constexpr std::array kDirections = {CopyDirection::to_device, CopyDirection::from_device};

struct InUse {
  explicit InUse(Calibration taken) : calibration(std::move(taken)), methods(calibration) {}
  Calibration calibration;
  MethodTable methods;
};

// What copies of a device go by.
struct OfDevice {
  std::array<std::atomic<std::size_t>, 2> cpu_below{};  // by direction: what detail::cpu_below_bytes() answers
  // Readers take no lock and keep no count, so what was ever in use stays until the process ends: a few KiB per use_calibration().
  std::atomic<const InUse*> in_use{nullptr};
  std::atomic<Readback*> readback{nullptr};  // null: copies may not use it
  std::atomic<bool> has_heeded_environment{false};
  std::atomic<Readback*> opened{nullptr};  // never closed: copies of static destructors still find it
};
constinit std::array<OfDevice, detail::kMaxDevices> all{};

// Null where there can be no such device.
OfDevice* of(int device) noexcept {
  const auto index = static_cast<std::size_t>(device);  // beyond all for one that is negative
  return index < all.size() ? &all[index] : nullptr;
}

struct Writers {
  std::mutex mutex;
  std::vector<std::unique_ptr<const InUse>> kept;
};

// Never destroyed: copies from static destructors still find what it keeps.
Writers& writers() {
  static Writers& writers = *new Writers;
  return writers;
}

// For memory without a device, and for stand-ins before they were measured: no DMA, so nothing beats the CPU.
Calibration cpu_only() {
  Calibration calibration;
  calibration.device_name = "stand-in (host memory)";
  calibration.thread_count = 1;
  return calibration;
}

Result<kernels::Choice> kernels_named_by(const Calibration& calibration) {
  kernels::Choice choice = kernels::default_choice();
  for (std::size_t i = 0; i < choice.store.size(); ++i) {
    for (const bool is_store : {true, false}) {
      const std::string& name = is_store ? calibration.store_kernel[i] : calibration.load_kernel[i];
      if (name.empty()) continue;
      const CopyKernel* kernel = kernels::find_supported_kernel(name);
      if (kernel == nullptr) {
        return make_error(Status::invalid_argument, "use_calibration",
                          text(is_store ? "store_kernel[" : "load_kernel[", i, "] = \"", name, "\""),
                          "this CPU and build have no such kernel", "measure on this machine (Calibration::measure)");
      }
      (is_store ? choice.store : choice.load)[i] = is_store ? kernel->store : kernel->load;
    }
  }
  return choice;
}

// Under the writers' lock.
void note_cpu_below(int device, const MethodTable& methods) {
  const bool with_readback = readback_in_use(device) != nullptr;
  for (const CopyDirection direction : kDirections) {
    of(device)->cpu_below[static_cast<std::size_t>(direction)].store(methods.cpu_below_bytes(direction, with_readback),
                                                                     std::memory_order_relaxed);
  }
}

const InUse& put_in_use(int device, Calibration calibration) {
  auto made = std::make_unique<const InUse>(std::move(calibration));
  const InUse& result = *made;
  writers().kept.push_back(std::move(made));
  of(device)->in_use.store(&result, std::memory_order_release);
  note_cpu_below(device, result.methods);
  return result;
}

// What default_path() holds, when it holds something usable.
std::optional<Calibration> stored_calibration(int device) {
  const std::string path = Calibration::default_path(device);
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return {};
  auto loaded = Calibration::load(path);
  if (loaded) {
    const auto choice = kernels_named_by(*loaded);
    if (choice) {
      kernels::use_choice(choice.value());
      return std::move(loaded).value();
    }
    log(LogLevel::warning, text("calibration ", path, " not used: ", choice.error().message()));
    return {};
  }
  log(LogLevel::warning, text("calibration not used: ", loaded.error().message()));
  return {};
}

const InUse& first_use(int device, bool is_stand_in) {
  std::optional<Calibration> stored = stored_calibration(device);
  readback_in_use(device);  // where the environment asks for it, it is opened before the lock is taken
  const std::lock_guard lock(writers().mutex);
  if (const InUse* const current = of(device)->in_use.load(std::memory_order_acquire)) return *current;
  if (!stored) stored = is_stand_in ? cpu_only() : Calibration::defaults();
  return put_in_use(device, *std::move(stored));
}

const InUse& in_use_for(const Mapping& mapping) {
  const OfDevice* const device = of(mapping.device());
  if (device == nullptr) {
    static const InUse& host = *new InUse(cpu_only());
    return host;
  }
  const InUse* const current = device->in_use.load(std::memory_order_acquire);
  return current != nullptr ? *current : first_use(mapping.device(), mapping.is_stand_in());
}

// What describe() said about the pages this thread copied from or to lately. It can be out of date, which costs time and never
// correctness: either method copies either kind of memory. Asking takes about 1 µs, so one question serves many copies.
bool is_pinned(const void* host) {
  struct Answer {
    std::uintptr_t page = 0;
    bool is_pinned = false;
    std::uint32_t uses_left = 0;
  };
  constexpr std::uint32_t kUses = 1024;
  thread_local std::array<Answer, 16> answers{};
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(host) >> 12;
  Answer& answer = answers[page % answers.size()];
  if (answer.page != page || answer.uses_left == 0) {
    const auto info = describe(host);
    answer = {page, info.is_ok() && info.value().kind != MemoryKind::host_pageable, kUses};
  }
  --answer.uses_left;
  return answer.is_pinned;
}

std::mutex& opening() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// Under opening().
Result<Readback*> open_readback(int device) {
  std::atomic<Readback*>& place = of(device)->opened;
  if (Readback* const known = place) return known;
  auto opened = Readback::open(device, readback_kernel_image());
  if (!opened) return std::move(opened).error();
  place = std::move(opened).value().release();
  return place.load();
}

// A call of use_readback_kernel() before has the last word.
void heed_environment(int device) {
  const Uncancelled uncancelled;
  const std::lock_guard lock(opening());
  OfDevice& used = *of(device);
  if (!used.has_heeded_environment && environment("GIGABAR_READBACK_KERNEL") == "1") {
    const auto opened = open_readback(device);
    if (!opened) log(LogLevel::warning, text("GIGABAR_READBACK_KERNEL: ", opened.error().message()));
    used.readback = opened ? *opened : nullptr;
  }
  used.has_heeded_environment = true;
}

}  // namespace

std::size_t detail::cpu_below_bytes(CopyDirection direction, int device) noexcept {
  const OfDevice* const used = of(device);
  return used != nullptr ? used->cpu_below[static_cast<std::size_t>(direction)].load(std::memory_order_relaxed) : 0;
}

std::size_t MethodTable::first_bytes_of(std::size_t cell) noexcept {
  const std::size_t top = cell / 8;
  const std::size_t scaled = 8 + cell % 8;
  return top >= 3 ? scaled << (top - 3) : scaled >> (3 - top);
}

MethodTable::MethodTable(const Calibration& calibration) {
  for (const bool with_readback : {false, true}) {
    for (const CopyDirection direction : kDirections) {
      for (std::size_t i = 0; i < kCells; ++i) {
        const std::size_t bytes = first_bytes_of(i);
        tables_[with_readback ? 1 : 0][static_cast<std::size_t>(direction)][i] = {
            calibration.choose(direction, false, bytes, with_readback), calibration.choose(direction, true, bytes, with_readback)};
      }
    }
  }
}

std::size_t MethodTable::cpu_below_bytes(CopyDirection direction, bool with_readback) const noexcept {
  const auto& methods = tables_[with_readback ? 1 : 0][static_cast<std::size_t>(direction)];
  const auto other = std::find_if(methods.begin(), methods.end(),
                                  [](const Methods& at) { return at.pageable != CopyMethod::cpu || at.pinned != CopyMethod::cpu; });
  if (other == methods.end()) return std::numeric_limits<std::size_t>::max();
  const auto cell = static_cast<std::size_t>(other - methods.begin());
  return cell == 0 ? 0 : first_bytes_of(cell);
}

CopyMethod choose_method(CopyDirection direction, const Mapping& mapping, const void* host, std::size_t bytes, bool with_readback) {
  const auto [pageable, pinned] = in_use_for(mapping).methods.methods(direction, bytes, with_readback);
  if (pageable == pinned) return pinned;
  return is_pinned(host) ? pinned : pageable;
}

unsigned calibrated_thread_count(const Mapping& mapping) { return in_use_for(mapping).calibration.thread_count; }

Result<DeviceInfo> find_device(const char* operation, int device) {
  if (device >= static_cast<int>(detail::kMaxDevices)) {
    return make_error(Status::invalid_argument, operation, text("device ", device),
                      text("only devices below ", detail::kMaxDevices, " can have a calibration"), "pass a lower index");
  }
  auto known = devices();
  if (!known) return std::move(known).error();
  for (DeviceInfo& info : known.value()) {
    if (info.index == device) return std::move(info);
  }
  return make_error(Status::invalid_argument, operation, text("device ", device),
                    text("there are ", counted(known->size(), "device")), "pass an index that devices() lists");
}

Result<void> use_calibration(int device, const Calibration& calibration) try {
  const Uncancelled uncancelled;
  auto known = find_device("use_calibration", device);
  if (!known) return std::move(known).error();
  if (calibration.thread_count < 1 || calibration.thread_count > 64) {
    return make_error(Status::invalid_argument, "use_calibration", text("thread_count ", calibration.thread_count),
                      "is not 1 to 64", "measure again (Calibration::measure)");
  }
  auto choice = kernels_named_by(calibration);
  if (!choice) return std::move(choice).error();
  const std::lock_guard lock(writers().mutex);
  kernels::use_choice(choice.value());
  put_in_use(device, calibration);
  return {};
} catch (...) {
  return error_of_exception("use_calibration");
}

Calibration calibration_in_use(int device) try {
  const Uncancelled uncancelled;
  auto known = find_device("calibration_in_use", device);
  if (!known) return Calibration::defaults();
  const InUse* const current = of(device)->in_use.load(std::memory_order_acquire);
  return current != nullptr ? current->calibration : first_use(device, known->is_stand_in).calibration;
} catch (...) {
  return {};
}

Result<Readback*> readback_of(int device) {
  const OfDevice* const used = of(device);
  if (Readback* const opened = used != nullptr ? used->opened.load(std::memory_order_acquire) : nullptr) return opened;
  const auto known = find_device("readback", device);
  if (!known) return known.error();
  const std::lock_guard lock(opening());
  return open_readback(device);
}

Readback* readback_in_use(int device) noexcept {
  const OfDevice* const used = of(device);
  if (used == nullptr) return nullptr;
  if (!used->has_heeded_environment.load(std::memory_order_acquire)) [[unlikely]] {
    quietly([&] { heed_environment(device); });
  }
  return used->readback.load(std::memory_order_acquire);
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
  OfDevice& used = *of(device);
  {
    const std::lock_guard lock(opening());
    used.has_heeded_environment = true;
    const auto opened = is_used ? open_readback(device) : nullptr;
    if (!opened) return opened.error();
    used.readback = *opened;
  }
  const std::lock_guard lock(writers().mutex);
  if (const InUse* const current = used.in_use.load(std::memory_order_acquire)) note_cpu_below(device, current->methods);
  return {};
} catch (...) {
  return error_of_exception("use_readback_kernel");
}

}  // namespace gigabar::inline v0
