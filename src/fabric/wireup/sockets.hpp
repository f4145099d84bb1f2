// SPDX-License-Identifier: Apache-2.0
// System calls on sockets as the wire-up needs them; nothing here waits or raises SIGPIPE.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "fabric/wireup/rank_address.hpp"

namespace gigabar::fabric::wireup {

// Where a socket connects to.
struct Target {
  bool is_unix = false;
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  std::string text;  // for messages: "unix socket gigabar-...", "192.0.2.2 port 4711"
};
Target unix_target(const std::string& name);
Target tcp_target(const Address& address, std::uint16_t port);

// Listening sockets; not open, with errno set, when there can be none.
Descriptor listen_unix(const std::string& name);
// All addresses are of one family; all sockets listen at the same port, which the system chose. Empty, with errno set, when there
// are none.
std::vector<Descriptor> listen_tcp(const std::vector<Address>& addresses, std::uint16_t& port);

// A socket that is connecting or connected; not open, with errno set, when that failed at once.
Descriptor start_connect(const Target& target);
// No delay, and an error after about 20 s in which the other host answered nothing.
void set_tcp_options(int socket) noexcept;

struct Credentials {
  pid_t process = 0;  // in this process's numbering; 0: not visible here
  uid_t user = 0;
};
// Of the process at the other end of a Unix socket, as it was when it connected or listened.
std::optional<Credentials> credentials_of(int socket) noexcept;
// Readable when that process has ended; not open when the kernel has no such thing.
Descriptor watch_process(pid_t process) noexcept;

enum class Arrival : std::uint8_t { complete, incomplete, ended, failed };
// Reads until `bytes` has `wanted_bytes`, and nothing beyond. Descriptors that come along are not taken: the kernel closes them.
Arrival read_up_to(int socket, std::string& bytes, std::size_t wanted_bytes);
// Small messages of a handshake: a fresh socket has room for them. False with errno set.
bool send_now(int socket, std::string_view bytes) noexcept;
// Of a listener: somebody waits there.
bool is_readable(int socket) noexcept;
// True when the other end has closed and nothing is left to be read.
bool is_at_end(int socket) noexcept;
// Says the end to the other side too when a forked child holds a copy, and lets it read everything that was sent.
void end_connection(int socket) noexcept;

}  // namespace gigabar::fabric::wireup
