// SPDX-License-Identifier: Apache-2.0
// What a rank that breaks the protocol says of memory, operations and messages of others: nothing of theirs changes.
#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "fault/insider.hpp"

namespace gigabar::test {
namespace {

// --- What names memory that is not there ----------------------------------------------------------------------------------------

// Nothing of it may land, and the rank that said it is not lost: the segment may have gone while it was under way.
RANK_BODY(keep_a_segment_whole) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
  EXPECT_EQ(me.hear(), "over");
  EXPECT_TRUE(target.is_untouched_around(0, 0)) << "somebody wrote to it";
  EXPECT_TRUE(fails(fabric.notification_wait(kTarget, 0, kNotifications, Timeout::test()), Status::timed_out));
}
BARE_RANK_BODY(reach_beyond_a_segment) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  constexpr QueueId kQueue = 5;
  const std::uint16_t epoch = insider.epoch_of(kTarget);
  const struct {
    const char* what;
    MessageType type;
    std::uint64_t offset;
    std::size_t bytes;
    SegmentId segment;
    std::uint16_t epoch;
    NotificationId notification;
  } kTries[] = {
      {"a put that ends beyond it", MessageType::put, 4090, 7, kTarget, epoch, 0},
      {"a put that begins beyond it", MessageType::put, 4097, 0, kTarget, epoch, 0},
      {"a put whose end wraps", MessageType::put, ~std::uint64_t{0} - 3, 8, kTarget, epoch, 0},
      {"a put of another epoch", MessageType::put, 0, 8, kTarget, std::uint16_t(epoch + 1), 0},
      {"a put to no segment", MessageType::put, 0, 8, kTarget + 1, epoch, 0},
      {"a place that ends beyond it", MessageType::place, 4092, 8, kTarget, epoch, 0},
      {"a place of another epoch", MessageType::place, 0, 8, kTarget, std::uint16_t(epoch - 1), 0},
      {"a notification that is none", MessageType::notify, 0, 0, kTarget, epoch, kNotifications},
      {"a notification of another epoch", MessageType::notify, 0, 0, kTarget, std::uint16_t(epoch + 1), 0},
      {"a notification of no segment", MessageType::notify, 0, 0, kTarget + 1, epoch, 0},
  };
  for (const auto& one : kTries) {
    Message message = of_type(one.type);
    message.segment = one.segment;
    message.epoch = one.epoch;
    message.queue = kQueue;
    if (one.type == MessageType::notify) {
      message.flags = fabric::kHasNotification;
      message.b = Message::pair(one.notification, 1);
    } else {
      message.a = one.offset;
    }
    insider.expect_refusals(kQueue);
    insider.say(message, std::string(one.bytes, 'x'));
    insider.settle();
    EXPECT_TRUE(insider.is_refused(kQueue)) << one.what;
    insider.forget_refusal(kQueue);
  }
  const auto change = [&](std::uint64_t offset, std::uint16_t of_epoch, std::size_t payload_bytes) {
    Message message;
    message.segment = kTarget;
    message.epoch = of_epoch;
    message.a = offset;
    message.b = 1;
    return insider.change(message, payload_bytes);
  };
  EXPECT_EQ(change(4, epoch, 8), Status::unavailable) << "not aligned";
  EXPECT_EQ(change(4096, epoch, 8), Status::unavailable) << "beyond the end";
  EXPECT_EQ(change(0, std::uint16_t(epoch + 1), 8), Status::unavailable) << "of another epoch";
  EXPECT_EQ(change(0, epoch, 9), Status::unavailable) << "with more than a request behind it";
  me.tell("tried");
  EXPECT_EQ(me.hear(), "over");
  EXPECT_TRUE(insider.give_key_back(kTarget));
  ASSERT_TRUE(me.meet());
}
TEST(FabricBounds, NothingLandsOutsideASegment) {
  RankJob job("keep_a_segment_whole", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "reach_beyond_a_segment", "tried"));
  for (const Rank rank : {Rank{0}, Rank{1}}) job.tell(rank, "over");
  job.finish();
}

