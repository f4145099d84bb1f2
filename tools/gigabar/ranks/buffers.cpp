// SPDX-License-Identifier: Apache-2.0
#include "ranks/buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/counted.hpp"
#include "base/rounding.hpp"
#include "gigabar/copy.hpp"
#include "support/failure.hpp"
#include "support/pattern.hpp"
#include "support/workbench.hpp"

namespace gigabar::tool::ranks {
namespace {

Pattern pattern_of(Rank sender, std::uint32_t round, std::uint32_t slot) noexcept {
  constexpr std::uint64_t kSpread = 0xd6e8feb86659fd93U;  // odd: neighbouring numbers become distant seeds
  const std::uint64_t name = (std::uint64_t{sender} << 42) ^ (std::uint64_t{round} << 10) ^ slot;
  return Pattern((name + 1) * kSpread);
}

}  // namespace

Slots slots_for(std::uint64_t bytes, std::uint32_t window, bool is_checked) noexcept {
  if (!is_checked) return {.bytes = bytes, .stride_bytes = std::max<std::uint64_t>(bytes, 1), .count = 1};
  const std::uint64_t stride = round_up(bytes + kGuardBytes, kSlotBytes);
  const std::uint64_t count = std::clamp<std::uint64_t>(kMaxCheckedBytes / stride, 1, window);
  return {.bytes = bytes, .stride_bytes = stride, .count = static_cast<std::uint32_t>(count)};
}

Buffers::Buffers(const Plan& plan, Place place, const DeviceInfo& device) {
  const std::uint32_t window = is_latency(plan.options.measure) ? 1 : plan.options.window;
  for (const std::uint64_t size : plan.sizes) {
    area_bytes_ = std::max(area_bytes_, round_up(slots_for(size, window, plan.options.is_checked).area_bytes(), kSlotBytes));
  }
  if (place == Place::host) {
    host_.emplace(allocate_host(device, bytes(), note_, plan.options.is_shared));
    base_ = host_->address();
    return;
  }
  device_.emplace(take(DeviceMemory::allocate(device.index, bytes())));
  base_ = device_->address();
  if (plan.options.is_checked) mapping_.emplace(take(map(base_, bytes())));
}

void Buffers::engine_write(std::uint64_t offset_bytes, std::span<const std::byte> source) {
  if (source.empty()) return;
  if (host_) {
    std::memcpy(at(offset_bytes), source.data(), source.size());
  } else {
    take(copy(MappedPlace{*mapping_, offset_bytes}, source.data(), source.size(), CopyMethod::copy_engine));
  }
}

void Buffers::engine_read(std::uint64_t offset_bytes, std::span<std::byte> destination) {
  if (destination.empty()) return;
  if (host_) {
    std::memcpy(destination.data(), at(offset_bytes), destination.size());
  } else {
    take(copy(destination.data(), MappedPlace{*mapping_, offset_bytes}, destination.size(), CopyMethod::copy_engine));
  }
}

void Buffers::fill_to_send(const Slots& slots, Rank sender, std::uint32_t round) {
  staging_.resize(slots.bytes);
  for (std::uint32_t slot = 0; slot < slots.count; ++slot) {
    pattern_of(sender, round, slot).fill(staging_);
    engine_write(slots.offset_of(slot), staging_);
  }
}

void Buffers::poison_to_receive(const Slots& slots, Rank sender, std::uint32_t round) {
  staging_.resize(slots.bytes + kGuardBytes);
  for (std::uint32_t slot = 0; slot < slots.count; ++slot) {
    pattern_of(sender, round, slot).poison(staging_);
    engine_write(area_bytes_ + slots.offset_of(slot), staging_);
  }
}

std::optional<std::string> Buffers::check_received(const Slots& slots, Rank sender, std::uint32_t round,
                                                   std::uint32_t message_count) {
  staging_.resize(slots.bytes + kGuardBytes);
  const std::span<const std::byte> found(staging_);
  for (std::uint32_t slot = 0; slot < std::min(slots.count, message_count); ++slot) {
    engine_read(area_bytes_ + slots.offset_of(slot), staging_);
    const Pattern pattern = pattern_of(sender, round, slot);
    const auto wrong = pattern.compare(found.first(slots.bytes));
    const auto beyond = pattern.compare_poison(found.subspan(slots.bytes), slots.bytes);
    if (!wrong && !beyond) continue;
    return fmt::format("{} from rank {}, round {}, message {}: {}{}", counted(slots.bytes, "byte"), sender, round, slot,
                       wrong ? "" : "written beyond their end: ", wrong ? wrong->to_string() : beyond->to_string());
  }
  return {};
}

void Buffers::plant_fault(const Slots& slots) {
  const std::uint64_t place = area_bytes_ + slots.bytes / 2;
  std::byte value{};
  engine_read(place, {&value, 1});
  value ^= std::byte{1};
  engine_write(place, {&value, 1});
}

void BufferSession::make_buffers(const Plan& plan, Place place) {
  if (place == Place::device && !device_) {
    const std::vector<DeviceInfo> found = take(devices());
    device_ = found[fabric().local_rank() % found.size()];
  }
  for (std::uint32_t thread = 0; thread < plan.options.thread_count; ++thread) {
    const auto own = std::make_shared<Buffers>(plan, place, device_.value_or(DeviceInfo()));
    memory_.push_back(own);
    buffers_.push_back(own.get());
    if (plan.options.kind != Kind::send) register_segment(segment_of(thread), own->address(), own->bytes());
  }
}

void BufferSession::tell_setup() {
  if (device_) report()->set_device(*device_);
  report()->set_clock(clock_);
  tell_settings();
}

}  // namespace gigabar::tool::ranks
