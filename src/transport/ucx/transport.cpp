// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/transport.hpp"

#include <utility>

#include "base/errors.hpp"
#include "transport/ucx/link.hpp"

namespace gigabar::transport::ucx {
namespace {

std::string library_version() {
  const ucp::Library& library = ucp::library();
  return text(library.major, '.', library.minor, '.', library.patch);
}

}  // namespace

Result<std::unique_ptr<UcxTransport>> UcxTransport::open(const TransportOptions& options) {
  auto hub = Hub::open(options);
  if (!hub) return std::move(hub).error();
  return std::unique_ptr<UcxTransport>(new UcxTransport(std::move(*hub)));
}

std::string UcxTransport::address() const { return address_text(library_version()); }

Result<std::unique_ptr<Region>> UcxTransport::register_memory(const MemoryRange& range) {
  return PlacedRegion::make(hub_->home(), range);
}

Result<std::unique_ptr<RemoteRegion>> UcxTransport::open_region(const Peer&, Parcel key) { return open_placed_region(key); }

Availability UcxTransport::can_reach(const Peer& peer) const {
  const auto version = library_version_of_address(peer.address);
  if (!version) {
    return {AvailabilityCode::not_supported,
            "the peer has no UCX transport of this version",
            "install UCX and the same version of Gigabar at every rank",
            {}};
  }
  return {AvailabilityCode::ok, text("UCX ", library_version(), " here, ", *version, " there"), {}, {}};
}

Result<std::unique_ptr<Link>> UcxTransport::offer(const Peer& peer, std::size_t rail, Parcel& offer) {
  if (rail >= rails_.size()) {
    return make_error(Status::invalid_argument, "offer a link", text("rail ", rail),
                      "UCX has one rail, and chooses networks itself");
  }
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<UcxLink>(hub_, peer, *number);
  offer.bytes = encode(InvitationKind::offer, link->invitation());
  offer.descriptors.clear();
  return std::unique_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<Link>> UcxTransport::accept(const Peer& peer, Parcel offer, Parcel& answer) {
  if (!offer.descriptors.empty()) {
    return make_error(Status::bad_file, "accept a link", text("rank ", peer.rank), "the offer came with descriptors");
  }
  const auto invitation = decode_invitation(InvitationKind::offer, offer.bytes);
  if (!invitation) return invitation.error();
  const auto number = random_number();
  if (!number) return number.error();
  auto link = std::make_unique<UcxLink>(hub_, peer, *number);
  if (Result<void> connected = link->connect(*invitation); !connected) return std::move(connected).error();
  answer.bytes = encode(InvitationKind::answer, link->invitation());
  answer.descriptors.clear();
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace gigabar::transport::ucx
