// SPDX-License-Identifier: Apache-2.0
#include "device/session/session_queues.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "base/names.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::uint32_t kMaxNotifications = 65536;
constexpr std::uint32_t kMaxQueueCount = 16;
constexpr std::uint32_t kMaxRingCount = 1024;
constexpr std::uint32_t kMinRingBytes = device::kMinRingLines * sizeof(device::MessageLine);
constexpr std::uint32_t kMaxRingBytes = std::uint32_t{1} << 30;
constexpr std::uint32_t kMinDepth = 8;          // a batch of the largest post and some
constexpr std::uint32_t kMaxProxyThreads = 12;  // each has a queue of the fabric

bool is_ascending(const std::vector<SegmentId>& ids, SegmentId end) {
  return std::is_sorted(ids.begin(), ids.end(), std::less_equal<>()) && (ids.empty() || ids.back() < end);
}

}  // namespace

Result<void> check_options(const DeviceSessionOptions& options) {
  const auto bad = [](std::string object, std::string cause, std::string remedy) {
    return make_error(Status::invalid_argument, "device session", std::move(object), std::move(cause), std::move(remedy));
  };
  struct Count {
    const char* name;
    std::uint32_t value, most;
  };
  for (const auto& [name, value, most] : {Count{"segment_count", options.segment_count, kMaxSegments - 1},
                                          Count{"notification_count", options.notification_count, kMaxNotifications},
                                          Count{"queue_count", options.queue_count, kMaxQueueCount},
                                          Count{"proxy_thread_count", options.proxy_thread_count, kMaxProxyThreads}}) {
    if (value == 0 || value > most)
      return bad(text(name, " ", value), text("it is not between 1 and ", most), "give such a number");
  }
  if (options.control_segment < options.segment_count || options.control_segment >= kMaxSegments) {
    return bad(text("control_segment ", options.control_segment),
               "it is one of the segments that kernels name, or no segment at all",
               text("give an id from segment_count (", options.segment_count, ") to ", kMaxSegments - 1));
  }
  for (const auto* ids : {&options.segments, &options.cpu_segments}) {
    if (is_ascending(*ids, options.segment_count)) continue;
    return bad(ids == &options.segments ? "segments" : "cpu_segments", "they are not ascending ids below segment_count",
               "sort them, and name each segment once");
  }
  const bool is_by_hca = options.engine == QueueEngine::hca || options.engine == QueueEngine::hca_cpu_doorbell;
  if (!options.cpu_segments.empty() && (is_by_hca || options.queues == QueueUse::never)) {
    return bad("cpu_segments", "kernels raise their notifications by queues of the software HCA only",
               "choose QueueEngine::automatic or software_hca and QueueUse::out_of_reach or always, or name no such segments");
  }
  if (options.queue_depth < kMinDepth || options.queue_depth > device::kMaxDepth || !std::has_single_bit(options.queue_depth)) {
    return bad(text("queue_depth ", options.queue_depth),
               text("it is no power of two between ", kMinDepth, " and ", device::kMaxDepth), "give such a number");
  }
  if (options.ring_count > kMaxRingCount) {
    return bad(text("ring_count ", options.ring_count), text("it is greater than ", kMaxRingCount), "give at most that number");
  }
  if (options.ring_bytes < kMinRingBytes || options.ring_bytes > kMaxRingBytes || !std::has_single_bit(options.ring_bytes)) {
    return bad(text("ring_bytes ", options.ring_bytes),
               text("it is no power of two between ", kMinRingBytes, " and ", kMaxRingBytes), "give such a number");
  }
  return {};
}

std::string_view name_of(QueueEngine engine) noexcept {
  return name_at(std::array<std::string_view, 4>{"automatic", "hca", "hca_cpu_doorbell", "software_hca"}, engine);
}

}  // namespace gigabar::inline v0
