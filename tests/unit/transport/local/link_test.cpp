// SPDX-License-Identifier: Apache-2.0
// Links between two transports of one process: connecting, messages, sleeping, and peers that break the rules.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <thread>

#include "transport/local/link_memory.hpp"
#include "transport/local/wire.hpp"
#include "unit/transport/local/pair.hpp"

namespace gigabar::transport {
namespace {

using namespace test;

TEST(LocalLink, ConnectsAndTellsOnce) {
  Pair pair;
  pair.poll();
  for (int side = 0; side < 2; ++side) {
    EXPECT_EQ(pair.links[side]->state(), LinkState::ready);
    EXPECT_EQ(pair.sinks[side].ready_count, 1);
    EXPECT_EQ(pair.links[side]->rail(), "shared memory");
    EXPECT_GE(pair.links[side]->limits().payload_bytes, 4096U);
  }
  EXPECT_EQ(pair.transports[0]->kind(), TransportKind::local);
  EXPECT_EQ(pair.transports[0]->rails().size(), 1U);
  EXPECT_LE(pair.transports[0]->address().size(), 1024U);
}

TEST(LocalLink, IsNotPossibleWithOtherHostsAndOtherVersions) {
  const auto transport = open_one();
  Peer peer = peer_of(*transport, 3);
  EXPECT_TRUE(transport->can_reach(peer).is_ok());
  peer.address = "gigabar local 999";
  EXPECT_NE(transport->can_reach(peer).reason.find("another version"), std::string::npos);
  peer = peer_of(*transport, 3);
  peer.is_same_host = false;
  EXPECT_NE(transport->can_reach(peer).reason.find("another host"), std::string::npos);
  Parcel offer;
  EXPECT_EQ(transport->offer(peer, 0, offer).status(), Status::unavailable);
  EXPECT_EQ(transport->accept(peer, {}, offer).status(), Status::unavailable);
}

TEST(LocalLink, TakesNothingBeforeItIsComplete) {
  const auto one = open_one();
  Recorder sink;
  Parcel offer;
  const auto link = must(one->offer(peer_of(*one, 1), 0, offer));
  EXPECT_EQ(link->state(), LinkState::connecting);
  EXPECT_EQ(link->post_message(header_of(1), {}), Posted::full);
  one->poll(sink);
  EXPECT_EQ(sink.ready_count, 0);
  EXPECT_TRUE(one->arm());
}

TEST(LocalLink, MessagesOfEverySizeArriveBothWays) {
  Pair pair;
  const std::size_t most = pair.links[0]->limits().payload_bytes;
  const std::size_t quick = pair.links[0]->limits().quick_payload_bytes;
  std::vector<std::size_t> sizes{0, 1, quick, quick + 1, 4095, 4096, 4097, most - 1, most};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (int side = 0; side < 2; ++side) {
      ASSERT_EQ(pair.links[side]->post_message(header_of(i), pattern_of(sizes[i], i + 7)), Posted::ok);
    }
    pair.poll();
  }
  for (const Recorder& sink : pair.sinks) {
    ASSERT_EQ(sink.messages.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(sink.messages[i].number, i);
      EXPECT_EQ(sink.messages[i].payload, pattern_of(sizes[i], i + 7));
    }
  }
}

TEST(LocalLink, ATooLongMessageBreaksIt) {
  Pair pair;
  EXPECT_EQ(pair.links[0]->post_message(header_of(1), pattern_of(pair.links[0]->limits().payload_bytes + 1, 1)), Posted::broken);
  pair.poll();
  EXPECT_EQ(pair.sinks[0].broken_count, 1);
  EXPECT_EQ(pair.sinks[1].broken_count, 0);
}

TEST(LocalLink, AFullRingSaysSoAndNeverBlocks) {
  Pair pair;
  const auto payload = pattern_of(1000, 1);
  std::uint64_t posted = 0;
  while (pair.links[0]->post_message(header_of(posted), payload) == Posted::ok) ++posted;
  EXPECT_GT(posted, 500U);
  for (int turn = 0; turn < 100; ++turn) {
    pair.poll(0);
    EXPECT_EQ(pair.links[0]->post_message(header_of(posted), payload), Posted::full);
  }
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[1].messages.size() == posted; }));
  EXPECT_EQ(pair.links[0]->post_message(header_of(posted), payload), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.sinks[1].messages.size() == posted + 1; }));
  for (std::uint64_t number = 0; number <= posted; ++number) EXPECT_EQ(pair.sinks[1].messages[number].number, number);
}

