// SPDX-License-Identifier: Apache-2.0
#include "transport/local/region.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.hpp"
#include "base/log.hpp"
#include "base/quietly.hpp"
#include "base/rounding.hpp"
#include "base/shown.hpp"
#include "base/undo.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/mapping.hpp"
#include "mapping/backend.hpp"

namespace gigabar::transport::local {
namespace {

// Regions of this process, for ranks that live in it too: they use plain addresses.
struct Registry {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<RegionFacts>> regions;
  std::uint64_t last_id = 0;
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

std::shared_ptr<RegionFacts> add_to_registry(const MemoryRange& range) {
  const std::lock_guard lock(registry().mutex);
  auto facts = std::make_shared<RegionFacts>(range, ++registry().last_id);
  registry().regions[facts->id] = facts;
  return facts;
}

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

bool is_plain_range(std::uint64_t address, std::uint64_t bytes) {
  return address != 0 && bytes != 0 && bytes <= PTRDIFF_MAX && address <= UINT64_MAX - bytes;
}

// Errors of `operation`: out_of_descriptors.
Result<Descriptor> duplicate_of(int file, const char* operation, const RegionFacts& facts) {
  Descriptor copy(::fcntl(file, F_DUPFD_CLOEXEC, 0));
  if (copy.is_open()) return copy;
  const int code = errno;
  return make_errno_error(code, operation, range_text(facts.address, facts.bytes), {}, "raise the descriptor limit (ulimit -n)");
}

}  // namespace

bool is_cpu_memory(MemoryKind kind) noexcept {
  return kind == MemoryKind::host_pageable || kind == MemoryKind::host_pinned || kind == MemoryKind::stand_in;
}

const std::string& PinOnDemand::pin() {
  const std::lock_guard lock(mutex_);
  if (is_tried_) return failure_;
  is_tried_ = true;
  Runtime* const runtime = cuda_runtime();
  if (runtime == nullptr) return failure_ = "there is no CUDA to pin host memory with";
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = number_of(address_) / page_bytes * page_bytes;
  const std::size_t length = round_up(number_of(address_) + bytes_ - begin, page_bytes);
  if (const Result<void> pinned = runtime->pin_host(reinterpret_cast<void*>(begin), length); !pinned) {
    return failure_ = text("host memory could not be pinned: ", pinned.record().cause);
  }
  pinned_ = reinterpret_cast<void*>(begin);
  pinned_bytes_ = length;
  return failure_;
}

PinOnDemand::~PinOnDemand() {
  if (pinned_ != nullptr) quietly([&] { (void)cuda_runtime()->unpin_host(pinned_, pinned_bytes_); });
}

RegionFacts::RegionFacts(const MemoryRange& range, std::uint64_t number)
    : id(number),
      address(number_of(range.address)),
      bytes(range.bytes),
      kind(range.kind),
      device(is_cuda_device_memory(range.kind) ? range.device : -1),
      pinned(range.address, range.bytes, range.kind == MemoryKind::host_pinned),
      pages(range.pages) {}

// --- LocalRegion -----------------------------------------------------------------------------------------------------------------

LocalRegion::LocalRegion(std::shared_ptr<Core> core, const MemoryRange& range)
    : Region(range), core_(std::move(core)), facts_(add_to_registry(range)) {
  key_.region_id = facts_->id;
  key_.address = facts_->address;
  key_.bytes = facts_->bytes;
  key_.kind = static_cast<std::uint32_t>(facts_->kind);
}

LocalRegion::~LocalRegion() {
  facts_->is_registered = false;
  const std::lock_guard lock(registry().mutex);
  registry().regions.erase(facts_->id);
}

Result<std::unique_ptr<Region>> LocalRegion::make(std::shared_ptr<Core> core, const MemoryRange& range) {
  if (!is_plain_range(number_of(range.address), range.bytes)) {
    return make_error(Status::invalid_argument, "register memory", range_text(number_of(range.address), range.bytes),
                      "is no range of memory", "give an address and a length that is not 0");
  }
  if (is_cuda_device_memory(range.kind) && range.device < 0) {
    return make_error(Status::invalid_argument, "register memory", range_text(number_of(range.address), range.bytes),
                      "is device memory of no device", "name the device");
  }
  std::unique_ptr<LocalRegion> region(new LocalRegion(std::move(core), range));
  Result<void> prepared;
  if (range.kind == MemoryKind::stand_in) {
    prepared = region->prepare_stand_in();
  } else if (is_cpu_memory(range.kind)) {
    prepared = region->prepare_host(range);
  } else {
    region->reason_ = region->prepare_device();
    if (region->is_open_to_peers()) region->prove_device();
  }
  if (!prepared) return std::move(prepared).error();
  return std::unique_ptr<Region>(std::move(region));
}

// A copy of the descriptor, so that the caller may close its own, unless the pages keep it. Peers map the file, which must not
// shrink any more.
Result<void> LocalRegion::adopt_file(int descriptor, std::uint64_t offset_bytes, bool is_kept) {
  ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK);
  if (Result<void> checked = check_memfd(descriptor, offset_bytes, facts_->bytes); !checked) return checked;
  file_ = descriptor;
  if (!is_kept) {
    auto copy = duplicate_of(descriptor, "register memory", *facts_);
    if (!copy) return std::move(copy).error();
    own_file_ = std::move(*copy);
    file_ = own_file_.get();
  }
  key_.form = KeyForm::file;
  how_ = "memfd";
  key_.offset_bytes = offset_bytes;
  reason_ = "peers reach the pages through their memfd";
  return {};
}

Result<void> LocalRegion::prepare_host(const MemoryRange& range) {
  if (range.descriptor >= 0) return adopt_file(range.descriptor, range.descriptor_offset_bytes, range.pages != nullptr);
  key_.form = KeyForm::process;
  how_ = "process_vm";
  key_.nonce = core_->nonce;
  key_.nonce_address = number_of(&core_->nonce);
  reason_ = "peers ask the kernel to copy from and to this process";
  return {};
}

Result<void> LocalRegion::prepare_stand_in() {
  const auto known = stand_in_runtime().describe(facts_->address);
  if (!known) return known.error();
  if (!known->has_value() || facts_->bytes > (*known)->length_bytes - (*known)->offset_bytes) {
    return make_error(Status::invalid_argument, "register memory", range_text(facts_->address, facts_->bytes),
                      "is not inside one allocation of a stand-in device", "register what DeviceMemory gave");
  }
  const auto exported = stand_in_runtime().export_descriptor(facts_->address);
  if (exported.status() == Status::not_supported) {  // memory of ranks in this process it can still be
    reason_ = exported.error().record().cause;
    return {};
  }
  if (!exported) return exported.error();
  const Descriptor file(*exported);
  return adopt_file(file.get(), (*known)->offset_bytes, false);
}

// What cannot be opened elsewhere can still be the local side of copies: no error, but a reason.
std::string LocalRegion::prepare_device() {
  if (facts_->kind == MemoryKind::managed)
    return "managed memory moves between host and device: it has no handle that other processes can open";
  Runtime* const runtime = cuda_runtime();
  const auto known = runtime != nullptr ? runtime->describe(facts_->address) : Result<std::optional<PointerInfo>>(std::nullopt);
  if (!known) return known.error().record().cause;
  if (!known->has_value() || !is_cuda_device_memory((*known)->kind)) return "CUDA does not know this address as device memory";
  const PointerInfo& info = **known;
  if (facts_->bytes > info.length_bytes - info.offset_bytes)
    return "the range spans several allocations, of which each would need a handle of its own";
  if (info.kind == MemoryKind::device_pool) return "memory of a pool has no CUDA IPC handle";
  if (!info.is_exportable) return "the memory was not made with a handle type that can be exported";
  key_.offset_bytes = info.offset_bytes;
  key_.allocation_bytes = info.length_bytes;
  if (const auto devices = runtime->devices()) {
    const auto index = static_cast<std::size_t>(info.device);
    if (index < devices->size()) std::strncpy(key_.uuid.data(), (*devices)[index].uuid.c_str(), key_.uuid.size() - 1);
  }
  if (info.kind == MemoryKind::device_vmm) {
    key_.form = KeyForm::vmm;
    how_ = "cuda_vmm";
    return "peers import the allocation's descriptor";
  }
  const auto identity = runtime->ipc_identity(info);
  if (!identity) return text("no CUDA IPC handle: ", identity.error().record().cause);
  key_.form = KeyForm::ipc;
  how_ = "cuda_ipc";
  key_.ipc = *identity;
  return "peers open the allocation's CUDA IPC handle";
}

// Now, since a kernel that waits for a peer may hold up an allocation later. Peers without the proof have no windows into this
// memory: they copy, or send.
void LocalRegion::prove_device() {
  auto proof = proof_of(facts_->device);
  if (!proof) return log(LogLevel::info, proof.error().message());
  proof_ = std::move(*proof);
  key_.proof = *proof_;
}

Result<Parcel> LocalRegion::key(const Peer& peer) const {
  Parcel parcel;
  parcel.bytes = bytes_of(key_);
  if (key_.form == KeyForm::none) parcel.bytes += reason_.substr(0, kMaxReasonBytes);
  if (peer.process == ::getpid()) return parcel;  // it finds the region by its number
  if (key_.form == KeyForm::vmm) {
    const auto exported = cuda_runtime()->export_descriptor(facts_->address);
    if (!exported) return exported.error();
    parcel.descriptors.emplace_back(*exported);
  }
  if (key_.form == KeyForm::file) {
    auto copy = duplicate_of(file_, "make a key", *facts_);
    if (!copy) return std::move(copy).error();
    parcel.descriptors.push_back(std::move(*copy));
  }
  return parcel;
}

// --- PeerRegion ------------------------------------------------------------------------------------------------------------------

namespace {

Error malformed_key(const char* cause) {
  return make_error(Status::bad_file, "open region", "key of a local peer", cause, "run the same version at every rank");
}

constexpr const char* kDeviceMemory = "a peer's device memory";

Error cannot_map(const char* memory, std::string cause, std::string remedy = {}) {
  return make_error(Status::not_supported, "map", memory, std::move(cause), std::move(remedy));
}

// What is wrong with the numbers of a key, or null.
const char* fault_of(const KeyBytes& key, std::size_t parcel_bytes, std::size_t descriptor_count, bool is_here) {
  const auto form = static_cast<std::uint32_t>(key.form);
  if (key.magic != kKeyMagic) return "is of another kind or version";
  if (form > static_cast<std::uint32_t>(KeyForm::vmm)) return "has an unknown form";
  if (key.kind > static_cast<std::uint32_t>(MemoryKind::stand_in)) return "has an unknown kind of memory";
  if (!is_plain_range(key.address, key.bytes)) return "names no range of memory";
  if (key.uuid.back() != 0 || key.proof.pci.back() != 0) return "names its device without an end";
  const std::size_t most_bytes = sizeof key + (key.form == KeyForm::none ? kMaxReasonBytes : 0);
  if (parcel_bytes > most_bytes) return "is too long";
  const bool is_of_device = key.form == KeyForm::ipc || key.form == KeyForm::vmm;
  if (key.form != KeyForm::none && is_of_device != is_cuda_device_memory(static_cast<MemoryKind>(key.kind)))
    return "has a form that its memory cannot have";
  if (is_of_device && (key.offset_bytes > key.allocation_bytes || key.bytes > key.allocation_bytes - key.offset_bytes ||
                       key.offset_bytes > key.address || key.allocation_bytes > UINT64_MAX - (key.address - key.offset_bytes)))
    return "names memory beyond its allocation";
  if (key.form == KeyForm::file && key.offset_bytes > PTRDIFF_MAX - key.bytes) return "names memory beyond any file";
  const bool brings_one = !is_here && (key.form == KeyForm::file || key.form == KeyForm::vmm);
  if (descriptor_count != (brings_one ? 1 : 0)) return "comes with a wrong number of descriptors";
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<RemoteRegion>> PeerRegion::open(std::shared_ptr<Core> core, const Peer& peer, Parcel key) {
  KeyBytes told;
  if (!read_front(key.bytes, told)) return malformed_key("is too short");
  if (!peer.is_same_host) return malformed_key("comes from another host");
  const bool is_here = peer.process == ::getpid();
  if (const char* const fault = fault_of(told, key.bytes.size(), key.descriptors.size(), is_here)) return malformed_key(fault);
  std::unique_ptr<PeerRegion> region(new PeerRegion(std::move(core), peer.process, told));
  Result<void> opened = is_here ? region->find_here() : region->open_form(std::move(key));
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<RemoteRegion>(std::move(region));
}

// Plain addresses: what the key says has to be what is registered.
Result<void> PeerRegion::find_here() {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().regions.find(key_.region_id);
  if (found != registry().regions.end()) here_ = found->second.lock();
  if (here_ == nullptr || here_->address != key_.address || here_->bytes != key_.bytes || here_->kind != kind())
    return malformed_key("names no region of this process");
  pages_ = {here_, reinterpret_cast<std::byte*>(here_->address)};
  return {};
}

Result<void> PeerRegion::open_form(Parcel key) {
  switch (key_.form) {
    case KeyForm::none: reason_ = shown(std::string_view(key.bytes).substr(sizeof key_), kMaxReasonBytes); break;
    case KeyForm::file: {
      auto pages = map_memfd(key.descriptors.front(), key_.offset_bytes, key_.bytes);
      if (!pages) return std::move(pages).error();
      pages_ = std::move(*pages);
      pages_pin_.emplace(pages_.get(), key_.bytes, false);
      break;
    }
    case KeyForm::process: process_memory_ = core_->memory_of(process_, key_.nonce_address, key_.nonce); break;
    case KeyForm::ipc: break;  // by the device that needs it
    case KeyForm::vmm: exported_ = std::move(key.descriptors.front()); break;
  }
  return {};
}

const Route& PeerRegion::route(const LocalRegion& local) {
  const auto known = routes_.find(local.place());
  return known != routes_.end() ? known->second : routes_.emplace(local.place(), find_route(local)).first->second;
}

Route PeerRegion::find_route(const LocalRegion& local) {
  Route route;
  if (local.kind() == MemoryKind::managed || kind() == MemoryKind::managed) {
    route.reason = "managed memory is not moved by local copies: it is staged";
  } else if (key_.form == KeyForm::none && here_ == nullptr) {
    route.reason = text("the peer says: ", reason_);
  } else if (process_memory_ && !process_memory_->reason().empty()) {
    route.reason = process_memory_->reason();
  } else if (!is_cpu_memory(kind())) {
    route.reason = route_by_engine_to_device(local, route);
  } else if (!is_cpu_memory(local.kind())) {
    route.reason = route_by_engine_to_host(local, route);
  } else {
    route.by = Route::By::cpu;
    route.reason = here_             ? "both are memory of this process"
                   : process_memory_ ? "the kernel copies between the processes"
                                     : "both processes map the same pages";
  }
  return route;
}

std::string PeerRegion::route_by_engine_to_host(const LocalRegion& local, Route& route) {
  std::byte* const address = cpu_address();
  if (address == nullptr) return "the peer's host memory is not shared, so the copy engine cannot be given its pages";
  PinOnDemand& pin = here_ ? here_->pinned : *pages_pin_;
  if (const std::string& failure = pin.pin(); !failure.empty()) return text("the peer's ", failure);
  route.by = Route::By::engine;
  route.engine_device = local.device();
  route.remote_address = number_of(address);
  return text("the copy engine of device ", route.engine_device, " reaches the peer's host memory");
}

Result<std::shared_ptr<OpenedAllocation>> PeerRegion::open_on(int device) {
  if (key_.form == KeyForm::ipc) return core_->devices.open_ipc(process_, key_.ipc, device);
  return PeerDevices::open_vmm(exported_, key_.allocation_bytes, device);
}

// Memory of this process on another of its devices.
Result<void> PeerRegion::open_here_to(int device, int owner) {
  if (device == owner) return {};
  if (kind() == MemoryKind::device) return PeerDevices::enable_peer_access(device, owner);
  if (key_.form != KeyForm::vmm) {
    return cannot_map(kDeviceMemory,
                      "pool memory, and VMM memory that is not exportable, is open to its own device only within this process",
                      "register memory of cudaMalloc");
  }
  if (Result<void> checked = PeerDevices::check_peer_access(device, owner); !checked) return checked;
  return PeerDevices::open_vmm_to(device, here_->address - key_.offset_bytes, key_.allocation_bytes);
}

Result<MappedRegion> PeerRegion::map_device_memory(int device) {
  const int seen_as = here_ ? here_->device : core_->devices.device_of(key_.uuid.data());
  std::string why_no_atomics = PeerDevices::why_no_atomics(device, seen_as, key_.uuid.data());
  if (here_) {
    if (Result<void> opened = open_here_to(device, seen_as); !opened) return std::move(opened).error();
    return MappedRegion{here_->address, here_, std::move(why_no_atomics)};
  }
  if (key_.form == KeyForm::none) return cannot_map(kDeviceMemory, text("the peer says: ", reason_));
  if (seen_as >= 0) {
    if (Result<void> checked = PeerDevices::check_peer_access(device, seen_as); !checked) return std::move(checked).error();
  }
  auto opened = open_on(device);
  if (!opened) return cannot_map(kDeviceMemory, opened.error().message());
  if (!fits(key_.offset_bytes, key_.bytes, (*opened)->bytes))
    return cannot_map(kDeviceMemory, "the opened allocation is smaller than the key says");
  const std::uintptr_t address = (*opened)->address + key_.offset_bytes;
  return MappedRegion{address, std::move(*opened), std::move(why_no_atomics)};
}

Result<MappedRegion> PeerRegion::map(int device) {
  constexpr const char* kMemory = "a peer's memory";
  if (is_cuda_device_memory(kind())) {
    if (device >= 0) return map_device_memory(device);
    return cannot_map(kMemory, "it is device memory, and this rank works without a GPU", "choose a device with GIGABAR_DEVICE");
  }
  if (device >= 0)
    return cannot_map(kMemory, "kernels reach device memory of peers, and this is host memory", "register device memory");
  std::byte* const address = cpu_address();
  if (address == nullptr) {
    return cannot_map(kMemory, reason_.empty() ? "its pages are not shared with this process" : text("the peer says: ", reason_),
                      "register memory of a stand-in device, or of a memfd");
  }
  return MappedRegion{number_of(address), hold(), {}};
}

Result<MappedRegion> PeerRegion::map_for_cpu() {
  if (!is_cuda_device_memory(kind())) return map(-1);
  if (here_) {
    auto mapped = gigabar::map(reinterpret_cast<void*>(here_->address), here_->bytes);
    if (!mapped) return cannot_map(kDeviceMemory, mapped.error().record().cause);
    const auto hold = std::make_shared<Mapping>(std::move(*mapped));
    return MappedRegion{number_of(hold->address()), hold, {}};
  }
  if (key_.form == KeyForm::none) return cannot_map(kDeviceMemory, text("the peer says: ", reason_));
  PeerMemory peer;
  peer.memory.kind = kind();
  peer.memory.address = key_.address;
  peer.memory.base = key_.address - key_.offset_bytes;
  peer.memory.length_bytes = key_.allocation_bytes;
  peer.memory.offset_bytes = key_.offset_bytes;
  if (key_.form == KeyForm::ipc)
    peer.identity = key_.ipc;
  else
    peer.descriptor = exported_.get();
  auto window = open_peer_window(peer, key_.proof, {key_.address, key_.bytes});
  if (!window) return cannot_map(kDeviceMemory, window.error().record().cause);
  std::byte* const address = window->at(key_.address);
  return MappedRegion{number_of(address), std::make_shared<Window>(std::move(*window)), {}};
}

bool PeerRegion::open_for_stores() {
  if (is_cpu_memory(kind())) return cpu_address() != nullptr;
  // A rank of this process may map its memory in another way than stores here expect.
  if (is_window_tried_ || here_ || key_.form == KeyForm::none) return window_.has_value();
  const DeviceRange allocation{key_.address - key_.offset_bytes, key_.allocation_bytes};
  const std::size_t bytes = range_to_map(allocation, {key_.address, key_.bytes}).bytes;
  if (core_->devices.reserve_window(key_.proof, bytes)) {
    Undo release([&] { core_->devices.release_window(key_.proof, bytes); });
    if (auto window = map_for_cpu()) {
      window_ = std::move(*window);
      window_bytes_ = bytes;
      release.call_off();
    } else {
      log(LogLevel::info, window.error().message());
    }
  }
  is_window_tried_ = true;
  return window_.has_value();
}

PeerRegion::~PeerRegion() {
  if (window_) core_->devices.release_window(key_.proof, window_bytes_);
}

void PeerRegion::store(std::uint64_t offset_bytes, std::span<const std::byte> bytes) const noexcept {
  if (!window_) {
    std::memmove(cpu_address() + offset_bytes, bytes.data(), bytes.size());
    return;
  }
  auto* const to = reinterpret_cast<std::byte*>(window_->address + offset_bytes);
  const auto& kernels = gigabar::detail::active_kernels(MappingType::write_combined).store;
  kernels[gigabar::detail::size_class(bytes.size())].load(std::memory_order_relaxed)(to, bytes.data(), bytes.size());
  gigabar::detail::fence_stores();
}

// The engine of the local memory's device; for host memory that of the peer's device, where this process sees it.
std::string PeerRegion::route_by_engine_to_device(const LocalRegion& local, Route& route) {
  int device = local.device();
  if (device < 0) device = here_ ? here_->device : core_->devices.device_of(key_.uuid.data());
  if (device < 0) device = std::max(core_->near_device, 0);
  auto mapped = map_device_memory(device);
  if (!mapped) return mapped.error().record().cause;
  route.remote_address = mapped->address;
  route.hold = std::move(mapped->hold);
  route.by = Route::By::engine;
  route.engine_device = device;
  return text("the copy engine of device ", device, " reaches the peer's device memory");
}

Result<void> PeerRegion::copy(Direction direction, std::uint64_t offset_bytes, std::byte* local, std::size_t bytes) const {
  if (process_memory_) return process_memory_->copy(direction, key_.address + offset_bytes, local, bytes);
  std::byte* const there = cpu_address() + offset_bytes;
  const bool is_read = direction == Direction::read;
  std::memmove(is_read ? local : there, is_read ? there : local, bytes);
  return {};
}

}  // namespace gigabar::transport::local
