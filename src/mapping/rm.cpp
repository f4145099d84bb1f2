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
#include "base/undo.hpp"
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
  } else if (identity.block_bytes < kSmallestBlock || identity.offset_bytes > identity.block_bytes ||
             memory.length_bytes > identity.block_bytes - identity.offset_bytes) {
    odd = text("says a block of ", counted(identity.block_bytes, "byte"), " with the allocation at ", identity.offset_bytes);
  } else if (identity.client == 0 || identity.memory == 0) {
    odd = "holds no handles";
  }
  if (odd.empty()) return {};
  return make_error(Status::not_supported, "map", range_text(memory.base, memory.length_bytes),
                    "its IPC identity " + odd + ", which is not the known layout",
                    "please report the driver version; the dmabuf and gdrdrv backends do not need it");
}

// A device opened in the resource manager.
struct RmDevice {
  std::shared_ptr<rm::ResourceManager> manager;
  rm::Device device;

  RmDevice(std::shared_ptr<rm::ResourceManager> client, const rm::Device& opened) : manager(std::move(client)), device(opened) {}
  RmDevice(const RmDevice&) = delete;
  RmDevice& operator=(const RmDevice&) = delete;
  ~RmDevice() {
    if (generation == detail::process_generation()) manager->close_device(device);
  }
  const std::uint32_t generation = detail::process_generation();
};

// Our handle for a block of GPU memory; while it lives the memory does.
struct RmBlock {
  std::shared_ptr<RmDevice> owner;
  rm::Handle handle;

  RmBlock(std::shared_ptr<RmDevice> device, rm::Handle memory) : owner(std::move(device)), handle(memory) {}
  RmBlock(const RmBlock&) = delete;
  RmBlock& operator=(const RmBlock&) = delete;
  ~RmBlock() {
    if (owner->generation == detail::process_generation()) owner->manager->free(owner->device.device, handle);
  }
};

// A mapped piece of a block.
struct RmPiece {
  std::shared_ptr<RmBlock> block;
  DeviceRange range;
  rm::CpuMapping mapping;
  bool is_inherited;

  RmPiece(std::shared_ptr<RmBlock> memory, DeviceRange where, const rm::CpuMapping& made, bool inherited)
      : block(std::move(memory)), range(where), mapping(made), is_inherited(inherited) {
    if (!is_inherited) keep_from_forked_children(mapping.address, mapping.bytes);
  }
  RmPiece(const RmPiece&) = delete;
  RmPiece& operator=(const RmPiece&) = delete;
  ~RmPiece() {
    const RmDevice& owner = *block->owner;
    if (owner.generation == detail::process_generation()) owner.manager->unmap(owner.device, block->handle, mapping);
  }
};

// The owners of what the resource manager just gave; when there is no memory for one it is given back.
std::shared_ptr<RmBlock> adopt_handle(const std::shared_ptr<RmDevice>& device, rm::Handle handle) {
  Undo free([&] { device->manager->free(device->device.device, handle); });
  auto block = std::make_shared<RmBlock>(device, handle);
  free.call_off();
  return block;
}

std::shared_ptr<RmPiece> adopt_mapping(const std::shared_ptr<RmBlock>& block, DeviceRange range, const rm::CpuMapping& mapping,
                                       bool is_inherited) {
  Undo unmap([&] { block->owner->manager->unmap(block->owner->device, block->handle, mapping); });
  auto piece = std::make_shared<RmPiece>(block, range, mapping, is_inherited);
  unmap.call_off();
  return piece;
}

class RmWindow final : public Window {
 public:
  explicit RmWindow(std::shared_ptr<RmPiece> piece)
      : Window(static_cast<std::byte*>(piece->mapping.address), piece->range.begin, piece->range.bytes,
               MappingType::write_combined),
        piece_(std::move(piece)) {}

 private:
  const std::shared_ptr<RmPiece> piece_;
};

