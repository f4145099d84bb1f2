// SPDX-License-Identifier: Apache-2.0
// What peers send for verbs links: transport/verbs/wire.hpp.
#include "transport/verbs/wire.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace gigabar::transport::rdma {
namespace {

RailAddress ipv4(std::uint8_t last, Technology technology = Technology::roce) {
  RailAddress address;
  address.technology = technology;
  address.bytes = {10, 77, 0, last};
  address.prefix_bits = 24;
  address.port = 40000;
  return address;
}

RailAddress ipv6() {
  RailAddress address;
  address.is_ipv6 = true;
  address.bytes = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  address.prefix_bits = 64;
  address.port = 65535;
  return address;
}

Token token(std::uint8_t first) {
  Token all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(first + i);
  return all;
}

// Each kind of bytes, whole, and whether its reader takes them.
struct Kind {
  std::string bytes;
  std::function<bool(std::string_view)> is_read;
};
std::vector<Kind> all_kinds() {
  return {{write_card(std::vector{ipv4(1), ipv6()}), [](std::string_view bytes) { return read_card(bytes).has_value(); }},
          {write_offer({3, ipv4(1), token(7)}), [](std::string_view bytes) { return read_offer(bytes).has_value(); }},
          {write_answer({3, ipv6(), token(7)}), [](std::string_view bytes) { return read_answer(bytes).has_value(); }},
          {write_key({MemoryKind::device, 0x7f00'0000'0000, 1 << 20, {1, 2}}),
           [](std::string_view bytes) { return read_key(bytes).has_value(); }}};
}

TEST(VerbsWire, EverythingComesBackAsItWas) {
  std::vector<RailAddress> rails;
  for (std::uint8_t i = 1; i <= kMaxRails; ++i) rails.push_back(i % 3 == 0 ? ipv6() : ipv4(i, Technology::iwarp));
  const std::string address = write_card(rails);
  EXPECT_LE(address.size(), 1024u) << "the most that an address may have";
  EXPECT_EQ(read_card(address), rails);

  const auto offer = read_offer(write_offer({3, ipv4(9), token(7)}));
  ASSERT_TRUE(offer);
  EXPECT_EQ(offer->rail, 3);
  EXPECT_EQ(offer->from, ipv4(9));
  EXPECT_EQ(offer->token, token(7));

  const auto answer = read_answer(write_answer({15, ipv6(), token(200)}));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->rail, 15);
  EXPECT_EQ(answer->to, ipv6());
  EXPECT_EQ(answer->token, token(200));

  const auto key = read_key(write_key({MemoryKind::stand_in, 0x7f12'3456'7000, 12345, {0xffffffff, 0, 77}, true}));
  ASSERT_TRUE(key);
  EXPECT_EQ(key->kind, MemoryKind::stand_in);
  EXPECT_EQ(key->address, 0x7f12'3456'7000u);
  EXPECT_EQ(key->bytes, 12345u);
  EXPECT_EQ(key->keys, (std::vector<std::uint32_t>{0xffffffff, 0, 77}));
  EXPECT_TRUE(key->has_atomics);
}

TEST(VerbsWire, OneByteMoreOrLessIsMalformed) {
  for (const Kind& kind : all_kinds()) {
    ASSERT_TRUE(kind.is_read(kind.bytes));
    for (std::size_t count = 0; count < kind.bytes.size(); ++count)
      EXPECT_FALSE(kind.is_read(std::string_view(kind.bytes).substr(0, count)));
    EXPECT_FALSE(kind.is_read(kind.bytes + '\0'));
  }
}

TEST(VerbsWire, OneKindIsNotTakenForAnother) {
  const auto kinds = all_kinds();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    for (std::size_t k = 0; k < kinds.size(); ++k) EXPECT_EQ(kinds[i].is_read(kinds[k].bytes), i == k);
  }
}

TEST(VerbsWire, AnotherVersionIsRefused) {
  for (Kind kind : all_kinds()) {
    kind.bytes[4] = static_cast<char>(kWireVersion + 1);
    EXPECT_FALSE(kind.is_read(kind.bytes));
  }
}

