// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/rank_address.hpp"

#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "base/bytes.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"

namespace gigabar::fabric::wireup {
namespace {

using secure::SocketAddress;

constexpr std::string_view kMagic = "gbW2";
constexpr std::size_t kIpv4Bytes = 4;
constexpr std::size_t kIpv6Bytes = 16;

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

bool is_printable(char c) { return c > ' ' && c <= '~'; }

SocketAddress read_address(ByteReader& reader) {
  const auto byte_count = reader.number<std::uint8_t>();
  const auto port = reader.number<std::uint16_t>();
  reader.expect((byte_count == kIpv4Bytes || byte_count == kIpv6Bytes) && port != 0);
  const std::string_view bytes = reader.bytes(byte_count);
  return reader.is_ok() ? secure::ip_address(bytes, port) : SocketAddress();
}

RankAddress read_rank_address(ByteReader& reader) {
  reader.expect(reader.bytes(kMagic.size()) == kMagic);
  RankAddress rank_address;
  rank_address.host.boot = reader.array<sizeof rank_address.host.boot>();
  rank_address.host.network = reader.number<std::uint64_t>();
  const auto name_bytes = reader.number<std::uint8_t>();
  reader.expect(name_bytes <= kMaxUnixNameBytes);
  rank_address.unix_name = reader.bytes(name_bytes);
  reader.expect(std::ranges::all_of(rank_address.unix_name, is_printable));  // errors and the log have the name
  const auto count = reader.number<std::uint8_t>();
  reader.expect(count <= kMaxSocketAddresses);
  for (unsigned index = 0; index < count && reader.is_ok(); ++index) rank_address.addresses.push_back(read_address(reader));
  return rank_address;
}

}  // namespace

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
  writer.bytes(view_of(rank_address.host.boot)).number(rank_address.host.network);
  writer.number(static_cast<std::uint8_t>(rank_address.unix_name.size())).bytes(rank_address.unix_name);
  writer.number(static_cast<std::uint8_t>(rank_address.addresses.size()));
  for (const SocketAddress& address : rank_address.addresses) {
    const std::string_view bytes = ip_bytes(address);
    writer.number(static_cast<std::uint8_t>(bytes.size())).number(port_of(address)).bytes(bytes);
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
