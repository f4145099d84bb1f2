// SPDX-License-Identifier: Apache-2.0
// The verbs transport over a real kernel's RDMA: what memory may be registered, how rails are named, and what packets carry. As
// verbs_transport_test.cpp.
#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/check_ids.hpp"
#include "transport/verbs/open.hpp"
#include "transport/verbs/wire.hpp"
#include "vm/verbs_link.hpp"

namespace gigabar {
namespace {

void drop_right_to_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  ASSERT_EQ(::syscall(SYS_capget, &header, data), 0);
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  ASSERT_EQ(::syscall(SYS_capset, &header, data), 0);
}

TEST_P(VerbsLink, TheLimitOfLockedMemoryIsExplained) {
  test::run_two([](Side& side) {
    if (side.index() == 1) return;
    open(side);
    const rlimit limit{65536, 65536};
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    drop_right_to_lock();
    std::vector<std::byte> memory(1 << 20);
    const auto region = side.transport->register_memory({memory.data(), memory.size(), MemoryKind::host_pageable, -1, -1, 0});
    ASSERT_FALSE(region);
    EXPECT_EQ(region.status(), Status::out_of_memory);
    EXPECT_NE(region.error().message().find("65536"), std::string::npos) << region.error().message();
    EXPECT_EQ(region.error().record().check, check_id::kLockedMemory);
    transport::Parcel parcel;
    const auto link = side.transport->offer({}, 0, parcel);
    ASSERT_FALSE(link);
    EXPECT_EQ(link.status(), Status::out_of_memory);
  });
}

TEST_P(VerbsLink, MemoryThatCannotBeRegisteredSaysWhy) {
  test::run_two([](Side& side) {
    if (side.index() == 1) return;
    transport::TransportOptions options;
    options.stand_in_registration = false;
    open(side, options);
    std::vector<std::byte> memory(4096);
    const auto stand_in = side.transport->register_memory({memory.data(), memory.size(), MemoryKind::stand_in, 0, -1, 0});
    ASSERT_FALSE(stand_in);
    EXPECT_EQ(stand_in.status(), Status::not_supported);
    EXPECT_NE(stand_in.error().message().find("does not reach stand-in memory"), std::string::npos);
    const auto unmapped =
        side.transport->register_memory({reinterpret_cast<void*>(4096), 4096, MemoryKind::host_pageable, -1, -1, 0});
    ASSERT_FALSE(unmapped);
    EXPECT_EQ(unmapped.status(), Status::not_supported) << unmapped.error().message();
    EXPECT_EQ(side.transport->register_memory({nullptr, 1, MemoryKind::host_pageable, -1, -1, 0}).status(),
              Status::invalid_argument);
    EXPECT_EQ(side.transport->register_memory({memory.data(), 0, MemoryKind::host_pageable, -1, -1, 0}).status(),
              Status::invalid_argument);
    const auto managed = side.transport->register_memory({memory.data(), 4096, MemoryKind::managed, 0, -1, 0});
    EXPECT_EQ(managed.status(), Status::not_supported);
  });
}

TEST_P(VerbsLink, RailsAreNamed) {
  test::run_two([](Side& side) {
    if (side.index() == 1) return;
    transport::TransportOptions options;
    options.rails = {rail(1) + "/1", rail(0)};
    auto two = transport::open_verbs(options);
    ASSERT_TRUE(two) << two.error().message();
    EXPECT_EQ((*two)->rails(), (std::vector<std::string>{rail(1) + "/1", rail(0) + "/1"}));
    EXPECT_LE((*two)->address().size(), 1024u);
    EXPECT_EQ(transport::rdma::read_card((*two)->address())->size(), 2u);
    transport::Peer peer;
    peer.address = (*two)->address();
    EXPECT_TRUE((*two)->can_reach(peer).is_ok());
    options.rails = {is_iwarp() ? "rxe0" : "siw0"};
    if (auto other = transport::open_verbs(options)) {
      const Availability reach = (*other)->can_reach(peer);
      EXPECT_FALSE(reach.is_ok()) << "RoCE does not speak iWARP";
      EXPECT_FALSE(reach.reason.empty());
    }
    options.rails = {"mlx5_9"};
    const auto missing = transport::open_verbs(options);
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.status(), Status::unavailable);
    EXPECT_NE(missing.error().message().find(rail(0)), std::string::npos) << "it says which there are";
    options.rails = {};
    options.rail_count = 3;
    auto all = transport::open_verbs(options);
    ASSERT_TRUE(all) << all.error().message();
    EXPECT_EQ((*all)->rails().size(), 3u);
  });
}

