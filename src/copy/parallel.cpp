// SPDX-License-Identifier: Apache-2.0
#include "copy/parallel.hpp"

#include <algorithm>

#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "copy/chooser.hpp"
#include "copy/worker_pool.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kLineBytes = 64;

// Refuses what cannot be copied.
Result<void> copy_checked(const char* operation, CopyDirection direction, const Mapping& mapping, std::size_t offset_bytes,
                          void* host, std::size_t bytes, unsigned thread_count) try {
  const Uncancelled uncancelled;
  if (!detail::may_copy(mapping, offset_bytes, host, bytes)) {
    return detail::refuse_copy(operation, mapping, offset_bytes, host, bytes);
  }
  if (thread_count > WorkerPool::kMaxThreads) {
    return make_error(Status::invalid_argument, operation, text("thread_count ", thread_count), "is more than 64", "pass 0 to 64");
  }
  const unsigned count = thread_count != 0 ? thread_count : calibrated_thread_count(mapping);
  return copy_parallel(direction, mapping.address() + offset_bytes, static_cast<std::byte*>(host), bytes, count,
                       active_kernel(direction, mapping, bytes / count));
} catch (...) {
  return error_of_exception(operation);
}

}  // namespace

StoreKernel active_kernel(CopyDirection direction, const Mapping& mapping, std::size_t bytes) noexcept {
  const detail::ActiveKernels& active = detail::active_kernels(mapping.type());
  const auto& kernels = direction == CopyDirection::to_device ? active.store : active.load;
  return kernels[detail::size_class(bytes)].load(std::memory_order_relaxed);
}

void copy_by_kernel(CopyDirection direction, std::byte* mapped, std::byte* host, std::size_t bytes, StoreKernel kernel) noexcept {
  if (direction == CopyDirection::to_device) {
    kernel(mapped, host, bytes);
    detail::fence_stores();
    return;
  }
  detail::fence_before_loads(mapped, bytes);
  kernel(host, mapped, bytes);
  detail::fence_after_loads();
}

// Every cut lies on a 64-byte line of the mapped side: no line has two writers. Each thread fences for itself: a fence orders only
// the stores and loads of its own CPU.
Result<void> copy_parallel(CopyDirection direction, std::byte* mapped, std::byte* host, std::size_t bytes, unsigned thread_count,
                           StoreKernel kernel) {
  if (bytes == 0) return {};
  const std::size_t skew_bytes = reinterpret_cast<std::uintptr_t>(mapped) % kLineBytes;
  const auto part_count = static_cast<unsigned>(std::min<std::size_t>(thread_count, bytes / kLineBytes + 1));
  const std::size_t step_bytes = (bytes / part_count / kLineBytes + 1) * kLineBytes;
  const auto begin_of = [=](unsigned part) {
    if (part == 0) return std::size_t{0};
    return part == part_count ? bytes : std::min(bytes, part * step_bytes - skew_bytes);
  };
  return WorkerPool::of_process().run(part_count, [&](unsigned part) {
    const std::size_t begin = begin_of(part);
    copy_by_kernel(direction, mapped + begin, host + begin, begin_of(part + 1) - begin, kernel);
  });
}

Result<void> copy_to_parallel(const Mapping& mapping, std::size_t offset_bytes, const void* source, std::size_t bytes,
                              unsigned thread_count) {
  return copy_checked("copy_to_parallel", CopyDirection::to_device, mapping, offset_bytes, const_cast<void*>(source), bytes,
                      thread_count);
}

Result<void> copy_from_parallel(const Mapping& mapping, std::size_t offset_bytes, void* destination, std::size_t bytes,
                                unsigned thread_count) {
  return copy_checked("copy_from_parallel", CopyDirection::from_device, mapping, offset_bytes, destination, bytes, thread_count);
}

}  // namespace gigabar::inline v0
