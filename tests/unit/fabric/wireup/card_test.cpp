// SPDX-License-Identifier: Apache-2.0
// Cards: what one rank writes another reads, and nothing else is taken.
#include <gtest/gtest.h>

#include <algorithm>

#include "ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

Card full_card() {
  Card card;
  card.host = this_host();
  card.unix_name = "gigabar-0123456789abcdef";
  card.ipv4_port = 4711;
  card.ipv6_port = 65535;
  card.addresses = {Address{false, {192, 0, 2, 7}}, Address{true, {0x20, 1, 0xd, 0xb8, 1}}, Address{false, {127, 0, 0, 1}}};
  return card;
}

TEST(WireupCard, SaysTheSameAfterReading) {
  const Card card = full_card();
  const auto read = decode_card(encode(card));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->host, card.host);
  EXPECT_EQ(read->unix_name, card.unix_name);
  EXPECT_EQ(read->ipv4_port, card.ipv4_port);
  EXPECT_EQ(read->ipv6_port, card.ipv6_port);
  EXPECT_EQ(read->addresses, card.addresses);
}

TEST(WireupCard, EveryShorterOrLongerOneIsBad) {
  const std::string bytes = encode(full_card());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(name_of(decode_card(bytes.substr(0, length)).status()), "bad_file") << length;
  }
  EXPECT_EQ(decode_card(bytes + 'x').status(), Status::bad_file);
}

TEST(WireupCard, TooMuchOfAnythingIsBad) {
  Card many = full_card();
  many.addresses.assign(kMaxCardAddresses + 1, Address{});
  EXPECT_EQ(decode_card(encode(many)).status(), Status::bad_file);
  Card long_name = full_card();
  long_name.unix_name.assign(kMaxUnixNameBytes + 1, 'x');
  EXPECT_EQ(decode_card(encode(long_name)).status(), Status::bad_file);
}

TEST(WireupCard, AnIpv4AddressInsideAnIpv6OneIsLoopbackToo) {
  Card card = full_card();
  card.addresses = {Address{true, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 9, 9, 9}}};
  const auto read = decode_card(encode(card));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->addresses[0].is_loopback());
  EXPECT_EQ(read->addresses[0].text(), "127.9.9.9");
}

TEST(WireupCard, OfARank) {
  Node with_key(job_of(0, 2));
  Node without_key(job_of(1, 2, ""));
  EXPECT_LE(with_key.wireup->card().size(), 512u);
  EXPECT_TRUE(with_key.wireup->is_same_host(without_key.wireup->card()));
  EXPECT_FALSE(with_key.wireup->is_same_host("nonsense"));
  EXPECT_TRUE(without_key.card().addresses.empty());
  Card elsewhere = without_key.card();
  elsewhere.host.network += 1;
  EXPECT_FALSE(with_key.wireup->is_same_host(encode(elsewhere)));
  elsewhere = without_key.card();
  elsewhere.host.boot[3] ^= 1;
  EXPECT_FALSE(with_key.wireup->is_same_host(encode(elsewhere)));
}

}  // namespace
}  // namespace gigabar::fabric::wireup
