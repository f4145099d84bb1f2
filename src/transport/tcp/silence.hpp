// SPDX-License-Identifier: Apache-2.0
// Whether the other host still answers on a connection. The kernel's own limit, TCP_USER_TIMEOUT, also ends connections whose peer
// does not read although its host answers every probe; without it the kernel asks for a quarter of an hour.
#pragma once

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
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
inline std::optional<Path> path_of(int socket) noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  int unacknowledged = 0;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || ::ioctl(socket, SIOCOUTQ, &unacknowledged) != 0) return {};
  // Data bring an acknowledgement too, which the kernel then does not note.
  const std::int64_t silent_ms = std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
  return Path{unacknowledged > 0, silent_ms * 1'000'000, info.tcpi_probes, info.tcpi_retransmits};
}

class Silence {
 public:
  // When to look again; of all connections at the same time.
  static std::int64_t next_look_ns(std::int64_t now_ns, std::int64_t limit_ns) noexcept {
    const std::int64_t look_ns = std::clamp(limit_ns / kLooksPerLimit, kMinLookNs, kMaxLookNs);
    return (now_ns / look_ns + 1) * look_ns;
  }
  // Bytes were under way for `limit_ns` without an answer, and the kernel has asked for one at least twice.
  bool is_broken(const Path& path, std::int64_t now_ns, std::int64_t limit_ns) noexcept {
    // Where nothing is under way there is nothing to answer.
    const std::int64_t answered_at_ns = path.has_unacknowledged ? now_ns - path.silent_ns : now_ns;
    if (answered_at_ns > answered_at_ns_ + kTicksNs) {
      answered_at_ns_ = answered_at_ns;
      retransmissions_ = path.retransmissions;
    }
    const bool was_asked = path.probes >= kMinQuestions || path.retransmissions >= retransmissions_ + kMinQuestions;
    return path.has_unacknowledged && now_ns - answered_at_ns_ >= limit_ns && was_asked;
  }

 private:
  static constexpr std::int64_t kMaxLookNs = 5'000'000'000;
  static constexpr std::int64_t kMinLookNs = 50'000'000;
  static constexpr unsigned kLooksPerLimit = 4;
  static constexpr std::int64_t kTicksNs = 20'000'000;  // the kernel counts in ticks of up to 10 ms
  static constexpr std::uint32_t kMinQuestions = 2;

  std::int64_t answered_at_ns_ = 0;    // or nothing was to be answered
  std::uint32_t retransmissions_ = 0;  // until then
};

}  // namespace gigabar::transport::tcp
