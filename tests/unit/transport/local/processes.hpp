// SPDX-License-Identifier: Apache-2.0
// Ranks of a test in forked processes, which hand each other parcels through a socket.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>

#include "unit/transport/local/pair.hpp"

namespace gigabar::transport::test {

inline void send_parcel(int socket, const Parcel& parcel) {
  char control[CMSG_SPACE(sizeof(int) * kMaxParcelDescriptors)] = {};
  const auto count = static_cast<std::uint32_t>(parcel.descriptors.size());
  iovec parts[2] = {{const_cast<std::uint32_t*>(&count), sizeof count},
                    {const_cast<char*>(parcel.bytes.data()), parcel.bytes.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const int descriptor = parcel.descriptors[i].get();
      std::memcpy(CMSG_DATA(head) + i * sizeof descriptor, &descriptor, sizeof descriptor);
    }
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) throw std::runtime_error("the other rank is gone");
}

inline Parcel receive_parcel(int socket) {
  char control[CMSG_SPACE(sizeof(int) * kMaxParcelDescriptors)] = {};
  std::vector<char> bytes(kMaxParcelBytes + sizeof(std::uint32_t));
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < static_cast<ssize_t>(sizeof(std::uint32_t))) throw std::runtime_error("the other rank is gone");
  Parcel parcel;
  parcel.bytes.assign(bytes.data() + sizeof(std::uint32_t), static_cast<std::size_t>(got) - sizeof(std::uint32_t));
  std::uint32_t count = 0;
  std::memcpy(&count, bytes.data(), sizeof count);
  for (std::uint32_t i = 0; i < count; ++i) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)) + i * sizeof descriptor, sizeof descriptor);
    parcel.descriptors.emplace_back(descriptor);
  }
  return parcel;
}

// One of two ranks in two processes: a transport and a link to the other.
class RankProcess {
 public:
  RankProcess(int socket, Rank rank, std::int64_t other_process, int near_device = -1)
      : socket_(socket), transport(open_one(near_device)), peer(peer_of(*transport, 1 - rank, other_process)) {
    Parcel parcel;
    if (rank == 0) {
      link = must(transport->offer(peer, 0, parcel));
      send_parcel(socket, parcel);
      if (const Result<void> done = link->complete(receive_parcel(socket)); !done) throw std::runtime_error(done.message());
    } else {
      link = must(transport->accept(peer, receive_parcel(socket), parcel));
      send_parcel(socket, parcel);
    }
  }

  void show(const Region& region) const { send_parcel(socket_, must(region.key(peer))); }
  std::unique_ptr<RemoteRegion> open_shown() const { return must(transport->open_region(peer, receive_parcel(socket_))); }
  // Both get here.
  void meet() const {
    send_parcel(socket_, {});
    (void)receive_parcel(socket_);
  }
  template <class Condition>
  bool poll_until(const Condition& is_reached) {
    const Deadline deadline = Deadline::after_ns(kLongNs);
    while (!is_reached()) {
      if (!transport->poll(sink)) {
        if (deadline.has_passed()) return false;
      }
    }
    return true;
  }
  void post(const Header& header, std::span<const std::byte> payload = {}) {
    const bool is_posted = poll_until([&] { return link->post_message(header, payload) != Posted::full; });
    if (!is_posted || link->state() != LinkState::ready) throw std::runtime_error("cannot post");
  }

 private:
  const int socket_;

 public:
  const std::unique_ptr<Transport> transport;
  const Peer peer;
  Recorder sink;
  std::unique_ptr<Link> link;
};

// Runs `rank_1` in a forked process and `rank_0` here; each gets its socket and the other's process. Failures in either fail the
// test; the forked one is ended when it takes more than a minute.
inline void run_two(const std::function<void(int, pid_t)>& rank_0, const std::function<void(int, pid_t)>& rank_1) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const Descriptor here(pair[0]);
  Descriptor there(pair[1]);
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    ::close(here.get());
    try {
      rank_1(there.get(), parent);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank 1: " << error.what();
    }
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  there = Descriptor();
  try {
    rank_0(here.get(), child);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank 0: " << error.what();
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "rank 1 failed; see above";
}

}  // namespace gigabar::transport::test
