// SPDX-License-Identifier: Apache-2.0
// Stand-in devices: shared host memory with a device number, so that everything above runs on a machine without a GPU.
// GIGABAR_STAND_IN_MEMORY names a file that their memory is taken from instead: a PCI BAR that plays a GPU's.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "base/check_ids.hpp"
#include "base/counted.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/rounding.hpp"
#include "memory/host_pages.hpp"
#include "memory/runtime.hpp"
#include "memory/stand_in_file.hpp"
#include "platform/numa.hpp"

namespace gigabar::inline v0 {
namespace {

// GPU pages have 64 KiB; interfaces that deal in them find the same here.
constexpr std::size_t kAlignment = 65536;

// The pages of one allocation; unmapped when the allocation and every mapping of it are gone.
struct Pages {
  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(mapped.address()); }
  bool is_of_file() const { return range.is_open(); }

  // What they are mapped from when they come from a file, else empty. Others get the range when this is closed, so after the pages
  // are unmapped.
  Descriptor range;
  PageMapping mapped;
  int device;
  std::size_t asked_bytes;
  std::uint64_t id;
};

// An allocation that the program holds. The memfd goes with it: what outlives it in mappings needs pages, not a descriptor.
struct Block {
  std::shared_ptr<const Pages> pages;
  Descriptor memfd;
};

// The file that the memory comes from; empty: the host's memory.
std::string memory_file() { return environment("GIGABAR_STAND_IN_MEMORY").value_or(""); }

class StandInRuntime final : public Runtime {
 public:
  Result<std::vector<DeviceInfo>> devices() override {
    const auto forced = forced_stand_in_count();
    if (!forced) return forced.error();
    const std::string file = memory_file();
    const auto file_bytes = file.empty() ? Result<std::uint64_t>(0) : stand_in_file_bytes(file);
    if (!file_bytes) return file_bytes.error();
    std::vector<DeviceInfo> list(static_cast<std::size_t>(std::max(*forced, 1)));
    for (std::size_t index = 0; index < list.size(); ++index) {
      list[index].index = static_cast<int>(index);
      list[index].name = file.empty() ? "stand-in (host memory)" : "stand-in (memory of " + file + ")";
      list[index].is_stand_in = true;
      list[index].memory_bytes =
          file.empty() ? static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))
                       : *file_bytes;
    }
    return list;
  }

  Result<std::optional<PointerInfo>> describe(std::uintptr_t address) override {
    const auto pages = find(address);
    if (pages == nullptr) return std::optional<PointerInfo>{};
    PointerInfo info;
    info.kind = MemoryKind::stand_in;
    info.address = address;
    info.base = pages->begin();
    info.length_bytes = pages->asked_bytes;
    info.offset_bytes = address - info.base;
    info.device = pages->device;
    info.numa_node = numa_node_of_page(address);
    info.buffer_id = pages->id;
    info.is_exportable = !pages->is_of_file();
    return std::optional<PointerInfo>{info};
  }

  std::uint64_t buffer_id(std::uintptr_t address) override {
    const auto pages = find(address);
    return pages == nullptr ? 0 : pages->id;
  }

  Result<DeviceBlock> allocate(int device, std::size_t bytes, DeviceAllocator allocator) override {
    const std::size_t reserved_bytes = round_up(bytes, kAlignment);
    const std::string path = memory_file();
    Descriptor memfd;
    FileRange range;
    if (path.empty()) {
      memfd = Descriptor(::memfd_create("gigabar-stand-in", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      if (!memfd.is_open() || ::ftruncate(memfd.get(), static_cast<off_t>(reserved_bytes)) != 0)
        return failed(device, bytes, errno);
    } else {
      auto taken = take_from_stand_in_file(path, reserved_bytes, kAlignment);
      if (!taken) return taken.error();
      range = std::move(*taken);
    }
    auto mapped = PageMapping::map_file(path.empty() ? memfd.get() : range.file.get(), range.offset_bytes, reserved_bytes);
    if (!mapped) {
      const auto code = static_cast<int>(mapped.error().record().native.code);
      return path.empty() ? failed(device, bytes, code) : not_mapped(path, range, reserved_bytes, code);
    }
    const auto pages = std::make_shared<const Pages>(Pages{std::move(range.file), std::move(*mapped), device, bytes, ++last_id_});
    const std::unique_lock lock(mutex_);
    blocks_[pages->begin()] = {pages, std::move(memfd)};
    block_count_.store(blocks_.size(), std::memory_order_release);
    return DeviceBlock{pages->begin(), bytes, reserved_bytes, device, allocator};
  }

  Result<void> release(const DeviceBlock& block) override {
    const auto refuse = [&](Status status, const char* why) {
      return make_error(status, "free device memory", hex_text(block.address), why);
    };
    Block last;  // unmapped and closed outside the lock
    const std::unique_lock lock(mutex_);
    const auto found = blocks_.find(block.address);
    if (found == blocks_.end()) return refuse(Status::invalid_argument, "the address was not allocated, or was freed");
    if (!found->second.pages->mapped.is_of_this_process())
      return refuse(Status::foreign_process, "the parent process allocated it");
    last = std::move(found->second);
    blocks_.erase(found);
    block_count_.store(blocks_.size(), std::memory_order_release);
    return {};
  }

  Result<void> pin_host(void* address, std::size_t bytes) override {
    if (::mlock(address, bytes) == 0) return {};
    const int code = errno;
    return make_error(status_of_errno(code), "pin host memory", range_text(reinterpret_cast<std::uintptr_t>(address), bytes),
                      text("mlock: ", std::strerror(code)), "raise the locked-memory limit (ulimit -l)", errno_code(code),
                      check_id::kLockedMemory);
  }
  Result<void> unpin_host(void* address, std::size_t bytes) override {
    ::munlock(address, bytes);
    return {};
  }

  // Its kernels are threads of the CPU.
  Result<void*> map_registers(int, void* address, std::size_t) override { return address; }
  Result<void> unmap_registers(int, void*, std::size_t) override { return {}; }

  Result<void*> allocate_write_combined(std::size_t bytes) override {
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      const int code = errno;
      return make_error(Status::out_of_memory, "allocate write-combined memory", counted(bytes, "byte"), std::strerror(code),
                        "ask for less", errno_code(code));
    }
    if (Result<void> pinned = pin_host(address, bytes); !pinned) {  // which brings the pages too
      ::munmap(address, bytes);
      return std::move(pinned).error();
    }
    return address;
  }
  Result<void> release_write_combined(void* address, std::size_t bytes) override {
    ::munmap(address, bytes);
    return {};
  }

  Result<void> engine_copy(int, CopyWay way, std::span<const EngineCopy> pieces) override {
    for (const EngineCopy& piece : pieces) {
      if (piece.bytes == 0) continue;  // its host side may be null
      auto* device = reinterpret_cast<void*>(piece.device);
      const bool is_to_device = way == CopyWay::to_device;
      std::memcpy(is_to_device ? device : piece.host, is_to_device ? piece.host : device, piece.bytes);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return {};
  }

  Result<DeviceTraits> traits(int) override {
    DeviceTraits traits;
    traits.is_coherent = true;
    return traits;
  }

  Result<IpcIdentity> ipc_identity(const PointerInfo& memory) override { return no_gpu("identify memory", memory.address); }
  Result<int> export_dma_buf(std::uintptr_t address, std::size_t) override { return no_gpu("export dma-buf", address); }

  Result<int> export_descriptor(std::uintptr_t address) override {
    const std::shared_lock lock(mutex_);
    const Block* const block = block_at(address);
    if (block == nullptr) return no_gpu("export memory", address);
    if (block->pages->is_of_file()) {
      return make_error(Status::not_supported, "export memory", hex_text(address),
                        "it is a part of the file in GIGABAR_STAND_IN_MEMORY, which a descriptor cannot tell from the rest",
                        "unset GIGABAR_STAND_IN_MEMORY");
    }
    const int copy = ::fcntl(block->memfd.get(), F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) return copy;
    const int code = errno;
    return make_errno_error(code, "export memory", hex_text(address), {}, "raise the descriptor limit (ulimit -n)");
  }

  std::shared_ptr<const void> hold(std::uintptr_t address) override { return find(address); }

 private:
  std::shared_ptr<const Pages> find(std::uintptr_t address) const {
    if (block_count_.load(std::memory_order_acquire) == 0) return nullptr;  // asked about every message's memory
    const std::shared_lock lock(mutex_);
    const Block* const block = block_at(address);
    return block == nullptr ? nullptr : block->pages;
  }

  // The caller holds mutex_.
  const Block* block_at(std::uintptr_t address) const {
    const auto next = blocks_.upper_bound(address);
    if (next == blocks_.begin()) return nullptr;
    const Block& block = std::prev(next)->second;
    return address - block.pages->begin() < block.pages->asked_bytes ? &block : nullptr;
  }

  static Error failed(int device, std::size_t bytes, int code) {
    return make_error(code == EMFILE || code == ENFILE ? Status::out_of_descriptors : Status::out_of_memory,
                      "allocate device memory", text(counted(bytes, "byte"), " on stand-in device ", device), std::strerror(code),
                      code == EMFILE ? "raise the descriptor limit (ulimit -n)" : "ask for less, or free host memory",
                      errno_code(code));
  }

  static Error not_mapped(const std::string& path, const FileRange& range, std::size_t bytes, int code) {
    return make_error(Status::out_of_memory, "allocate device memory",
                      text(counted(bytes, "byte"), " of ", path, " at ", range.offset_bytes), text("mmap: ", std::strerror(code)),
                      "name a file in GIGABAR_STAND_IN_MEMORY whose memory can be mapped", errno_code(code));
  }

  static Error no_gpu(const char* operation, std::uintptr_t address) {
    return make_error(Status::not_supported, operation, hex_text(address), "this is host memory of a stand-in device",
                      "run on a machine with a GPU");
  }

  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;  // by begin
  std::atomic<std::size_t> block_count_{0};
  std::atomic<std::uint64_t> last_id_{0};
};

}  // namespace

Runtime& stand_in_runtime() {
  static auto* const instance = new StandInRuntime;
  return *instance;
}

}  // namespace gigabar::inline v0
