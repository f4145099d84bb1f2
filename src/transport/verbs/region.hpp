// SPDX-License-Identifier: Apache-2.0
// Memory that the NICs of this side reach, and the peers' memory that they name by its keys.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.hpp"
#include "transport/verbs/device.hpp"
#include "transport/verbs/gpu_order.hpp"
#include "transport/verbs/wire.hpp"

namespace gigabar::transport::rdma {

class VerbsRegion final : public Region {
 public:
  // Registers on each device that is not gone. Errors: as Transport::register_memory.
  static Result<std::unique_ptr<Region>> make(const MemoryRange& range, const std::vector<Rail>& rails,
                                              std::shared_ptr<GpuOrder> order);
  ~VerbsRegion() override;

  Result<Parcel> key(const Peer& peer) const override;

  std::uint32_t local_key(std::size_t rail) const noexcept { return regions_[rail]->lkey; }

 private:
  VerbsRegion(const MemoryRange& range, std::shared_ptr<GpuOrder> order) : Region(range), range_(range), order_(std::move(order)) {}
  Result<void> register_all(const std::vector<Rail>& rails);
  Result<gigabar::rdma::Registration> register_with(const Device& device) const;

  MemoryRange range_;
  std::shared_ptr<GpuOrder> order_;
  bool is_ordered_ = false;  // it is a GPU's, and order_ counts it
  bool has_atomics_ = false;
  std::vector<std::shared_ptr<ibv_mr>> regions_;  // one per rail, with its device; null: that was gone, and so were its links
};

struct VerbsRemoteRegion final : RemoteRegion {
  explicit VerbsRemoteRegion(Key told) : key(std::move(told)) {}
  std::size_t bytes() const noexcept override { return key.bytes; }
  // Whether the peer registered it on that rail of its.
  bool has_rail(std::size_t rail) const noexcept { return rail < key.keys.size(); }

  const Key key;
};

}  // namespace gigabar::transport::rdma