// Finds the pieces of blocks that are mapped already. Handles of CUDA's client can be used again for another block after a free, so
// a candidate counts only when the resource manager says that both handles are the same memory.
class SharedPieces {
 public:
  using Key = std::pair<rm::Handle, rm::Handle>;  // CUDA's client and memory

  // A block that is the memory `fresh` refers to, or nothing.
  std::shared_ptr<RmBlock> find_block(const Key& key, rm::ResourceManager& manager, rm::Handle fresh) {
    forget_dead();
    auto [at, end] = pieces_.equal_range(key);
    for (; at != end; ++at) {
      const auto piece = at->second.lock();
      if (piece == nullptr) continue;
      const auto same = manager.are_same_memory(piece->block->handle, fresh);
      if (same && *same) return piece->block;
    }
    return nullptr;
  }

  std::shared_ptr<RmPiece> find_piece(const Key& key, const RmBlock& block, DeviceRange range, bool is_inherited) const {
    auto [at, end] = pieces_.equal_range(key);
    for (; at != end; ++at) {
      const auto piece = at->second.lock();
      if (piece != nullptr && piece->block.get() == &block && piece->is_inherited == is_inherited &&
          range.begin >= piece->range.begin && range.begin + range.bytes <= piece->range.begin + piece->range.bytes) {
        return piece;
      }
    }
    return nullptr;
  }

  void add(const Key& key, const std::shared_ptr<RmPiece>& piece) { pieces_.emplace(key, piece); }

 private:
  void forget_dead() {
    std::erase_if(pieces_, [](const auto& entry) { return entry.second.expired(); });
  }

  std::multimap<Key, std::weak_ptr<RmPiece>> pieces_;
};

class RmBackend final : public Backend {
 public:
  RmBackend() : Backend(MappingBackend::rm) {}

  Availability availability(int device) override {
    if (Availability gpu = gpu_availability(device); !gpu.is_ok()) return gpu;
    const auto opened = open_device(device);
    if (!opened) return availability_of(opened.error().record());
    return {AvailabilityCode::ok, "driver " + (*opened)->manager->driver_version(), {}, {}};
  }