TEST(LocalLink, ASinkMayPostFromInside) {
  Pair pair;
  std::uint64_t last = 0;
  for (Recorder& sink : pair.sinks) {
    sink.on_message = [&](Link& link, const Header& header, std::span<const std::byte>) {
      last = number_of(header);
      if (last == 1000) return;
      EXPECT_EQ(link.post_message(header_of(last + 1), {}), Posted::ok);
    };
  }
  ASSERT_EQ(pair.links[0]->post_message(header_of(1), {}), Posted::ok);
  EXPECT_TRUE(pair.poll_until([&] { return last == 1000; }));
}

TEST(LocalLink, AOneRankTransportCanReachItself) {
  const auto one = open_one();
  const Peer self = peer_of(*one, 0);
  Recorder sink;
  Parcel offer;
  Parcel answer;
  const auto first = must(one->offer(self, 0, offer));
  const auto second = must(one->accept(self, std::move(offer), answer));
  ASSERT_TRUE(first->complete(std::move(answer)));
  ASSERT_EQ(first->post_message(header_of(5), {}), Posted::ok);
  ASSERT_EQ(second->post_message(header_of(6), {}), Posted::ok);
  one->poll(sink);
  one->poll(sink);
  EXPECT_EQ(sink.ready_count, 2);
  EXPECT_EQ(sink.messages.size(), 2U);
}

// --- Sleeping --------------------------------------------------------------------------------------------------------------------

TEST(LocalLink, ArmsOnlyWhenNothingIsPendingAndWakes) {
  Pair pair;
  ASSERT_TRUE(pair.transports[1]->arm());
  EXPECT_FALSE(becomes_readable(pair.transports[1]->wake_descriptor(), 0));
  pair.links[0]->post_message(header_of(1), {});
  EXPECT_TRUE(becomes_readable(pair.transports[1]->wake_descriptor(), 1000));
  pair.poll(1);
  EXPECT_EQ(pair.sinks[1].messages.size(), 1U);
  EXPECT_FALSE(becomes_readable(pair.transports[1]->wake_descriptor(), 0));
  pair.links[0]->post_message(header_of(2), {});
  EXPECT_FALSE(becomes_readable(pair.transports[1]->wake_descriptor(), 0)) << "an awake peer is not woken";
  EXPECT_FALSE(pair.transports[1]->arm());
  pair.poll(1);
  EXPECT_TRUE(pair.transports[1]->arm());
}

TEST(LocalLink, ARefusedPosterIsWokenWhenThereIsRoom) {
  Pair pair;
  std::uint64_t posted = 0;
  while (pair.links[0]->post_message(header_of(posted), pattern_of(4000, 1)) == Posted::ok) ++posted;
  pair.poll(0);
  ASSERT_TRUE(pair.transports[0]->arm());
  EXPECT_FALSE(becomes_readable(pair.transports[0]->wake_descriptor(), 0));
  pair.poll(1);
  EXPECT_TRUE(becomes_readable(pair.transports[0]->wake_descriptor(), 1000));
  pair.poll(0);
  EXPECT_EQ(pair.links[0]->post_message(header_of(posted), {}), Posted::ok);
}

