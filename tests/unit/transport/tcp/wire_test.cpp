// SPDX-License-Identifier: Apache-2.0
// What the other side may send: parcels, keys, frames, and the names of interfaces.
#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <span>

#include "platform/network.hpp"
#include "unit/transport/tcp/pair.hpp"

namespace gigabar::transport::tcp::test {
namespace {

Offer some_offer() {
  Offer offer;
  offer.link = 77;
  offer.secret = secure::Secret(std::string(kSecretBytes, 'k'));
  for (const std::string_view bytes :
       {std::string_view("\x7f\0\0\1", 4), std::string_view("\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16)})
    offer.targets.push_back(network::ip_address(bytes, 4711));
  return offer;
}

TEST(TcpWire, AnOfferComesBackAsItWas) {
  const Offer offer = some_offer();
  const auto decoded = decode_offer(encode(offer));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->link, 77u);
  EXPECT_EQ(decoded->secret.bytes(), offer.secret.bytes());
  ASSERT_EQ(decoded->targets.size(), 2u);
  EXPECT_EQ(decoded->targets[0].name, "127.0.0.1:4711");
  EXPECT_EQ(decoded->targets[1].name, "[fd00::1]:4711");
}

TEST(TcpWire, ParcelsAndKeysThatAreCutOrLongerAreRefused) {
  const std::string offer = encode(some_offer()), key = encode(RegionKey{3, 4, 5, true});
  EXPECT_TRUE(decode_region_key(key));
  for (std::size_t bytes = 0; bytes < offer.size(); ++bytes) EXPECT_FALSE(decode_offer(offer.substr(0, bytes))) << bytes;
  for (std::size_t bytes = 0; bytes < key.size(); ++bytes) EXPECT_FALSE(decode_region_key(key.substr(0, bytes))) << bytes;
  EXPECT_FALSE(decode_offer(offer + 'x'));
  EXPECT_FALSE(decode_region_key(key + 'x'));
  EXPECT_FALSE(decode_region_key(encode(RegionKey{3, 4, 0, true}))) << "no bytes";
  EXPECT_FALSE(decode_region_key(encode(RegionKey{3, 4, ~std::uint64_t{0}, true})));
  Offer many = some_offer();
  many.targets.resize(kMaxTargets + 1, many.targets.front());
  EXPECT_FALSE(decode_offer(encode(many)));
  Offer wide = some_offer();
  wide.lanes = kMaxLanes + 1;
  EXPECT_FALSE(decode_offer(encode(wide)));
}

TEST(TcpWire, AnAnswerHasNoMoreLanesThanWereOffered) {
  EXPECT_EQ(decode_answer(encode_answer(7, 0), 7, 4), 0u);
  EXPECT_EQ(decode_answer(encode_answer(7, 4), 7, 4), 4u);
  EXPECT_FALSE(decode_answer(encode_answer(7, 5), 7, 4));
  EXPECT_FALSE(decode_answer(encode_answer(8, 1), 7, 4)) << "of another link";
  for (const std::string& other : {encode_answer(7, 1) + 'x', std::string(), encode_answer(7, 1).substr(1)}) {
    EXPECT_FALSE(decode_answer(other, 7, 4));
  }
}

TEST(TcpWire, AddressesOfOtherTransportsAndVersions) {
  for (const Protection protection : {Protection::authenticated, Protection::sealed}) {
    for (const secure::Cipher cipher : {secure::Cipher::chacha20_poly1305, secure::Cipher::aes_256_gcm}) {
      const Security security{protection, cipher};
      EXPECT_EQ(security_of_address(address_text(security)), security);
    }
  }
  for (const char* address : {"", "tcp", "tcp 2 sealed AES-256-GCM", "tcp 3", "tcp 3 sealed", "tcp 3 sealed AES", "ucx 1 1.13.1"}) {
    EXPECT_FALSE(security_of_address(address)) << address;
  }
}

TEST(TcpWire, FramesOfImpossibleKindsAndLengths) {
  const auto parsed = [](FrameHeader header) {
    return parse_header({reinterpret_cast<const std::byte*>(&header), sizeof header}).has_value();
  };
  EXPECT_TRUE(parsed(make_header(FrameKind::message, 0, 0)));
  EXPECT_TRUE(parsed(make_header(FrameKind::message, 0, kMaxPayloadBytes)));
  EXPECT_FALSE(parsed(make_header(FrameKind::message, 0, kMaxPayloadBytes + 1)));
  for (const FrameKind kind : {FrameKind::write, FrameKind::answer}) {
    EXPECT_TRUE(parsed(make_header(kind, 1, kPieceBytes)));
    EXPECT_FALSE(parsed(make_header(kind, 1, kPieceBytes + 1)));
    EXPECT_FALSE(parsed(make_header(kind, 1, 0)));
  }
  for (const FrameKind kind : {FrameKind::read, FrameKind::bye, FrameKind::fence}) EXPECT_FALSE(parsed(make_header(kind, 1, 1)));
  for (const int kind : {0, 7, 255}) EXPECT_FALSE(parsed(make_header(static_cast<FrameKind>(kind), 1, 0)));
  FrameHeader other = make_header(FrameKind::message, 0, 0);
  ++other.version;
  EXPECT_FALSE(parsed(other));
}

TEST(TcpWire, RailsByNameAddressAndNetwork) {
  for (const char* list : {"lo", "127.0.0.1", "127.0.0.0/8", "lo,127.0.0.1"}) {
    const auto rails = find_rails(list);
    ASSERT_TRUE(rails) << list;
    ASSERT_EQ(rails->size(), 1u) << list;
    EXPECT_EQ(rails->front().interface, "lo");
    EXPECT_EQ(rails->front().addresses.front().name, "127.0.0.1:0") << list;
    EXPECT_TRUE(list == std::string("lo") || list == std::string("lo,127.0.0.1") || rails->front().addresses.size() == 1)
        << "no other";
  }
  for (const char* list : {"", "nosuch0", "lo,,lo", "240.0.0.0/8", "127.0.0.0/33", "127.0.0.0/", "/8", "lo/8"}) {
    const auto rails = find_rails(list);
    ASSERT_FALSE(rails) << list;
    EXPECT_EQ(rails.status(), Status::invalid_argument);
    EXPECT_NE(rails.error().message().find("lo 127.0.0.1"), std::string::npos) << "what there is";
  }
}

// A peer with the key that breaks the rules: what it asks for is refused at the target, whatever its own side believes.
struct Liar : Pair {
  explicit Liar(RegionKey (*change)(RegionKey)) {
    connect();
    auto key = target.region->key(to_near);
    const RegionKey changed = change(*decode_region_key(key->bytes));
    remote = std::make_unique<PlacedRemoteRegion>(changed);
  }
  void expect_refusal() {
    ASSERT_TRUE(poll_until([&] { return near_sink.errors.size() == 1 && far_sink.errors.size() == 1; }));
    EXPECT_NE(far_sink.errors[far_link.get()].find("broke the rules"), std::string::npos);
    EXPECT_NE(near_sink.errors[near_link.get()].find("refused an access"), std::string::npos);
    EXPECT_EQ(near_sink.dones.size(), 1u);
    for (std::size_t index = 0; index < target.bytes; ++index) ASSERT_EQ(target.data()[index], std::byte{0});
    EXPECT_TRUE(target.is_guarded());
  }
  Buffer source{*near, 8192}, target{*far, 4096};
  std::unique_ptr<RemoteRegion> remote;
};

TEST(TcpLiar, AWriteOrReadBeyondARegion) {
  const auto longer = [](RegionKey key) { return RegionKey{key.region, key.guard, 2 * key.bytes, key.is_mapped}; };
  Liar writer(longer), reader(longer);
  std::memset(writer.target.data(), 0, 4096);
  std::memset(reader.target.data(), 0, 4096);
  ASSERT_EQ(writer.near_link->post_write(*writer.source.region, 0, *writer.remote, 1, 4096, 1), Posted::ok);
  ASSERT_NO_FATAL_FAILURE(writer.expect_refusal());
  ASSERT_EQ(reader.near_link->post_read(*reader.source.region, 0, *reader.remote, 1, 4096, 1), Posted::ok);
  ASSERT_NO_FATAL_FAILURE(reader.expect_refusal());
}

TEST(TcpLiar, AnotherGuardOrRegion) {
  for (const auto change : {+[](RegionKey key) { return RegionKey{key.region, key.guard ^ 1, key.bytes, false}; },
                            +[](RegionKey key) { return RegionKey{key.region + 1, key.guard, key.bytes, false}; }}) {
    Liar liar(change);
    std::memset(liar.target.data(), 0, 4096);
    ASSERT_EQ(liar.near_link->post_write(*liar.source.region, 0, *liar.remote, 0, 64, 1), Posted::ok);
    ASSERT_NO_FATAL_FAILURE(liar.expect_refusal());
  }
}

// Nothing lands in memory whose region is gone, and the writer hears of it.
TEST(TcpLiar, ARegionThatWasTakenBack) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer source(*pair.near, 4096), target(*pair.far, 4096);
  const auto remote = pair.open_far(*target.region);
  target.region.reset();
  std::memset(target.data(), 0, 4096);
  ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, 4096, 1), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  for (std::size_t index = 0; index < 4096; ++index) ASSERT_EQ(target.data()[index], std::byte{0});
}

TEST(TcpEnd, AClosedLinkIsALostPeerAndEverythingEnds) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer source(*pair.near, 1 << 20), target(*pair.far, 1 << 20);
  const auto remote = pair.open_far(*target.region);
  for (std::uint64_t cookie = 0; cookie < 30; ++cookie) {
    ASSERT_EQ(pair.near_link->post_read(*source.region, 0, *remote, 0, 1 << 20, cookie), Posted::ok);
  }
  pair.far_link.reset();
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  EXPECT_EQ(pair.near_sink.statuses[pair.near_link.get()], Status::peer_lost);
  EXPECT_EQ(pair.near_sink.dones.size(), 30u);
  EXPECT_EQ(pair.near_link->post_message(header_of(1), {}), Posted::broken);
}

// What has come is gone with the exception: nothing behind it may be taken for it, and the link does not fall silent.
void expect_an_end_where_memory_lacks(Pair& pair) {
  int told = 0;
  pair.far_sink.on_message = [&](Link&, const Header&, std::span<const std::byte>) {
    if (++told == 2) throw std::bad_alloc();
  };
  for (std::uint64_t number = 0; number < 4; ++number) {
    ASSERT_EQ(pair.near_link->post_message(header_of(number), patterned(1000, number)), Posted::ok);
  }
  bool has_thrown = false;
  for (const Deadline deadline = Deadline::after_ns(kPatienceNs); !has_thrown && !deadline.has_passed();) {
    try {
      pair.poll();
    } catch (const std::bad_alloc&) {
      has_thrown = true;
    }
  }
  ASSERT_TRUE(has_thrown);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1 && pair.far_sink.errors.size() == 1; }));
  EXPECT_EQ(told, 2);
  EXPECT_EQ(pair.far_sink.statuses[pair.far_link.get()], Status::out_of_memory);
  EXPECT_EQ(pair.near_sink.statuses[pair.near_link.get()], Status::peer_lost);
}
TEST(TcpEnd, AMessageForWhichMemoryLacksEndsTheLink) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  expect_an_end_where_memory_lacks(pair);
}
TEST(TcpEnd, AMessageBehindAFenceForWhichMemoryLacksEndsTheLink) {
  Pair pair(Protection::authenticated, "2");
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
  const auto remote = pair.open_far(*target.region);
  ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, 1), Posted::ok);
  expect_an_end_where_memory_lacks(pair);
}

