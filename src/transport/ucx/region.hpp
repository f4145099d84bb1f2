// SPDX-License-Identifier: Apache-2.0
// Memory that UCX links reach: host memory, and to write to GPU memory that the CPU has mapped. Received bytes are placed by the
// CPU, after their region was looked up, so that taking a region back needs no more than forgetting it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/ucx/hub.hpp"

namespace gigabar::transport::ucx {

// A put behind a fence would need an address of the target's memory, which UCX never has; see link.hpp.
inline constexpr std::string_view kNoWords = "over UCX the target's CPU places all bytes, and so sets its notifications";

class UcxRegion final : public Region {
 public:
  // Errors: invalid_argument (null, zero bytes), not_supported (GPU memory that cannot be mapped, with the mapping's reason).
  static Result<std::unique_ptr<Region>> make(std::shared_ptr<Hub> hub, const MemoryRange& range);
  ~UcxRegion() override {
    if (hub_->is_of_this_process()) hub_->home().remove_region(number_);
  }
  UcxRegion(const UcxRegion&) = delete;
  UcxRegion& operator=(const UcxRegion&) = delete;

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
  UcxRegion(std::shared_ptr<Hub> hub, const MemoryRange& range, std::uint64_t guard, std::optional<Mapping> mapping);

  std::shared_ptr<Hub> hub_;
  std::uintptr_t address_;
  std::size_t bytes_;
  MemoryKind kind_;
  std::uint64_t guard_;
  bool is_mapped_;
  std::uint32_t number_;
  std::string reason_;
};

class UcxRemoteRegion final : public RemoteRegion {
 public:
  explicit UcxRemoteRegion(const RegionKey& key) : key_(key) {}
  std::size_t bytes() const noexcept override { return key_.bytes; }
  const RegionKey& key() const noexcept { return key_; }

 private:
  RegionKey key_;
};

// Errors: bad_file.
Result<std::unique_ptr<RemoteRegion>> open_remote_region(const Parcel& key);

}  // namespace gigabar::transport::ucx
