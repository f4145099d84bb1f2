// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a test listen, and how to knock there.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/descriptor.hpp"

namespace gigabar::test {

struct Doors {
  std::vector<std::uint16_t> tcp_ports;
  std::set<std::string> tcp_addresses;  // hexadecimal, as the kernel has them in memory
  std::vector<std::string> unix_names;  // in the abstract name space, without the leading zero

  void add(const Doors& more) {
    tcp_ports.insert(tcp_ports.end(), more.tcp_ports.begin(), more.tcp_ports.end());
    tcp_addresses.insert(more.tcp_addresses.begin(), more.tcp_addresses.end());
    unix_names.insert(unix_names.end(), more.unix_names.begin(), more.unix_names.end());
  }
};

// The names of a process's descriptors, as the kernel has them: "socket:[4711]".
inline std::vector<std::string> descriptors_of(pid_t process) {
  std::vector<std::string> names;
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = ::readdir(open)) {
    std::array<char, 64> target{};
    if (::readlinkat(dirfd(open), entry->d_name, target.data(), target.size() - 1) > 0) names.emplace_back(target.data());
  }
  ::closedir(open);
  return names;
}

inline std::set<std::string> socket_inodes(pid_t process) {
  std::set<std::string> inodes;
  for (const std::string& name : descriptors_of(process)) {
    if (name.starts_with("socket:[")) inodes.insert(name.substr(8, name.size() - 9));
  }
  return inodes;
}

// Where the process listens. Source: proc(5), /proc/net/tcp and /proc/net/unix.
inline Doors doors_of(pid_t process) {
  Doors doors;
  const std::set<std::string> inodes = socket_inodes(process);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      if (state != "0A" || !inodes.contains(inode)) continue;
      doors.tcp_addresses.insert(local.substr(0, local.find(':')));
      doors.tcp_ports.push_back(std::uint16_t(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
    }
  }
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if (flags == "00010000" && inodes.contains(inode) && path.starts_with('@')) doors.unix_names.push_back(path.substr(1));
  }
  return doors;
}

inline Descriptor knock_tcp(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  return socket;
}

inline Descriptor knock_unix(const std::string& name, int type) {
  Descriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return {};
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return {};
  return socket;
}

// One connection to each door.
inline std::vector<Descriptor> knock(const Doors& doors) {
  std::vector<Descriptor> all;
  for (const std::uint16_t port : doors.tcp_ports) all.push_back(knock_tcp(port));
  for (const std::string& name : doors.unix_names) {
    for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) all.push_back(knock_unix(name, type));
  }
  std::erase_if(all, [](const Descriptor& one) { return !one.is_open(); });
  return all;
}

}  // namespace gigabar::test
