// SPDX-License-Identifier: Apache-2.0
// A rank that answers nothing, or says what cannot be done: each wait for it ends with an error that says so.
#include <sys/mman.h>

#include <csignal>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "fabric/wireup/wireup.hpp"
#include "fault/insider.hpp"
#include "support/no_more_descriptors.hpp"

namespace gigabar::test {
namespace {

// --- What cannot be written or mapped --------------------------------------------------------------------------------------------

// A read that goes by way of a write of the peer names the reader's own segment.
RANK_BODY(be_read) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
  EXPECT_EQ(me.hear(), "over");
}
BARE_RANK_BODY(read_into_what_is_not_there) {
  Insider insider(me.options());
  std::vector<char> quiesced(4096), too_short(64);
  insider.register_segment(kOrigin, quiesced.data(), quiesced.size());
  insider.register_segment(kSecondTarget, too_short.data(), too_short.size());
  insider.disable(kOrigin);
  ASSERT_TRUE(insider.meet(0));
  Message get;
  get.segment = kTarget;
  get.epoch = insider.epoch_of(kTarget);
  get.c = 4096;
  EXPECT_EQ(insider.refusal_of_read(get, kOrigin), Status::unavailable);
  EXPECT_EQ(insider.refusal_of_read(get, kSecondTarget), Status::out_of_range);
  EXPECT_EQ(insider.refusal_of_read(get, SegmentId{77}), Status::out_of_range);
  me.tell("refused");
  EXPECT_EQ(me.hear(), "over");
  EXPECT_TRUE(insider.give_key_back(kTarget));
  ASSERT_TRUE(me.meet());
}
TEST(FabricAnswers, OfReadsIntoSegmentsThatCannotTakeThem) {
  RankJob job("be_read", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "read_into_what_is_not_there", "refused"));
  for (const Rank rank : {Rank{0}, Rank{1}}) job.tell(rank, "over");
  job.finish();
}

// A rank that is silent, and then gives a key that no transport has a part of.
RANK_BODY(map_a_segment_without_a_key) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "ask");
  EXPECT_TRUE(fails(fabric.remote_segment(1, kTarget, Timeout::of(std::chrono::milliseconds(50))), Status::timed_out,
                    "the rank has not answered"));
  me.tell("waited");
  for (const MappedFor who : {MappedFor::kernels, MappedFor::cpu})
    EXPECT_TRUE(fails(fabric.map_segment(1, kTarget, kPatience, who), Status::not_supported, "gives no reason"));
}
BARE_RANK_BODY(give_no_key) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  Insider insider(options);
  std::vector<char> memory(4096);
  insider.register_segment(kTarget, memory.data(), memory.size());
  insider.drop_regions(kTarget);
  ASSERT_TRUE(insider.meet(0));
  me.tell("silent");
  EXPECT_EQ(me.hear(), "answer");
  insider.serve_until_known(kTarget);
  ASSERT_TRUE(me.meet());
}
TEST(FabricAnswers, ThatComeLateAndWithoutAKey) {
  RankJob job("map_a_segment_without_a_key", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "give_no_key", "silent"));
  job.tell(0, "ask");
  ASSERT_TRUE(job.hear(0, "waited"));
  job.tell(1, "answer");
  job.finish();
}

// A rank grants a place that is not in its staging memory: nothing is written there, and the write fails by it.
RANK_BODY(write_where_no_slot_is) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 8192);
  me.tell("up");
  EXPECT_EQ(me.hear(), "write");
  PathPolicy staged;
  staged.staged = Preference::require;
  ASSERT_TRUE(is_ok(fabric.write({kOrigin, 0}, {1, kTarget, 0}, 4096, {.queue = 3, .policy = staged})));
  const Result<void> written = fabric.wait(3, kPatience);
  EXPECT_TRUE(fails(written, Status::out_of_range, "rank 1: 4096 bytes at 1099511627776 of a region of")) << written.message();
  me.tell("failed");
}
BARE_RANK_BODY(grant_where_no_slot_is) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  Insider insider(options);
  std::vector<char> memory(4096);
  insider.register_segment(kTarget, memory.data(), memory.size());
  ASSERT_TRUE(insider.meet(0));
  me.tell("met");
  Message grant = of_type(MessageType::stage_grant);
  grant.a = insider.staged_write_of_peer();
  grant.b = std::uint64_t{1} << 40;
  grant.c = 4096;
  insider.say(grant);
  insider.settle();
  EXPECT_EQ(me.hear(), "over");
  ASSERT_TRUE(me.meet());
}
TEST(FabricAnswers, WithASlotThatIsNotThere) {
  RankJob job("write_where_no_slot_is", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "grant_where_no_slot_is", "met"));
  job.tell(0, "write");
  EXPECT_TRUE(job.hear(0, "failed"));
  job.tell(1, "over");
  job.finish();
}