// Where a poll takes all that there is, the next one tells that there is room, or the taker before it sleeps.
TEST(LocalLink, ARefusedPosterOfFewMessagesIsWokenBehindThem) {
  for (const bool sleeps : {false, true}) {
    Pair pair;
    std::uint64_t posted = 0;
    while (pair.links[0]->post_message(header_of(posted), pattern_of(local::kMaxPayloadBytes, 1)) == Posted::ok) ++posted;
    pair.poll(0);
    ASSERT_TRUE(pair.transports[0]->arm());
    pair.poll(1);
    EXPECT_EQ(pair.sinks[1].messages.size(), posted);
    if (sleeps) {
      EXPECT_TRUE(pair.transports[1]->arm());
    } else {
      pair.poll(1);
    }
    EXPECT_TRUE(becomes_readable(pair.transports[0]->wake_descriptor(), 1000));
    pair.poll(0);
    EXPECT_EQ(pair.links[0]->post_message(header_of(posted), {}), Posted::ok);
  }
}

TEST(LocalLink, AManyTimesSleepingPairMissesNothing) {
  Pair pair;
  constexpr std::uint64_t kTurns = 20000;
  std::uint64_t last[2] = {0, 0};
  for (int side = 0; side < 2; ++side) {
    pair.sinks[side].on_message = [&, side](Link& link, const Header& header, std::span<const std::byte>) {
      last[side] = number_of(header);
      if (last[side] < kTurns) link.post_message(header_of(last[side] + 1), {});
    };
  }
  pair.links[0]->post_message(header_of(1), {});
  const auto serve = [&](int side) {
    const Deadline deadline = Deadline::after_ns(kLongNs);
    while (last[side] + 1 < kTurns && !deadline.has_passed()) {
      if (pair.poll(side) || !pair.transports[side]->arm()) continue;
      if (last[side] + 1 >= kTurns) break;
      if (!becomes_readable(pair.transports[side]->wake_descriptor(), 5000)) {
        ADD_FAILURE() << "side " << side << " was not woken after message " << last[side];
        return;
      }
    }
  };
  std::thread other([&] { serve(1); });
  serve(0);
  other.join();
  EXPECT_GE(last[0] + 1, kTurns);
  EXPECT_GE(last[1] + 1, kTurns);
}

TEST(LocalLink, APeerThatIsGoneNeitherWakesForEverNorBlocks) {
  Pair pair;
  pair.links[1].reset();
  pair.transports[1].reset();
  std::uint64_t posted = 0;
  while (pair.links[0]->post_message(header_of(posted), {}) == Posted::ok) ++posted;
  EXPECT_EQ(pair.links[0]->post_message(header_of(posted), {}), Posted::full);
  EXPECT_EQ(pair.links[0]->state(), LinkState::ready);
  pair.poll(0);
  pair.transports[0]->arm();  // takes the end of the socket, once
  pair.poll(0);
  ASSERT_TRUE(pair.transports[0]->arm());
  EXPECT_FALSE(becomes_readable(pair.transports[0]->wake_descriptor(), 20));
}

// --- Peers that break the rules --------------------------------------------------------------------------------------------------

Parcel offer_of(Transport& transport, std::unique_ptr<Link>& link) {
  Parcel offer;
  link = must(transport.offer(peer_of(transport, 1), 0, offer));
  return offer;
}

