// SPDX-License-Identifier: Apache-2.0
// A port that a test's job may listen on.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>

#include "base/descriptor.hpp"

namespace gigabar::test {

// Below the ports that the system gives to outgoing connections, so that none of them takes it meanwhile.
inline std::uint16_t free_port() {
  static std::mt19937 random(std::random_device{}() ^ unsigned(::getpid()));
  for (int probe = 0; probe < 200; ++probe) {
    const auto port = std::uint16_t(std::uniform_int_distribution<int>(12000, 32000)(random));
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(port);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return port;
  }
  ADD_FAILURE() << "no free port";
  return 0;
}

}  // namespace gigabar::test