  Availability can_map(const PointerInfo& memory) override {
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

  Result<std::unique_ptr<Window>> open(const PointerInfo& memory, const WindowRequest& request) override {
    auto device = open_device(memory.device);
    if (!device) return std::move(device).error();
    if (memory.kind == MemoryKind::device_vmm) {
      auto exported = runtime_of(memory).export_descriptor(memory.base);
      if (!exported) return std::move(exported).error();
      const Descriptor descriptor(*exported);
      return open_vmm(*device, memory, descriptor.get(), request);
    }
    const auto identity = runtime_of(memory).ipc_identity(memory);
    return identity ? open_block(*device, memory, *identity, request) : identity.error();
  }

  Result<std::unique_ptr<Window>> open_peer(const PeerMemory& peer, DeviceRange range) override {
    auto device = open_device(peer.memory.device);
    if (!device) return std::move(device).error();
    const WindowRequest request{range, false};
    return peer.identity ? open_block(*device, peer.memory, *peer.identity, request)
                         : open_vmm(*device, peer.memory, peer.descriptor, request);
  }

 private:
  Result<std::shared_ptr<RmDevice>> open_device(int index);
  Result<std::unique_ptr<Window>> open_block(const std::shared_ptr<RmDevice>& device, const PointerInfo& memory,
                                             const IpcIdentity& words, const WindowRequest& request);
  Result<std::unique_ptr<Window>> open_vmm(const std::shared_ptr<RmDevice>& device, const PointerInfo& memory, int descriptor,
                                           const WindowRequest& request);

  std::mutex mutex_;
  std::shared_ptr<rm::ResourceManager> manager_;
  std::uint32_t generation_ = 0;
  std::map<int, std::shared_ptr<RmDevice>> devices_;
  SharedPieces shared_;  // used by open() alone, which is called by one thread at a time
};

Result<std::shared_ptr<RmDevice>> RmBackend::open_device(int index) {
  const std::lock_guard lock(mutex_);
  if (generation_ != detail::process_generation()) {  // a forked child starts anew
    // The client is the parent's: closing it here would take the parent's mappings away, so it is let go of without.
    if (manager_ != nullptr) {
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
      [[maybe_unused]] const auto* abandoned = new std::shared_ptr<rm::ResourceManager>(std::move(manager_));
    }
    devices_.clear();  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
    manager_ = nullptr;
    shared_ = {};
    generation_ = detail::process_generation();
  }
  if (const auto found = devices_.find(index); found != devices_.end()) return found->second;
  if (manager_ == nullptr) {
    auto opened = rm::ResourceManager::open(platform_roots().dev, nvidia_driver_version());
    if (!opened) return std::move(opened).error();
    manager_ = std::move(*opened);
  }
  const auto list = devices();
  if (!list) return list.error();
  const std::string object = text("device ", index);
  if (index < 0 || static_cast<std::size_t>(index) >= list->size() || !(*list)[static_cast<std::size_t>(index)].pci) {
    return make_error(Status::unavailable, "open device", object, "its PCI address is not known");
  }
  const PciAddress address = *(*list)[static_cast<std::size_t>(index)].pci;
  const auto minor = nvidia_device_minor(address);
  if (!minor) {
    return make_error(Status::unavailable, "open device", object,
                      text("no device file is known for PCI address ", address.to_string()),
                      "check that /proc/driver/nvidia is there, or that NVML works");
  }
  auto opened = manager_->open_device(nvidia_gpu_id(address), *minor);
  if (!opened) return std::move(opened).error();
  Undo close([&] { manager_->close_device(*opened); });
  const auto device = std::make_shared<RmDevice>(manager_, *opened);
  close.call_off();
  devices_[index] = device;
  return device;
}

Result<std::unique_ptr<Window>> RmBackend::open_block(const std::shared_ptr<RmDevice>& device, const PointerInfo& memory,
                                                      const IpcIdentity& words, const WindowRequest& request) {
  const BlockIdentity identity = read_identity(words);
  if (Result<void> fits = check_identity(identity, memory, device->device.gpu_id); !fits) return std::move(fits).error();

  const DeviceRange whole{memory.base - identity.offset_bytes, identity.block_bytes};
  const DeviceRange range = range_to_map(whole, request.asked);
  const SharedPieces::Key key{identity.client, identity.memory};

  auto handle = device->manager->duplicate(device->device, identity.client, identity.memory);
  if (!handle) return std::move(handle).error();
  auto block = adopt_handle(device, *handle);
  if (auto known = shared_.find_block(key, *device->manager, *handle)) {
    block = std::move(known);
    if (auto piece = shared_.find_piece(key, *block, range, request.is_inherited))
      return std::unique_ptr<Window>(new RmWindow(std::move(piece)));
  }
  const auto mapped = device->manager->map(device->device, block->handle, range.begin - whole.begin, range.bytes);
  if (!mapped) return mapped.error();
  const auto piece = adopt_mapping(block, range, *mapped, request.is_inherited);
  shared_.add(key, piece);
  return std::unique_ptr<Window>(new RmWindow(piece));
}

Result<std::unique_ptr<Window>> RmBackend::open_vmm(const std::shared_ptr<RmDevice>& device, const PointerInfo& memory,
                                                    int descriptor, const WindowRequest& request) {
  const auto handle = device->manager->import(device->device, descriptor);
  if (!handle) return handle.error();
  const auto block = adopt_handle(device, *handle);
  const DeviceRange range = range_to_map({memory.base, memory.length_bytes}, request.asked);
  const auto mapped = device->manager->map(device->device, block->handle, range.begin - memory.base, range.bytes);
  if (!mapped) return mapped.error();
  const auto piece = adopt_mapping(block, range, *mapped, request.is_inherited);
  return std::unique_ptr<Window>(new RmWindow(piece));
}

}  // namespace

Backend& rm_backend() {
  static auto* const instance = new RmBackend;
  return *instance;
}

}  // namespace gigabar::inline v0
