// SPDX-License-Identifier: Apache-2.0
// map(): finds or makes a window, proves it, and hands out a view.
#include "gigabar/mapping.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/check_ids.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/uncancelled.hpp"
#include "mapping/access.hpp"
#include "mapping/backend.hpp"
#include "memory/registration_cache.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

namespace {

// A window with what is told of it.
struct MappedWindow {
  Window window;
  MappingReport made;    // for the mapping that made it
  MappingReport shared;  // for those that found it
  bool is_inherited;
};
using WindowCache = RegistrationCache<MappedWindow>;

constexpr std::size_t kDefaultIdleBytes = std::size_t{32} << 20;

std::size_t idle_limit_bytes() {
  const auto value = environment("GIGABAR_CACHE_BYTES");
  if (!value) return kDefaultIdleBytes;
  if (*value == "0") return 0;
  if (const auto bytes = parse_bytes(*value)) return *bytes;
  log(LogLevel::warning,
      "GIGABAR_CACHE_BYTES='" + *value + "' is not a size such as 64M; using " + std::to_string(kDefaultIdleBytes));
  return kDefaultIdleBytes;
}

// Never destroyed: mappings held by static objects may outlive it otherwise. A forked child starts with an empty one.
struct ProcessState {
  WindowCache cache{idle_limit_bytes()};
  std::mutex making;                                         // one window is made at a time
  std::set<std::pair<MappingBackend, int>> proved;           // devices that passed prove_device
  std::map<int, std::shared_ptr<ProofMemory>> proof_memory;  // by device
  std::set<DeviceProof::Pci> proved_by_peers;                // that passed check_proof
  const std::uint32_t generation = detail::process_generation();
};

ProcessState& process_state() {
  static std::mutex mutex;
  static ProcessState* current = nullptr;
  static std::atomic<ProcessState*> published{nullptr};
  ProcessState* state = published.load(std::memory_order_acquire);
  if (state != nullptr && state->generation == detail::process_generation()) return *state;
  const std::lock_guard lock(mutex);
  if (current == nullptr || current->generation != detail::process_generation()) {
    current = new ProcessState;
    published.store(current, std::memory_order_release);
  }
  return *current;
}

// What a call of map() asks for, checked.
struct Request {
  PointerInfo memory;
  DeviceRange range;
  std::optional<MappingBackend> required;
  MapOptions options;

  std::string text() const { return range_text(range.begin, range.bytes); }
};

bool is_readable(std::uintptr_t address) {
  char byte = 0;
  const iovec to{&byte, 1};
  const iovec from{reinterpret_cast<void*>(address), 1};
  // Where the call is forbidden, or is not there (qemu), nothing is known of the memory.
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

Result<void> check_kind(const PointerInfo& memory, const std::string& object) {
  if (memory.kind == MemoryKind::managed) {
    return make_error(Status::not_supported, "map", object,
                      "managed memory moves between host and device; the CPU reaches it by its own address",
                      "use the pointer itself, or allocate with cudaMalloc");
  }
  if (memory.kind != MemoryKind::host_pageable) return {};
  if (is_readable(memory.address)) {
    return make_error(Status::not_supported, "map", object, "is pageable host memory; the CPU reaches it already",
                      "pass a device pointer");
  }
  return make_error(Status::invalid_argument, "map", object,
                    "is no memory of this process: never allocated, freed already, or another process's pointer",
                    "pass a live pointer of cudaMalloc or cuMemMap of this process");
}

Result<std::optional<MappingBackend>> required_backend(const MapOptions& options) {
  return options.backend ? options.backend : backend_of_environment("map");
}

Result<Request> check_request(const void* address, std::size_t bytes, const MapOptions& options) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr) return make_error(Status::invalid_argument, "map", "address", "is null", "pass a device pointer");
  if (bytes == 0)
    return make_error(Status::invalid_argument, "map", range_text(begin, bytes), "bytes is 0", "map at least one byte");
  const auto required = required_backend(options);
  if (!required) return required.error();
  const auto memory = describe(address);
  if (!memory) return memory.error();
  Request request{*memory, {begin, bytes}, *required, options};
  if (Result<void> kind = check_kind(*memory, request.text()); !kind) return std::move(kind).error();
  if (bytes > memory->length_bytes - memory->offset_bytes) {
    return make_error(Status::out_of_range, "map", request.text(),
                      "leaves its allocation " + range_text(memory->base, memory->length_bytes),
                      text("map at most ", counted(memory->length_bytes - memory->offset_bytes, "byte"), " from there"));
  }
  return request;
}

// Whether a failure of one backend leaves the next one a chance. A window that showed other memory is never passed over.
bool ends_search(Status status) { return status == Status::verification_failed; }