TEST(VerbsWire, ValuesThatCannotBeAreRefused) {
  const auto refuses_answer = [](std::function<void(Answer&)> change) {
    Answer answer{0, ipv4(1), token(1)};
    change(answer);
    return !read_answer(write_answer(answer));
  };
  EXPECT_FALSE(refuses_answer([](Answer&) {}));
  EXPECT_TRUE(refuses_answer([](Answer& answer) { answer.rail = kMaxRails; }));
  EXPECT_TRUE(refuses_answer([](Answer& answer) { answer.to.port = 0; }));
  EXPECT_TRUE(refuses_answer([](Answer& answer) { answer.to.technology = static_cast<Technology>(3); }));
  EXPECT_TRUE(refuses_answer([](Answer& answer) { answer.to.prefix_bits = 33; }));
  EXPECT_TRUE(refuses_answer([](Answer& answer) { answer.to.bytes[5] = 1; })) << "an IPv4 address has four bytes";
  EXPECT_TRUE(refuses_answer([](Answer& answer) { answer.to.bytes = {}; })) << "the address of nobody";

  const auto refuses_key = [](std::function<void(Key&)> change) {
    Key key{MemoryKind::device, 4096, 4096, {1}};
    change(key);
    return !read_key(write_key(key));
  };
  EXPECT_FALSE(refuses_key([](Key&) {}));
  EXPECT_TRUE(refuses_key([](Key& key) { key.bytes = 0; }));
  EXPECT_TRUE(refuses_key([](Key& key) { key.bytes = UINT64_MAX; }));
  EXPECT_TRUE(refuses_key([](Key& key) { key.address = UINT64_MAX - 1; })) << "it ends beyond the last address";
  EXPECT_TRUE(refuses_key([](Key& key) { key.keys.clear(); }));
  EXPECT_TRUE(refuses_key([](Key& key) { key.kind = static_cast<MemoryKind>(99); }));

  std::string address = write_card(std::vector{ipv4(1)});
  address[5] = 0;
  EXPECT_FALSE(read_card(address)) << "no rails";
  address[5] = static_cast<char>(kMaxRails + 1);
  EXPECT_FALSE(read_card(address));
}

