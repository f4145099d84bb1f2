// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/silence.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

namespace gigabar::transport::tcp {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kMaxLookNs = 5'000 * kMillisecond;
constexpr std::int64_t kMinLookNs = 50 * kMillisecond;
constexpr unsigned kLooksPerLimit = 4;
constexpr std::uint32_t kMinQuestions = 2;

}  // namespace

std::optional<Path> path_of(int socket) noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  int unacknowledged = 0;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || ::ioctl(socket, SIOCOUTQ, &unacknowledged) != 0) return {};
  // Data bring an acknowledgement too, which the kernel then does not note.
  const std::int64_t silent_ms = std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
  return Path{unacknowledged > 0, silent_ms * kMillisecond, info.tcpi_probes, info.tcpi_retransmits};
}

std::int64_t Silence::next_look_ns(std::int64_t now_ns, std::int64_t limit_ns) noexcept {
  const std::int64_t look_ns = std::clamp(limit_ns / kLooksPerLimit, kMinLookNs, kMaxLookNs);
  return (now_ns / look_ns + 1) * look_ns;
}

bool Silence::is_broken(const Path& path, std::int64_t now_ns, std::int64_t limit_ns) noexcept {
  // Where nothing is under way there is nothing to answer. The kernel counts in ticks of up to 10 ms.
  const std::int64_t answered_at_ns = path.has_unacknowledged ? now_ns - path.silent_ns : now_ns;
  if (answered_at_ns > answered_at_ns_ + 20 * kMillisecond) {
    answered_at_ns_ = answered_at_ns;
    retransmissions_ = path.retransmissions;
  }
  const bool was_asked = path.probes >= kMinQuestions || path.retransmissions >= retransmissions_ + kMinQuestions;
  return path.has_unacknowledged && now_ns - answered_at_ns_ >= limit_ns && was_asked;
}

}  // namespace gigabar::transport::tcp