std::shared_ptr<ProofMemory> proof_memory_of(ProcessState& state, int device) {
  std::shared_ptr<ProofMemory>& memory = state.proof_memory[device];
  if (!memory) memory = std::make_shared<ProofMemory>();
  return memory;
}

Result<void> prove_once(ProcessState& state, const Backend& backend, int device) {
  const auto key = std::make_pair(backend.name, device);
  if (!backend.needs_proof || state.proved.contains(key)) return {};
  Result<void> proved = prove_device(backend, device, *proof_memory_of(state, device));
  if (proved) state.proved.insert(key);
  return proved;
}

Result<Window> open_proved(ProcessState& state, const Backend& backend, const Request& request) {
  if (Result<void> proved = prove_once(state, backend, request.memory.device); !proved) return std::move(proved).error();
  auto window = backend.open(request.memory, {request.range, request.options.inherit_on_fork});
  if (!window) return window;
  if (!window->covers(request.range.begin, request.range.bytes)) {
    return make_error(Status::device_error, "map", request.text(), "the window does not reach the whole range");
  }
  if (backend.needs_proof) {
    if (Result<void> verified = verify_window(*window, request.memory, request.options.verification); !verified)
      return std::move(verified).error();
  }
  return window;
}

MappedWindow with_reports(Window window, MappingBackend backend, std::vector<PassedOver> passed_over, bool is_inherited) {
  return {std::move(window), {backend, passed_over, false}, {backend, std::move(passed_over), true}, is_inherited};
}

Error no_backend(const Request& request, const std::vector<PassedOver>& passed_over, bool any_available,
                 std::optional<Error> failure) {
  std::string reasons;
  std::string remedy;
  std::string check;
  for (const PassedOver& each : passed_over) {
    // The later a backend comes, the less it needs: what is in its way is what to look at.
    if (!each.why.check.empty()) check = each.why.check;
    reasons += text(reasons.empty() ? "" : "; ", name_of(each.backend), ": ", name_of(each.why.code), ", ", each.why.reason);
    if (!each.why.remedy.empty()) remedy += text(remedy.empty() ? "" : "; ", name_of(each.backend), ": ", each.why.remedy);
  }
  // One failed although it should have worked: its status and native code say more than that nothing was left.
  if (failure) {
    edit(*failure).operation = "map";
    edit(*failure).object = request.text();
    edit(*failure).cause = reasons;
    if (failure->record().remedy.empty()) edit(*failure).remedy = remedy;
    if (failure->record().check.empty()) edit(*failure).check = check;
    return *failure;
  }
  return make_error(
      any_available ? Status::not_supported : Status::unavailable, "map",
      text(request.text(), " (", name_of(request.memory.kind), " memory, device ", request.memory.device, ")"),
      request.required ? text("the required backend cannot be used: ", reasons) : text("no backend can map it: ", reasons), remedy,
      passed_over.size() == 1 ? passed_over.front().why.native : NativeCode{}, check);
}

// Tries the backends in their order. The caller holds `making`.
Result<MappedWindow> make_window(ProcessState& state, const Request& request) {
  std::vector<PassedOver> passed_over;
  std::optional<Error> failure;
  bool any_available = false;
  for (const Backend* backend : kMappingBackends) {
    if (request.required && *request.required != backend->name) continue;
    // The kind of memory first: it is the better reason, and memory without a device cannot be asked about one.
    Availability why = backend->can_map(request.memory);
    const bool is_refused = !why.is_ok();
    Availability available = is_refused && request.memory.device < 0 ? why : backend->availability(request.memory.device);
    if (available.is_ok()) any_available = true;
    if (!is_refused) why = std::move(available);
    if (why.is_ok()) {
      auto window = open_proved(state, *backend, request);
      if (window) return with_reports(std::move(*window), backend->name, std::move(passed_over), request.options.inherit_on_fork);
      if (ends_search(window.status())) return std::move(window).error();
      if (!failure) failure = window.error();
      why = availability_of(window.error().record());
      why.reason = window.error().record().cause;
    }
    passed_over.push_back({backend->name, std::move(why)});
  }
  return no_backend(request, passed_over, any_available, std::move(failure));
}

struct FoundWindow {
  WindowCache::Lease lease;
  bool came_from_cache = false;
};

