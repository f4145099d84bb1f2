// SPDX-License-Identifier: Apache-2.0
// The UCX transport: what open_ucx() gives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.hpp"
#include "transport/ucx/hub.hpp"

namespace gigabar::transport::ucx {

class UcxTransport final : public Transport {
 public:
  // Errors: as open_ucx().
  static Result<std::unique_ptr<UcxTransport>> open(const TransportOptions& options);

  TransportKind kind() const noexcept override { return TransportKind::ucx; }
  std::string address() const override;
  const std::vector<std::string>& rails() const noexcept override { return rails_; }
  Result<std::unique_ptr<Region>> register_memory(const MemoryRange& range) override;
  std::string why_no_words() const override { return transport::why_no_words("UCX"); }
  Result<std::unique_ptr<RemoteRegion>> open_region(const Peer& peer, Parcel key) override;
  Availability can_reach(const Peer& peer) const override;
  Result<std::unique_ptr<Link>> offer(const Peer& peer, std::size_t rail, Parcel& offer) override;
  Result<std::unique_ptr<Link>> accept(const Peer& peer, Parcel offer, Parcel& answer) override;
  bool poll(Sink& sink) override { return hub_->poll(sink); }
  bool arm() override { return hub_->arm(); }
  int wake_descriptor() const noexcept override { return hub_->wake_descriptor(); }

  // Active messages that came from no link of this process: of processes that know UCX's port, and of links that are gone.
  std::uint64_t strangers() const noexcept { return hub_->strangers(); }

 private:
  explicit UcxTransport(std::shared_ptr<Hub> hub) noexcept : hub_(std::move(hub)) {}

  std::shared_ptr<Hub> hub_;
  std::vector<std::string> rails_{"ucx"};  // which networks a link takes, and how many, is UCX's own choice
};

}  // namespace gigabar::transport::ucx
