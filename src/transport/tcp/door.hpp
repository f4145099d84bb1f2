// SPDX-License-Identifier: Apache-2.0
// Where peers connect. Who comes names a link and proves its key (secure/handshake.hpp); until then nothing that it sends is read
// by anything else, and nothing is kept for it but its place among a bounded number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "secure/pending_handshake.hpp"
#include "secure/pending_limit.hpp"
#include "transport/tcp/rails.hpp"
#include "transport/tcp/wire.hpp"

namespace gigabar::transport::tcp {

// What a poller's event is about: the kind in the first byte, a serial number in the rest.
enum class TokenKind : std::uint8_t { listener, guest, link };
constexpr std::uint64_t token_of(TokenKind kind, std::uint64_t serial) noexcept {
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | serial;
}
constexpr TokenKind token_kind(std::uint64_t token) noexcept { return static_cast<TokenKind>(token >> 56); }
constexpr std::uint64_t token_serial(std::uint64_t token) noexcept { return token & ((std::uint64_t{1} << 56) - 1); }

// A connection that has proved the key of its link.
struct Guest {
  std::uint64_t link = 0;
  secure::Established established;
};

class Door {
 public:
  explicit Door(secure::Poller& poller) noexcept;

  // Listens at each address of the rail where that is possible; at least one. Errors: unavailable, out_of_descriptors.
  Result<void> listen(const Rail& rail);
  // Where peers connect that want the rail of this index.
  const std::vector<secure::SocketAddress>& addresses(std::size_t rail) const { return addresses_[rail]; }

  // One connection for the link may come.
  void expect(std::uint64_t link, secure::Identity identity);
  void forget(std::uint64_t link) noexcept;

  // Events. Throw std::bad_alloc, with whom it concerned turned away.
  void accept(std::uint64_t listener, std::int64_t now_ns);
  std::optional<Guest> advance(std::uint64_t serial);
  void run_timers(std::int64_t now_ns);
  std::int64_t next_ns() const noexcept;

  // Connections that were turned away.
  std::uint64_t refused_count() const noexcept { return refused_count_; }

 private:
  struct Pending {
    secure::Connection connection;  // until there is a handshake
    std::int64_t deadline_ns = 0;
    std::string preamble;
    std::uint64_t link = 0;
    std::optional<secure::PendingHandshake> handshake;
  };
  using AllPending = std::map<std::uint64_t, Pending>;  // by serial number: the oldest first

  bool make_room(std::int64_t now_ns);
  void begin(Descriptor socket, const secure::SocketAddress& from, std::int64_t now_ns);
  bool read_preamble(Pending& pending);
  void drop(AllPending::iterator pending);
  void refuse(AllPending::iterator pending, const char* why);

  secure::Poller& poller_;
  std::vector<secure::Watched> listeners_;
  std::vector<std::vector<secure::SocketAddress>> addresses_;  // by rail
  std::unordered_map<std::uint64_t, secure::Identity> expected_;
  AllPending pending_;
  secure::PendingLimit limit_;
  std::uint64_t serial_ = 0;
  std::int64_t accept_again_at_ns_ = secure::kNever;
  std::uint64_t refused_count_ = 0;
};

}  // namespace gigabar::transport::tcp
