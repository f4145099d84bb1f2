// SPDX-License-Identifier: Apache-2.0
// The rm backend: the NVIDIA driver's resource manager maps the memory, for any user, without a kernel module of anybody else.
// cudaMalloc memory is found through its IPC identity, VMM memory through an exported descriptor. The identity's layout is not
// documented: it is checked field by field before every use, and every device is proved with memory of our own before the first
// one.
#include "driver/rm/resource_manager.hpp"

#include <map>
#include <mutex>

#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "base/ranges.hpp"
#include "mapping/backend.hpp"
#include "memory/runtime.hpp"
#include "platform/nvidia.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

// What an IPC handle says of an allocation. Small allocations share a block.
struct BlockIdentity {
  std::uint64_t allocation_bytes;
  std::uint64_t block_bytes;
  std::uint32_t offset_bytes;  // of the allocation in its block
  std::uint32_t gpu_id;
  rm::Handle client;  // CUDA's
  rm::Handle memory;  // the block's
};

constexpr std::uint64_t kBlockPage = 4096;
constexpr std::uint64_t kSmallestBlock = std::uint64_t{2} << 20;

BlockIdentity read_identity(const IpcIdentity& words) {
  return {words[4] | std::uint64_t{words[5]} << 32, words[6] * kBlockPage, words[7], words[8], words[12], words[13]};
}

// Nothing here is taken on trust: what does not fit the allocation or the device is refused.
Result<void> check_identity(const BlockIdentity& identity, const PointerInfo& memory, std::uint32_t gpu_id) {
  std::string odd;
  if (identity.gpu_id != gpu_id) {
    odd = text("names GPU ", hex_text(identity.gpu_id), ", the memory is on ", hex_text(gpu_id));
  } else if (identity.allocation_bytes < memory.length_bytes) {
    odd = text("says ", counted(identity.allocation_bytes, "byte"), ", the allocation has ", memory.length_bytes);
  } else if (identity.block_bytes < kSmallestBlock || !fits(identity.offset_bytes, memory.length_bytes, identity.block_bytes)) {
    odd = text("says a block of ", counted(identity.block_bytes, "byte"), " with the allocation at ", identity.offset_bytes);
  } else if (identity.client == 0 || identity.memory == 0) {
    odd = "holds no handles";
  }
  if (odd.empty()) return {};
  return make_error(Status::not_supported, "map", range_text(memory.base, memory.length_bytes),
                    "its IPC identity " + odd + ", which is not the known layout",
                    "please report the driver version; the dmabuf and gdrdrv backends do not need it");
}

struct RmPiece;
using PieceKey = std::pair<rm::Handle, rm::Handle>;  // CUDA's client and memory

// Each of the next three is there before what it owns, so that nothing is lost when memory runs out. A forked child gives nothing
// back: all of it is its parent's.

// A device opened in the resource manager.
struct RmDevice : InPlace {
  explicit RmDevice(std::shared_ptr<rm::ResourceManager> client) : manager(std::move(client)) {}
  ~RmDevice() {
    if (device.device != 0 && is_of_this_process()) manager->close_device(device);
  }
  bool is_of_this_process() const { return generation == detail::process_generation(); }

  const std::shared_ptr<rm::ResourceManager> manager;
  const std::uint32_t generation = detail::process_generation();
  rm::Device device;
  // Used by open() alone, which is called by one thread at a time.
  std::multimap<PieceKey, std::weak_ptr<RmPiece>> pieces;
};

// Our handle for a block of GPU memory; while it lives the memory does.
struct RmBlock : InPlace {
  explicit RmBlock(std::shared_ptr<RmDevice> device) : owner(std::move(device)) {}
  ~RmBlock() {
    if (handle != 0 && owner->is_of_this_process()) owner->manager->free(owner->device.device, handle);
  }

  const std::shared_ptr<RmDevice> owner;
  rm::Handle handle = 0;
};

// A mapped piece of a block.
struct RmPiece : InPlace {
  RmPiece(std::shared_ptr<RmBlock> memory, DeviceRange where, bool inherited)
      : block(std::move(memory)), range(where), is_inherited(inherited) {}
  ~RmPiece() {
    const RmDevice& owner = *block->owner;
    if (mapping.address != nullptr && owner.is_of_this_process()) owner.manager->unmap(owner.device, block->handle, mapping);
  }

