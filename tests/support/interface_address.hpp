// SPDX-License-Identifier: Apache-2.0
// The address of a network interface, for tests in a network name space of their own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.hpp"

namespace gigabar::test {

// Gives `interface` the IPv4 address `written`, and takes it up.
inline void set_address(const char* interface, const char* written) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  auto& address = reinterpret_cast<sockaddr_in&>(request.ifr_addr);
  address.sin_family = AF_INET;
  ASSERT_EQ(::inet_pton(AF_INET, written, &address.sin_addr), 1);
  ASSERT_EQ(::ioctl(socket.get(), SIOCSIFADDR, &request), 0) << std::strerror(errno);
  request.ifr_flags = IFF_UP;
  ASSERT_EQ(::ioctl(socket.get(), SIOCSIFFLAGS, &request), 0) << std::strerror(errno);
}

}  // namespace gigabar::test
