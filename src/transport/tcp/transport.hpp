// SPDX-License-Identifier: Apache-2.0
// The TCP transport: what open_tcp() gives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/hub.hpp"
#include "transport/transport.hpp"

namespace gigabar::transport::tcp {

class TcpTransport final : public Transport {
 public:
  // Errors: as open_tcp().
  static Result<std::unique_ptr<TcpTransport>> open(const TransportOptions& options);

  TransportKind kind() const noexcept override { return TransportKind::tcp; }
  std::string address() const override { return address_text(hub_->security()); }
  const std::vector<std::string>& rails() const noexcept override { return rails_; }
  Result<std::unique_ptr<Region>> register_memory(const MemoryRange& range) override {
    return PlacedRegion::make(hub_->home(), range);
  }
  Result<std::unique_ptr<RemoteRegion>> open_region(const Peer&, Parcel key) override { return open_placed_region(key); }
  std::string why_no_words() const override { return transport::why_no_words("TCP"); }
  Availability can_reach(const Peer& peer) const override;
  Result<std::unique_ptr<Link>> offer(const Peer& peer, std::size_t rail, Parcel& offer) override;
  Result<std::unique_ptr<Link>> accept(const Peer& peer, Parcel offer, Parcel& answer) override;
  bool poll(Sink& sink) override { return hub_->poll(sink); }
  bool arm() override { return hub_->arm(); }
  int wake_descriptor() const noexcept override { return hub_->poller().descriptor(); }
  std::uint64_t refused_count() const noexcept override { return hub_->acceptor().refused_count(); }

 private:
  explicit TcpTransport(std::shared_ptr<Hub> hub);
  // What a link with `peer` has: sealed when one of the two wants it, with a cipher that both have. Nothing: the peer has no such
  // transport.
  std::optional<Security> security_with(const Peer& peer) const;

  std::shared_ptr<Hub> hub_;
  std::vector<std::string> rails_;
};

}  // namespace gigabar::transport::tcp
