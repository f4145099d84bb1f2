// SPDX-License-Identifier: Apache-2.0
// Who and what of this process peers reach: links by number, and registered memory. The thread that has the transport changes it;
// lanes place data at the same time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "gigabar/mapping.hpp"
#include "transport/ucx/wire.hpp"

namespace gigabar::transport::ucx {

// Registered memory. Looked up at each access, so that nothing reaches it once it is gone.
struct HomeRegion {
  std::byte* address = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t guard = 0;
  std::optional<Mapping> mapping;  // of a GPU's memory, which is only written to, through it
};

enum class Placed : std::uint8_t {
  ok,
  no_link,
  not_allowed,
  failed  // the GPU's memory could not be written to
};

class Home {
 public:
  // --- For the thread that has the transport ---
  std::uint32_t add_region(HomeRegion region);
  // Afterwards no lane writes to it: waits for one that does, which is no longer than one piece takes to be copied.
  void remove_region(std::uint32_t number);
  void add_link(std::uint64_t number);
  // Likewise.
  void remove_link(std::uint64_t number);
  // The memory at [offset, offset + bytes) of a region, or null when any of it is not allowed, or is a GPU's. `guard`: a peer's;
  // own accesses have none.
  std::byte* memory(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes, std::optional<std::uint64_t> guard) const;
  // Copies a piece of a peer's write to its place.
  Placed place(const Access& to, std::span<const std::byte> data) const;

  // --- For lanes ---
  // The same.
  Placed place(unsigned lane, std::uint64_t link, const Access& to, std::span<const std::byte> data);

 private:
  // What a lane copies to. Set under the mutex, so that whoever forgets a region or link there sees it afterwards.
  struct alignas(64) Busy {
    std::atomic<std::uint64_t> link{0};
    std::atomic<std::uint32_t> region{0};
  };

  // Of a place within a region; null when it is not allowed.
  const HomeRegion* find(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes, std::optional<std::uint64_t> guard) const;

  mutable std::mutex mutex_;  // for changes, and for what lanes look up
  std::unordered_map<std::uint32_t, HomeRegion> regions_;
  std::unordered_set<std::uint64_t> links_;
  std::uint32_t next_region_ = 1;
  std::array<Busy, kMaxLanes> busy_;
};

}  // namespace gigabar::transport::ucx
