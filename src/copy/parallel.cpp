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

// Where the parts of a call begin and end. Every cut lies on a 64-byte line of the mapped side: no line has two writers.
class Split {
 public:
  Split(const std::byte* mapped, std::size_t bytes, unsigned thread_count)
      : bytes_(bytes),
        skew_bytes_(reinterpret_cast<std::uintptr_t>(mapped) % kLineBytes),
        part_count_(static_cast<unsigned>(std::min<std::size_t>(thread_count, bytes / kLineBytes + 1))),
        step_bytes_((bytes / part_count_ / kLineBytes + 1) * kLineBytes) {}

  unsigned part_count() const { return part_count_; }
  std::size_t begin(unsigned part) const { return part == 0 ? 0 : std::min(bytes_, part * step_bytes_ - skew_bytes_); }
  std::size_t length(unsigned part) const { return (part + 1 == part_count_ ? bytes_ : begin(part + 1)) - begin(part); }

 private:
  std::size_t bytes_;
  std::size_t skew_bytes_;
  unsigned part_count_;
  std::size_t step_bytes_;
};

// Refuses what cannot be copied; else copy(number of threads, kernels of the mapping, size class of a thread's part).
template <class Copy>
Result<void> copy_checked(const char* operation, const Mapping& mapping, std::size_t offset_bytes, const void* host,
                          std::size_t bytes, unsigned thread_count, const Copy& copy) try {
  const Uncancelled uncancelled;
  if (!detail::may_copy(mapping, offset_bytes, host, bytes)) {
    return detail::refuse_copy(operation, mapping, offset_bytes, host, bytes);
  }
  if (thread_count > WorkerPool::kMaxThreads) {
    return make_error(Status::invalid_argument, operation, text("thread_count ", thread_count), "is more than 64", "pass 0 to 64");
  }
  const unsigned count = thread_count != 0 ? thread_count : calibrated_thread_count(mapping);
  return copy(count, detail::active_kernels(mapping.type()), detail::size_class(bytes / count));
} catch (...) {
  return error_of_exception(operation);
}

}  // namespace

// Each thread fences for itself: a fence orders only the stores and loads of its own CPU.
Result<void> store_parallel(std::byte* mapped_destination, const void* source, std::size_t bytes, unsigned thread_count,
                            StoreKernel kernel) {
  if (bytes == 0) return {};
  const Split split(mapped_destination, bytes, thread_count);
  return WorkerPool::of_process().run(split.part_count(), [&](unsigned part) {
    const std::size_t begin = split.begin(part);
    kernel(mapped_destination + begin, static_cast<const std::byte*>(source) + begin, split.length(part));
    detail::fence_stores();
  });
}

Result<void> load_parallel(void* destination, const std::byte* mapped_source, std::size_t bytes, unsigned thread_count,
                           LoadKernel kernel) {
  if (bytes == 0) return {};
  const Split split(mapped_source, bytes, thread_count);
  return WorkerPool::of_process().run(split.part_count(), [&](unsigned part) {
    const std::size_t begin = split.begin(part);
    detail::fence_before_loads(mapped_source + begin, split.length(part));
    kernel(static_cast<std::byte*>(destination) + begin, mapped_source + begin, split.length(part));
    detail::fence_after_loads();
  });
}

Result<void> copy_to_parallel(const Mapping& mapping, std::size_t offset_bytes, const void* source, std::size_t bytes,
                              unsigned thread_count) {
  const auto store = [&](unsigned count, const detail::ActiveKernels& kernels, std::size_t size_class) {
    const StoreKernel kernel = kernels.store[size_class].load(std::memory_order_relaxed);
    return store_parallel(mapping.address() + offset_bytes, source, bytes, count, kernel);
  };
  return copy_checked("copy_to_parallel", mapping, offset_bytes, source, bytes, thread_count, store);
}

Result<void> copy_from_parallel(const Mapping& mapping, std::size_t offset_bytes, void* destination, std::size_t bytes,
                                unsigned thread_count) {
  const auto load = [&](unsigned count, const detail::ActiveKernels& kernels, std::size_t size_class) {
    const LoadKernel kernel = kernels.load[size_class].load(std::memory_order_relaxed);
    return load_parallel(destination, mapping.address() + offset_bytes, bytes, count, kernel);
  };
  return copy_checked("copy_from_parallel", mapping, offset_bytes, destination, bytes, thread_count, load);
}

}  // namespace gigabar::inline v0
