// SPDX-License-Identifier: Apache-2.0
// The device side: a session of the fabric for kernels, and how CPUs notify them.
#pragma GCC visibility push(default)
#include "PGASPI.h"
#pragma GCC visibility pop

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <utility>

#include "GASPI_Device.hpp"
#include "base/undo.hpp"
#include "gaspi/process.hpp"
#include "gigabar/device_session.hpp"

namespace gigabar::gaspi {

struct DeviceSide {
  DeviceSession session;
  gaspi_device handle;
  std::array<bool, kSegments> is_taken_by_kernels{};
};

std::shared_ptr<DeviceSide> taker_in_kernels(SegmentId segment) noexcept {
  Process& all = process();
  if (segment >= kSegments || !all.has_device.load(std::memory_order_acquire)) return nullptr;
  const std::scoped_lock lock(all.device_mutex);
  return all.device != nullptr && all.device->is_taken_by_kernels[segment] ? all.device : nullptr;
}

Result<Operation> notify_taker(Rank rank, SegmentId segment, NotificationId id, std::uint32_t value, const PostOptions& options) {
  const auto device = taker_in_kernels(segment);
  return device != nullptr ? device->session.notify(rank, segment, id, value, options)
                           : process().fabric->notify(rank, segment, id, value, options);
}

Result<Operation> write_notify_kernel(DeviceSide& device, const LocalPlace& local, const RemotePlace& remote, std::uint64_t bytes,
                                      NotificationId id, std::uint32_t value, const PostOptions& options) {
  return device.session.write_notify(local, remote, bytes, id, value, options);
}

namespace {

gaspi_return_t refuse(SegmentId segment, const char* function, const char* why) {
  if (process().config.logger != 0)
    std::fprintf(stderr, "%s: rank %u: segment %u: %s\n", function, process().rank, unsigned{segment}, why);
  return GASPI_ERR_DEVICE;
}

}  // namespace

gaspi_return_t refuse_taker(SegmentId segment, const char* function) {
  return refuse(segment, function,
                "kernels take its notifications (GASPI_NOTIFY_KERNELS): wait in a kernel, or open the device side with "
                "GASPI_NOTIFY_CPU for it");
}

gaspi_return_t refuse_delete(SegmentId segment) {
  if (!process().is_of_device[segment]) return GASPI_SUCCESS;
  return refuse(segment, "gaspi_segment_delete", "kernels may use it: call gaspi_device_close first");
}

void set_device(Process& all, std::shared_ptr<DeviceSide> device) {
  const std::scoped_lock lock(all.device_mutex);
  all.device.swap(device);
  all.has_device.store(all.device != nullptr, std::memory_order_release);
}

Result<void> close_device(Process& all, const Timeout& timeout) {
  if (all.device == nullptr) return {};
  Result<void> closed = all.device->session.close(timeout);
  if (!closed) return closed;
  set_device(all, nullptr);
  const std::scoped_lock lock(all.mutex);
  all.is_of_device = {};
  return {};
}

namespace {

struct Chosen {
  std::array<bool, kSegments> is_used{};
  std::array<bool, kSegments> is_taken_by_kernels{};
  DeviceSessionOptions options;
};

// Under the mutex. INV_SEG.
gaspi_return_t choose(std::span<const gaspi_device_segment_t> segments, Chosen& chosen) {
  chosen.options.segment_count = 0;
  for (const auto& [id, taker] : segments) {
    if (!is_segment(id) || process().segments[id].is_going || chosen.is_used[id]) return GASPI_ERR_INV_SEG;
    chosen.is_used[id] = true;
    chosen.is_taken_by_kernels[id] = taker == GASPI_NOTIFY_KERNELS;
    chosen.options.segments.push_back(id);
    if (taker != GASPI_NOTIFY_KERNELS) chosen.options.cpu_segments.push_back(id);
    chosen.options.segment_count = std::max<SegmentId>(chosen.options.segment_count, SegmentId{id} + 1);
  }
  std::sort(chosen.options.segments.begin(), chosen.options.segments.end());
  std::sort(chosen.options.cpu_segments.begin(), chosen.options.cpu_segments.end());
  return GASPI_SUCCESS;
}

gaspi_return_t open_device(std::span<const gaspi_device_segment_t> segments, gaspi_number_t queue_num,
                           const gaspi_device_t** device, const Timeout& timeout) {
  Process& all = process();
  const Remaining time(timeout);
  const auto turn = lock_within(all.device_turn, timeout);
  if (!turn) return GASPI_TIMEOUT;
  if (!all.is_ready) return GASPI_ERR_NOINIT;  // it ended meanwhile
  if (all.device != nullptr) return GASPI_ERR_INITED;
  Chosen chosen;
  {
    const std::scoped_lock lock(all.mutex);
    if (const gaspi_return_t refused = choose(segments, chosen); refused != GASPI_SUCCESS) return refused;
    all.is_of_device = chosen.is_used;
  }
  Undo give_back([&] {
    const std::scoped_lock lock(all.mutex);
    all.is_of_device = {};
  });
  DeviceSessionOptions& options = chosen.options;
  options.notification_count = all.config.notification_num;
  options.control_segment = kDeviceSegment;
  options.queue_count = queue_num;
  options.timeout = time.left();
  auto session = DeviceSession::open(*all.fabric, options);
  if (!session) return code_of(session.error(), "gaspi_device_open");
  const gaspi_device handle{session->handle(), all.config.transfer_size_max};
  set_device(all, std::make_shared<DeviceSide>(DeviceSide{std::move(*session), handle, chosen.is_taken_by_kernels}));
  give_back.call_off();
  *device = &all.device->handle;
  return GASPI_SUCCESS;
}

}  // namespace
}  // namespace gigabar::gaspi

using namespace gigabar;
using namespace gigabar::gaspi;

gaspi_return_t pgaspi_device_open(const gaspi_device_segment_t* const segments, const gaspi_number_t segment_num,
                                  const gaspi_number_t queue_num, const gaspi_device_t** const device,
                                  const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    if (segments == nullptr || device == nullptr) return GASPI_ERR_NULLPTR;
    if (segment_num == 0 || segment_num > kSegments || queue_num == 0 || queue_num > kProgramQueues) return GASPI_ERR_INV_NUM;
    return open_device({segments, segment_num}, queue_num, device, timeout_of(timeout_ms));
  });
}
GASPI_NAMED(gaspi_device_open);

gaspi_return_t pgaspi_device_close(const gaspi_timeout_t timeout_ms) {
  return when_ready([&]() -> gaspi_return_t {
    Process& all = process();
    const Remaining time(timeout_of(timeout_ms));
    const auto turn = lock_within(all.device_turn, time.left());
    if (!turn) return GASPI_TIMEOUT;
    if (all.device == nullptr) return GASPI_ERR_NULLPTR;
    const Result<void> closed = close_device(all, time.left());
    return closed ? GASPI_SUCCESS : code_of(closed.error(), "gaspi_device_close");
  });
}
GASPI_NAMED(gaspi_device_close);
