// SPDX-License-Identifier: Apache-2.0
// What a rank may do while its links are made: ask early, offer what does not fit together, and be ready before the other one.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "fault/insider.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kBytes = std::size_t{8} << 20;

FabricOptions driven_by_hand(const RankProcess& me) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  return options;
}

// Who has no thread of its own answers others, and keeps the directory, by its polls.
template <class Wait>
void serve_while(Insider& insider, const Wait& wait) {
  std::atomic<bool> is_over{false};
  std::thread waiting([&] {
    EXPECT_TRUE(wait());
    is_over = true;
  });
  EXPECT_TRUE(insider.poll_until(kPatience, [&] { return is_over.load(); }));
  waiting.join();
}
void serve_until_told(Insider& insider, RankProcess& me) {
  serve_while(insider, [&] { return me.hear().has_value(); });
}
// An insider of that body as rank 0, which is told when rank 1 is up.
void run_beside_insider(const std::string& body, const std::string& insider) {
  RankSetup setup;
  setup.transport = TransportKind::tcp;
  RankJob job(body, setup);
  job.set_body(0, insider);
  // As if they were on two hosts, so that every transport is opened.
  for (const Rank rank : {0U, 1U}) {
    job.set_environment(rank, "MASTER_ADDR", "127.1");
    job.set_environment(rank, "GIGABAR_INTERFACES", "lo");
  }
  job.start_all();
  ASSERT_TRUE(job.hear(1, "up"));
  job.tell(0, "go");
  job.finish();
}

// --- Staging memory that is smaller than the slots of the transport --------------------------------------------------------------

RANK_BODY(be_asked_early) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, kBytes);
  me.tell("up");
  const std::string why = why_lost(fabric, 0);
  EXPECT_NE(why.find("its chunk of a staged write makes no sense"), std::string::npos) << why;
}
// Before there is a transport, whose limits would say how much a slot has.
BARE_RANK_BODY(ask_early) {
  Insider insider(driven_by_hand(me));
  serve_until_told(insider, me);
  bool has_asked = false;
  ASSERT_TRUE(insider.meet_while(1, [&] {
    if (has_asked || !insider.is_greeting()) return;
    has_asked = true;
    insider.ask(fabric::kStagingSegment);
  }));
  ASSERT_TRUE(has_asked);
  ask_for_a_staged_write(insider, kBytes, static_cast<std::uint32_t>(insider.slot_bytes()));
  Message chunk = of_type(MessageType::stage_chunk);
  chunk.a = 1;
  chunk.b = Message::pair(0, static_cast<std::uint32_t>(insider.slot_bytes()));
  insider.say(chunk);
  insider.settle();
  ASSERT_TRUE(me.meet());
  EXPECT_TRUE(insider.wait_until_lost());
}
TEST(FabricLinks, AChunkIsWithinTheStagingMemory) { run_beside_insider("be_asked_early", "ask_early"); }

// --- Rails ----------------------------------------------------------------------------------------------------------------------

FabricOptions with_two_transports(FabricOptions options) {
  options.transports = {TransportKind::tcp, TransportKind::local};
  return options;
}
BARE_RANK_BODY(be_offered_two_transports) {
  auto opened = Fabric::open(with_two_transports(me.options()));
  ASSERT_TRUE(is_ok(opened));
  me.tell("up");
  const std::string why = why_lost(*opened, 0);
  EXPECT_NE(why.find("it offers links of two transports"), std::string::npos) << why;
}
BARE_RANK_BODY(offer_two_transports) {
  Insider insider(with_two_transports(driven_by_hand(me)));
  serve_until_told(insider, me);
  bool has_offered = false;
  ASSERT_TRUE(insider.meet_while(1, [&] { has_offered = has_offered || insider.offer_another_rail(1); }));
  EXPECT_TRUE(has_offered);
  EXPECT_TRUE(insider.wait_until_lost());
}
TEST(FabricLinks, AreOfOneTransport) { run_beside_insider("be_offered_two_transports", "offer_two_transports"); }

RANK_BODY(be_offered_two_rails) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 8192);
  me.tell("up");
  ASSERT_TRUE(me.meet());
  for (const PeerState& peer : fabric.peers()) {
    if (peer.rank == 0) {
      EXPECT_EQ(peer.rails.size(), 2U) << peer.why;
    }
  }
}
BARE_RANK_BODY(offer_two_rails) {
  Insider insider(driven_by_hand(me));
  serve_until_told(insider, me);
  bool has_offered = false;
  ASSERT_TRUE(insider.meet_while(1, [&] { has_offered = has_offered || insider.offer_another_rail(0); }));
  EXPECT_TRUE(has_offered);
  EXPECT_TRUE(insider.is_heard());
  ASSERT_TRUE(me.meet());
  ASSERT_TRUE(me.meet());
}
TEST(FabricLinks, AreAwaitedAsManyAsAreAnnounced) { run_beside_insider("be_offered_two_rails", "offer_two_rails"); }

// The links of rank 0 stand, and it goes on; one of rank 1 does not.
RANK_BODY(be_ready_first) {
  ASSERT_TRUE(me.hear());
  const auto added = fabric.fetch_add({1, kTarget, 0}, 5, kPatience);
  ASSERT_TRUE(is_ok(added));
  EXPECT_EQ(*added, 0U);
  EXPECT_TRUE(is_ok(fabric.flush(1, kPatience)));
}
BARE_RANK_BODY(be_ready_last) {
  Insider insider(driven_by_hand(me));
  std::vector<std::uint64_t> memory(512);
  insider.register_segment(kTarget, memory.data(), memory.size() * sizeof memory.front());
  me.tell("up");
  ASSERT_TRUE(insider.await_first_of_two_rails(0));
  // The answer to the atomic waits for the rail.
  EXPECT_TRUE(insider.poll_until(kPatience, [&] { return insider.unsaid_count() != 0; }));
  EXPECT_EQ(memory.front(), 5U);
  insider.do_with_one_rail();
  serve_while(insider, [&] { return me.meet(); });
}
TEST(FabricLinks, AnswersWaitForTheLastRail) {
  RankSetup setup;
  setup.transport = TransportKind::tcp;
  RankJob job("be_ready_first", setup);
  job.set_body(1, "be_ready_last");
  job.start_all();
  ASSERT_TRUE(job.hear(1, "up"));
  job.tell(0, "go");
  job.finish();
}

}  // namespace
}  // namespace gigabar::test
