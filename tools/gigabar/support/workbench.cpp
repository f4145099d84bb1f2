// SPDX-License-Identifier: Apache-2.0
#include "support/workbench.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "platform/cpu_set.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"
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

void Workbench::tell_memory(Report& report) const {
  report.set_mapping(mapping_);
  report.document()["host_memory"] = {{"is_pinned", is_host_pinned()}};
  if (!host_note_.empty()) report.note(host_note_);
}

namespace {

// The device's memory is written and read by the copy engine, so not through the stores and loads of the CPU that are under test.
void check_once(const Workbench& bench, const CopyCase& copied, const Contender& way, bool plants_fault,
                std::vector<std::byte>& buffer) {
  // A new one for every check, so that what an earlier check left behind cannot pass.
  static std::atomic<std::uint64_t> next_seed{0x6769676162617200};
  const Pattern pattern(next_seed++);
  const std::size_t guard = std::min(kGuardBytes, bench.memory().bytes() - copied.offset_bytes - copied.bytes);
  buffer.resize(copied.bytes + guard);
  const std::span<std::byte> host(bench.host(), copied.bytes + guard);
  const MappedPlace device{bench.mapping(), copied.offset_bytes};
  const bool is_to_device = copied.direction == CopyDirection::to_device;
  pattern.poison(buffer);
  if (is_to_device) {
    pattern.fill(host.first(copied.bytes));
  } else {
    pattern.poison(host);
    pattern.fill(std::span(buffer).first(copied.bytes));
  }
  take(copy(device, buffer.data(), buffer.size(), CopyMethod::copy_engine));
  // One call, not timed.
  if (!way.run_block(SampleClock(), {}, 1, 0))
    fail(fmt::format("{}: the copy of {} failed ({})", way.name, counted(copied.bytes, "byte"), name_of(copied.direction)));
  if (is_to_device) {
    take(copy(buffer.data(), device, buffer.size(), CopyMethod::copy_engine));
  } else {
    std::memcpy(buffer.data(), host.data(), host.size());
  }
  if (plants_fault) buffer[copied.bytes / 2] ^= std::byte{0x10};
  const auto require_none = [&](const std::optional<Mismatch>& mismatch, const char* where) {
    if (!mismatch) return;
    throw WrongData(fmt::format("{}{}: wrong data at size {} ({}, device offset {}): {}{}", way.name,
                                stand_in_label(bench.device().is_stand_in), copied.bytes, name_of(copied.direction),
                                copied.offset_bytes, mismatch->to_string(), where));
  };
  const std::span<const std::byte> found(buffer);
  require_none(pattern.compare(found.first(copied.bytes)), "");
  require_none(pattern.compare_poison(found.subspan(copied.bytes), copied.bytes), ", behind the end of the copy");
}

}  // namespace

void check_copy(const Workbench& bench, const CopyCase& copied, const Contender& way, bool plants_fault) {
  // The second time with other data: a destination that still shows the first is stale.
  std::vector<std::byte> buffer;
  for (int turn = 0; turn < 2; ++turn) check_once(bench, copied, way, plants_fault, buffer);
}

void fail_timed_copy(const CopyCase& copied, const Contender& way) {
  fail(fmt::format("{}: a copy of {} failed while it was timed ({}); GIGABAR_LOG=info tells why", way.name,
                   counted(copied.bytes, "byte"), name_of(copied.direction)));
}

}  // namespace gigabar::tool
