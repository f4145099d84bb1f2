// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/rank_address.hpp"

#include <arpa/inet.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/bytes.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"

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

Address read_address(ByteReader& reader) {
  const auto family = reader.number<std::uint8_t>();
  reader.expect(family == kIpv4 || family == kIpv6);
  std::array<std::uint8_t, kIpv6Bytes> bytes{};
  reader.bytes(family == kIpv4 ? kIpv4Bytes : kIpv6Bytes).copy(reinterpret_cast<char*>(bytes.data()), bytes.size());
  return family == kIpv4 ? ipv4(bytes.data()) : ipv6(bytes.data());
}

RankAddress read_rank_address(ByteReader& reader) {
  reader.expect(reader.bytes(kMagic.size()) == kMagic);
  RankAddress rank_address;
  rank_address.host.boot = reader.array<sizeof rank_address.host.boot>();
  rank_address.host.network = reader.number<std::uint64_t>();
  rank_address.ipv4_port = reader.number<std::uint16_t>();
  rank_address.ipv6_port = reader.number<std::uint16_t>();
  const auto name_bytes = reader.number<std::uint8_t>();
  reader.expect(name_bytes <= kMaxUnixNameBytes);
  rank_address.unix_name = reader.bytes(name_bytes);
  const auto count = reader.number<std::uint8_t>();
  reader.expect(count <= kMaxSocketAddresses);
  for (unsigned index = 0; index < count && reader.is_ok(); ++index) rank_address.addresses.push_back(read_address(reader));
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
  ByteWriter writer(kMagic);
  writer.bytes(view_of(rank_address.host.boot))
      .number(rank_address.host.network)
      .number(rank_address.ipv4_port)
      .number(rank_address.ipv6_port);
  writer.number(static_cast<std::uint8_t>(rank_address.unix_name.size())).bytes(rank_address.unix_name);
  writer.number(static_cast<std::uint8_t>(rank_address.addresses.size()));
  for (const Address& address : rank_address.addresses) {
    writer.number(address.is_ipv6 ? kIpv6 : kIpv4);
    writer.bytes(view_of(address.bytes).substr(0, address.is_ipv6 ? kIpv6Bytes : kIpv4Bytes));
  }
  return writer.take();
}

Result<RankAddress> decode_rank_address(const std::string& bytes) {
  ByteReader reader(bytes);
  RankAddress rank_address = read_rank_address(reader);
  if (reader.is_done()) return rank_address;
  return make_error(Status::bad_file, "read address", text("address of ", bytes.size(), " bytes"),
                    text("it is not what this version of the library writes, from byte ", reader.offset(), " on"),
                    "use the same version of the library at every rank");
}

}  // namespace gigabar::fabric::wireup
