// SPDX-License-Identifier: Apache-2.0
// Who makes room: PendingLimit of secure/acceptor.hpp.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>

#include "platform/network.hpp"
#include "secure/acceptor.hpp"

namespace gigabar {
namespace {

using secure::PendingLimit;
using secure::source_of;

constexpr std::int64_t kSilentNs = 10, kSpokenNs = 100;

network::SocketAddress address(const char* written) {
  network::SocketAddress made;
  sockaddr_storage& storage = made.storage;
  auto& four = reinterpret_cast<sockaddr_in&>(storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(storage);
  storage.ss_family = AF_INET;
  if (::inet_pton(AF_INET, written, &four.sin_addr) == 1) return made;
  storage.ss_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, written, &six.sin6_addr), 1);
  return made;
}

TEST(PendingLimit, TheOldestSilentOneGoesFirstThenTheOldest) {
  PendingLimit strangers(3, kSilentNs, kSpokenNs);
  EXPECT_FALSE(strangers.weakest(1000));
  for (PendingLimit::Id id = 1; id <= 3; ++id) strangers.add(id, "a", 0);
  EXPECT_TRUE(strangers.is_full());
  EXPECT_FALSE(strangers.weakest(kSilentNs - 1)) << "each has its moment";
  EXPECT_EQ(strangers.weakest(kSilentNs), 1u);
  strangers.note_hello(1);
  EXPECT_EQ(strangers.weakest(kSilentNs), 2u);
  strangers.note_hello(2);
  strangers.note_hello(3);
  EXPECT_FALSE(strangers.weakest(kSpokenNs - 1));
  EXPECT_EQ(strangers.weakest(kSpokenNs), 1u);
  strangers.remove(1);
  strangers.remove(1);
  EXPECT_EQ(strangers.count(), 2u);
  EXPECT_FALSE(strangers.is_full());
}

TEST(PendingLimit, OfTheSourceThatHasMost) {
  PendingLimit strangers(8, kSilentNs, kSpokenNs);
  strangers.add(1, "rank", 0);
  strangers.add(2, "rank", 0);
  for (PendingLimit::Id id = 3; id <= 5; ++id) strangers.add(id, "flood", 0);
  EXPECT_EQ(strangers.weakest(1000), 3u) << "the rank came first, and stays";
  for (PendingLimit::Id id = 3; id <= 5; ++id) strangers.note_hello(id);
  EXPECT_EQ(strangers.weakest(1000), 1u) << "they hold the key, so they are no flood";
  strangers.remove(3);
  strangers.remove(1);
  EXPECT_EQ(strangers.weakest(1000), 2u);
  strangers.add(6, "late", 0);
  strangers.add(7, "late", 0);
  EXPECT_EQ(strangers.weakest(1000), 6u);
}

// One connection from each of many addresses, which come before and after the rank's.
TEST(PendingLimit, AFloodFromManySourcesPutsOutItsOwn) {
  PendingLimit strangers(4, kSilentNs, kSpokenNs);
  for (PendingLimit::Id id = 1; id <= 3; ++id) strangers.add(id, source_of(address(("127.0.0." + std::to_string(id)).c_str())), 0);
  strangers.add(4, source_of(address("10.0.0.1")), 100);
  EXPECT_EQ(strangers.weakest(400), 1u) << "the oldest";
  strangers.note_hello(4);
  strangers.note_hello(4);
  for (PendingLimit::Id id = 1; id <= 3; ++id) {
    EXPECT_EQ(strangers.weakest(400), id);
    strangers.remove(id);
    strangers.add(id + 4, source_of(address(("127.0.1." + std::to_string(id)).c_str())), 400);
  }
  EXPECT_FALSE(strangers.weakest(400)) << "a new one has its moment, and the rank stays";
  EXPECT_EQ(strangers.weakest(400 + kSilentNs), 5u);
}

TEST(PendingLimit, ComeFromAnAddressOrFromANetworkOfIpv6) {
  EXPECT_EQ(source_of(address("192.0.2.1")), source_of(address("::ffff:192.0.2.1")));
  EXPECT_NE(source_of(address("192.0.2.1")), source_of(address("192.0.2.2")));
  EXPECT_EQ(source_of(address("2001:db8:0:1::1")), source_of(address("2001:db8:0:1:ffff::2"))) << "one host may have all of them";
  EXPECT_NE(source_of(address("2001:db8:0:1::1")), source_of(address("2001:db8:0:2::1")));
  network::SocketAddress local;
  local.storage.ss_family = AF_UNIX;
  EXPECT_EQ(source_of(local), "");
}

}  // namespace
}  // namespace gigabar
