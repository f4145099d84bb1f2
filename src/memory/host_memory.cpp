#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "gigabar/memory.hpp"
#include "memory/host_registry.hpp"
#include "memory/runtime.hpp"
#include "platform/numa.hpp"

namespace gigabar {

struct HostMemory::State {
  std::byte* address = nullptr;
  std::size_t bytes = 0;         // as asked
  std::size_t mapped_bytes = 0;  // whole pages
  int numa_node = -1;
  Runtime* pinned_by = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
};

namespace {

struct PinnedRange {
  std::size_t bytes;
  std::uint64_t id;
};
struct PinnedRanges {
  std::mutex mutex;
  std::map<std::uintptr_t, PinnedRange> by_begin;
  std::uint64_t last_id = 0;
};
PinnedRanges& pinned_ranges() {
  static auto* const instance = new PinnedRanges;
  return *instance;
}

void remember_pinned(std::uintptr_t begin, std::size_t bytes) {
  PinnedRanges& ranges = pinned_ranges();
  const std::lock_guard lock(ranges.mutex);
  ranges.by_begin[begin] = {bytes, ++ranges.last_id};
}

void forget_pinned(std::uintptr_t begin) {
  PinnedRanges& ranges = pinned_ranges();
  const std::lock_guard lock(ranges.mutex);
  ranges.by_begin.erase(begin);
}

}  // namespace

std::optional<PointerInfo> find_pinned_host_memory(std::uintptr_t address) {
  PinnedRanges& ranges = pinned_ranges();
  const std::lock_guard lock(ranges.mutex);
  auto next = ranges.by_begin.upper_bound(address);
  if (next == ranges.by_begin.begin()) return {};
  const auto& [begin, range] = *std::prev(next);
  if (address - begin >= range.bytes) return {};
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

HostMemory::State::~State() {
  if (pinned_by != nullptr) {
    forget_pinned(reinterpret_cast<std::uintptr_t>(address));
    if (Outcome done = pinned_by->unpin_host(address, mapped_bytes); !done) log(LogLevel::error, done.message());
  }
  if (address != nullptr) ::munmap(address, mapped_bytes);
}

Result<HostMemory> HostMemory::allocate(std::size_t bytes, const HostMemoryOptions& options) {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > SIZE_MAX / 2) {
    return make_error(Status::invalid_argument, "allocate host memory", text(bytes, " bytes"),
                      "the size must be from 1 byte to half the address space");
  }
  auto state = std::make_unique<State>();
  const std::size_t mapped_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* address = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    const int code = errno;
    return make_error(Status::out_of_memory, "allocate host memory", text(bytes, " bytes"), std::strerror(code), "ask for less",
                      errno_code(code));
  }
  state->address = static_cast<std::byte*>(address);
  state->bytes = bytes;
  state->mapped_bytes = mapped_bytes;
  if (options.numa_node >= 0) {
    if (Outcome bound = bind_to_numa_node(address, mapped_bytes, options.numa_node); !bound) return std::move(bound).take_error();
  } else if (options.numa_node < -1) {
    return make_error(Status::invalid_argument, "allocate host memory", text("NUMA node ", options.numa_node), "is not a node",
                      "use -1 for the system's choice");
  }
  // Pages come when they are touched, where the binding says. MADV_POPULATE_WRITE reports a full node as an error, not as a signal.
  if (::madvise(address, mapped_bytes, MADV_POPULATE_WRITE) != 0) {
    if (const int code = errno; code != EINVAL) {
      return make_error(Status::out_of_memory, "allocate host memory", text(bytes, " bytes"),
                        text("populating pages: ", std::strerror(code)), "ask for less, or another NUMA node", errno_code(code));
    }
    for (std::size_t at = 0; at < mapped_bytes; at += page_bytes) reinterpret_cast<volatile std::byte*>(address)[at] = std::byte{0};
  }
  state->numa_node = numa_node_of_page(reinterpret_cast<std::uintptr_t>(address));

  if (options.pin) {
    const auto runtime = active_runtime();
    if (!runtime) return runtime.error();
    if (Outcome pinned = (*runtime)->pin_host(address, mapped_bytes); !pinned) return std::move(pinned).take_error();
    state->pinned_by = *runtime;
    remember_pinned(reinterpret_cast<std::uintptr_t>(address), bytes);
  }
  return HostMemory(std::move(state));
}

HostMemory::HostMemory(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HostMemory::HostMemory(HostMemory&&) noexcept = default;
HostMemory& HostMemory::operator=(HostMemory&&) noexcept = default;
HostMemory::~HostMemory() = default;

void* HostMemory::address() const noexcept { return state_ ? state_->address : nullptr; }
std::size_t HostMemory::bytes() const noexcept { return state_ ? state_->bytes : 0; }
bool HostMemory::is_pinned() const noexcept { return state_ && state_->pinned_by != nullptr; }
int HostMemory::numa_node() const noexcept { return state_ ? state_->numa_node : -1; }

}  // namespace gigabar
