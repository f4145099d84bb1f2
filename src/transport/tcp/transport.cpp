// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/transport.hpp"

#include <algorithm>
#include <utility>

#include "base/errors.hpp"
#include "transport/tcp/link.hpp"
#include "transport/tcp/open.hpp"

namespace gigabar::transport {
namespace tcp {

TcpTransport::TcpTransport(std::shared_ptr<Hub> hub) : hub_(std::move(hub)) {
  for (const Rail& rail : hub_->rails()) rails_.push_back(rail.interface);
}

Result<std::unique_ptr<TcpTransport>> TcpTransport::open(const TransportOptions& options) {
  auto hub = Hub::open(options);
  if (!hub) return std::move(hub).error();
  return std::unique_ptr<TcpTransport>(new TcpTransport(std::move(*hub)));
}

std::optional<Security> TcpTransport::security_with(const Peer& peer) const {
  const auto theirs = security_of_address(peer.address);
  if (!theirs) return {};
  const Security own = hub_->security();
  const Security both{std::max(theirs->protection, own.protection), std::min(theirs->cipher, own.cipher)};
  return both.protection == Protection::sealed ? both : Security{};
}

Availability TcpTransport::can_reach(const Peer& peer) const {
  const auto security = security_with(peer);
  if (!security) {
    return {AvailabilityCode::not_supported,
            "the peer has no TCP transport of this version",
            "install the same version of Gigabar at every rank",
            {}};
  }
  return {AvailabilityCode::ok, text("TCP, ", name_of(security->protection)), {}, {}};
}

Result<std::unique_ptr<Link>> TcpTransport::offer(const Peer& peer, std::size_t rail, Parcel& offer) {
  const auto security = security_with(peer);
  if (rail >= rails_.size() || !security) {
    return make_error(Status::invalid_argument, "offer a link", text("rail ", rail, " to rank ", peer.rank),
                      "there is no such rail, or the peer has no TCP transport of this version");
  }
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<TcpLink>(hub_, peer.rank, *number, *security);
  offer.bytes = encode(link->expect_peer(rail));
  offer.descriptors.clear();
  return std::unique_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<Link>> TcpTransport::accept(const Peer& peer, Parcel offer, Parcel& answer) {
  const auto security = security_with(peer);
  if (!offer.descriptors.empty() || !security) {
    return make_error(Status::bad_file, "accept a link", text("rank ", peer.rank),
                      "the offer came with descriptors, or its rank has no TCP transport of this version");
  }
  const auto decoded = decode_offer(offer.bytes);
  if (!decoded) return decoded.error();
  auto link = std::make_unique<TcpLink>(hub_, peer.rank, decoded->link, *security);
  answer.bytes = encode_answer(decoded->link, link->dial(*decoded));
  answer.descriptors.clear();
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace tcp

Result<std::unique_ptr<Transport>> open_tcp(const TransportOptions& options) {
  auto opened = tcp::TcpTransport::open(options);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<Transport>(std::move(*opened));
}

}  // namespace gigabar::transport
