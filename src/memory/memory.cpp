// SPDX-License-Identifier: Apache-2.0
// Memory of devices and of the host, with its owners.
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/log.hpp"
#include "base/names.hpp"
#include "base/quietly.hpp"
#include "base/rounding.hpp"
#include "base/uncancelled.hpp"
#include "gigabar/memory.hpp"
#include "memory/host_pages.hpp"
#include "memory/runtime.hpp"
#include "platform/numa.hpp"

namespace gigabar::inline v0 {

struct DeviceMemory::State : InPlace {
  DeviceBlock block;
  Runtime* runtime = nullptr;  // null while there is no block
  const pid_t process = ::getpid();

  ~State() {
    if (runtime == nullptr || process != ::getpid()) return;  // a forked child's memory is its parent's
    const Uncancelled uncancelled;
    quietly([&] {
      if (Result<void> done = runtime->release(block); !done) log(LogLevel::error, done.message());
    });
  }
};

Result<DeviceMemory> DeviceMemory::allocate(int device, std::size_t bytes, DeviceAllocator allocator) try {
  const Uncancelled uncancelled;
  if (bytes == 0 || bytes > SIZE_MAX / 2) {
    return make_error(Status::invalid_argument, "allocate device memory", counted(bytes, "byte"),
                      "the size must be from 1 byte to half the address space");
  }
  const auto runtime = active_runtime();
  if (!runtime) return runtime.error();
  const auto list = (*runtime)->devices();
  if (!list) return list.error();
  if (device < 0 || static_cast<std::size_t>(device) >= list->size()) {
    return make_error(Status::invalid_argument, "allocate device memory", text("device ", device),
                      text("this process sees ", list->size(), " device(s)"), text("use 0 to ", list->size() - 1));
  }
  // The owner is there before the memory, so that nothing is lost when host memory runs out.
  auto state = std::make_unique<State>();
  const auto block = (*runtime)->allocate(device, bytes, allocator);
  if (!block) return block.error();
  state->block = *block;
  state->runtime = *runtime;
  return DeviceMemory(std::move(state));
} catch (...) {
  return error_of_exception("allocate");
}

DeviceMemory::DeviceMemory(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
DeviceMemory::DeviceMemory(DeviceMemory&&) noexcept = default;
DeviceMemory& DeviceMemory::operator=(DeviceMemory&&) noexcept = default;
DeviceMemory::~DeviceMemory() = default;

void* DeviceMemory::address() const noexcept { return state_ ? reinterpret_cast<void*>(state_->block.address) : nullptr; }
std::size_t DeviceMemory::bytes() const noexcept { return state_ ? state_->block.bytes : 0; }
int DeviceMemory::device() const noexcept { return state_ ? state_->block.device : -1; }
bool DeviceMemory::is_stand_in() const noexcept { return state_ && state_->runtime == &stand_in_runtime(); }

Result<int> DeviceMemory::export_descriptor() const try {
  const Uncancelled uncancelled;
  if (!state_) return make_error(Status::invalid_argument, "export memory", "DeviceMemory", "was moved from");
  if (!is_stand_in() && state_->block.allocator != DeviceAllocator::vmm) {
    return make_error(Status::not_supported, "export memory", range_text(state_->block.address, state_->block.bytes),
                      "cudaMalloc memory has no POSIX descriptor", "allocate with DeviceAllocator::vmm, or use export_dma_buf");
  }
  return state_->runtime->export_descriptor(state_->block.address);
} catch (...) {
  return error_of_exception("export_descriptor");
}

Result<int> DeviceMemory::export_dma_buf() const try {
  const Uncancelled uncancelled;
  if (!state_) return make_error(Status::invalid_argument, "export dma-buf", "DeviceMemory", "was moved from");
  return state_->runtime->export_dma_buf(state_->block.address, state_->block.bytes);
} catch (...) {
  return error_of_exception("export_dma_buf");
}

// ---- HostMemory ----

struct HostMemory::State : InPlace {
  PageMapping mapping;  // empty for write-combined memory, which the runtime allocated
  void* address = nullptr;
  std::size_t bytes = 0;        // as asked
  std::size_t whole_bytes = 0;  // whole pages
  int numa_node = -1;
  HostPages pages = HostPages::pageable;
  Runtime* pinned_by = nullptr;
  std::shared_ptr<const Descriptor> file;  // of shared pages
  const pid_t process = ::getpid();

  ~State();
};

namespace {

// Allocations that are pinned, shared, or both.
struct KnownRange {
  std::size_t bytes = 0;
  bool is_pinned = false;
  std::shared_ptr<const Descriptor> file;
  std::uint64_t id = 0;
};
struct KnownRanges {
  std::mutex mutex;
  std::map<std::uintptr_t, KnownRange> by_begin;
  std::uint64_t last_id = 0;
};
KnownRanges& known_ranges() {
  static auto* const instance = new KnownRanges;
  return *instance;
}

void remember(std::uintptr_t begin, KnownRange range) {
  KnownRanges& ranges = known_ranges();
  const std::lock_guard lock(ranges.mutex);
  range.id = ++ranges.last_id;
  ranges.by_begin[begin] = std::move(range);
}

void forget(std::uintptr_t begin) {
  KnownRanges& ranges = known_ranges();
  const std::lock_guard lock(ranges.mutex);
  ranges.by_begin.erase(begin);
}

// That holds `address`, behind its beginning.
std::optional<std::pair<std::uintptr_t, KnownRange>> find_range(std::uintptr_t address) {
  KnownRanges& ranges = known_ranges();
  const std::lock_guard lock(ranges.mutex);
  auto next = ranges.by_begin.upper_bound(address);
  if (next == ranges.by_begin.begin()) return {};
  const auto& [begin, range] = *std::prev(next);
  if (address - begin >= range.bytes) return {};
  return std::pair(begin, range);
}

}  // namespace

SharedPages find_shared_host_memory(std::uintptr_t address, std::size_t bytes) {
  auto found = find_range(address);
  if (!found || bytes > found->second.bytes - (address - found->first)) return {};
  return {std::move(found->second.file), address - found->first};
}

std::optional<PointerInfo> find_pinned_host_memory(std::uintptr_t address) {
  const auto found = find_range(address);
  if (!found || !found->second.is_pinned) return {};
  const auto& [begin, range] = *found;
  PointerInfo info;
  info.kind = MemoryKind::host_pinned;
  info.address = address;
  info.base = begin;
  info.length_bytes = range.bytes;
  info.offset_bytes = address - begin;
  info.numa_node = numa_node_of_page(address);
  info.buffer_id = range.id;
  return info;
}

// A forked child lets go only: the lock may be held by a thread that it has not, and the pages are its parent's.
HostMemory::State::~State() {
  if (process != ::getpid()) return;
  const Uncancelled uncancelled;
  if (pinned_by != nullptr || file != nullptr) forget(reinterpret_cast<std::uintptr_t>(address));
  if (pinned_by == nullptr) return;
  quietly([&] {
    Result<void> done = pages == HostPages::write_combined ? pinned_by->release_write_combined(address, whole_bytes)
                                                           : pinned_by->unpin_host(address, whole_bytes);
    if (!done) log(LogLevel::error, done.message());
  });
}

namespace {

Result<void> check_request(std::size_t bytes, const HostMemoryOptions& options) {
  if (bytes == 0 || bytes > SIZE_MAX / 2) {
    return make_error(Status::invalid_argument, "allocate host memory", counted(bytes, "byte"),
                      "the size must be from 1 byte to half the address space");
  }
  if (options.numa_node < -1) {
    return make_error(Status::invalid_argument, "allocate host memory", text("NUMA node ", options.numa_node), "is not a node",
                      "use -1 for the system's choice");
  }
  if (options.is_shared && options.pages != HostPages::pinned && options.pages != HostPages::pageable) {
    return make_error(Status::invalid_argument, "allocate host memory", text("shared pages of kind ", name_of(options.pages)),
                      "shared memory is pinned or pageable", "use HostPages::pinned or HostPages::pageable");
  }
  return options.numa_node < 0 ? Result<void>() : check_numa_node(options.numa_node);
}

// The runtime takes the pages from the node that this thread is bound to. They are zeroed here: nobody promises that they come so.
Result<void*> allocate_write_combined(Runtime& runtime, std::size_t bytes, int numa_node) {
  if (Result<void> room = check_room(bytes, numa_node); !room) return std::move(room).error();
  std::optional<Result<NumaAllocationPolicy>> policy;
  if (numa_node >= 0) {
    policy.emplace(NumaAllocationPolicy::bind(numa_node));
    if (!*policy) return policy->error();
  }
  auto address = runtime.allocate_write_combined(bytes);
  if (address) std::memset(*address, 0, bytes);
  return address;
}

Result<PageMapping> map_pages(std::size_t bytes, const HostMemoryOptions& options, std::shared_ptr<const Descriptor>& file) {
  if (options.pages == HostPages::huge) return PageMapping::make_huge(bytes, options.numa_node);
  if (!options.is_shared) return PageMapping::make(bytes, options.numa_node);
  auto made = make_memory_file("gigabar-host-memory", round_up(bytes, host_page_bytes()));
  if (!made) return std::move(made).error();
  file = std::move(*made);
  return PageMapping::make(bytes, options.numa_node, NodePolicy::bind, file->get());
}

}  // namespace

Result<HostMemory> HostMemory::allocate(std::size_t bytes, const HostMemoryOptions& options) try {
  const Uncancelled uncancelled;
  if (Result<void> request = check_request(bytes, options); !request) return std::move(request).error();
  Runtime* runtime = nullptr;
  if (options.pages != HostPages::pageable) {
    const auto active = active_runtime();
    if (!active) return active.error();
    runtime = *active;
  }
  auto state = std::make_unique<State>();
  state->bytes = bytes;
  state->pages = options.pages;
  if (options.pages == HostPages::write_combined) {
    state->whole_bytes = round_up(bytes, host_page_bytes());
    const auto address = allocate_write_combined(*runtime, state->whole_bytes, options.numa_node);
    if (!address) return address.error();
    state->address = *address;
  } else {
    auto mapping = map_pages(bytes, options, state->file);
    if (!mapping) return std::move(mapping).error();
    state->mapping = std::move(*mapping);
    state->address = state->mapping.address();
    state->whole_bytes = state->mapping.bytes();
    if (runtime != nullptr) {
      if (Result<void> pinned = runtime->pin_host(state->address, state->whole_bytes); !pinned) return std::move(pinned).error();
    }
  }
  state->numa_node = numa_node_of_page(reinterpret_cast<std::uintptr_t>(state->address));
  state->pinned_by = runtime;
  if (runtime != nullptr || state->file != nullptr)
    remember(reinterpret_cast<std::uintptr_t>(state->address), {bytes, runtime != nullptr, state->file});
  return HostMemory(std::move(state));
} catch (...) {
  return error_of_exception("allocate");
}

std::string_view name_of(HostPages pages) noexcept {
  constexpr auto kNames = std::to_array<std::string_view>({"pinned", "pageable", "wc", "huge"});
  static_assert(kNames.size() == static_cast<std::size_t>(HostPages::huge) + 1);
  return name_at(kNames, pages);
}

HostMemory::HostMemory(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HostMemory::HostMemory(HostMemory&&) noexcept = default;
HostMemory& HostMemory::operator=(HostMemory&&) noexcept = default;
HostMemory::~HostMemory() = default;

void* HostMemory::address() const noexcept { return state_ ? state_->address : nullptr; }
std::size_t HostMemory::bytes() const noexcept { return state_ ? state_->bytes : 0; }
HostPages HostMemory::pages() const noexcept { return state_ ? state_->pages : HostPages::pageable; }
bool HostMemory::is_pinned() const noexcept { return state_ && state_->pinned_by != nullptr; }
int HostMemory::numa_node() const noexcept { return state_ ? state_->numa_node : -1; }

}  // namespace gigabar::inline v0