Result<FoundWindow> find_or_make(const Request& request) {
  ProcessState& state = process_state();
  const auto accepts = [&](const MappedWindow& window) {
    return window.is_inherited == request.options.inherit_on_fork &&
           (!request.required || window.made.backend == *request.required);
  };
  if (auto lease = state.cache.find(request.memory, request.range.begin, request.range.bytes, accepts))
    return FoundWindow{std::move(lease), true};
  const std::lock_guard lock(state.making);
  if (auto lease = state.cache.find(request.memory, request.range.begin, request.range.bytes, accepts))
    return FoundWindow{std::move(lease), true};
  auto made = make_window(state, request);
  // Windows that nobody uses make room before anybody is refused.
  const bool is_full = made.status() == Status::out_of_bar1 || made.status() == Status::out_of_descriptors;
  if (is_full && state.cache.trim(0) > 0) made = make_window(state, request);
  if (made.status() == Status::out_of_bar1) edit(made.error()).check = check_id::kBar1Used;
  if (!made) return std::move(made).error();
  const Window& window = made->window;
  const std::uintptr_t begin = std::max(window.device_begin, request.memory.base);
  const std::uintptr_t past = std::min(window.device_begin + window.bytes, request.memory.base + request.memory.length_bytes);
  // Whatever part of an allocation a window shows, it keeps all of it.
  const std::size_t held_bytes = std::max(window.bytes, request.memory.length_bytes);
  return FoundWindow{
      state.cache.insert(request.memory, begin, past - begin, held_bytes, std::make_unique<MappedWindow>(std::move(*made))), false};
}

}  // namespace

Result<Window> open_peer_window(const PeerMemory& peer, const DeviceProof& proof, DeviceRange range) {
  const auto refused = [&](const char* cause, const char* remedy) {
    return make_error(Status::not_supported, "map", range_text(range.begin, range.bytes), cause, remedy);
  };
  const auto required = required_backend({});
  if (!required) return required.error();
  if (*required && **required != MappingBackend::rm)
    return refused("memory of another process is mapped by the rm backend only", "leave GIGABAR_MAPPING out");
  ProcessState& state = process_state();
  const std::lock_guard lock(state.making);
  if (!state.proved_by_peers.contains(proof.pci)) {
    if (Result<void> checked = check_proof(proof); !checked) return std::move(checked).error();
    state.proved_by_peers.insert(proof.pci);
  }
  PeerMemory there = peer;
  there.memory.pci = address_of(proof);
  auto window = open_peer_by_rm(there, range);
  if (window && !window->covers(range.begin, range.bytes)) {
    return make_error(Status::device_error, "map", range_text(range.begin, range.bytes),
                      "the window does not reach the whole range");
  }
  return window;
}

Result<std::shared_ptr<const DeviceProof>> proof_of(int device) {
  ProcessState& state = process_state();
  const std::lock_guard lock(state.making);
  const std::shared_ptr<ProofMemory> memory = proof_memory_of(state, device);
  if (!memory->told) {
    // Both directions and memory within a block are tried here, once for all peers: they have the same driver.
    if (Result<void> proved = prove_once(state, rm_backend, device); !proved) return std::move(proved).error();
    if (Result<void> told = tell_proof(device, *memory); !told) return std::move(told).error();
  }
  return std::shared_ptr<const DeviceProof>(memory, &*memory->told);
}

struct Mapping::State : InPlace {
  WindowCache::Lease lease;
  const MappingReport& report;  // the leased window's
  bool is_stand_in;
  std::uintptr_t memory_address;  // within the allocation
  std::uint64_t buffer_id;        // of it; 0: not known
  std::uint32_t generation;

  State(FoundWindow found, const PointerInfo& memory)
      : lease(std::move(found.lease)),
        report(found.came_from_cache ? lease->shared : lease->made),
        is_stand_in(memory.kind == MemoryKind::stand_in),
        memory_address(memory.address),
        buffer_id(memory.buffer_id),
        generation(detail::process_generation()) {}
  ~State() {
    // The parent's windows are not a forked child's to unmap: the lease is forgotten, not returned.
    if (generation != detail::process_generation()) lease.abandon();
  }
};

struct MappingAccess {
  static Mapping make(const Request& request, FoundWindow found, DeviceRange view) {
    Mapping mapping;
    const MappedWindow& mapped = *found.lease;
    mapping.address_ = mapped.window.at(view.begin);
    mapping.bytes_ = view.bytes;
    mapping.device_address_ = view.begin;
    mapping.type_ = mapped.window.type;
    mapping.generation_ = request.options.inherit_on_fork ? detail::kEveryGeneration : detail::process_generation();
    mapping.device_ = request.memory.device;
    mapping.state_ = std::make_unique<Mapping::State>(std::move(found), request.memory);
    return mapping;
  }
  static AtAddress memory_at_address(const Mapping& mapping) noexcept {
    if (!mapping.state_ || mapping.state_->buffer_id == 0) return AtAddress::mapped;
    Runtime* const runtime = mapping.is_stand_in() ? &stand_in_runtime() : cuda_runtime();
    if (runtime == nullptr) return AtAddress::mapped;
    const std::uint64_t found = runtime->buffer_id(mapping.state_->memory_address);
    if (found == mapping.state_->buffer_id) return AtAddress::mapped;
    return found == 0 ? AtAddress::nothing : AtAddress::other;
  }
};

