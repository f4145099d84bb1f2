// SPDX-License-Identifier: Apache-2.0
// What a peer may send that holds no right to it: damaged parcels and keys, active messages of strangers and of liars.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "unit/transport/ucx/pair.hpp"
#include "unit/transport/ucx/raw_client.hpp"

namespace gigabar::transport::ucx::test {
namespace {

// A pair whose far link has a liar among those who know its number.
struct Attacked : Pair {
  Attacked() {
    connect();
    Parcel offer;
    auto offered = far->offer(to_near, 0, offer);
    address = decode_invitation(InvitationKind::offer, offer.bytes)->address;
    target = std::make_unique<Buffer>(*far, 4096);
    std::memset(target->data(), 0x11, target->bytes);
    auto key = target->region->key(to_near);
    region = *decode_region_key(key->bytes);
    client = std::make_unique<RawClient>(address);
  }
  WireHeader header(WireKind kind) const { return make_header(kind, far_number, 0); }
  // Like connect(), keeping the far link's number.
  void connect() {
    Parcel offer, answer;
    near_link = std::move(near->offer(to_far, 0, offer)).value();
    far_link = std::move(far->accept(to_near, std::move(offer), answer)).value();
    far_number = decode_invitation(InvitationKind::answer, answer.bytes)->link;
    EXPECT_TRUE(near_link->complete(std::move(answer)));
    EXPECT_TRUE(poll_until([&] { return is_ready(); }));
  }
  bool poll_with_client(const std::function<bool()>& condition) {
    return poll_until([&] {
      client->progress();
      return condition();
    });
  }
  bool is_target_untouched() const {
    for (std::size_t i = 0; i < target->bytes; ++i) {
      if (target->data()[i] != std::byte{0x11}) return false;
    }
    return target->is_guarded();
  }
  // Both ends break, the target is as it was, and a new link works.
  void expect_broken(const char* what) {
    ASSERT_TRUE(poll_with_client([&] { return !far_sink.errors.empty() && !near_sink.errors.empty(); })) << what;
    EXPECT_EQ(far_sink.statuses[far_link.get()], Status::peer_lost) << what;
    EXPECT_NE(far_sink.errors[far_link.get()].find("broke the rules"), std::string::npos) << far_sink.errors[far_link.get()];
    EXPECT_EQ(near_sink.statuses[near_link.get()], Status::peer_lost) << what;
    EXPECT_TRUE(is_target_untouched()) << what;
    near_link.reset();
    far_link.reset();
    near_sink = {};
    far_sink = {};
    connect();
  }

