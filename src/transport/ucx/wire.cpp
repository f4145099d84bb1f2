// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/wire.hpp"

#include <cstring>

#include "base/errors.hpp"

namespace gigabar::transport::ucx {
namespace {

constexpr std::uint16_t kMagic = 0x6762;
constexpr std::uint32_t kParcelMagic = 0x58554247;  // "GBUX"
constexpr std::string_view kAddressName = "ucx";

struct InvitationHead {
  std::uint32_t magic = kParcelMagic;
  std::uint8_t version = kVersion;
  std::uint8_t kind = 0;
  std::uint16_t address_bytes = 0;
  std::uint64_t sum = 0;  // of everything else
  std::uint64_t link = 0;
  std::uint32_t piece_bytes = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(InvitationHead) == 32);

// FNV-1a: against damage, not against a forger.
std::uint64_t sum_of(std::string_view bytes, std::uint64_t sum = 0xcbf29ce484222325) {
  for (const char byte : bytes) sum = (sum ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return sum;
}

template <class Record>
std::string_view bytes_of(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

std::uint64_t sum_of(InvitationHead head, std::string_view address) {
  head.sum = 0;
  return sum_of(address, sum_of(bytes_of(head)));
}

Error malformed(const char* what, const char* cause) {
  return make_error(Status::bad_file, "read", what, cause, "use the same version of Gigabar at every rank");
}

}  // namespace

std::string encode(InvitationKind kind, const Invitation& invitation) {
  InvitationHead head;
  head.kind = static_cast<std::uint8_t>(kind);
  head.address_bytes = static_cast<std::uint16_t>(invitation.address.size());
  head.link = invitation.link;
  head.piece_bytes = invitation.piece_bytes;
  head.sum = sum_of(head, invitation.address);
  return std::string(bytes_of(head)) + invitation.address;
}

Result<Invitation> decode_invitation(InvitationKind kind, std::string_view bytes) {
  constexpr const char* kWhat = "the peer's UCX parcel";
  InvitationHead head;
  if (bytes.size() <= sizeof head || bytes.size() > kMaxParcelBytes) return malformed(kWhat, "its length cannot be");
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::string_view address = bytes.substr(sizeof head);
  if (head.magic != kParcelMagic || head.version != kVersion) return malformed(kWhat, "it is of another kind or version");
  if (head.kind != static_cast<std::uint8_t>(kind)) return malformed(kWhat, "an offer was mistaken for an answer");
  if (head.address_bytes != address.size()) return malformed(kWhat, "it was cut");
  if (head.sum != sum_of(head, address)) return malformed(kWhat, "its sum is wrong: it was damaged on the way");
  if (head.zero != 0 || head.link == 0 || head.piece_bytes < kMinPieceBytes || head.piece_bytes > kMaxPieceBytes) {
    return malformed(kWhat, "a number in it is out of range");
  }
  return Invitation{head.link, head.piece_bytes, std::string(address)};
}

std::string address_text(std::string_view library_version) {
  return text(kAddressName, ' ', unsigned{kVersion}, ' ', library_version);
}

std::optional<std::string> library_version_of_address(std::string_view address) {
  const std::string begin = address_text("");
  if (!address.starts_with(begin) || address.size() > 64) return {};
  const std::string_view version = address.substr(begin.size());
  if (version.empty() || version.find_first_not_of("0123456789.") != std::string_view::npos) return {};
  return std::string(version);
}

WireHeader make_header(WireKind kind, std::uint64_t link, std::uint32_t data_bytes) {
  WireHeader header;
  header.magic = kMagic;
  header.version = kVersion;
  header.kind = static_cast<std::uint8_t>(kind);
  header.data_bytes = data_bytes;
  header.link = link;
  return header;
}

std::optional<WireHeader> parse_header(const void* header, std::size_t header_bytes, std::size_t data_bytes) {
  if (header == nullptr || header_bytes != sizeof(WireHeader)) return {};
  WireHeader parsed;
  std::memcpy(&parsed, header, sizeof parsed);
  if (parsed.magic != kMagic || parsed.version != kVersion || parsed.data_bytes != data_bytes) return {};
  if (parsed.kind < static_cast<std::uint8_t>(WireKind::hello) || parsed.kind > static_cast<std::uint8_t>(WireKind::bye)) return {};
  return parsed;
}

Access access_of(const WireHeader& header) {
  Access access;
  std::memcpy(&access, header.body.data(), sizeof access);
  return access;
}

void set_access(WireHeader& header, const Access& access) { std::memcpy(header.body.data(), &access, sizeof access); }

}  // namespace gigabar::transport::ucx