// A rank that says it has given a key back, and writes with it.
RANK_BODY(take_a_key_back) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
  EXPECT_EQ(me.hear(), "known");
  EXPECT_TRUE(is_ok(fabric.quiesce(kTarget, kPatience)));
  me.tell("quiet");
  const std::string why = why_lost(fabric, 1);
  EXPECT_NE(why.find("a write to an unknown region, with a wrong guard"), std::string::npos) << why;
  EXPECT_TRUE(target.is_untouched_around(0, 0)) << "somebody wrote to it";
}
BARE_RANK_BODY(write_with_a_key_that_was_given_back) {
  Insider insider(me.options());
  std::string memory(4096, 'x');
  insider.register_segment(kOrigin, memory.data(), memory.size());
  ASSERT_TRUE(insider.meet(0));
  ASSERT_NO_FATAL_FAILURE(insider.keep_key(kTarget));
  me.tell("knows");
  EXPECT_TRUE(insider.give_key_back(kTarget));
  insider.settle();
  me.tell("gave");
  EXPECT_EQ(me.hear(), "quiet");
  insider.write_with_it(kOrigin, 64);
  EXPECT_TRUE(insider.wait_until_lost());
  ASSERT_TRUE(me.meet());
}
// Not over ucx too, which looks keys up in the same place: UCX 1.13 aborts where its peer cuts it off.
TEST(FabricOldKeys, FitNoMore) {
  RankSetup setup;
  setup.transport = TransportKind::tcp;
  RankJob job("take_a_key_back", setup);
  job.set_body(1, "write_with_a_key_that_was_given_back");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "knows"));
  job.tell(0, "known");
  ASSERT_TRUE(job.hear(1, "gave"));
  ASSERT_TRUE(job.hear(0, "quiet"));
  job.tell(1, "quiet");
  job.finish();
}

// Answers that say that the other side could not: of a message that was accepted, and of a read.
RANK_BODY(hear_of_failures) {
  RankSegment own(fabric, kTarget, MemoryChoice::host, 8192);
  std::vector<char> buffer(kRendezvousBytes);
  const auto received = fabric.post_recv(1, 7, ~Tag{0}, buffer.data(), buffer.size());
  ASSERT_TRUE(is_ok(received));
  me.tell("up");
  EXPECT_TRUE(fails(fabric.wait_message(*received, kPatience), Status::unavailable, "the sender could not send the bytes"));
  ASSERT_TRUE(is_ok(fabric.remote_segment(1, kOrigin, kPatience)));
  me.tell("has the key");
  EXPECT_EQ(me.hear(), "read");
  PathPolicy staged;
  staged.staged = Preference::require;
  ASSERT_TRUE(is_ok(fabric.read({kTarget, 0}, {1, kOrigin, 0}, 4096, {.queue = 2, .policy = staged})));
  EXPECT_TRUE(fails(fabric.wait(2, kPatience), Status::unavailable, "the peer could not send the bytes"));
  EXPECT_TRUE(is_ok(fabric.send(1, 1, nullptr, 0, kPatience)));
  me.tell("heard");
}
BARE_RANK_BODY(tell_of_failures) {
  Insider insider(me.options());
  std::vector<char> memory(8192);
  insider.register_segment(kOrigin, memory.data(), memory.size());
  ASSERT_TRUE(insider.meet(0));
  Message offer = of_type(MessageType::rendezvous_request);
  offer.a = 7;
  offer.b = 1;
  offer.c = kRendezvousBytes;
  insider.say(offer);
  // The operation's number is in the acceptance; those of others are nobody's.
  Message done = of_type(MessageType::rendezvous_done);
  done.b = static_cast<std::uint64_t>(Status::unavailable);
  for (done.a = 1; done.a < 64; ++done.a) insider.say(done);
  insider.settle();
  insider.serve_until_known(kOrigin);
  insider.disable(kOrigin);  // without a word to those who have its key
  me.tell("disabled");
  insider.serve_until_sent();  // the acceptance and the question for the bytes
  me.tell("refused");
  EXPECT_EQ(me.hear(), "over");
  ASSERT_TRUE(me.meet());
}
TEST(FabricAnswers, OfFailureAreTheErrorsOfTheirOperations) {
  RankJob job("hear_of_failures", RankSetup{});
  job.set_body(1, "tell_of_failures");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(0, "has the key"));
  ASSERT_TRUE(job.hear(1, "disabled"));
  job.tell(0, "read");
  ASSERT_TRUE(job.hear(0, "heard"));
  ASSERT_TRUE(job.hear(1, "refused"));
  job.tell(1, "over");
  job.finish();
}