// --- What does not come ----------------------------------------------------------------------------------------------------------

// The buffer ends with the call: who could still write to it is cut off.
RANK_BODY(receive_what_does_not_come) {
  std::vector<char> buffer(kRendezvousBytes);
  me.tell("up");
  EXPECT_EQ(me.hear(), "receive");
  EXPECT_TRUE(fails(fabric.recv(1, 7, buffer.data(), buffer.size(), Timeout::of(std::chrono::milliseconds(500))), Status::peer_lost,
                    "a message between the two did not end in time"));
}
BARE_RANK_BODY(offer_what_does_not_come) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  insider.leave_unanswered(1);
  Message offer = of_type(MessageType::rendezvous_request);
  offer.a = 7;
  offer.b = 1;
  offer.c = kRendezvousBytes;
  insider.say(offer);
  insider.settle();
  me.tell("offered");
  EXPECT_TRUE(insider.wait_until_lost());
  ASSERT_TRUE(me.meet());
}
TEST(FabricAnswers, ThatDoNotEndAreCutOff) {
  RankJob job("receive_what_does_not_come", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "offer_what_does_not_come", "offered"));
  job.tell(0, "receive");
  job.finish();
}

// Without rank 0 nobody finds rank 2 any more, which has not been started.
RANK_BODY(receive_without_a_directory) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "receive");
  if (me.rank() == 1) {
    EXPECT_TRUE(fails(fabric.recv(2, 7, nullptr, 0, kPatience), Status::peer_lost, "the job's directory is gone"));
  }
}
TEST(FabricAnswers, OfARankThatNobodyFinds) {
  RankSetup setup;
  setup.rank_count = 3;
  RankJob job("receive_without_a_directory", setup);
  job.excuse(2);
  for (const Rank rank : {Rank{0}, Rank{1}}) job.start(rank);
  for (const Rank rank : {Rank{0}, Rank{1}}) ASSERT_TRUE(job.hear(rank, "up"));
  job.send_signal(0, SIGKILL);
  job.wait_end(0);
  job.tell(1, "receive");
  job.finish();
}

// --- One rank by itself ----------------------------------------------------------------------------------------------------------

BARE_RANK_BODY(have_too_much_under_way) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  Insider insider(options);
  std::vector<char> memory(4096);
  EXPECT_TRUE(fails(insider.register_one_buffer_too_many(memory.data(), memory.size()), Status::busy,
                    "too many large messages are under way"));
  ASSERT_TRUE(insider.meet(0));
  insider.say_too_much(of_type(MessageType::wake));
  const std::string why = insider.why_lost();
  EXPECT_NE(why.find("answers that wait for it"), std::string::npos) << why;
}
TEST(FabricMuch, OfBuffersAndAnswersIsRefused) {
  RankSetup setup;
  setup.rank_count = 1;
  run_ranks("have_too_much_under_way", setup);
}

// --- Links -----------------------------------------------------------------------------------------------------------------------

// Rank 0 without an engine, which would offer links of its own.
class BareRank : public fabric::WireupEvents {
 public:
  explicit BareRank(const FabricOptions& options) {
    const auto job = fabric::find_job(options);
    EXPECT_TRUE(is_ok(job));
    auto wireup = fabric::Wireup::open(*job);
    EXPECT_TRUE(is_ok(wireup));
    wireup_ = std::move(*wireup);
    auto directory = fabric::open_directory(*job, deadline_ns_);
    EXPECT_TRUE(is_ok(directory));
    directory_ = std::move(*directory);
    rank_count_ = job->rank_count;
    rank_address_ =
        ByteWriter().number(fabric::kEngineVersion).string(wireup_->rank_address()).number(std::uint8_t{0}).string("").take();
    EXPECT_TRUE(is_ok(directory_->publish(rank_address_)));
  }
  void connected(Rank, bool, std::int64_t) override { is_connected_ = true; }
  void frame(Rank, fabric::Frame) override {}
  void lost(Rank, const Error&) override { is_lost_ = true; }

