// SPDX-License-Identifier: Apache-2.0
// Whether the other host still answers on a connection. The kernel's own limit, TCP_USER_TIMEOUT, also ends connections whose peer
// does not read although its host answers every probe; without it the kernel asks for a quarter of an hour.
#pragma once

#include <cstdint>
#include <optional>

namespace gigabar::transport::tcp {

// What the kernel knows.
struct Path {
  bool has_unacknowledged = false;    // bytes that were sent, or wait for room at the peer
  std::int64_t silent_ns = 0;         // since the peer's host acknowledged or sent anything, be it again
  std::uint32_t probes = 0;           // for room at the peer, that were not answered
  std::uint32_t retransmissions = 0;  // in a row, that brought nothing forward; the peer's host may have answered them
};
// Nothing: it does not tell.
std::optional<Path> path_of(int socket) noexcept;

class Silence {
 public:
  // When to look again; of all connections at the same time.
  static std::int64_t next_look_ns(std::int64_t now_ns, std::int64_t limit_ns) noexcept;
  // Bytes were under way for `limit_ns` without an answer, and the kernel has asked for one at least twice.
  bool is_broken(const Path& path, std::int64_t now_ns, std::int64_t limit_ns) noexcept;

 private:
  std::int64_t answered_at_ns_ = 0;    // or nothing was to be answered
  std::uint32_t retransmissions_ = 0;  // until then
};

}  // namespace gigabar::transport::tcp