// A segment is quiet only when its peers have nothing under way to it.
RANK_BODY(quiesce_what_is_in_use) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
  EXPECT_EQ(me.hear(), "quiesce");
  EXPECT_TRUE(fails(fabric.quiesce(kTarget, Timeout::of(std::chrono::milliseconds(500))), Status::timed_out, "did not answer: 1"));
  me.tell("waited");
  EXPECT_TRUE(is_ok(fabric.quiesce(kTarget, kPatience)));
}
BARE_RANK_BODY(use_a_segment) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  insider.use(kTarget);
  me.tell("in use");
  EXPECT_TRUE(insider.is_asked_for_a_key()) << "it was given back while it was used";
  me.tell("asked");
  EXPECT_EQ(me.hear(), "leave");
  insider.leave();
  EXPECT_TRUE(insider.give_key_back(kTarget));
  ASSERT_TRUE(me.meet());
}
TEST(FabricQuiet, IsNotBeforePeersHaveLeft) {
  RankJob job("quiesce_what_is_in_use", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "use_a_segment", "in use"));
  job.tell(0, "quiesce");
  ASSERT_TRUE(job.hear(0, "waited"));
  ASSERT_TRUE(job.hear(1, "asked"));
  job.tell(1, "leave");
  job.finish();
}

// Where nothing but its links lets it reach the segment, it is cut off.
RANK_BODY(quiesce_without_an_answer) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
  EXPECT_EQ(me.hear(), "quiesce");
  EXPECT_TRUE(is_ok(fabric.quiesce(kTarget, Timeout::of(std::chrono::milliseconds(500)))));
  const std::string why = why_lost(fabric, 1);
  EXPECT_NE(why.find("it did not answer in time that it has left"), std::string::npos) << why;
}
BARE_RANK_BODY(use_a_segment_to_the_end) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  insider.use(kTarget);
  me.tell("in use");
  EXPECT_TRUE(insider.wait_until_lost());
  ASSERT_TRUE(me.meet());
}
class FabricSilent : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricSilent, PeersAreCutOffFromWhatIsQuiesced) {
  RankJob job("quiesce_without_an_answer", GetParam());
  ASSERT_TRUE(start_beside_insider(job, "use_a_segment_to_the_end", "in use"));
  job.tell(0, "quiesce");
  job.finish();
}
std::vector<RankSetup> each_network() {
  std::vector<RankSetup> all = each_transport(2);
  std::erase_if(all, [](const RankSetup& setup) { return setup.transport == TransportKind::local; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricSilent, testing::ValuesIn(each_network()), setup_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricSilent);  // the local transport may be the only one

// Its atomics are refused by the rank that they are asked of.
RANK_BODY(change_a_segment_until_it_goes) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "go on");
  Result<std::uint64_t> changed = fabric.fetch_add({1, kTarget, 0}, 1, kPatience);
  ASSERT_TRUE(is_ok(changed));
  for (int count = 0; changed && count < 10'000; ++count) changed = fabric.fetch_add({1, kTarget, 0}, 1, kPatience);
  EXPECT_TRUE(fails(changed, Status::unavailable, "the segment was quiesced or deregistered"));
  EXPECT_TRUE(is_ok(fabric.send(1, 1, nullptr, 0, kPatience)));
  me.tell("refused");
}
BARE_RANK_BODY(disable_what_is_changed) {
  Insider insider(me.options());
  std::vector<std::uint64_t> memory(512);
  insider.register_segment(kTarget, memory.data(), memory.size() * sizeof memory[0]);
  ASSERT_TRUE(insider.meet(0));
  me.tell("ready");
  EXPECT_TRUE(insider.poll_until(kPatience, [&] { return memory[0] != 0; }));
  insider.disable(kTarget);  // without a word to those who have its key
  const std::uint64_t changes = memory[0];
  insider.serve_until_sent();
  EXPECT_EQ(memory[0], changes);
  ASSERT_TRUE(me.meet());
}
TEST(FabricQuiet, RefusesAtomics) {
  RankJob job("change_a_segment_until_it_goes", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "disable_what_is_changed", "ready"));
  job.tell(0, "go on");
  ASSERT_TRUE(job.hear(0, "refused"));
  job.finish();
}

