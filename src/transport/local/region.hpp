// SPDX-License-Identifier: Apache-2.0
// Memory of this process that local peers may reach, and theirs.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/in_place.hpp"
#include "transport/local/device_copier.hpp"
#include "transport/local/peer_memory.hpp"
#include "transport/local/wire.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::local {

class LocalLink;

// What a transport shares with its links and regions, which may outlive it.
struct Core {
  // The copy engine of a device; the first failure is remembered. Errors: as DeviceCopier::open.
  Result<DeviceCopier*> copier_of(int device);
  std::shared_ptr<ProcessMemory> memory_of(std::int64_t process, std::uint64_t nonce_address, const Nonce& nonce);

  int near_device = -1;
  std::uint64_t most_kernel_bytes = 0;  // of a copy by the persistent copy kernel
  Nonce nonce{};                        // proves to peers that they look at this process
  Descriptor wakes;                     // epoll of the links' sockets
  std::vector<LocalLink*> links;
  std::map<int, Result<std::unique_ptr<DeviceCopier>>> copiers;
  std::map<std::int64_t, std::weak_ptr<ProcessMemory>> processes;
  PeerDevices devices;
};

inline constexpr int kManagedPlace = -2;

// True for memory that CPUs load from and store to.
bool is_cpu_memory(MemoryKind kind) noexcept;

// Host memory that a copy engine may be asked to reach: pinned when that happens for the first time, unpinned at the end.
class PinOnDemand : InPlace {
 public:
  PinOnDemand(void* address, std::size_t bytes, bool is_pinned) : address_(address), bytes_(bytes), is_tried_(is_pinned) {}
  ~PinOnDemand();

  // Why it is not pinned; empty when it is. Threads: any. Cost: the first call pins, which takes the longer the more there is.
  const std::string& pin();

 private:
  void* const address_;
  const std::size_t bytes_;
  std::mutex mutex_;
  bool is_tried_;
  void* pinned_ = nullptr;  // by us
  std::size_t pinned_bytes_ = 0;
  std::string failure_;
};

// What of a region ranks in the same process see of it. Outlives the region.
struct RegionFacts {
  RegionFacts(const MemoryRange& range, std::uint64_t number);

  const std::uint64_t id;
  const std::uintptr_t address;
  const std::size_t bytes;
  const MemoryKind kind;
  const int device;
  std::atomic<bool> is_registered{true};
  PinOnDemand pinned;
  const std::shared_ptr<void> pages;  // of the range; kept for words that are still to be written
};

class LocalRegion final : public Region {
 public:
  // Errors: invalid_argument (no memory), bad_file (a descriptor that is not the memory's), out_of_descriptors.
  static Result<std::unique_ptr<Region>> make(std::shared_ptr<Core> core, const MemoryRange& range);
  ~LocalRegion() override;

  Result<Parcel> key(const Peer& peer) const override;

  int device() const noexcept { return facts_->device; }  // -1: not device memory
  bool is_open_to_peers() const noexcept { return key_.form != KeyForm::none; }
  // Memory of one place takes the same routes: its device, -1 of the host, or kManagedPlace.
  int place() const noexcept { return kind() == MemoryKind::managed ? kManagedPlace : device(); }
  RegionFacts& facts() const noexcept { return *facts_; }

 private:
  LocalRegion(std::shared_ptr<Core> core, const MemoryRange& range);
  Result<void> adopt_file(int descriptor, std::uint64_t offset_bytes, bool is_kept);
  Result<void> prepare_host(const MemoryRange& range);
  Result<void> prepare_stand_in();
  std::string prepare_device();
  void prove_device();

  const std::shared_ptr<Core> core_;
  const std::shared_ptr<RegionFacts> facts_;
  KeyBytes key_;
  std::shared_ptr<const DeviceProof> proof_;  // that key_ has; peers look at its memory when they open a window
  int file_ = -1;                             // form file
  Descriptor own_file_;                       // the same, unless the memory's pages keep it
};

// How bytes get between local memory of one kind and a peer's region.
struct Route {
  enum class By : std::uint8_t { nothing, cpu, engine };
  By by = By::nothing;
  int engine_device = -1;
  std::uintptr_t remote_address = 0;  // by the engine: as that device reaches it
  std::shared_ptr<void> hold;         // as long as a copy runs
  std::string reason;
};

class PeerRegion final : public RemoteRegion {
 public:
  ~PeerRegion() override;
  // Errors: bad_file (malformed), no_permission, out_of_memory, out_of_descriptors.
  static Result<std::unique_ptr<RemoteRegion>> open(std::shared_ptr<Core> core, const Peer& peer, Parcel key);

  std::size_t bytes() const noexcept override { return key_.bytes; }
  Result<MappedRegion> map(int device) override;
  Result<MappedRegion> map_for_cpu() override;
  MemoryKind kind() const noexcept { return static_cast<MemoryKind>(key_.kind); }

  // Whether store() may be called; memory of a GPU, of another process, is mapped for it when this is asked first.
  bool open_for_stores();
  bool is_open_for_stores() const noexcept { return is_cpu_memory(kind()) ? cpu_address() != nullptr : window_.has_value(); }
  // By the CPU; inside the region. A release of the same thread that follows is behind it.
  void store(std::uint64_t offset_bytes, std::span<const std::byte> bytes) const noexcept;

  // Found once per place of local memory. Opens what has to be opened.
  const Route& route(const LocalRegion& local);
  // By the CPU, when the route says so. A write reads `local` only. Errors: peer_lost.
  Result<void> copy(Direction direction, std::uint64_t offset_bytes, std::byte* local, std::size_t bytes) const;
  // Null: this process does not map its pages. What `hold` points to keeps the mapping.
  std::byte* cpu_address() const noexcept { return pages_.get(); }
  std::shared_ptr<void> hold() const { return pages_; }
  // False when the region's owner, in this process, has deregistered it.
  bool is_registered() const noexcept { return here_ == nullptr || here_->is_registered; }

 private:
  PeerRegion(std::shared_ptr<Core> core, std::int64_t process, const KeyBytes& key)
      : core_(std::move(core)), process_(process), key_(key) {}
  Result<void> find_here();
  Result<void> open_form(Parcel key);
  Route find_route(const LocalRegion& local);
  // How, or why not.
  std::string route_by_engine_to_host(const LocalRegion& local, Route& route);
  std::string route_by_engine_to_device(const LocalRegion& local, Route& route);
  Result<std::shared_ptr<OpenedAllocation>> open_on(int device);
  Result<void> open_here_to(int device, int owner);
  Result<MappedRegion> map_device_memory(int device);

  const std::shared_ptr<Core> core_;
  const std::int64_t process_;
  const KeyBytes key_;
  std::string reason_;  // form none
  std::shared_ptr<RegionFacts> here_;
  std::shared_ptr<std::byte> pages_;      // of the peer's file, mapped; or here_
  std::optional<PinOnDemand> pages_pin_;  // of the peer's file; before it is unmapped
  std::shared_ptr<ProcessMemory> process_memory_;
  Descriptor exported_;                 // form vmm
  std::map<int, Route> routes_;         // by the place of local memory
  std::optional<MappedRegion> window_;  // for stores into memory of a GPU
  std::size_t window_bytes_ = 0;
  bool is_window_tried_ = false;
};

}  // namespace gigabar::transport::local
