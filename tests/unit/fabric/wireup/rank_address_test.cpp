// SPDX-License-Identifier: Apache-2.0
// Addresses: what one rank writes another reads, and nothing else is taken.
#include <gtest/gtest.h>

#include <algorithm>

#include "ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

RankAddress full_rank_address() {
  RankAddress rank_address;
  rank_address.host = this_host();
  rank_address.unix_name = "gigabar-0123456789abcdef";
  rank_address.addresses = {ipv4({192, 0, 2, 7}, 4711), network::ip_address("\x20\x01\x0d\xb8 at the end.", 65535),
                            ipv4({127, 0, 0, 1}, 1)};
  return rank_address;
}

TEST(WireupAddress, SaysTheSameAfterReading) {
  const RankAddress rank_address = full_rank_address();
  const auto read = decode_rank_address(encode(rank_address));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->host, rank_address.host);
  EXPECT_EQ(read->unix_name, rank_address.unix_name);
  EXPECT_EQ(read->addresses, rank_address.addresses);
}

TEST(WireupAddress, EveryShorterOrLongerOneIsBad) {
  const std::string bytes = encode(full_rank_address());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(name_of(decode_rank_address(bytes.substr(0, length)).status()), "bad_file") << length;
  }
  EXPECT_EQ(decode_rank_address(bytes + 'x').status(), Status::bad_file);
}

TEST(WireupAddress, TooMuchOfAnythingIsBad) {
  RankAddress many = full_rank_address();
  many.addresses.assign(kMaxSocketAddresses + 1, ipv4({192, 0, 2, 7}, 4711));
  EXPECT_EQ(decode_rank_address(encode(many)).status(), Status::bad_file);
  RankAddress long_name = full_rank_address();
  long_name.unix_name.assign(kMaxUnixNameBytes + 1, 'x');
  EXPECT_EQ(decode_rank_address(encode(long_name)).status(), Status::bad_file);
  RankAddress no_port = full_rank_address();
  no_port.addresses[1] = with_port(no_port.addresses[1], 0);
  EXPECT_EQ(decode_rank_address(encode(no_port)).status(), Status::bad_file);
}

// It stands in errors and in the log.
TEST(WireupAddress, ANameThatIsNotPrintableIsBad) {
  for (const char* name : {"gigabar\n", "\x1b[2J", "a name", "\x7f", "\xc3\xa4"}) {
    RankAddress rank_address = full_rank_address();
    rank_address.unix_name = name;
    EXPECT_EQ(decode_rank_address(encode(rank_address)).status(), Status::bad_file) << testing::PrintToString(name);
  }
}

TEST(WireupAddress, AnIpv4AddressInsideAnIpv6OneIsLoopbackToo) {
  RankAddress rank_address = full_rank_address();
  std::string inside(16, '\0');
  inside.replace(10, 6, "\xff\xff\x7f\x09\x09\x09");
  rank_address.addresses = {network::ip_address(inside, 4711)};
  const auto read = decode_rank_address(encode(rank_address));
  ASSERT_TRUE(read);
  EXPECT_TRUE(is_loopback(read->addresses[0]));
  EXPECT_EQ(read->addresses[0].name, "127.9.9.9:4711");
}

TEST(WireupAddress, OfARank) {
  Node with_key(job_of(0, 2));
  Node without_key(job_of(1, 2, ""));
  EXPECT_LE(with_key.wireup->rank_address().size(), 512u);
  EXPECT_TRUE(without_key.rank_address().addresses.empty());
}

}  // namespace
}  // namespace gigabar::fabric::wireup
