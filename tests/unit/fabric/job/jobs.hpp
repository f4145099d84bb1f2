// SPDX-License-Identifier: Apache-2.0
// Jobs made by hand, and a free port for them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "fabric/job/job.hpp"

namespace gigabar::test {

inline constexpr std::int64_t kSecondNs = 1'000'000'000;

inline std::int64_t in_seconds(std::int64_t seconds) { return now_ns() + seconds * kSecondNs; }

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A port of loopback that nobody else is given while this lives, and that one can still listen at.
class FreePort {
 public:
  FreePort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    if (socket_.is_open() && ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0) {
      number_ = ntohs(address.sin_port);
    }
  }
  std::uint16_t number() const { return number_; }

 private:
  Descriptor socket_;
  std::uint16_t number_ = 0;
};

// With a key it counts as one of several hosts, and listens on TCP at loopback.
inline fabric::Job make_job(Rank rank, Rank rank_count, std::uint16_t port, const std::string& key = "sixteen bytes or more") {
  fabric::Job job;
  job.launcher = fabric::Launcher::environment;
  job.rank = rank;
  job.rank_count = rank_count;
  job.id = "test";
  if (!key.empty()) job.key = fabric::JobKey(key);
  job.master_address = "127.0.0.1";
  job.master_port = port;
  job.is_on_one_host = key.empty();
  return job;
}

}  // namespace gigabar::test