TEST(VerbsWire, RandomBytesNeverHurt) {
  std::mt19937 random(7);
  for (const Kind& kind : all_kinds()) {
    for (int i = 0; i < 20000; ++i) {
      std::string bytes = kind.bytes;
      for (unsigned k = 0; k < 1 + random() % 4; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
      if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
      kind.is_read(bytes);
    }
  }
}

TEST(VerbsWire, PrivateDataFitsAndMayBePadded) {
  const Introduction sent{token(3), 0x7f00'1234'5000, 0xabcdef01, true};
  auto bytes = write_introduction(sent);
  EXPECT_LE(bytes.size(), 56u) << "what InfiniBand and RoCE leave";
  std::vector<std::uint8_t> padded(bytes.begin(), bytes.end());
  padded.resize(196);
  for (const std::size_t count : {bytes.size(), std::size_t{56}, padded.size()}) {
    const auto read = read_introduction(std::span(padded).first(count));
    ASSERT_TRUE(read) << count;
    EXPECT_EQ(read->token, sent.token);
    EXPECT_EQ(read->probe_address, sent.probe_address);
    EXPECT_EQ(read->probe_key, sent.probe_key);
    EXPECT_TRUE(read->is_in_order);
  }
  for (std::size_t count = 0; count < bytes.size(); ++count) EXPECT_FALSE(read_introduction(std::span(padded).first(count)));
  EXPECT_FALSE(read_introduction(std::vector<std::uint8_t>(56))) << "what others send, and nothing at all";

  EXPECT_EQ(read_refusal(write_refusal(Refusal::unknown_token)), Refusal::unknown_token);
  EXPECT_EQ(read_refusal(write_refusal(Refusal::no_resources)), Refusal::no_resources);
  EXPECT_FALSE(read_refusal({}));
  EXPECT_FALSE(read_refusal(bytes));

  const auto plain = write_introduction({token(3), 1, 2, false});
  ASSERT_TRUE(read_introduction(plain));
  EXPECT_FALSE(read_introduction(plain)->is_in_order);
  const auto place =
      std::mismatch(bytes.begin(), bytes.end(), write_introduction({token(3), sent.probe_address, sent.probe_key}).begin()).first;
  ASSERT_NE(place, bytes.end());
  *place = 2;
  EXPECT_FALSE(read_introduction(bytes)) << "neither yes nor no";
}

TEST(VerbsWire, MessagesAreAsLongAsTheySay) {
  constexpr std::uint8_t kCallerHeader = 24;
  std::vector<std::byte> message(kMessageHeaderBytes + kCallerHeader + 100);
  write_message_header({MessageKind::payload, true, false, 513, 100, kCallerHeader}, message.data());
  const auto header = read_message_header(message);
  ASSERT_TRUE(header);
  EXPECT_TRUE(header->follows_gpu_writes);
  EXPECT_FALSE(header->wants_credits);
  EXPECT_EQ(header->credits, 513);
  EXPECT_EQ(header->payload_bytes, 100u);
  EXPECT_EQ(header->caller_bytes, kCallerHeader);
  for (std::size_t count = 0; count < message.size(); ++count) EXPECT_FALSE(read_message_header(std::span(message).first(count)));
  write_message_header({MessageKind::payload, false, true, 513, 100, kCallerHeader}, message.data());
  EXPECT_FALSE(read_message_header(message)->follows_gpu_writes);
  EXPECT_TRUE(read_message_header(message)->wants_credits);
  write_message_header({MessageKind::payload, false, false, 0, 0xffff, kCallerHeader}, message.data());
  EXPECT_FALSE(read_message_header(message));
  // Each is as long as it says, but there are no such headers.
  write_message_header({MessageKind::payload, false, false, 0, 104, 20}, message.data());
  EXPECT_FALSE(read_message_header(message));
  write_message_header({MessageKind::payload, false, false, 0, 84, 40}, message.data());
  EXPECT_FALSE(read_message_header(message));

  const auto bare = std::span(message).first(kMessageHeaderBytes);
  write_message_header({MessageKind::credits, false, false, 64, 0, 0}, message.data());
  EXPECT_EQ(read_message_header(bare)->kind, MessageKind::credits);
  EXPECT_FALSE(read_message_header(message)) << "nothing follows credits";
  write_message_header({MessageKind::hello, false, false, 0, 4, 0}, message.data());
  EXPECT_FALSE(read_message_header(std::span(message).first(kMessageHeaderBytes + 4)));
  for (const int kind : {0, 4, 255}) {
    write_message_header({static_cast<MessageKind>(kind), false, false, 0, 0, 0}, message.data());
    EXPECT_FALSE(read_message_header(bare)) << kind;
  }
}

TEST(VerbsWire, ZerosAtTheEndOfAHeaderAreNotNeeded) {
  Header header{};
  EXPECT_EQ(needed_bytes(header), 0);
  for (std::size_t at = 0; at < header.size(); ++at) {
    header = {};
    header[at] = std::byte{1};
    EXPECT_EQ(needed_bytes(header), at / 8 * 8 + 8) << at;
  }
}

TEST(VerbsWire, NetworksAreCompared) {
  EXPECT_TRUE(is_same_network(ipv4(1), ipv4(254)));
  RailAddress other = ipv4(1);
  other.bytes[2] = 1;
  EXPECT_FALSE(is_same_network(ipv4(1), other));
  other.prefix_bits = 23;
  EXPECT_TRUE(is_same_network(other, [] {
    RailAddress wide = ipv4(9);
    wide.prefix_bits = 23;
    return wide;
  }()));
  EXPECT_FALSE(is_same_network(ipv4(1), ipv6()));
  EXPECT_TRUE(is_same_network(ipv6(), ipv6()));
  EXPECT_EQ(text_of(ipv4(7)), "10.77.0.7");
  EXPECT_EQ(text_of(ipv6()), "fd00::1");
}

TEST(VerbsWire, TokensDifferInAnyByte) {
  const Token good = token(9);
  EXPECT_TRUE(is_equal(good, token(9)));
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Token other = good;
      other[i] = static_cast<std::uint8_t>(other[i] ^ 1 << bit);
      EXPECT_FALSE(is_equal(good, other));
    }
  }
}

}  // namespace
}  // namespace gigabar::transport::rdma