Mapping::Mapping() noexcept = default;
Mapping::~Mapping() {
  const Uncancelled uncancelled;
  state_.reset();
}

Mapping::Mapping(Mapping&& other) noexcept { *this = std::move(other); }
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  address_ = std::exchange(other.address_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  device_address_ = std::exchange(other.device_address_, 0);
  type_ = other.type_;
  generation_ = other.generation_;
  device_ = std::exchange(other.device_, -1);
  const Uncancelled uncancelled;
  state_ = std::move(other.state_);
  return *this;
}

AtAddress memory_at_address(const Mapping& mapping) noexcept { return MappingAccess::memory_at_address(mapping); }

bool Mapping::is_stand_in() const noexcept { return state_ && state_->is_stand_in; }
MappingBackend Mapping::backend() const noexcept { return report().backend; }
const MappingReport& Mapping::report() const noexcept {
  static const MappingReport empty;
  return state_ ? state_->report : empty;
}

Result<Mapping> map(const void* address, std::size_t bytes, const MapOptions& options) try {
  const Uncancelled uncancelled;
  const auto request = check_request(address, bytes, options);
  if (!request) return request.error();
  auto found = find_or_make(*request);
  if (!found) return std::move(found).error();
  return MappingAccess::make(*request, std::move(*found), request->range);
} catch (...) {
  return error_of_exception("map");
}

Result<Mapping> map_pages(const void* address, std::size_t bytes, std::size_t page_bytes, const MapOptions& options) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (bytes > SIZE_MAX - page_bytes || begin > UINTPTR_MAX - page_bytes - bytes) {
    return make_error(Status::out_of_range, "map", range_text(begin, bytes), "wraps around the address space");
  }
  // The block of a small allocation is found through the part of the range that lies in the allocation.
  const auto info = describe(address);
  if (!info) return info.error();
  const std::size_t inside = info->length_bytes == 0 ? bytes : std::min(bytes, info->length_bytes - info->offset_bytes);
  const auto request = check_request(address, inside, options);
  if (!request) return request.error();
  auto found = find_or_make(*request);
  if (!found) return std::move(found).error();
  const Window& window = found->lease->window;
  const std::uintptr_t first = std::max(window.device_begin, begin & ~(page_bytes - 1));
  const std::uintptr_t past = std::min(window.device_begin + window.bytes, (begin + bytes + page_bytes - 1) & ~(page_bytes - 1));
  if (past < begin + bytes) {
    return make_error(Status::out_of_range, "map", range_text(begin, bytes),
                      "leaves its block " + range_text(window.device_begin, window.bytes));
  }
  return MappingAccess::make(*request, std::move(*found), {first, past - first});
}

Result<std::vector<BackendReport>> mapping_backends(int device) try {
  const Uncancelled uncancelled;
  const auto list = devices();
  if (!list) return list.error();
  if (device < 0 || static_cast<std::size_t>(device) >= list->size()) {
    return make_error(Status::invalid_argument, "list backends", text("device ", device),
                      text("this process sees ", list->size(), " device(s)"), text("use 0 to ", list->size() - 1));
  }
  std::vector<BackendReport> reports;
  for (const Backend* backend : kMappingBackends) reports.push_back({backend->name, backend->availability(device)});
  return reports;
} catch (...) {
  return error_of_exception("mapping_backends");
}

MappingCacheStatistics mapping_cache_statistics() try {
  const Uncancelled uncancelled;
  const RegistrationStatistics all = process_state().cache.statistics();
  return {all.count, all.idle_count, all.idle_bytes, all.hit_count, all.miss_count, all.stale_count};
} catch (...) {
  return {};
}

std::size_t trim_idle_windows(std::size_t keep_bytes) { return process_state().cache.trim(keep_bytes); }

std::size_t trim_mapping_cache(std::size_t keep_bytes) try {
  const Uncancelled uncancelled;
  const std::size_t released_bytes = trim_idle_windows(keep_bytes);
  if (keep_bytes == 0) {
    // Freed without the lock: freeing waits for kernels, of which one may wait for who makes a window meanwhile.
    std::vector<std::shared_ptr<ProofMemory>> dropped;
    ProcessState& state = process_state();
    const std::lock_guard lock(state.making);
    dropped.reserve(state.proof_memory.size());
    std::erase_if(state.proof_memory, [&](auto& entry) {
      if (entry.second.use_count() > 1) return false;  // peers are to look at it
      dropped.push_back(std::move(entry.second));
      return true;
    });
  }
  return released_bytes;
} catch (...) {
  return {};
}

}  // namespace gigabar::inline v0
