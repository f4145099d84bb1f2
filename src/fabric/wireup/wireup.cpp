// SPDX-License-Identifier: Apache-2.0
#include "fabric/wireup/wireup.hpp"

#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/descriptor.hpp"
#include "base/errors.hpp"
#include "fabric/job/addresses.hpp"
#include "secure/sockets.hpp"

namespace gigabar::fabric {
namespace wireup {
namespace {

using network::SocketAddress;

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
  return reader.is_ok() ? network::ip_address(bytes, port) : SocketAddress();
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

}  // namespace wireup

using network::SocketAddress;
using wireup::RankAddress;

namespace {

std::string random_name() {
  std::array<unsigned char, 16> random{};
  std::array<char, 33> digits{};
  randombytes_buf(random.data(), random.size());
  return text("gigabar-", sodium_bin2hex(digits.data(), digits.size(), random.data(), random.size()));
}

}  // namespace

Result<void> Wireup::listen_at(bool has_unix, std::vector<SocketAddress> tcp_addresses) {
  has_unix_ = has_unix;
  has_tcp_ = !tcp_addresses.empty();
  // IPv4 first: it is what clusters route most often.
  std::ranges::stable_partition(tcp_addresses, [](const SocketAddress& one) { return one.storage.ss_family == AF_INET; });
  if (tcp_addresses.size() > wireup::kMaxSocketAddresses) tcp_addresses.resize(wireup::kMaxSocketAddresses);
  int code = 0;
  if (has_unix) {
    const std::string name = random_name();
    if (listen(secure::listen_at(network::unix_address(name)))) {
      rank_address_.unix_name = name;
    } else {
      code = errno;
    }
  }
  rank_address_.addresses = listen(tcp_addresses);
  if (errno != 0) code = errno;
  const bool is_nowhere = has_tcp_ ? rank_address_.addresses.empty() : rank_address_.unix_name.empty();
  if (is_nowhere || secure::lacks_descriptors(code)) {
    return make_errno_error(code, "wire-up", "listening sockets", has_tcp_ ? "TCP" : "Unix",
                            secure::lacks_descriptors(code) ? "raise the limit on open files (ulimit -n)" : "",
                            Status::unavailable);
  }
  rank_address_.host = wireup::this_host();
  return {};
}

std::vector<SocketAddress> Wireup::targets_of(const RankAddress& rank_address) const {
  std::vector<SocketAddress> targets;
  const bool is_same = rank_address.host == rank_address_.host;
  if (is_same && has_unix_ && !rank_address.unix_name.empty()) targets.push_back(network::unix_address(rank_address.unix_name));
  if (!has_tcp_) return targets;
  for (const SocketAddress& address : rank_address.addresses) {
    // Addresses that mean this host here (loopback, a bridge that every host has) are not where a rank of another host is.
    if (is_same || (!is_loopback(address) && !is_of_this_host(address))) targets.push_back(address);
  }
  return targets;
}

// Why none of a rank's addresses is of use.
std::optional<Error> Wireup::no_target_error(Rank rank) const {
  if (!identity().has_key) {
    return make_error(Status::no_permission, "connect", text("rank ", rank),
                      "it is on another host or in another network name space, and the job has no key: only Unix sockets are used",
                      text("set GIGABAR_JOB_KEY to the same secret at every rank; ", kRemedyOfNetworks));
  }
  if (!has_tcp_) {
    return make_error(Status::peer_lost, "connect", text("rank ", rank),
                      "it is on another host or in another network name space, and the job counts as one of a single host",
                      kRemedyOfNetworks);
  }
  return make_error(Status::peer_lost, "connect", text("rank ", rank), "none of its addresses can be reached from here",
                    "see that the hosts have addresses on a common network, and name others with GIGABAR_INTERFACES");
}

Result<void> Wireup::connect(Rank rank, const std::string& rank_address, std::int64_t deadline_ns) {
  if (rank >= identity().rank_count || rank == identity().rank) {
    return make_error(Status::invalid_argument, "connect", text("rank ", rank),
                      text("this is rank ", identity().rank, " of ", identity().rank_count));
  }
  const auto decoded = wireup::decode_rank_address(rank_address);
  if (!decoded) return decoded.error();
  std::vector<SocketAddress> targets = targets_of(*decoded);
  auto why = targets.empty() ? no_target_error(rank) : std::nullopt;
  dial(rank, std::move(targets), deadline_ns, std::move(why));
  return {};
}

Result<std::unique_ptr<Wireup>> Wireup::open(const Job& job, const WireupSettings& settings) {
  if (Result<void> started = start_sodium(); !started) return std::move(started).error();
  secure::Identity identity = identity_of(job, secure::Purpose::wireup);
  identity.version = settings.version;
  auto poller = secure::Poller::open();
  if (!poller) return std::move(poller).error();
  const bool has_key = identity.has_key;
  auto made = std::make_unique<Wireup>(std::move(identity), settings, std::move(*poller));
  Result<void> listening = made->listen_at(settings.has_unix, has_key ? settings.tcp_addresses : std::vector<SocketAddress>());
  if (!listening) return std::move(listening).error();
  return made;
}

Result<std::unique_ptr<Wireup>> Wireup::open(const Job& job) {
  WireupSettings settings;
  if (!job.is_on_one_host) {
    auto addresses = outer_addresses(job);
    if (!addresses) return addresses.error();
    settings.tcp_addresses = std::move(*addresses);
  }
  return open(job, settings);
}

}  // namespace gigabar::fabric
