// SPDX-License-Identifier: Apache-2.0
// Memory that TCP links reach: host memory, and to write to GPU memory that the CPU has mapped. Every piece that comes is placed
// after its region was looked up, so that taking a region back needs no more than forgetting it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "gigabar/mapping.hpp"
#include "transport/tcp/wire.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::tcp {

inline constexpr std::string_view kNoWords = "over TCP the target's CPU places all bytes, and so sets its notifications";

// A range of a region of this process, as a peer names it, or (without a guard) as this process does.
struct Place {
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> guard;
};

enum class Placed : std::uint8_t {
  ok,
  not_allowed,
  failed  // the GPU's memory could not be written to
};

class RegionTable {
 public:
  struct Entry {
    std::byte* address = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t guard = 0;
    std::optional<Mapping> mapping;  // of a GPU's memory, which is only written to, through it
  };
  std::uint32_t add(Entry entry);
  void remove(std::uint32_t number) noexcept { entries_.erase(number); }
  // Whether all of [offset, offset + bytes) may be written to.
  bool is_allowed(const Place& place, std::uint64_t bytes) const { return find(place, bytes) != nullptr; }
  // The memory there; null when any of it is not allowed, or is a GPU's.
  std::byte* memory(const Place& place, std::uint64_t bytes) const;
  Placed copy_to(const Place& place, std::span<const std::byte> data) const;

 private:
  const Entry* find(const Place& place, std::uint64_t bytes) const;
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::uint32_t next_ = 1;
};

class TcpRegion final : public Region {
 public:
  // Errors: invalid_argument (null, zero bytes), not_supported (GPU memory that cannot be mapped, with the mapping's reason).
  static Result<std::unique_ptr<Region>> make(std::shared_ptr<RegionTable> table, const MemoryRange& range);
  ~TcpRegion() override { table_->remove(number_); }
  TcpRegion(const TcpRegion&) = delete;
  TcpRegion& operator=(const TcpRegion&) = delete;

  std::uintptr_t address() const noexcept override { return address_; }
  std::size_t bytes() const noexcept override { return bytes_; }
  MemoryKind kind() const noexcept override { return kind_; }
  std::string_view how() const noexcept override { return is_mapped_ ? "mapped" : "none"; }
  const std::string& reason() const noexcept override { return reason_; }
  Result<Parcel> key(const Peer& peer) const override;

  std::uint32_t number() const noexcept { return number_; }
  // A GPU's: peers write to it, and nothing is read from it.
  bool is_mapped() const noexcept { return is_mapped_; }

 private:
  TcpRegion(std::shared_ptr<RegionTable> table, const MemoryRange& range, std::optional<Mapping> mapping);

  std::shared_ptr<RegionTable> table_;
  std::uintptr_t address_;
  std::size_t bytes_;
  MemoryKind kind_;
  std::uint64_t guard_;
  bool is_mapped_;
  std::string reason_;
  std::uint32_t number_;
};

class TcpRemoteRegion final : public RemoteRegion {
 public:
  explicit TcpRemoteRegion(const RegionKey& key) : key_(key) {}
  std::size_t bytes() const noexcept override { return key_.bytes; }
  const RegionKey& key() const noexcept { return key_; }

 private:
  RegionKey key_;
};

// Errors: bad_file.
Result<std::unique_ptr<RemoteRegion>> open_remote_region(const Parcel& key);

}  // namespace gigabar::transport::tcp