  // Connects with rank 1.
  bool meet() {
    std::optional<std::string> found;
    poll_until([&] {
      const auto asked = directory_->rank_address(1);
      EXPECT_TRUE(is_ok(asked));
      if (asked) found = *asked;
      return found.has_value();
    });
    if (!found) return false;
    ByteReader reader(*found);
    reader.number<std::uint32_t>();
    EXPECT_TRUE(is_ok(wireup_->connect(1, std::string(reader.string(4096)), deadline_ns_)));
    return poll_until([&] { return is_connected_; });
  }
  void greet() {
    say(fabric::kHello,
        ByteWriter().number(fabric::kEngineVersion).number(std::uint64_t{4096}).number(rank_count_).string(rank_address_));
  }
  void offer(std::uint32_t number, std::vector<Descriptor> descriptors) {
    ByteWriter writer;
    writer.number(static_cast<std::uint8_t>(TransportKind::verbs)).number(std::uint8_t{0}).number(number);
    say(fabric::kLinkOffer, writer.number(std::uint8_t{1}).string("an offer"), std::move(descriptors));
  }
  bool wait_until_lost() {
    return poll_until([&] { return is_lost_; });
  }

 private:
  void say(fabric::FrameType type, ByteWriter& body, std::vector<Descriptor> descriptors = {}) {
    EXPECT_TRUE(is_ok(wireup_->send(1, {type, body.take(), std::move(descriptors)})));
  }
  template <class IsDone>
  bool poll_until(const IsDone& is_done) {
    for (; !is_done() && now_ns() < deadline_ns_; ::usleep(100)) {
      EXPECT_TRUE(is_ok(directory_->poll()));
      wireup_->poll(*this);
    }
    return is_done();
  }

  const std::int64_t deadline_ns_ = now_ns() + 30'000'000'000;
  std::unique_ptr<fabric::Wireup> wireup_;
  std::unique_ptr<fabric::Directory> directory_;
  std::string rank_address_;
  Rank rank_count_ = 0;
  bool is_connected_ = false, is_lost_ = false;
};

// Each offer at the first rail is of another transport, and there are few.
RANK_BODY(refuse_offers) {
  const std::string why = why_lost(fabric, 0);
  EXPECT_NE(why.find("it offers more than 8 links, or more than 4 transports"), std::string::npos) << why;
}
BARE_RANK_BODY(offer_again_and_again) {
  BareRank rank(me.options());
  ASSERT_TRUE(rank.meet());
  rank.greet();
  for (std::uint32_t number = 1; number <= kTransportKinds + 1; ++number) rank.offer(number, {});
  EXPECT_TRUE(rank.wait_until_lost());
  ASSERT_TRUE(me.meet());
}
TEST(FabricLinks, AreOfferedOnceByEachTransport) {
  RankJob job("refuse_offers", RankSetup{});
  job.set_body(0, "offer_again_and_again");
  job.start_all();
  job.finish();
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS

RANK_BODY(be_offered_a_link_without_descriptors) {
  EXPECT_EQ(me.hear(), "exhaust");
  const std::string why = without_descriptors([&] {
    me.tell("exhausted");
    return why_lost(fabric, 0);
  });
  EXPECT_NE(why.find("descriptors that it sent could not be taken"), std::string::npos) << why;
}
BARE_RANK_BODY(offer_with_a_descriptor) {
  BareRank rank(me.options());
  ASSERT_TRUE(rank.meet());
  me.tell("connected");
  EXPECT_EQ(me.hear(), "offer");
  rank.greet();
  std::vector<Descriptor> descriptors;
  descriptors.emplace_back(::memfd_create("gigabar-test", MFD_CLOEXEC));
  rank.offer(1, std::move(descriptors));
  EXPECT_TRUE(rank.wait_until_lost());
  ASSERT_TRUE(me.meet());
}
TEST(FabricLinks, NeedTheirDescriptors) {
  RankJob job("be_offered_a_link_without_descriptors", RankSetup{});
  job.set_body(0, "offer_with_a_descriptor");
  job.start_all();
  ASSERT_TRUE(job.hear(0, "connected"));
  job.tell(1, "exhaust");
  ASSERT_TRUE(job.hear(1, "exhausted"));
  job.tell(0, "offer");
  job.finish();
}

#endif

}  // namespace
}  // namespace gigabar::test
