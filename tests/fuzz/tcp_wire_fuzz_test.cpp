// SPDX-License-Identifier: Apache-2.0
// What a peer of the transport tcp may say, changed at random: parcels, keys, and frames of one that has proved the key of its
// link.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/mutator.hpp"
#include "platform/network.hpp"
#include "unit/transport/tcp/raw_peer.hpp"

namespace gigabar::transport::tcp::test {
namespace {

using gigabar::test::for_a_while;
using gigabar::test::Mutator;

Offer some_offer(Mutator& mutator) {
  Offer offer;
  offer.link = 1 + mutator.below(1 << 20);
  offer.secret = secure::Secret(std::string(kSecretBytes, 'k'));
  offer.lanes = static_cast<unsigned>(mutator.below(kMaxLanes + 1));
  for (std::size_t count = 1 + mutator.below(kMaxTargets); count > 0; --count) {
    const std::string bytes = mutator.once_in(2) ? std::string("\x7f\0\0\1", 4) : std::string(16, '\xfd');
    offer.targets.push_back(network::ip_address(bytes, static_cast<std::uint16_t>(1 + mutator.below(65535))));
  }
  return offer;
}

TEST(TcpWireFuzz, OffersAndKeys) {
  std::size_t read = 0;
  for_a_while([&](Mutator& mutator) {
    const std::string offer = encode(some_offer(mutator));
    const std::string changed = mutator.once_in(8) ? mutator.bytes(400) : mutator.changed(offer, 2);
    if (const auto decoded = decode_offer(changed)) {
      ++read;
      EXPECT_NE(decoded->link, 0u);
      ASSERT_LE(decoded->targets.size(), kMaxTargets);
      EXPECT_LE(decoded->lanes, kMaxLanes);
      EXPECT_FALSE(decoded->targets.empty());
      for (const network::SocketAddress& target : decoded->targets) EXPECT_NE(network::port_of(target), 0);
      const auto again = decode_offer(encode(*decoded));
      ASSERT_TRUE(again);
      EXPECT_EQ(again->secret.bytes(), decoded->secret.bytes());
      EXPECT_EQ(again->targets.size(), decoded->targets.size());
    } else {
      EXPECT_EQ(decoded.status(), Status::bad_file);
    }
    const std::string key = mutator.changed(encode(RegionKey{7, 8, 1 + mutator.below(1 << 30), mutator.once_in(2)}), 2);
    if (const auto decoded = decode_region_key(key)) {
      ++read;
      EXPECT_GT(decoded->bytes, 0u);
      EXPECT_EQ(encode(*decoded), key) << "two texts for one key";
    } else {
      EXPECT_EQ(decoded.status(), Status::bad_file);
    }
  });
  EXPECT_GT(read, 0u);
}

TEST(TcpWireFuzz, Headers) {
  std::size_t read = 0;
  for_a_while([&](Mutator& mutator) {
    const auto kind = static_cast<FrameKind>(mutator.below(8));
    FrameHeader header = make_header(kind, static_cast<std::uint32_t>(mutator.below(100)), mutator.below(std::size_t{3} << 20));
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    if (mutator.once_in(2)) bytes[mutator.below(bytes.size())] ^= static_cast<char>(1U << mutator.below(8));
    const auto parsed = parse_header(std::as_bytes(std::span(bytes)));
    if (!parsed) return;
    ++read;
    EXPECT_EQ(std::memcmp(&*parsed, bytes.data(), bytes.size()), 0);
    switch (static_cast<FrameKind>(parsed->kind)) {
      case FrameKind::message: EXPECT_LE(parsed->data_bytes, kMaxPayloadBytes); return;
      case FrameKind::write:
      case FrameKind::answer: EXPECT_TRUE(parsed->data_bytes > 0 && parsed->data_bytes <= kPieceBytes); return;
      case FrameKind::read:
      case FrameKind::bye:
      case FrameKind::fence: EXPECT_EQ(parsed->data_bytes, 0u); return;
    }
    ADD_FAILURE() << "a kind that is none: " << int(parsed->kind);
  });
  EXPECT_GT(read, 0u);
}

// On each connection, in pieces, as a network may deliver them; the connections end behind them.
void say_all(RawPeer& peer, Mutator& mutator, std::vector<std::string> said) {
  while (!peer.is_refused && peer.link->state() == LinkState::ready && !std::ranges::all_of(said, &std::string::empty)) {
    const std::size_t connection = mutator.below(said.size());
    std::string& rest = said[connection];
    if (!rest.empty())
      rest.erase(0, peer.say(connection, rest.substr(0, mutator.once_in(3) ? 1 + mutator.below(80) : rest.size())));
    peer.poll_until([] { return true; });
  }
  peer.hang_up();
  EXPECT_TRUE(peer.poll_until([&] { return peer.sink.errors.size() == 1; }));
}

// Frames that are right: messages and writes into the region, and reads of it.
std::string right_frames(Mutator& mutator, const RegionKey& key, std::vector<std::string>& payloads) {
  std::string wire;
  for (std::size_t count = 1 + mutator.below(8); count > 0; --count) {
    const std::size_t bytes = 1 + mutator.below(mutator.once_in(4) ? 20'000 : 300);
    const Access access{key.guard, mutator.below(key.bytes - bytes + 1), bytes};
    switch (mutator.below(3)) {
      case 0:
        payloads.emplace_back(bytes, static_cast<char>('a' + payloads.size()));
        wire += frame(make_header(FrameKind::message, 0, bytes), payloads.back());
        break;
      case 1: wire += frame(make_header(FrameKind::write, key.region, bytes, access), std::string(bytes, 'w')); break;
      default: {
        FrameHeader header = make_header(FrameKind::read, key.region, 0, access);
        header.request = count;
        wire += frame(header);
      }
    }
  }
  return wire;
}

// A write or a read of what is not the region: behind it, with another guard, or another region's number.
std::string wrong_frame(Mutator& mutator, RegionKey key) {
  const std::size_t bytes = 1 + mutator.below(300);
  std::uint64_t offset = mutator.below(key.bytes - bytes + 1);
  switch (mutator.below(3)) {
    case 0: offset = key.bytes - bytes + 1 + mutator.below(Buffer::kGuard - 300); break;
    case 1: key.guard ^= std::uint64_t{1} << mutator.below(64); break;
    default: key.region += static_cast<std::uint32_t>(1 + mutator.below(3));
  }
  const Access access{key.guard, offset, bytes};
  if (mutator.once_in(3)) return frame(make_header(FrameKind::read, key.region, 0, access));
  return frame(make_header(FrameKind::write, key.region, bytes, access), std::string(bytes, 'x'));
}

// Whatever it says ends in messages that it did send, in bytes of the one region that it may write to, and with its connection.
TEST(TcpWireFuzz, FramesOfAnInsider) {
  const std::unique_ptr<TcpTransport> near = open_transport();
  ASSERT_TRUE(near);
  std::size_t whole = 0, refused = 0;
  for_a_while([&](Mutator& mutator) {
    RawPeer insider(*near);
    Buffer target(*near, 30'000), secret(*near, 30'000);
    std::memset(secret.data(), 's', secret.bytes);
    const auto key = decode_region_key(target.region->key(RawPeer::own_peer())->bytes);
    ASSERT_TRUE(key);
    std::vector<std::string> payloads;
    const std::string right = right_frames(mutator, *key, payloads);
    const bool is_right = mutator.once_in(4), is_wrong = !is_right && mutator.once_in(3);
    const std::string said = is_right ? right : is_wrong ? right + wrong_frame(mutator, *key) : mutator.changed(right);
    say_all(insider, mutator, {said});
    EXPECT_TRUE(target.is_guarded());
    EXPECT_TRUE(secret.is_guarded());
    EXPECT_TRUE(std::ranges::all_of(std::span(secret.data(), secret.bytes), [](std::byte one) { return one == std::byte{'s'}; }));
    for (const Message& message : insider.sink.messages) EXPECT_LE(message.payload.size(), kMaxPayloadBytes);
    const std::string& end = insider.sink.errors.begin()->second;
    if (is_wrong) {
      ++refused;
      EXPECT_NE(end.find("broke the rules"), std::string::npos) << end;
    }
    if (!is_right && !is_wrong) return;
    ++whole;
    ASSERT_EQ(insider.sink.messages.size(), payloads.size());
    for (std::size_t index = 0; index < payloads.size(); ++index) {
      const std::vector<std::byte>& payload = insider.sink.messages[index].payload;
      ASSERT_EQ(std::string_view(reinterpret_cast<const char*>(payload.data()), payload.size()), payloads[index]);
    }
  });
  EXPECT_GT(whole, 0u);
  EXPECT_GT(refused, 0u);
}

// Shares of large writes on two lanes, and fences between messages. What is right arrives; what is changed leaves all other memory
// alone.
TEST(TcpWireFuzz, SharesOfAnInsider) {
  const std::unique_ptr<TcpTransport> near = open_transport({}, "2");
  ASSERT_TRUE(near);
  std::size_t whole = 0;
  for_a_while([&](Mutator& mutator) {
    RawPeer insider(*near, 2);
    Buffer target(*near, 30'000);
    const auto key = decode_region_key(target.region->key(RawPeer::own_peer())->bytes);
    ASSERT_TRUE(key);
    std::vector<std::string> said(3);
    ShareCounts shares{};
    std::size_t messages = 0;
    for (std::size_t left = 1 + mutator.below(12); left > 0; --left) {
      const std::size_t lane = mutator.below(3);
      if (lane == 2) {
        FrameHeader fence = make_header(FrameKind::fence, 0, 0);
        std::memcpy(fence.body.data(), shares.data(), sizeof shares);
        said[0] += frame(fence) + frame(make_header(FrameKind::message, 0, 0));
        ++messages;
        continue;
      }
      const std::size_t bytes = 1 + mutator.below(3000);
      FrameHeader share = make_header(FrameKind::write, key->region, bytes, {key->guard, mutator.below(key->bytes - bytes + 1), 0});
      share.request = 1;
      said[1 + lane] += frame(share, std::string(bytes, 'w'));
      ++shares[lane];
    }
    const bool is_right = mutator.once_in(2);
    if (!is_right) {
      std::string& one = said[mutator.below(said.size())];
      one = mutator.changed(one);
    }
    say_all(insider, mutator, said);
    EXPECT_TRUE(target.is_guarded());
    if (!is_right) return;
    ++whole;
    EXPECT_EQ(insider.sink.messages.size(), messages);
  });
  EXPECT_GT(whole, 0u);
}

}  // namespace
}  // namespace gigabar::transport::tcp::test
