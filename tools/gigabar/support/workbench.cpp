// SPDX-License-Identifier: Apache-2.0
#include "support/workbench.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "platform/cpu_set.hpp"
#include "support/failure.hpp"
#include "support/report.hpp"

namespace gigabar::tool {

DeviceInfo select_device(const DeviceOptions& options) {
  std::vector<DeviceInfo> found = take(devices());
  for (DeviceInfo& device : found) {
    if (device.index == options.device) return std::move(device);
  }
  refuse_usage(fmt::format("-d {}: no such device; this machine has {}, numbered from 0 (see 'gigabar info')", options.device,
                           found.size()));
}

void bind_processor(const DeviceOptions& options) {
  if (options.processor < 0) return;
  if (const int code = keep_this_thread_on({options.processor}); code != 0)
    refuse_usage(fmt::format("--cpu {}: {}; choose a CPU that this process may use (see 'taskset -p self')", options.processor,
                             std::strerror(code)));
}

HostMemory allocate_host(const DeviceInfo& device, std::size_t bytes, std::string& note, bool is_shared) {
  auto pinned = HostMemory::allocate(bytes, {.numa_node = device.numa_node, .pages = HostPages::pinned, .is_shared = is_shared});
  if (pinned) return std::move(pinned).value();
  note = "host memory is pageable, not pinned: " + pinned.error().message();
  return take(HostMemory::allocate(bytes, {.numa_node = -1, .pages = HostPages::pageable, .is_shared = is_shared}));
}

Mapping map_for(const DeviceMemory& memory, const DeviceOptions& options) {
  Mapping mapping = take(map(memory.address(), memory.bytes(), {.backend = options.backend}));
  if (options.type && mapping.type() != *options.type) {
    fail(fmt::format("-M: the mapping is {}, not {} (device {}{}, backend {}); leave -M out to take what the device gives",
                     name_of(mapping.type()), name_of(*options.type), memory.device(), memory.is_stand_in() ? ", stand-in" : "",
                     name_of(mapping.backend())));
  }
  return mapping;
}

Workbench::Workbench(const DeviceOptions& options, std::size_t bytes)
    : device_(select_device(options)),
      memory_(take(DeviceMemory::allocate(options.device, bytes, options.allocator))),
      mapping_(map_for(memory_, options)),
      host_(allocate_host(device_, bytes, host_note_)) {}

void Workbench::engine_write(std::size_t offset_bytes, std::span<const std::byte> source) const {
  take(copy(MappedPlace{mapping_, offset_bytes}, source.data(), source.size(), CopyMethod::copy_engine));
}

void Workbench::engine_read(std::size_t offset_bytes, std::span<std::byte> destination) const {
  take(copy(destination.data(), MappedPlace{mapping_, offset_bytes}, destination.size(), CopyMethod::copy_engine));
}

void Workbench::tell_memory(Report& report) const {
  report.set_mapping(mapping_);
  report.document()["host_memory"] = {{"is_pinned", is_host_pinned()}};
  if (!host_note_.empty()) report.note(host_note_);
}

namespace {

// A new one for every check, so that what an earlier check left behind cannot pass.
Pattern next_pattern() {
  static std::atomic<std::uint64_t> seed{0x6769676162617200};
  return Pattern(seed.fetch_add(1));
}

[[noreturn]] void fail_check(const Workbench& bench, const CheckedCopy& checked, const char* where, const Mismatch& mismatch) {
  throw WrongData(fmt::format("{}{}: wrong data at size {} ({}, device offset {}): {}{}", checked.name,
                              stand_in_label(bench.device().is_stand_in), checked.bytes, name_of(checked.direction),
                              checked.offset_bytes, mismatch.to_string(), where));
}

void check_once(const Workbench& bench, const CheckedCopy& checked, std::vector<std::byte>& buffer) {
  const Pattern pattern = next_pattern();
  const std::size_t guard = std::min(kGuardBytes, bench.memory().bytes() - checked.offset_bytes - checked.bytes);
  buffer.resize(checked.bytes + guard);
  const std::span<std::byte> host(bench.host(), checked.bytes + guard);
  const bool is_to_device = checked.direction == CopyDirection::to_device;
  pattern.poison(buffer);
  if (is_to_device) {
    bench.engine_write(checked.offset_bytes, buffer);
    pattern.fill(host.first(checked.bytes));
  } else {
    pattern.poison(host);
    pattern.fill(std::span(buffer).first(checked.bytes));
    bench.engine_write(checked.offset_bytes, buffer);
  }
  if (!checked.copy())
    fail(fmt::format("{}: the copy of {} failed ({})", checked.name, counted(checked.bytes, "byte"), name_of(checked.direction)));
  if (is_to_device) {
    bench.engine_read(checked.offset_bytes, buffer);
  } else {
    std::memcpy(buffer.data(), host.data(), host.size());
  }
  if (checked.plant_fault) buffer[checked.bytes / 2] ^= std::byte{0x10};
  const std::span<const std::byte> found(buffer);
  if (const auto mismatch = pattern.compare(found.first(checked.bytes))) fail_check(bench, checked, "", *mismatch);
  if (const auto mismatch = pattern.compare_poison(found.subspan(checked.bytes), checked.bytes)) {
    fail_check(bench, checked, ", behind the end of the copy", *mismatch);
  }
}

}  // namespace

void check_copy(const Workbench& bench, const CheckedCopy& checked) {
  // The second time with other data: a destination that still shows the first is stale.
  std::vector<std::byte> buffer;
  check_once(bench, checked, buffer);
  check_once(bench, checked, buffer);
}

}  // namespace gigabar::tool
