// SPDX-License-Identifier: Apache-2.0
// A port that a test's job may listen on.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "base/descriptor.hpp"

namespace gigabar::test {

// Ports that no other test process has until this one ends. A bound port would not do: jobs of one host listen at Unix sockets,
// whose names have the port. So a name that no job uses stands for the block.
struct PortBlock {
  static constexpr int kPorts = 16;
  Descriptor name;
  int first = 0;
  int taken = 0;
};

// main() asks for it before the first test, so that its descriptor is no test's.
inline PortBlock& port_block() {
  static PortBlock block = [] {
    // Below the ports that the system gives to outgoing connections, so that none of them takes one meanwhile.
    constexpr int kFirst = 12000, kEnd = 32000, kTries = 200;
    std::mt19937 random(std::random_device{}() ^ unsigned(::getpid()));
    std::uniform_int_distribution<int> number(0, (kEnd - kFirst) / PortBlock::kPorts - 1);
    for (int tries = 0; tries < kTries; ++tries) {
      const int first = kFirst + number(random) * PortBlock::kPorts;
      const std::string text = "gigabar-test-ports-" + std::to_string(first);
      Descriptor name(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, text.data(), text.size());
      const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
      if (::bind(name.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return PortBlock{std::move(name), first, 0};
    }
    return PortBlock{};
  }();
  return block;
}

inline std::uint16_t free_port() {
  PortBlock& block = port_block();
  for (int tries = 0; tries < PortBlock::kPorts && block.first != 0; ++tries) {
    const auto port = std::uint16_t(block.first + block.taken++ % PortBlock::kPorts);
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
