// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/rank_address.hpp"

#include <arpa/inet.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "fabric/wireup/bytes.hpp"

namespace gigabar::fabric::wireup {
namespace {

constexpr std::string_view kMagic = "gbW1";
constexpr std::uint8_t kIpv4 = 4;
constexpr std::uint8_t kIpv6 = 6;
constexpr std::size_t kIpv4Bytes = 4;
constexpr std::size_t kIpv6Bytes = 16;

constexpr std::array<unsigned char, 12> kMappedIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

Address ipv4(const void* bytes) {
  Address address;
  std::memcpy(address.bytes.data(), bytes, kIpv4Bytes);
  return address;
}

Address ipv6(const void* bytes) {
  if (std::memcmp(bytes, kMappedIpv4.data(), kMappedIpv4.size()) == 0) {
    return ipv4(static_cast<const unsigned char*>(bytes) + kMappedIpv4.size());
  }
  Address address{true, {}};
  std::memcpy(address.bytes.data(), bytes, kIpv6Bytes);
  return address;
}

// "70a74752-6115-4fbf-9d03-9442678613ef"
std::optional<std::array<unsigned char, 16>> boot_identity() {
  const auto text = read_small_file("/proc/sys/kernel/random/boot_id", 64);
  if (!text) return {};
  std::array<unsigned char, 16> bytes{};
  std::size_t count = 0;
  if (sodium_hex2bin(bytes.data(), bytes.size(), text->data(), text->size(), "-\n", &count, nullptr) != 0) return {};
  if (count != bytes.size()) return {};
  return bytes;
}

std::optional<Address> read_address(Reader& reader) {
  const auto family = reader.number<std::uint8_t>();
  if (!family || (*family != kIpv4 && *family != kIpv6)) return {};
  const auto bytes = reader.bytes(*family == kIpv4 ? kIpv4Bytes : kIpv6Bytes);
  if (!bytes) return {};
  return *family == kIpv4 ? ipv4(bytes->data()) : ipv6(bytes->data());
}

// Nothing: malformed.
std::optional<RankAddress> parse(std::string_view bytes) {
  Reader reader(bytes);
  const auto magic = reader.bytes(kMagic.size());
  if (!magic || *magic != kMagic) return {};
  RankAddress rank_address;
  const auto boot = reader.bytes(rank_address.host.boot.size());
  const auto network = reader.number<std::uint64_t>();
  const auto ipv4_port = reader.number<std::uint16_t>();
  const auto ipv6_port = reader.number<std::uint16_t>();
  const auto name_bytes = reader.number<std::uint8_t>();
  if (!boot || !network || !ipv4_port || !ipv6_port || !name_bytes || *name_bytes > kMaxUnixNameBytes) return {};
  std::memcpy(rank_address.host.boot.data(), boot->data(), boot->size());
  rank_address.host.network = *network;
  rank_address.ipv4_port = *ipv4_port;
  rank_address.ipv6_port = *ipv6_port;
  const auto name = reader.bytes(*name_bytes);
  const auto count = reader.number<std::uint8_t>();
  if (!name || !count || *count > kMaxSocketAddresses) return {};
  rank_address.unix_name = *name;
  for (unsigned index = 0; index < *count; ++index) {
    const auto address = read_address(reader);
    if (!address) return {};
    rank_address.addresses.push_back(*address);
  }
  if (!reader.is_at_end()) return {};
  return rank_address;
}

}  // namespace

bool Address::is_loopback() const noexcept {
  if (!is_ipv6) return bytes[0] == 127;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](unsigned char byte) { return byte == 0; }) && bytes.back() == 1;
}

std::string Address::text() const {
  char name[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(is_ipv6 ? AF_INET6 : AF_INET, bytes.data(), name, sizeof name);
  return name;
}

Address address_of(const sockaddr_storage& socket_address) noexcept {
  if (socket_address.ss_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, &socket_address, sizeof six);
    return ipv6(&six.sin6_addr);
  }
  sockaddr_in four{};
  std::memcpy(&four, &socket_address, sizeof four);
  return ipv4(&four.sin_addr);
}

HostIdentity this_host() {
  HostIdentity host;
  const auto boot = boot_identity();
  struct stat network{};
  if (boot && ::stat("/proc/self/ns/net", &network) == 0) {
    host.boot = *boot;
    host.network = network.st_ino;
  } else {
    randombytes_buf(host.boot.data(), host.boot.size());
  }
  return host;
}

std::string encode(const RankAddress& rank_address) {
  std::string bytes(kMagic);
  bytes.append(reinterpret_cast<const char*>(rank_address.host.boot.data()), rank_address.host.boot.size());
  append_number(bytes, rank_address.host.network);
  append_number(bytes, rank_address.ipv4_port);
  append_number(bytes, rank_address.ipv6_port);
  append_number(bytes, static_cast<std::uint8_t>(rank_address.unix_name.size()));
  bytes += rank_address.unix_name;
  append_number(bytes, static_cast<std::uint8_t>(rank_address.addresses.size()));
  for (const Address& address : rank_address.addresses) {
    append_number(bytes, address.is_ipv6 ? kIpv6 : kIpv4);
    bytes.append(reinterpret_cast<const char*>(address.bytes.data()), address.is_ipv6 ? kIpv6Bytes : kIpv4Bytes);
  }
  return bytes;
}

Result<RankAddress> decode_rank_address(const std::string& bytes) {
  if (auto rank_address = parse(bytes)) return std::move(*rank_address);
  return make_error(Status::bad_file, "read address", text("address of ", bytes.size(), " bytes"),
                    "it is not what this version of the library writes", "use the same version of the library at every rank");
}

}  // namespace gigabar::fabric::wireup
