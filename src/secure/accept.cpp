// SPDX-License-Identifier: Apache-2.0
#include "secure/accept.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.hpp"
#include "base/log.hpp"

namespace gigabar::secure {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
// No descriptor or memory for a connection that waits: looking again at once would be a loop at full speed.
constexpr std::int64_t kAcceptPauseNs = 100 * kMillisecond;
// While many ranks come at once the next ones wait in the listener's queue, as long as those before them may still be about to
// prove who they are.
constexpr std::int64_t kCrowdPauseNs = 5 * kMillisecond;
constexpr int kMaxAcceptsPerTurn = 64;

void log_exhaustion(int code) {
  if (!is_logged(LogLevel::info)) return;
  log(LogLevel::info, text("accept: ", std::strerror(code), ": ranks that connect have to wait",
                           lacks_descriptors(code) ? " until a descriptor is free; raise 'ulimit -n'" : ""));
}

}  // namespace

std::int64_t accept_waiting(int listener, const PendingLimit& limit, std::int64_t now_ns,
                            const std::function<void(Descriptor, const SocketAddress&)>& accepted) {
  for (int turn = 0; turn < kMaxAcceptsPerTurn; ++turn) {
    // Nobody waits for one who does not come.
    if (limit.is_full() && !is_readable(listener)) return 0;
    if (limit.is_crowded(now_ns)) return kCrowdPauseNs;
    SocketAddress from;
    from.bytes = sizeof from.storage;
    Descriptor socket(::accept4(listener, reinterpret_cast<sockaddr*>(&from.storage), &from.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) {
      accepted(std::move(socket), from);
      continue;
    }
    const int code = errno;
    if (code == EAGAIN) return 0;
    if (!lacks_resources(code)) continue;  // that connection broke while it waited
    log_exhaustion(code);
    return kAcceptPauseNs;
  }
  return 0;
}

void log_refusal(const std::string& where, const char* why, std::uint64_t count) {
  if (!is_logged(LogLevel::info) || !std::has_single_bit(count)) return;
  log(LogLevel::info, text("turned away ", where, ": ", why, " (", count, " of this kind so far)"));
}

}  // namespace gigabar::secure