  std::string address;
  std::uint64_t far_number = 0;
  RegionKey region;
  std::unique_ptr<Buffer> target;
  std::unique_ptr<RawClient> client;
};

TEST(UcxHostile, StrangersAreCountedAndIgnored) {
  Attacked pair;
  std::mt19937_64 random(1);
  unsigned sent = 0;
  const auto stranger = [&](std::string header, std::string data, unsigned flags = UCP_AM_SEND_FLAG_EAGER) {
    pair.client->send(std::move(header), std::move(data), flags);
    ++sent;
  };
  stranger("x", "");
  stranger(std::string(63, 'a'), "data");
  stranger(std::string(65, 'a'), "data");
  stranger(std::string(64, '\0'), std::string(100'000, 'b'));
  stranger(std::string(64, 'r'), std::string(100'000, 'b'), UCP_AM_SEND_FLAG_RNDV);
  for (const std::uint32_t told : {3U, 5U}) {
    // A right header of that link, to data of another length.
    WireHeader header = pair.header(WireKind::message);
    header.data_bytes = told;
    stranger(std::string(reinterpret_cast<const char*>(&header), sizeof header), "four");
  }
  for (int i = 0; i < 200; ++i) {
    // A right header to a link that is not there.
    WireHeader header = make_header(static_cast<WireKind>(1 + random() % 7), random(), 0);
    header.sequence = random() % 3;
    for (std::byte& byte : header.body) byte = static_cast<std::byte>(random());
    pair.client->send(header, std::string(random() % 200, 'c'));
    ++sent;
  }
  for (int i = 0; i < 200; ++i) {
    std::string noise(random() % 200 + 1, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    stranger(noise, noise);
  }
  ASSERT_TRUE(pair.poll_with_client([&] { return pair.far->strangers() >= sent; })) << pair.far->strangers() << " of " << sent;
  EXPECT_EQ(pair.far->strangers(), sent);
  EXPECT_TRUE(pair.is_target_untouched());
  EXPECT_TRUE(pair.far_sink.messages.empty() && pair.far_sink.errors.empty());
  pair.post([&] { return pair.near_link->post_message(header_of(7), {}); });
  EXPECT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == 1; })) << "the link works on";
}

TEST(UcxHostile, AnAccessThatIsNotAllowedBreaksTheLinkOnly) {
  Attacked pair;
  const RegionKey& key = pair.region;
  const auto most = ~std::uint64_t{0};
  struct Try {
    const char* what;
    WireKind kind;
    Access access;
    std::size_t data_bytes;
  };
  const Try tries[] = {
      {"another guard", WireKind::write, {key.region, 0, key.guard ^ 1, 0, 8}, 8},
      {"an unknown region", WireKind::write, {key.region + 1000, 0, key.guard, 0, 8}, 8},
      {"one byte too far", WireKind::write, {key.region, 0, key.guard, 4089, 8}, 8},
      {"before the region", WireKind::write, {key.region, 0, key.guard, most - 7, 8}, 8},
      {"more data than told", WireKind::write, {key.region, 0, key.guard, 0, 8}, 9},
      {"no data", WireKind::write, {key.region, 0, key.guard, 0, 0}, 0},
      {"reading too far", WireKind::read, {key.region, 1, key.guard, 1, 4096}, 0},
      {"reading with another guard", WireKind::read, {key.region, 1, key.guard + 1, 0, 1}, 0},
      {"reading nothing", WireKind::read, {key.region, 1, key.guard, 0, 0}, 0},
      {"reading all", WireKind::read, {key.region, 1, key.guard, 0, most}, 0},
      {"an answer to nothing", WireKind::answer, {0, 1, 0, 0, 8}, 8},
  };
  for (const Try& one : tries) {
    WireHeader header = pair.header(one.kind);
    set_access(header, one.access);
    pair.client->send(header, std::string(one.data_bytes, 'x'));
    ASSERT_NO_FATAL_FAILURE(pair.expect_broken(one.what));
  }
}

// While the peer that was asked does not run: answers to a read of eight bytes that bring more, or bring them elsewhere.
TEST(UcxHostile, AnAnswerIsHeldToItsQuestion) {
  const struct {
    std::uint64_t offset;
    std::size_t bytes;
  } kTries[] = {{0, 9}, {1, 8}, {8, 1}, {~std::uint64_t{0} - 3, 8}, {0, 0}};
  for (const auto& one : kTries) {
    Attacked pair;
    Buffer own(*pair.near, 4096);
    auto key = own.region->key(pair.to_far);
    const auto remote = pair.far->open_region(pair.to_near, std::move(*key));
    ASSERT_TRUE(remote) << remote.error().message();
    pair.post([&] { return pair.far_link->post_read(*pair.target->region, 0, **remote, 0, 8, 1); });
    WireHeader header = pair.header(WireKind::answer);
    set_access(header, {0, 1, 0, one.offset, static_cast<std::uint32_t>(one.bytes)});
    pair.client->send(header, std::string(one.bytes, 'x'));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (pair.far_sink.errors.empty() && std::chrono::steady_clock::now() < end) {
      pair.client->progress();
      pair.far->poll(pair.far_sink);
    }
    EXPECT_NE(pair.far_sink.errors[pair.far_link.get()].find("an answer was longer than what was asked for"), std::string::npos)
        << one.bytes << " bytes at " << one.offset << ": " << pair.far_sink.errors[pair.far_link.get()];
    EXPECT_TRUE(pair.is_target_untouched());
  }
}

TEST(UcxHostile, MessagesThatBreakTheProtocol) {
  Attacked pair;
  struct Try {
    const char* what;
    std::uint64_t sequence, acknowledged;
    std::size_t bytes;
  };
  const Try tries[] = {{"far ahead", std::uint64_t{1} << 40, 0, 8},
                       {"acknowledges what was not sent", 0, 5'000'000, 8},
                       {"too long a message", 0, 0, 70'000}};
  for (const Try& one : tries) {
    WireHeader header = pair.header(WireKind::message);
    header.sequence = one.sequence;
    header.acknowledged = one.acknowledged;
    pair.client->send(header, std::string(one.bytes, 'x'));
    ASSERT_NO_FATAL_FAILURE(pair.expect_broken(one.what));
  }
  // The same number twice.
  for (int i = 0; i < 2; ++i) pair.client->send(pair.header(WireKind::message), "x");
  ASSERT_NO_FATAL_FAILURE(pair.expect_broken("a repeated number"));
  // Also where those before it are still to come.
  for (int i = 0; i < 2; ++i) {
    WireHeader header = pair.header(WireKind::message);
    header.sequence = 5;
    pair.client->send(header, "x");
  }
  ASSERT_NO_FATAL_FAILURE(pair.expect_broken("a repeated number ahead of its turn"));
  // Messages that never become deliverable are bounded.
  for (int i = 1; i < 200; ++i) {
    WireHeader header = pair.header(WireKind::message);
    header.sequence = static_cast<std::uint64_t>(i);
    pair.client->send(header, std::string(60'000, 'x'));
  }
  ASSERT_NO_FATAL_FAILURE(pair.expect_broken("a hoard of messages"));
  // Rendezvous would let UCX write by itself.
  WireHeader header = pair.header(WireKind::message);
  header.data_bytes = 500'000;
  pair.client->send(std::string(reinterpret_cast<const char*>(&header), sizeof header), std::string(500'000, 'x'),
                    UCP_AM_SEND_FLAG_RNDV);
  ASSERT_NO_FATAL_FAILURE(pair.expect_broken("rendezvous"));
}

// While the peer takes no answer: the first one is never over.
TEST(UcxHostile, MoreReadsThanAreTakenAtOnce) {
  Attacked pair;
  Buffer large(*pair.far, 16 << 20);
  const RegionKey key = *decode_region_key(large.region->key(pair.to_near)->bytes);
  for (std::uint32_t request = 1; request <= 2 * kMaxTransfers; ++request) {
    WireHeader header = pair.header(WireKind::read);
    set_access(header, {key.region, request, key.guard, 0, large.bytes});
    pair.client->send(header, "");
  }
  const Deadline deadline = Deadline::after_ns(kPatienceNs);
  while (pair.far_sink.errors.empty() && !deadline.has_passed()) {
    pair.client->progress();
    pair.far->poll(pair.far_sink);
  }
  EXPECT_NE(pair.far_sink.errors[pair.far_link.get()].find("it asked for too much at once"), std::string::npos)
      << pair.far_sink.errors[pair.far_link.get()];
}

// Writes and messages of one link in any order: messages wait for all before them.
TEST(UcxHostile, WhatOvertookIsPutInOrder) {
  Attacked pair;
  constexpr std::uint64_t kCount = 64;
  std::vector<std::uint64_t> order(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(4));
  std::uint64_t wrong = 0;
  pair.far_sink.on_message = [&](Link&, const Header& header, std::span<const std::byte>) {
    const std::uint64_t number = number_of(header);
    for (std::uint64_t i = 0; i < number; i += 2) wrong += pair.target->data()[i] != static_cast<std::byte>(i + 1) ? 1 : 0;
    pair.far_sink.messages.push_back({header, {}});
  };
  for (const std::uint64_t number : order) {
    const bool is_message = number % 2 == 1;
    WireHeader header = pair.header(is_message ? WireKind::message : WireKind::write);
    header.sequence = number;
    if (is_message) header.body = header_of(number);
    if (!is_message) set_access(header, {pair.region.region, 0, pair.region.guard, number, 1});
    pair.client->send(header, is_message ? std::string("m") : std::string(1, static_cast<char>(number + 1)));
  }
  ASSERT_TRUE(pair.poll_with_client([&] { return pair.far_sink.messages.size() == kCount / 2; }));
  for (std::uint64_t i = 0; i < kCount / 2; ++i) EXPECT_EQ(number_of(pair.far_sink.messages[i].header), 2 * i + 1);
  EXPECT_EQ(wrong, 0u);
}

TEST(UcxHostile, DamagedParcelsAndKeysAreRefused) {
  Pair pair;
  Parcel offer;
  const auto offered = pair.near->offer(pair.to_far, 0, offer);
  ASSERT_TRUE(offered);
  const std::string good = offer.bytes;
  std::mt19937_64 random(3);
  const auto accept = [&](std::string bytes) {
    Parcel parcel, answer;
    parcel.bytes = std::move(bytes);
    return pair.far->accept(pair.to_near, std::move(parcel), answer).status();
  };
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) EXPECT_EQ(accept(good.substr(0, bytes)), Status::bad_file) << bytes;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    EXPECT_EQ(accept(damaged), Status::bad_file) << at;
  }
  EXPECT_EQ(accept(good + 'x'), Status::bad_file);
  EXPECT_EQ(accept(std::string(100'000, 'x')), Status::bad_file);
  Parcel with_descriptor, answer;
  with_descriptor.bytes = good;
  with_descriptor.descriptors.emplace_back();
  EXPECT_EQ(pair.far->accept(pair.to_near, std::move(with_descriptor), answer).status(), Status::bad_file);
  // An offer is no answer.
  Parcel again;
  again.bytes = good;
  EXPECT_EQ((*offered)->complete(std::move(again)).status(), Status::bad_file);
  EXPECT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; })) << "and breaks the link";

  Buffer buffer(*pair.far, 100);
  auto key = buffer.region->key(pair.to_near);
  const auto open = [&](std::string bytes) {
    Parcel parcel;
    parcel.bytes = std::move(bytes);
    return pair.near->open_region(pair.to_far, std::move(parcel)).status();
  };
  EXPECT_EQ(open(key->bytes), Status::ok);
  for (std::size_t bytes = 0; bytes < key->bytes.size(); ++bytes) EXPECT_EQ(open(key->bytes.substr(0, bytes)), Status::bad_file);
  EXPECT_EQ(open(key->bytes + 'x'), Status::bad_file);
  EXPECT_EQ(open(std::string(32, '\0')), Status::bad_file);
}

TEST(UcxHostile, Cards) {
  Pair pair;
  Peer peer;
  peer.address = pair.near->address();
  EXPECT_LE(peer.address.size(), 1024u);
  EXPECT_TRUE(pair.far->can_reach(peer).is_ok());
  for (const std::string address : {"", "ucx", "ucx 1 1.13.1", "ucx 2 ", "ucx 2 \x01\x02", "verbs 1 1.13.1"}) {
    peer.address = address;
    const Availability reach = pair.far->can_reach(peer);
    EXPECT_EQ(reach.code, AvailabilityCode::not_supported) << address;
    EXPECT_FALSE(reach.reason.empty());
  }
}

}  // namespace
}  // namespace gigabar::transport::ucx::test