// What a link has taken before it was closed still arrives.
TEST(TcpEnd, MessagesBeforeTheEndArrive) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  for (std::uint64_t number = 0; number < 100; ++number) {
    ASSERT_EQ(pair.near_link->post_message(header_of(number), patterned(1000, number)), Posted::ok);
  }
  pair.near_link.reset();
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.errors.size() == 1; }));
  ASSERT_EQ(pair.far_sink.messages.size(), 100u);
  EXPECT_NE(pair.far_sink.errors[pair.far_link.get()].find("the peer closed the link"), std::string::npos);
}

// Peers that do not read keep them all together for no longer than one.
TEST(TcpEnd, ManyThatGoWaitTogether) {
  Pair pair;
  std::vector<std::unique_ptr<Link>> nears, fars;
  Buffer source(*pair.near, 8 << 20), target(*pair.far, 8 << 20);
  const auto remote = pair.open_far(*target.region);
  for (int count = 0; count < 15; ++count) {
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    nears.push_back(std::move(pair.near_link));
    fars.push_back(std::move(pair.far_link));
    for (std::uint64_t cookie = 0; cookie < 4; ++cookie) {
      ASSERT_EQ(nears.back()->post_write(*source.region, 0, *remote, 0, 8 << 20, 100 * nears.size() + cookie), Posted::ok);
    }
    ASSERT_EQ(fars.back()->post_message(header_of(1), {}), Posted::ok);  // which nobody reads here
  }
  const std::int64_t begin_ns = now_ns();
  nears.clear();
  EXPECT_LT(now_ns() - begin_ns, 1'000'000'000) << "100 ms for each";
}

// One of the two wants it, and both do it.
TEST(TcpProtection, TheStrongerOneHolds) {
  Pair pair(open_transport(options_of(Protection::sealed)), open_transport(options_of(Protection::authenticated)));
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  EXPECT_EQ(pair.near_link->rail(), "lo, sealed");
  EXPECT_EQ(pair.far_link->rail(), "lo, sealed");
}

// A processor without instructions for AES has a peer with them, as each sees the other's address.
TEST(TcpProtection, ACipherThatOneLacksIsNotTaken) {
  Pair pair(Protection::sealed, "2");
  pair.to_far.address = pair.to_near.address = address_text({Protection::sealed, secure::Cipher::chacha20_poly1305});
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  constexpr std::size_t kBytes = 1 << 20;
  Buffer source(*pair.near, kBytes), target(*pair.far, kBytes);
  const auto remote = pair.open_far(*target.region);
  const std::vector<std::byte> data = patterned(kBytes, 3);
  std::memcpy(source.data(), data.data(), kBytes);
  ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, kBytes, 1), Posted::ok);
  ASSERT_EQ(pair.near_link->post_message(header_of(9), {}), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == 1; }));
  EXPECT_EQ(std::memcmp(target.data(), data.data(), kBytes), 0);
}

// The two ends would not understand each other, and neither takes the other for its peer.
TEST(TcpProtection, ThoseThatDisagreeAboutTheCipherDoNotConnect) {
  if (secure::best_cipher() == secure::Cipher::chacha20_poly1305) GTEST_SKIP() << "this processor has one cipher";
  TransportOptions options = options_of(Protection::sealed);
  options.connect_deadline_ns = 300'000'000;
  Pair pair(open_transport(options), open_transport(options));
  pair.to_far.address = address_text({Protection::sealed, secure::Cipher::chacha20_poly1305});
  Parcel offer, answer;
  auto offered = pair.near->offer(pair.to_far, 0, offer);
  auto accepted = pair.far->accept(pair.to_near, std::move(offer), answer);
  ASSERT_TRUE(offered && accepted);
  ASSERT_TRUE((*offered)->complete(std::move(answer)));
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1 && pair.far_sink.errors.size() == 1; }));
  EXPECT_EQ(pair.near_sink.ready_count[offered->get()], 0);
}

}  // namespace
}  // namespace gigabar::transport::tcp::test