  const std::shared_ptr<RmBlock> block;
  const DeviceRange range;
  const bool is_inherited;
  rm::CpuMapping mapping;
};

Window window_of(std::shared_ptr<RmPiece> piece) {
  auto* const address = static_cast<std::byte*>(piece->mapping.address);
  const DeviceRange range = piece->range;
  return {address, range.begin, range.bytes, MappingType::write_combined, std::move(piece)};
}

// Maps `range` of the block, which begins at `begin`.
Result<std::shared_ptr<RmPiece>> map_piece(const std::shared_ptr<RmBlock>& block, std::uintptr_t begin, DeviceRange range,
                                           bool is_inherited) {
  auto piece = std::make_shared<RmPiece>(block, range, is_inherited);
  const RmDevice& owner = *block->owner;
  const auto mapped = owner.manager->map(owner.device, block->handle, range.begin - begin, range.bytes);
  if (!mapped) return mapped.error();
  piece->mapping = *mapped;
  if (!is_inherited) keep_from_forked_children(mapped->address, mapped->bytes);
  return piece;
}

// What of a block is mapped already; null: nothing that will do.
struct KnownPiece {
  std::shared_ptr<RmBlock> block;
  std::shared_ptr<RmPiece> piece;  // with all of the range
};

// Handles of CUDA's client can be used again for another block after a free, so a candidate counts only when the resource manager
// says that it is the memory that `fresh` refers to.
KnownPiece find_piece(RmDevice& device, const PieceKey& key, rm::Handle fresh, DeviceRange range, bool is_inherited) {
  std::erase_if(device.pieces, [](const auto& entry) { return entry.second.expired(); });
  KnownPiece known;
  for (auto [at, end] = device.pieces.equal_range(key); at != end; ++at) {
    auto piece = at->second.lock();
    if (piece == nullptr) continue;
    if (known.block == nullptr) {
      const auto same = device.manager->are_same_memory(piece->block->handle, fresh);
      if (same && *same) known.block = piece->block;
    }
    if (piece->block == known.block && piece->is_inherited == is_inherited && range.begin >= piece->range.begin &&
        range.begin + range.bytes <= piece->range.begin + piece->range.bytes)
      return {std::move(known.block), std::move(piece)};
  }
  return known;
}

Result<Window> open_block(const std::shared_ptr<RmDevice>& device, const PointerInfo& memory, const IpcIdentity& words,
                          const WindowRequest& request) {
  const BlockIdentity identity = read_identity(words);
  if (Result<void> checked = check_identity(identity, memory, device->device.gpu_id); !checked) return std::move(checked).error();

  const DeviceRange whole{memory.base - identity.offset_bytes, identity.block_bytes};
  const DeviceRange range = range_to_map(whole, request.asked);
  const PieceKey key{identity.client, identity.memory};

  auto block = std::make_shared<RmBlock>(device);
  const auto handle = device->manager->duplicate(device->device, identity.client, identity.memory);
  if (!handle) return handle.error();
  block->handle = *handle;
  auto known = find_piece(*device, key, *handle, range, request.is_inherited);
  if (known.piece != nullptr) return window_of(std::move(known.piece));
  if (known.block != nullptr) block = std::move(known.block);
  auto piece = map_piece(block, whole.begin, range, request.is_inherited);
  if (!piece) return std::move(piece).error();
  device->pieces.emplace(key, *piece);
  return window_of(std::move(*piece));
}

Result<Window> open_vmm(const std::shared_ptr<RmDevice>& device, const PointerInfo& memory, int descriptor,
                        const WindowRequest& request) {
  auto block = std::make_shared<RmBlock>(device);
  const auto handle = device->manager->import(device->device, descriptor);
  if (!handle) return handle.error();
  block->handle = *handle;
  const DeviceRange range = range_to_map({memory.base, memory.length_bytes}, request.asked);
  auto piece = map_piece(block, memory.base, range, request.is_inherited);
  if (!piece) return std::move(piece).error();
  return window_of(std::move(*piece));
}