// A rank of another version leaves an address that this one does not read.
RANK_BODY(connect_to_another_version) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "go on");
  EXPECT_TRUE(fails(fabric.connect(1, kPatience), Status::not_supported, "its version of the protocol is"));
  me.tell("refused");
}
BARE_RANK_BODY(leave_an_address_of_another_version) {
  const auto job = fabric::find_job(me.options());
  ASSERT_TRUE(is_ok(job));
  const std::int64_t deadline_ns = now_ns() + 20'000'000'000;
  auto directory = fabric::open_directory(*job, deadline_ns);
  ASSERT_TRUE(is_ok(directory));
  ByteWriter writer;
  ASSERT_TRUE(is_ok((*directory)->publish(writer.number(fabric::kEngineVersion + 1).string("").take())));
  const auto told = [&] {
    EXPECT_TRUE(is_ok((*directory)->poll()));
    const auto address = (*directory)->rank_address(0);
    return address.is_ok() && address->has_value();
  };
  while (!told() && now_ns() < deadline_ns) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  me.tell("ready");  // what was said before the answer has arrived
  EXPECT_EQ(me.hear(), "over");
  ASSERT_TRUE(me.meet());
}
TEST(FabricVersion, OfAnAddressIsLookedAt) {
  RankJob job("connect_to_another_version", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "leave_an_address_of_another_version", "ready"));
  job.tell(0, "go on");
  ASSERT_TRUE(job.hear(0, "refused"));
  job.tell(1, "over");
  job.finish();
}

// A key may say that there are no words, and give no reason; staging memory never has any. The notification then goes in a message,
// which is refused.
RANK_BODY(notify_one_without_words) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "go on");
  QueueId queue = 0;
  for (const SegmentId segment : {kTarget, fabric::kStagingSegment}) {
    for (const bool adds : {false, true}) {
      const PostOptions options{.queue = ++queue, .policy = std::nullopt};
      const auto posted = adds ? fabric.notify_add(1, segment, 0, 1, options) : fabric.notify(1, segment, 0, 1, options);
      ASSERT_TRUE(is_ok(posted));
      const auto report = fabric.report(*posted);
      ASSERT_TRUE(is_ok(report));
      EXPECT_NE(report->notification.find("gives no reason"), std::string::npos) << report->notification;
      EXPECT_TRUE(is_ok(fabric.flush(1, kPatience)));
      EXPECT_TRUE(fails(fabric.wait(queue, kPatience), Status::unavailable));
    }
  }
  EXPECT_TRUE(is_ok(fabric.send(1, 1, nullptr, 0, kPatience)));
}
BARE_RANK_BODY(have_no_words) {
  Insider insider(me.options());
  std::vector<char> memory(4096);
  insider.register_segment(kTarget, memory.data(), memory.size());
  insider.drop_notifications(kTarget);
  ASSERT_TRUE(insider.meet(0));
  me.tell("ready");
  insider.serve_until_sent();  // notifications and pings
  ASSERT_TRUE(me.meet());
}
TEST(FabricNotifications, WithoutAKeyOfTheirWordsGoInMessages) {
  RankJob job("notify_one_without_words", RankSetup{});
  ASSERT_TRUE(start_beside_insider(job, "have_no_words", "ready"));
  job.tell(0, "go on");
  job.finish();
}

// An acceptance that is torn, or of another length, is the error of the message that it is about.
RANK_BODY(send_to_one_that_replies_badly) {
  std::vector<char> offered(kRendezvousBytes);
  me.tell("up");
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(fails(fabric.send(1, 1, offered.data(), offered.size(), kPatience), Status::peer_lost,
                      "its reply to a message is malformed"));
    me.tell("failed");
    EXPECT_EQ(me.hear(), "next");
  }
}
BARE_RANK_BODY(reply_badly) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  for (const bool is_torn : {true, false}) {
    Message accept = of_type(MessageType::rendezvous_reply);
    accept.segment = fabric::kFirstAnonymous;
    accept.a = insider.request_of_peer();
    accept.c = kRendezvousBytes - (is_torn ? 0 : 1);
    std::string payload;
    append(payload, std::uint64_t{0});
    append(payload, std::uint32_t{0});
    insider.say(accept, std::string_view(payload).substr(is_torn ? 5 : 0));
    insider.settle();
    insider.drop_requests();
    me.tell("said");
    EXPECT_EQ(me.hear(), "next");
  }
  ASSERT_TRUE(me.meet());
}
TEST(FabricReply, ThatIsMalformedFailsItsMessage) {
  RankJob job("send_to_one_that_replies_badly", RankSetup{});
  job.set_body(1, "reply_badly");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(job.hear(1, "said"));
    ASSERT_TRUE(job.hear(0, "failed"));
    for (const Rank rank : {Rank{0}, Rank{1}}) job.tell(rank, "next");
  }
  job.finish();
}