// Types of service of RoCE's packets between queue pairs, those of the connection manager (queue pair 1) left out: as the cable
// carries them.
class Listener {
 public:
  Listener() : socket_(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_IP))) {
    const int bytes = 16 << 20;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  }
  bool is_open() const { return socket_.is_open(); }
  std::map<unsigned, unsigned> take() const {
    std::map<unsigned, unsigned> counts;
    std::array<unsigned char, 2048> packet{};
    for (;;) {
      const ssize_t count = ::recv(socket_.get(), packet.data(), packet.size(), 0);
      if (count < 0) return counts;
      const std::size_t header = std::size_t{4} * (packet[0] & 15U);
      constexpr std::size_t kUdp = 8, kBase = 12;
      if (static_cast<std::size_t>(count) < header + kUdp + kBase || packet[9] != IPPROTO_UDP) continue;
      constexpr unsigned kRocePort = 4791;
      if ((packet[header + 2] << 8 | packet[header + 3]) != kRocePort) continue;
      const unsigned char* const base = packet.data() + header + kUdp;
      if ((base[5] << 16 | base[6] << 8 | base[7]) != 1) ++counts[packet[1]];
    }
  }

 private:
  Descriptor socket_;
};

TEST_P(VerbsLink, ServiceLevelAndTrafficClassAreOnTheWire) {
  struct Wanted {
    int service_level, traffic_class;
    unsigned on_wire;
    const char* said;
  };
  // Without a traffic class the service level's class selector. rxe sends no priorities of Ethernet, and says so: level 0.
  for (const Wanted& wanted : {Wanted{3, -1, 96, "traffic class 96,"}, Wanted{5, 104, 104, "traffic class 104,"},
                               Wanted{-1, 40, 40, "traffic class 40,"}, Wanted{-1, -1, 0, "traffic class 0,"}}) {
    if (is_iwarp()) break;
    test::run_two([&](Side& side) {
      transport::TransportOptions options;
      options.service_level = wanted.service_level;
      options.traffic_class = wanted.traffic_class;
      open(side, options);
      const Listener listener;
      ASSERT_TRUE(listener.is_open());
      ASSERT_NO_FATAL_FAILURE(side.meet());
      ASSERT_NO_FATAL_FAILURE(side.connect());
      std::vector<std::byte> memory(4096);
      const auto region = side.register_host(memory.data(), memory.size());
      side.tell_key(*region);
      const auto remote = side.open_told();
      ASSERT_NE(remote, nullptr);
      // Both ends, although only one of them asked the network.
      const std::string reason = side.link->reach(transport::Direction::write, *region, *remote).reason;
      EXPECT_NE(reason.find(wanted.said), std::string::npos) << reason;
      EXPECT_NE(reason.find("GID 1 RoCE v2, MTU "), std::string::npos) << reason;
      std::uint64_t next = 0;
      side.on_message = [&](std::uint64_t, std::span<const std::byte>) { ++next; };
      for (std::uint64_t number = 0; number < 50; ++number) ASSERT_TRUE(side.send(number, memory));
      EXPECT_TRUE(side.run_until([&] { return next == 50; })) << side.broken_text;
      ASSERT_NO_FATAL_FAILURE(side.meet());
      const auto seen = listener.take();
      EXPECT_EQ(seen.size(), 1u) << "one type of service";
      const auto found = seen.find(wanted.on_wire);
      ASSERT_NE(found, seen.end()) << "another one: " << (seen.empty() ? 0 : seen.begin()->first);
      EXPECT_GE(found->second, 100u) << "fifty messages of each side";
    });
  }
  test::run_two([](Side& side) {
    if (side.index() == 1) return;
    transport::TransportOptions options;
    options.rails = {rail(0)};
    options.service_level = is_iwarp() ? 0 : 8;
    const auto refused = transport::open_verbs(options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status(), is_iwarp() ? Status::not_supported : Status::invalid_argument);
    EXPECT_NE(refused.error().message().find("service_level"), std::string::npos) << refused.error().message();
    EXPECT_NE(refused.error().message().find(rail(0)), std::string::npos) << refused.error().message();
  });
}

}  // namespace
}  // namespace gigabar