// `index`: CUDA's ordinal, or -1 where only a peer counts it.
Result<std::shared_ptr<RmDevice>> open_device(int index, const std::optional<PciAddress>& known) {
  const std::string object = index < 0 ? "a peer's GPU" : text("device ", index);
  if (!known) return make_error(Status::unavailable, "open device", object, "its PCI address is not known");
  const PciAddress& address = *known;
  struct Client {
    std::mutex mutex;
    std::shared_ptr<rm::ResourceManager> manager;
    std::uint32_t generation = 0;
    std::map<std::uint32_t, std::shared_ptr<RmDevice>> devices;  // by the resource manager's ids
  };
  static auto& client = *new Client;
  const std::lock_guard lock(client.mutex);
  if (client.generation != detail::process_generation()) {  // a forked child starts anew
    // The client is the parent's: closing it here would take the parent's mappings away, so it is let go of without.
    if (client.manager != nullptr) {
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
      [[maybe_unused]] const auto* abandoned = new std::shared_ptr<rm::ResourceManager>(std::move(client.manager));
    }
    client.devices.clear();  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
    client.generation = detail::process_generation();
  }
  const std::uint32_t gpu_id = nvidia_gpu_id(address);
  if (const auto found = client.devices.find(gpu_id); found != client.devices.end()) return found->second;
  if (client.manager == nullptr) {
    auto opened = rm::ResourceManager::open(platform_roots().dev, nvidia_driver_version());
    if (!opened) return std::move(opened).error();
    client.manager = std::move(*opened);
  }
  const auto minor = nvidia_device_minor(address);
  if (!minor) {
    return make_error(Status::unavailable, "open device", object,
                      text("no device file is known for PCI address ", address.to_string()),
                      "check that /proc/driver/nvidia is there, or that NVML works");
  }
  auto device = std::make_shared<RmDevice>(client.manager);
  auto opened = client.manager->open_device(gpu_id, *minor);
  if (!opened) return std::move(opened).error();
  device->device = *opened;
  client.devices[gpu_id] = device;
  return device;
}

Availability availability(int device) {
  if (Availability gpu = gpu_availability(device); !gpu.is_ok()) return gpu;
  const auto traits = cuda_runtime()->traits(device);
  if (!traits) return availability_of(traits.error().record());
  const auto opened = open_device(device, traits->pci);
  if (!opened) return availability_of(opened.error().record());
  return {AvailabilityCode::ok, "driver " + (*opened)->manager->driver_version(), {}};
}

Availability can_map(const PointerInfo& memory) {
  switch (memory.kind) {
    case MemoryKind::device:
      if (memory.is_exportable) return {};
      return not_supported("this device memory has no IPC identity (it may have been opened from another process's handle)",
                           "map it in the process that allocated it");
    case MemoryKind::device_vmm:
      if (memory.is_exportable) return {};
      return not_supported("this VMM memory was created without a POSIX descriptor",
                           "create it with requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
    case MemoryKind::device_pool:
      return not_supported("memory of a stream-ordered pool (cudaMallocAsync) has no IPC identity",
                           "allocate with cudaMalloc or cuMemCreate");
    default: return not_supported(text("it maps device memory, not ", name_of(memory.kind), " memory"), {});
  }
}

Result<Window> open_named(const PeerMemory& named, const WindowRequest& request) {
  auto device = open_device(named.memory.device, named.memory.pci);
  if (!device) return std::move(device).error();
  return named.identity ? open_block(*device, named.memory, *named.identity, request)
                        : open_vmm(*device, named.memory, named.descriptor, request);
}

Result<Window> open_window(const PointerInfo& memory, const WindowRequest& request) {
  if (memory.kind == MemoryKind::device_vmm) {
    auto exported = runtime_of(memory).export_descriptor(memory.base);
    if (!exported) return std::move(exported).error();
    const Descriptor descriptor(*exported);
    return open_named({memory, {}, descriptor.get()}, request);
  }
  const auto identity = runtime_of(memory).ipc_identity(memory);
  if (!identity) return identity.error();
  return open_named({memory, *identity}, request);
}

}  // namespace

constinit const Backend rm_backend{MappingBackend::rm, availability, can_map, open_window};
Result<Window> open_peer_by_rm(const PeerMemory& peer, DeviceRange range) { return open_named(peer, {range, false}); }

}  // namespace gigabar::inline v0