// --- Others pay nothing for it --------------------------------------------------------------------------------------------------

// The parts of a rank that is no member, and its word that the collective has failed, are nothing to the members.
RANK_BODY(meet_without_the_insider) {
  me.tell("up");
  EXPECT_EQ(me.hear(), "go on");
  EXPECT_TRUE(is_ok(fabric.barrier({0, 2}, kPatience)));
}
BARE_RANK_BODY(disturb_a_barrier) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, as the engine's
  for (const Rank rank : {0U, 2U}) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (rank >> shift & 0xff)) * 0x100000001b3;
  }
  Message failed = of_type(MessageType::collective);
  failed.count = 1;
  failed.a = hash;
  failed.c = 2;
  std::string why;
  append(why, static_cast<std::uint8_t>(Status::peer_lost));
  append(why, Rank{2});
  append(why, std::uint32_t{4});
  insider.say(failed, why + "lies");
  EXPECT_TRUE(insider.is_heard());
  say_parts(insider);
  EXPECT_TRUE(insider.wait_until_lost());  // so that all are there that the peer keeps
  me.tell("said");
  EXPECT_EQ(me.hear(), "go on");
}
TEST(FabricCollectives, OfOthersAreNotDisturbed) {
  RankSetup setup;
  setup.rank_count = 3;
  RankJob job("meet_without_the_insider", setup);
  job.set_body(1, "disturb_a_barrier");
  job.excuse(1);
  job.start_all();
  for (const Rank rank : {0U, 2U}) ASSERT_TRUE(job.hear(rank, "up"));
  ASSERT_TRUE(job.hear(1, "said"));
  for (Rank rank = 0; rank < 3; ++rank) job.tell(rank, "go on");
  job.finish();
}

// A staged write that its writer does not go on with keeps nobody from ending the segment. A process of this host, whose own copies
// cannot be cut off, does while it keeps its key.
BARE_RANK_BODY(end_a_segment_in_use) {
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  std::vector<char> memory(4096);
  ASSERT_TRUE(is_ok(fabric->register_segment(kTarget, memory.data(), memory.size())));
  me.tell("up");
  EXPECT_EQ(me.hear(), "end");
  const Result<void> ended = fabric->deregister_segment(kTarget, Timeout::of(std::chrono::seconds(1)));
  if (me.setup().transport == TransportKind::local) {
    EXPECT_TRUE(fails(ended, Status::timed_out, "did not answer: 1"));
  } else {
    EXPECT_TRUE(is_ok(ended));
    EXPECT_NE(why_lost(*fabric, 1).find("did not end in time"), std::string::npos);
  }
  me.tell("ended");
  ASSERT_TRUE(me.meet());
}
BARE_RANK_BODY(leave_a_staged_write) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  open_a_staged_write(insider, 4096);
  insider.settle();
  EXPECT_TRUE(insider.is_heard());
  me.tell("opened");
  ASSERT_TRUE(me.meet());
}
class FabricStagedWrite : public testing::TestWithParam<RankSetup> {};
TEST_P(FabricStagedWrite, ThatDoesNotEndDoesNotKeepTheSegment) {
  RankJob job("end_a_segment_in_use", GetParam());
  ASSERT_TRUE(start_beside_insider(job, "leave_a_staged_write", "opened"));
  job.tell(0, "end");
  ASSERT_TRUE(job.hear(0, "ended"));
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Transports, FabricStagedWrite, testing::ValuesIn(each_transport(2)), setup_name);

// --- Buffers of messages between others -----------------------------------------------------------------------------------------