Descriptor memfd_of(std::size_t bytes, int seals) {
  Descriptor file(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

TEST(LocalOffer, MalformedOnesAreRefused) {
  const auto one = open_one();
  const auto two = open_one();
  std::unique_ptr<Link> link;
  Parcel answer;
  const auto refused = [&](const std::function<void(Parcel&)>& spoil) {
    Parcel offer = offer_of(*one, link);
    spoil(offer);
    return two->accept(peer_of(*one, 0), std::move(offer), answer).status();
  };
  constexpr int kGood = F_SEAL_SHRINK | F_SEAL_GROW;
  EXPECT_EQ(refused([](Parcel&) {}), Status::ok);
  for (std::size_t bytes = 0; bytes < local::kOffer.size(); ++bytes) {
    EXPECT_EQ(refused([bytes](Parcel& offer) { offer.bytes.resize(bytes); }), Status::bad_file);
  }
  EXPECT_EQ(refused([](Parcel& offer) { offer.bytes += 'x'; }), Status::bad_file);
  for (std::size_t at = 0; at < local::kOffer.size(); ++at) {
    EXPECT_EQ(refused([at](Parcel& offer) { offer.bytes[at] = static_cast<char>(offer.bytes[at] ^ 0x40); }), Status::bad_file);
  }
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors.clear(); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors.pop_back(); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors.emplace_back(::eventfd(0, EFD_CLOEXEC)); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { std::swap(offer.descriptors[0], offer.descriptors[1]); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[0] = Descriptor(); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[0] = memfd_of(local::kLinkFileBytes, 0); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[0] = memfd_of(local::kLinkFileBytes, F_SEAL_GROW); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[0] = memfd_of(4096, kGood); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[0] = memfd_of(local::kLinkFileBytes + 4096, kGood); }), Status::bad_file);
  EXPECT_NE(refused([](Parcel& offer) { offer.descriptors[0] = memfd_of(local::kLinkFileBytes, kGood | F_SEAL_WRITE); }),
            Status::ok);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[0] = Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)); }),
            Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[1] = Descriptor(::eventfd(0, EFD_CLOEXEC)); }), Status::bad_file);
  EXPECT_EQ(refused([](Parcel& offer) { offer.descriptors[1] = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }),
            Status::bad_file);
}

TEST(LocalOffer, MalformedAnswersBreakTheLink) {
  const auto one = open_one();
  for (int variant = 0; variant < 4; ++variant) {
    Recorder sink;
    std::unique_ptr<Link> link;
    (void)offer_of(*one, link);
    Parcel answer;
    answer.bytes = local::kAnswer;
    if (variant == 0) answer.bytes.pop_back();
    if (variant == 1) answer.bytes[0] ^= 1;
    if (variant == 2) answer.bytes[4] = 0;
    if (variant == 3) answer.descriptors.emplace_back(::eventfd(0, EFD_CLOEXEC));
    EXPECT_EQ(link->complete(std::move(answer)).status(), Status::bad_file) << variant;
    EXPECT_EQ(link->state(), LinkState::broken);
    EXPECT_EQ(link->post_message(header_of(1), {}), Posted::broken);
    one->poll(sink);
    one->poll(sink);
    EXPECT_EQ(sink.broken_count, 1);
    EXPECT_EQ(sink.ready_count, 0);
  }
}

TEST(LocalOffer, AnAnswerCountsOnce) {
  Pair pair;
  Parcel answer;
  answer.bytes = local::kAnswer;
  EXPECT_EQ(pair.links[0]->complete(std::move(answer)).status(), Status::bad_file);
  EXPECT_EQ(pair.links[0]->state(), LinkState::broken);
}

// A rank 0 that has made the link's memory itself and can write into it what it likes.
class HostilePeer {
 public:
  HostilePeer() : transport(open_one()) {
    Descriptor file;
    memory = must(local::LinkMemory::make(file));
    Descriptor peers;
    EXPECT_TRUE(local::make_wake_pair(socket, peers));
    Parcel offer;
    offer.bytes = local::kOffer;
    offer.descriptors.push_back(std::move(file));
    offer.descriptors.push_back(std::move(peers));
    Parcel answer;
    link = must(transport->accept(peer_of(*transport, 0), std::move(offer), answer));
    transport->poll(sink);
  }
  std::unique_ptr<Transport> transport;
  Recorder sink;
  local::LinkMemory memory;
  Descriptor socket;
  std::unique_ptr<Link> link;
};

TEST(LocalHostile, SpoiledRecordsBreakTheLinkAndNothingElse) {
  for (const std::uint64_t word :
       {std::uint64_t{1}, local::presence_word(1, 0), local::presence_word(0, 65537), ~std::uint64_t{0}}) {
    HostilePeer peer;
    std::memcpy(peer.memory.ring(0), &word, sizeof word);
    peer.transport->poll(peer.sink);
    peer.transport->poll(peer.sink);
    EXPECT_EQ(peer.sink.broken_count, 1);
    EXPECT_NE(peer.sink.why.find("corrupted"), std::string::npos);
    EXPECT_TRUE(peer.sink.messages.empty());
    EXPECT_EQ(peer.link->post_message(header_of(1), {}), Posted::broken);
    EXPECT_TRUE(peer.transport->arm());
  }
}

TEST(LocalHostile, SpoiledPositionsBreakTheLink) {
  HostilePeer peer;
  peer.memory.page().rings[1].consumed_lines = 1 << 20;
  Posted posted = Posted::ok;
  for (unsigned turn = 0; turn < local::kRingLines + 10 && posted == Posted::ok; ++turn)
    posted = peer.link->post_message(header_of(turn), {});
  EXPECT_EQ(posted, Posted::broken);
  peer.transport->poll(peer.sink);
  EXPECT_EQ(peer.sink.broken_count, 1);
}

// Random bytes all over the shared memory, while it is used.
TEST(LocalHostile, NoiseInTheSharedMemoryIsSurvived) {
  std::uint64_t state = 12345;
  const auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  for (int round = 0; round < 200; ++round) {
    HostilePeer peer;
    for (int turn = 0; turn < 50; ++turn) {
      const std::uint64_t noise = random();
      const std::uint64_t word = turn % 2 == 0 ? local::presence_word(static_cast<std::uint32_t>(noise % 4), noise % 70000) : noise;
      std::memcpy(peer.memory.ring(0) + random() % 64 * local::kLineBytes, &word, sizeof word);
      peer.memory.page().rings[1].consumed_lines = static_cast<std::uint32_t>(random() % 200);
      peer.memory.page().sides[random() % 2].sleeping = static_cast<std::uint32_t>(random());
      peer.link->post_message(header_of(noise), pattern_of(noise % 5000, noise));
      peer.transport->poll(peer.sink);
      peer.transport->arm();
    }
    EXPECT_LE(peer.sink.broken_count, 1);
  }
}

TEST(LocalHostile, AFloodOfWakesIsSurvived) {
  HostilePeer peer;
  ASSERT_TRUE(peer.transport->arm());
  for (int turn = 0; turn < 100000; ++turn) local::send_wake(peer.socket);
  EXPECT_TRUE(becomes_readable(peer.transport->wake_descriptor(), 1000));
  for (int turn = 0; turn < 100; ++turn) {
    peer.transport->poll(peer.sink);
    peer.transport->arm();
  }
  EXPECT_FALSE(becomes_readable(peer.transport->wake_descriptor(), 0));
  EXPECT_EQ(peer.sink.broken_count, 0);
}

// Nobody takes the wakes: the poster must not block, and must not get a signal when the socket is closed.
TEST(LocalHostile, AFullAndAClosedSocketAreNothingToWaitFor) {
  HostilePeer peer;
  for (int turn = 0; turn < 10000; ++turn) {
    peer.memory.page().sides[0].sleeping = local::kWakeForMessage;
    peer.memory.page().rings[1].consumed_lines = static_cast<std::uint32_t>(turn);
    ASSERT_EQ(peer.link->post_message(header_of(1), {}), Posted::ok);
  }
  peer.socket = Descriptor();
  peer.memory.page().sides[0].sleeping = local::kWakeForMessage;
  peer.memory.page().rings[1].consumed_lines = 10000;
  EXPECT_EQ(peer.link->post_message(header_of(1), {}), Posted::ok);
}

}  // namespace
}  // namespace gigabar::transport