constexpr std::size_t kBufferBytes = 1 << 20;

// Rank 2 offers a message that it does not write; rank 0 opens its buffer to it. Rank 1 tries to get there.
RANK_BODY(receive_from_another) {
  std::vector<char> buffer(kBufferBytes, 'o');
  auto receive = fabric.post_recv(2, 7, ~Tag{0}, buffer.data(), buffer.size());
  ASSERT_TRUE(is_ok(receive));
  me.tell("up");
  EXPECT_EQ(me.hear(), "over");
  EXPECT_EQ(std::count(buffer.begin(), buffer.end(), 'o'), std::ptrdiff_t(kBufferBytes)) << "somebody else wrote to it";
}
BARE_RANK_BODY(offer_and_wait) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  insider.leave_unanswered(1);
  Message offer = of_type(MessageType::rendezvous_request);
  offer.a = 7;
  offer.b = 1;
  offer.c = kBufferBytes;
  insider.say(offer);
  insider.settle();
  // The offer and the question go different ways.
  bool is_open = false;
  for (const std::int64_t end_ns = now_ns() + 10'000'000'000; !is_open && now_ns() < end_ns;)
    is_open = insider.may_use(fabric::kFirstAnonymous);
  EXPECT_TRUE(is_open) << "it is open to its sender";
  me.tell("offered");
  EXPECT_EQ(me.hear(), "over");
  ASSERT_TRUE(me.meet());
}
BARE_RANK_BODY(reach_for_it) {
  Insider insider(me.options());
  ASSERT_TRUE(insider.meet(0));
  EXPECT_FALSE(insider.may_use(fabric::kFirstAnonymous));
  insider.expect_refusals(5);
  for (std::uint16_t epoch = 0; epoch < 64; ++epoch) {
    Message put = of_type(MessageType::put);
    put.segment = fabric::kFirstAnonymous;
    put.epoch = epoch;
    put.queue = 5;
    insider.say(put, std::string(64, 'x'));
  }
  insider.settle();
  EXPECT_TRUE(insider.is_refused(5));
  me.tell("tried");
  EXPECT_EQ(me.hear(), "over");
  ASSERT_TRUE(me.meet());
}
TEST(FabricBuffers, AreOpenToTheirSenderOnly) {
  RankSetup setup;
  setup.rank_count = 3;
  RankJob job("receive_from_another", setup);
  job.set_body(1, "reach_for_it");
  job.set_body(2, "offer_and_wait");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(2);
  ASSERT_TRUE(job.hear(2, "offered"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "tried"));
  for (Rank rank = 0; rank < 3; ++rank) job.tell(rank, "over");
  job.finish();
}

// Empty messages have a price of the window; those beyond it are offered, and arrive all the same.
RANK_BODY(send_many_empty_messages) {
  constexpr Tag kMany = 70'000;
  if (me.rank() == 1) {
    std::vector<Operation> sent;
    for (Tag tag = 0; tag < kMany; ++tag) {
      auto operation = fabric.post_send(0, tag, nullptr, 0);
      ASSERT_TRUE(is_ok(operation)) << tag;
      sent.push_back(*operation);
      if (sent.size() < 1000 || tag > 65'000) continue;
      for (const Operation one : sent) ASSERT_TRUE(is_ok(fabric.wait_message(one, kPatience)));
      sent.clear();
    }
    me.tell("sent");
    for (const Operation one : sent) ASSERT_TRUE(is_ok(fabric.wait_message(one, kPatience)));
  } else {
    EXPECT_EQ(me.hear(), "receive");
    for (Tag tag = 0; tag < kMany; ++tag) {
      const auto received = fabric.recv(1, tag, nullptr, 0, kPatience);
      ASSERT_TRUE(is_ok(received)) << tag;
      ASSERT_EQ(received->bytes, 0U);
    }
  }
  EXPECT_TRUE(is_ok(fabric.barrier({}, kPatience)));
}
TEST(FabricBuffers, EmptyMessagesBeyondTheWindowArrive) {
  RankJob job("send_many_empty_messages", RankSetup{});
  job.start_all();
  ASSERT_TRUE(job.hear(1, "sent"));
  job.tell(0, "receive");
  job.finish();
}

}  // namespace
}  // namespace gigabar::test
