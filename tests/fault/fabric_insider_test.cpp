// SPDX-License-Identifier: Apache-2.0
// A rank that holds the key and breaks the protocol: it is lost with an error that says how, and the others keep what is theirs.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"
#include "fabric/bytes.hpp"
#include "fabric/engine.hpp"

namespace gigabar::fabric {

// An engine whose messages a test writes.
class Insider {
 public:
  explicit Insider(const FabricOptions& options) : engine_(open(options)), lock_(engine_->lock()) {}

  // Connects with `rank`.
  bool meet(Rank rank) {
    auto peer = engine_->ready_peer(lock_, rank, test::kPatience);
    EXPECT_TRUE(test::is_ok(peer));
    if (peer) peer_ = *peer;
    return peer.is_ok();
  }
  // Until the link has taken it, or is gone.
  void say(const Message& message, std::string_view payload = {}) {
    engine_->say(*peer_, message, std::as_bytes(std::span(payload)));
    if (peer_->outbox.size() > 256) settle();
  }
  void settle() {
    engine_->progress_until(lock_, test::kPatience, [this] { return peer_->outbox.empty() || peer_->state != Peer::State::ready; });
  }
  // On the channel, where segments and links are agreed on.
  void say_frame(std::uint16_t type, std::string body) {
    EXPECT_TRUE(test::is_ok(engine_->send_frame(*peer_, static_cast<FrameType>(type), std::move(body))));
  }
  // As say(), without a look at what the peer asks meanwhile.
  void say_and_hear_nothing(const Message& message, std::string_view payload) {
    engine_->say(*peer_, message, std::as_bytes(std::span(payload)));
    for (const std::int64_t end_ns = now_ns() + 20'000'000'000; !engine_->flush_outbox(*peer_) && now_ns() < end_ns;) ::usleep(50);
  }
  std::uint16_t epoch_of(SegmentId id) {
    const auto remote = engine_->remote_segment(lock_, *peer_, id, test::kPatience);
    EXPECT_TRUE(test::is_ok(remote));
    return remote ? (*remote)->epoch : std::uint16_t{0};
  }
  // Whether the peer gives a key of its segment.
  bool may_use(SegmentId id) {
    const auto remote = engine_->remote_segment(lock_, *peer_, id, test::kPatience);
    return remote.is_ok();
  }
  // The number of the peer's operation that offers a message to this rank.
  std::uint64_t request_of_peer() {
    const auto offered = [this] {
      return std::find_if(engine_->unexpected_.begin(), engine_->unexpected_.end(),
                          [](const Unexpected& one) { return one.request.has_value(); });
    };
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [&] { return offered() != engine_->unexpected_.end(); }));
    return offered() == engine_->unexpected_.end() ? 0 : *offered()->request;
  }
  void register_segment(SegmentId id, void* address, std::size_t bytes) {
    EXPECT_TRUE(test::is_ok(engine_->register_segment(id, address, bytes)));
  }
  void serve_until_known(SegmentId id) {
    EXPECT_TRUE(
        engine_->progress_until(lock_, test::kPatience, [&] { return engine_->segments_[id]->known_by.contains(peer_->rank); }));
  }
  void disable(SegmentId id) { engine_->segments_[id]->is_enabled = false; }
  // As an operation under way does.
  void use(SegmentId id) {
    const auto remote = engine_->remote_segment(lock_, *peer_, id, test::kPatience);
    ASSERT_TRUE(test::is_ok(remote));
    used_ = *remote;
    ++used_->users;
  }
  void leave() { engine_->release(*peer_, used_); }
  // Whether the peer wants a key back that is not given.
  bool is_asked_for_a_key() {
    const bool is_asked = engine_->progress_until(lock_, test::kPatience, [this] { return !peer_->revoked.empty(); });
    engine_->progress_until(lock_, Timeout::of(std::chrono::milliseconds(100)), [this] { return peer_->revoked.empty(); });
    return is_asked && !peer_->revoked.empty();
  }
  // When the peer wants it.
  bool give_key_back(SegmentId id) {
    return engine_->progress_until(lock_, test::kPatience, [&] { return !peer_->segments.contains(id) && peer_->revoked.empty(); });
  }
  // Until so many messages have come since the engine was opened, and were answered.
  void serve(std::uint64_t message_count) {
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [&] { return engine_->statistics_.messages >= message_count; }));
    settle();
  }
  std::uint64_t slot_bytes() { return engine_->limits(*peer_).chunk_bytes; }
  void drop_requests() { engine_->unexpected_.clear(); }
  // What an atomic of the peer's segment is answered with.
  Status change(Message message, std::size_t payload_bytes) {
    constexpr std::uint64_t kRequest = 77;
    message.type = MessageType::atomic;
    engine_->atomics_[kRequest] = {false, 0, Status::ok, peer_->rank};
    std::string payload(sizeof kRequest + 1, '\0');
    std::memcpy(payload.data(), &kRequest, sizeof kRequest);
    say(message, std::string_view(payload).substr(0, payload_bytes));
    EXPECT_TRUE(engine_->progress_until(lock_, test::kPatience, [&] { return engine_->atomics_[kRequest].is_done; }));
    return engine_->atomics_[kRequest].status;
  }
  void forget_refusal(QueueId queue) { engine_->queues_[queue].error.reset(); }
  // What the peer refused.
  bool is_refused(QueueId queue) {
    return engine_->progress_until(lock_, test::kPatience, [&] { return engine_->queues_[queue].error.has_value(); });
  }
  void expect_refusals(QueueId queue) { Engine::may_be_refused(*peer_, queue); }
  // What the peer says of this operation is heard, and nothing comes of it.
  void leave_unanswered(std::uint64_t operation) { peer_->by_id[operation] = &engine_->make_op(OpKind::receive, 0, peer_, true); }
  // On the channel.
  void send_frame(FrameType type, std::string body) { static_cast<void>(engine_->send_frame(*peer_, type, std::move(body))); }
  std::uint64_t slot_bytes() const { return engine_->limits(*peer_).chunk_bytes; }
  // Everything that the peer has sent is in place, and it hears this rank.
  bool is_heard() { return test::is_ok(engine_->flush(lock_, peer_->rank, test::kPatience)); }

  // What comes from the peer waits, as behind the mark of a rail that is late.
  void wait_for_a_rail() {
    peer_->stalled_fence = 99;
    peer_->stalled_marks = 1;
  }
  void hear_from_the_rail() {
    ++peer_->marks[99];
    engine_->pass_fences(*peer_);
  }
  std::size_t held_bytes() const { return peer_->held_bytes; }
  template <class IsDone>
  bool poll_until(const Timeout& timeout, IsDone&& is_done) {
    return engine_->progress_until(lock_, timeout, is_done);
  }
  // Whether a key is taken for a segment of the peer that operations use.
  bool takes_a_key_of(SegmentId own, unsigned users) {
    RemoteState remote;
    remote.users = users;
    ByteWriter writer;
    auto descriptors = engine_->describe_segment(*peer_, *engine_->find_segment(own), writer);
    const std::string key = writer.take();
    ByteReader reader(key);
    return engine_->learn_segment(*peer_, remote, reader, std::move(descriptors)) && remote.know == RemoteState::Know::known;
  }
  // How many decisions are remembered when peers give so many reasons of their own.
  std::size_t decide(SegmentId own, std::size_t count) {
    for (std::size_t reason = 0; reason < count; ++reason) {
      RemoteState remote;
      remote.bytes = 1 << 20;
      remote.why_not = "reason " + std::to_string(reason);
      EXPECT_TRUE(test::is_ok(
          engine_->choose(*peer_, transport::Direction::write, *engine_->find_segment(own), remote, 1 << 20, PathPolicy{}, false)));
    }
    return engine_->choices_.size();
  }
  // As one that has connected and not said who it is.
  void forget_greeting() { peer_->has_greeted = false; }
  std::string why_lost() { return wait_until_lost() ? peer_->why->message() : "it is not lost"; }
  bool wait_until_lost() {
    return engine_->progress_until(lock_, test::kPatience, [this] { return peer_->state == Peer::State::lost; });
  }

 private:
  static std::unique_ptr<Engine> open(const FabricOptions& options) {
    auto opened = Engine::open(options);
    EXPECT_TRUE(test::is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }

  std::unique_ptr<Engine> engine_;
  Engine::Lock lock_;
  Peer* peer_ = nullptr;
  RemoteState* used_ = nullptr;
};

}  // namespace gigabar::fabric

namespace gigabar::test {
namespace {

using fabric::Insider;
using fabric::Message;
using fabric::MessageType;

Message of_type(MessageType type) {
  Message message;
  message.type = type;
  return message;
}

template <class Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// --- What one rank can make another remember, and what makes no sense -----------------------------------------------------------

constexpr std::size_t kRendezvousBytes = 1 << 20;  // more than travels inside a message

void say_marks(Insider& insider) {
  Message mark = of_type(MessageType::mark);
  for (std::size_t count = 0; count <= fabric::kMaxMarks; ++count) {
    mark.a = count + 2;
    insider.say(mark);
  }
}

// A fence whose mark never comes holds up what is behind it.
void say_behind_a_fence(Insider& insider) {
  Message fence = of_type(MessageType::fence);
  fence.a = 1;
  fence.count = 1;
  insider.say(fence);
  Message put = of_type(MessageType::put);
  put.segment = kTarget;
  const std::string payload(4000, 'x');
  for (std::size_t bytes = 0; bytes <= fabric::kMaxHeldBytes; bytes += payload.size()) insider.say(put, payload);
}

void say_requests(Insider& insider) {
  Message offer = of_type(MessageType::rendezvous_request);
  offer.c = 1 << 20;
  for (std::size_t count = 0; count <= fabric::kMaxMessages; ++count) {
    offer.b = count;
    insider.say(offer);
  }
}

void say_empty_messages(Insider& insider) {
  for (std::size_t count = 0; count <= (4 << 20) / 64; ++count) insider.say(of_type(MessageType::eager));
}

void say_staged_writes(Insider& insider) {
  Message open = of_type(MessageType::stage_open);
  for (std::uint64_t count = 0; count <= fabric::kMaxStaged; ++count) {
    std::string payload;
    append(payload, std::uint32_t{0});  // the link places them
    append(payload, count + 1);
    insider.say(open, payload);
  }
}

// Into a segment whose key this rank does not give while it says them: they stay under way.
void say_some_reads(Insider& insider, std::size_t count) {
  Message get = of_type(MessageType::get);
  get.segment = kTarget;
  get.epoch = insider.epoch_of(kTarget);
  get.c = 8;
  std::string payload;
  append(payload, SegmentId{77});
  append(payload, std::uint64_t{0});
  payload += std::string(4, '\0');
  append(payload, std::uint64_t{4096});
  for (get.a = 1; get.a <= count; ++get.a) insider.say_and_hear_nothing(get, payload);
}
void say_reads(Insider& insider) { say_some_reads(insider, fabric::kMaxAnswers + 1); }

void say_a_refusal(Insider& insider) {
  Message refused = of_type(MessageType::refused);
  refused.queue = 3;
  insider.say(refused);
}

void say_a_refusal_of_no_queue(Insider& insider) {
  Message refused = of_type(MessageType::refused);
  refused.queue = kQueues;
  insider.say(refused);
}

void say_a_pong(Insider& insider) {
  Message pong = of_type(MessageType::pong);
  pong.a = 1;
  insider.say(pong);
}

// 70000 would be more than all ranks together may leave, were they one.
void say_parts(Insider& insider) {
  Message part = of_type(MessageType::collective);
  for (part.a = 1; part.a <= 70'000; ++part.a) insider.say(part);
}

// Each key has a descriptor; none is taken.
void ask_and_do_not_read(Insider& insider) {
  std::string question;
  append(question, fabric::kStagingSegment);
  for (int count = 0; count < 3000; ++count) insider.send_frame(fabric::kSegmentAsk, question);
}

// The peer has offered one link, which stands.
void answer_an_offer_again(Insider& insider) {
  std::string answer;
  append(answer, std::uint32_t{1});
  append(answer, std::uint8_t{0});  // not accepted
  append(answer, std::uint8_t{1});
  append(answer, std::uint32_t{2});
  insider.send_frame(fabric::kLinkAnswer, answer + "no");
}

// A line that is not this rank's, in another colour.
void forge_a_line(Insider& insider) { insider.send_frame(fabric::kNoTransport, "no\n[gigabar] error: \x1b[31mforged"); }

void open_a_staged_write(Insider& insider, std::uint64_t bytes) {
  EXPECT_TRUE(insider.may_use(fabric::kStagingSegment));
  Message open = of_type(MessageType::stage_open);
  open.segment = kTarget;
  open.epoch = insider.epoch_of(kTarget);
  open.a = 1;
  open.c = bytes;
  std::string payload;
  append(payload, std::uint32_t{2048});  // of a chunk
  append(payload, std::uint64_t{1});
  insider.say(open, payload);
}

// More bytes than it has announced, in the two places that it is granted: of some the copy could still be under way when all that
// were announced are placed.
void say_a_chunk_twice(Insider& insider) {
  open_a_staged_write(insider, 4000);
  Message chunk = of_type(MessageType::stage_chunk);
  chunk.a = 1;
  for (const std::uint64_t slot : {0U, 1U}) {
    chunk.b = Message::pair(static_cast<std::uint32_t>(slot * insider.slot_bytes()), 2048);
    insider.say(chunk);
  }
}

void say_a_torn_staged_write(Insider& insider) { insider.say(of_type(MessageType::stage_open), "torn"); }
// Of 8192 bytes in chunks of 4096, for which rank 0 grants its first two slots.
void open_staged_write(Insider& insider, std::uint64_t operation, std::uint64_t number) {
  Message open = of_type(MessageType::stage_open);
  open.segment = kTarget;
  open.epoch = insider.epoch_of(kTarget);
  open.a = operation;
  open.c = 8192;
  std::string payload;
  append(payload, std::uint32_t{4096});
  append(payload, number);
  insider.say(open, payload);
}
void ask_for_staging(Insider& insider) { EXPECT_TRUE(insider.may_use(fabric::kStagingSegment)); }

void say_a_staged_write_out_of_turn(Insider& insider) {
  ask_for_staging(insider);
  open_staged_write(insider, 1, 2);
}
void say_a_staged_write_without_staging(Insider& insider) { open_staged_write(insider, 1, 1); }
void say_a_staged_write_twice(Insider& insider) {
  ask_for_staging(insider);
  for (const std::uint64_t number : {std::uint64_t{1}, std::uint64_t{2}}) open_staged_write(insider, 1, number);
}
void end_a_staged_write_that_is_none(Insider& insider) {
  Message end = of_type(MessageType::stage_end);
  end.c = 1;
  insider.say(end);
}

// Behind a staged write, operation 1.
void say_a_chunk(Insider& insider, std::uint64_t operation, std::uint64_t slot_offset, std::uint32_t bytes, std::uint64_t offset) {
  ask_for_staging(insider);
  open_staged_write(insider, 1, 1);
  Message chunk = of_type(MessageType::stage_chunk);
  chunk.a = operation;
  chunk.b = Message::pair(static_cast<std::uint32_t>(slot_offset), bytes);
  chunk.c = offset;
  insider.say(chunk);
}
void say_a_chunk_of_nothing(Insider& insider) { say_a_chunk(insider, 2, 0, 4096, 0); }
void say_a_chunk_beside_its_slot(Insider& insider) { say_a_chunk(insider, 1, 1, 4096, 0); }
void say_a_chunk_of_no_slot(Insider& insider) { say_a_chunk(insider, 1, insider.slot_bytes() * 4096, 4096, 0); }
void say_a_chunk_of_a_slot_not_granted(Insider& insider) { say_a_chunk(insider, 1, insider.slot_bytes() * 2, 4096, 0); }
void say_an_empty_chunk(Insider& insider) { say_a_chunk(insider, 1, 0, 0, 0); }
void say_a_chunk_longer_than_agreed(Insider& insider) { say_a_chunk(insider, 1, 0, 4097, 0); }
void say_a_chunk_beyond_the_end(Insider& insider) { say_a_chunk(insider, 1, 0, 4096, 4097); }
void say_a_chunk_far_beyond_the_end(Insider& insider) { say_a_chunk(insider, 1, 0, 1, std::uint64_t{1} << 63); }

void grant_to_a_message(Insider& insider) {
  Message grant = of_type(MessageType::stage_grant);
  grant.a = insider.request_of_peer();
  grant.c = 4096;
  insider.say(grant);
}
void reply_with_a_broken_key(Insider& insider) {
  Message accept = of_type(MessageType::rendezvous_reply);
  accept.segment = fabric::kFirstAnonymous;
  accept.a = insider.request_of_peer();
  accept.c = kRendezvousBytes;
  std::string payload;
  append(payload, std::uint64_t{0});
  append(payload, std::uint32_t{3});
  insider.say(accept, payload + "key");
}

void say_a_long_part_of_a_collective(Insider& insider) {
  insider.say(of_type(MessageType::collective), std::string(8 * kMaxReduceElements + 1, 'x'));
}

void greet_again(Insider& insider) {
  std::string greeting;
  append(greeting, fabric::kEngineVersion);
  insider.say_frame(fabric::kHello, greeting);
}
void offer_a_link(Insider& insider) { insider.say_frame(fabric::kLinkOffer, "torn"); }
void answer_with_a_torn_link(Insider& insider) { insider.say_frame(fabric::kLinkAnswer, "torn"); }
void ask_for_half_a_segment(Insider& insider) { insider.say_frame(fabric::kSegmentAsk, "xyz"); }
void bring_a_key_that_nobody_asked_for(Insider& insider) { insider.say_frame(fabric::kSegmentKey, std::string("\1\0", 2)); }
void say_an_unknown_frame(Insider& insider) { insider.say_frame(99, ""); }
void leave(Insider& insider) { insider.say_frame(fabric::kFarewell, ""); }

void say_an_unknown_type(Insider& insider) { insider.say(of_type(static_cast<MessageType>(200))); }

struct Wrong {
  const char* name;
  void (*say)(Insider&);
  const char* cause;  // what the error says
};
constexpr std::array kWrong = {
    Wrong{"marks", say_marks, "more marks of fences than"},
    Wrong{"held", say_behind_a_fence, "more messages behind writes that do not end than"},
    Wrong{"offers", say_requests, "more messages that nobody has received than"},
    Wrong{"empty_messages", say_empty_messages, "more than its window of messages"},
    Wrong{"staged_writes", say_staged_writes, "more staged writes than"},
    Wrong{"reads", say_reads, "more reads than"},
    Wrong{"parts", say_parts, "more parts of collectives than"},
    Wrong{"unread_keys", ask_and_do_not_read, "descriptors that wait for it"},
    Wrong{"second_answer", answer_an_offer_again, "it answered the same offer twice"},
    Wrong{"forged_line", forge_a_line, "no transport reaches it: no?[gigabar] error: ?[31mforged"},
    Wrong{"chunk_twice", say_a_chunk_twice, "its chunk of a staged write makes no sense"},
    Wrong{"refusal", say_a_refusal, "it refused a write of queue 3, which sent it none"},
    Wrong{"refusal_of_no_queue", say_a_refusal_of_no_queue, "it refused a write of queue 16, which sent it none"},
    Wrong{"pong", say_a_pong, "it answered a ping that was not sent"},
    Wrong{"torn_staged_write", say_a_torn_staged_write, "its staged write is malformed"},
    Wrong{"staged_write_out_of_turn", say_a_staged_write_out_of_turn, "its staged write is malformed"},
    Wrong{"staged_write_without_staging", say_a_staged_write_without_staging, "its staged write is malformed"},
    Wrong{"staged_write_twice", say_a_staged_write_twice, "its staged write is malformed"},
    Wrong{"staged_end_of_none", end_a_staged_write_that_is_none, "it ended a staged write that it did not begin"},
    Wrong{"chunk_of_nothing", say_a_chunk_of_nothing, "its chunk of a staged write makes no sense"},
    Wrong{"chunk_beside_its_slot", say_a_chunk_beside_its_slot, "its chunk of a staged write makes no sense"},
    Wrong{"chunk_of_no_slot", say_a_chunk_of_no_slot, "its chunk of a staged write makes no sense"},
    Wrong{"chunk_not_granted", say_a_chunk_of_a_slot_not_granted, "its chunk of a staged write makes no sense"},
    Wrong{"chunk_empty", say_an_empty_chunk, "its chunk of a staged write makes no sense"},
    Wrong{"chunk_too_long", say_a_chunk_longer_than_agreed, "its chunk of a staged write makes no sense"},
    Wrong{"chunk_beyond_the_end", say_a_chunk_beyond_the_end, "its chunk of a staged write makes no sense"},
    Wrong{"chunk_far_beyond_the_end", say_a_chunk_far_beyond_the_end, "its chunk of a staged write makes no sense"},
    Wrong{"grant_to_a_message", grant_to_a_message, "its grant of staging memory makes no sense"},
    Wrong{"broken_key_of_a_buffer", reply_with_a_broken_key, "its key of a buffer is malformed"},
    Wrong{"long_part_of_a_collective", say_a_long_part_of_a_collective, "its part of a collective makes no sense"},
    Wrong{"second_greeting", greet_again, "its greeting is malformed"},
    Wrong{"offer_of_a_link", offer_a_link, "its offer of a link is malformed"},
    Wrong{"torn_answer", answer_with_a_torn_link, "its answer to an offer is malformed"},
    Wrong{"question_for_a_segment", ask_for_half_a_segment, "its question for a segment is malformed"},
    Wrong{"unasked_key", bring_a_key_that_nobody_asked_for, "its key of a segment is malformed"},
    Wrong{"unknown_frame", say_an_unknown_frame, "it sent a frame of unknown type 99"},
    Wrong{"farewell", leave, "it closed its fabric"},
    Wrong{"unknown_type", say_an_unknown_type, "it sent a message of unknown type 200"},
};

const Wrong& wrong_of(const RankProcess& me) {
  return *std::find_if(kWrong.begin(), kWrong.end(), [&](const Wrong& wrong) { return me.setup().word == wrong.name; });
}

// Until `rank` is lost; why.
std::string why_lost(const Fabric& fabric, Rank rank) {
  for (const std::int64_t end_ns = now_ns() + 30'000'000'000; now_ns() < end_ns;) {
    for (const PeerState& peer : fabric.peers())
      if (peer.rank == rank && peer.is_broken) return peer.why;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return "nothing in 30 s";
}

RANK_BODY(meet_an_insider) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 8192);
  const bool is_offering = wrong_of(me).say == grant_to_a_message || wrong_of(me).say == reply_with_a_broken_key;
  std::vector<char> offered(is_offering ? kRendezvousBytes : 0);
  me.tell("up");
  if (is_offering) {
    const auto message = fabric.post_send(1, 1, offered.data(), offered.size());
    ASSERT_TRUE(is_ok(message));
    EXPECT_TRUE(fails(fabric.wait_message(*message, kPatience), Status::peer_lost));
  }
  const std::string why = why_lost(fabric, 1);
  EXPECT_NE(why.find(wrong_of(me).cause), std::string::npos) << why;
  EXPECT_TRUE(is_ok(fabric.wait(3, kPatience))) << "no queue has an error by it";
}
BARE_RANK_BODY(say_what_is_wrong) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  {
    Insider insider(options);
    ASSERT_TRUE(insider.meet(0));
    wrong_of(me).say(insider);
    insider.settle();
    ASSERT_TRUE(me.meet());  // rank 0 has given it up; until then it answers nothing
    EXPECT_TRUE(insider.wait_until_lost());
  }
}

class FabricInsider : public testing::TestWithParam<Wrong> {};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }
TEST_P(FabricInsider, IsLostWithItsReason) {
  RankSetup setup;
  setup.word = GetParam().name;
  RankJob job("meet_an_insider", setup);
  job.set_body(1, "say_what_is_wrong");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  job.finish();
}
std::string name_of_wrong(const testing::TestParamInfo<Wrong>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Messages, FabricInsider, testing::ValuesIn(kWrong), name_of_wrong);

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
  job.set_body(1, "reach_beyond_a_segment");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "tried"));
  for (const Rank rank : {Rank{0}, Rank{1}}) job.tell(rank, "over");
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
  insider.serve(2);  // the acceptance and the question for the bytes
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
  job.set_body(1, "use_a_segment");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "in use"));
  job.tell(0, "quiesce");
  ASSERT_TRUE(job.hear(0, "waited"));
  ASSERT_TRUE(job.hear(1, "asked"));
  job.tell(1, "leave");
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

// --- What is much, and right ----------------------------------------------------------------------------------------------------

// Tens of thousands of fences that one mark lets pass.
void say_many_fences(Insider& insider) {
  constexpr std::uint64_t kFences = 60'000;
  Message fence = of_type(MessageType::fence), mark = of_type(MessageType::mark);
  fence.count = 1;
  fence.a = 1;
  insider.say(fence);
  for (mark.a = 2; mark.a <= kFences; ++mark.a) insider.say(mark);
  for (fence.a = 2; fence.a <= kFences; ++fence.a) insider.say(fence);
  mark.a = 1;
  insider.say(mark);
}

// As many as can be posted, and as many again whose completions the peer has not looked at yet.
void say_reads_ahead(Insider& insider) { say_some_reads(insider, fabric::kMaxPosted + fabric::kMaxPosted / 2); }

struct Right {
  const char* name;
  void (*say)(Insider&);
};
constexpr std::array kRight = {Right{"fences", say_many_fences}, Right{"reads_ahead", say_reads_ahead}};

RANK_BODY(stand_an_insider) {
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
  ASSERT_TRUE(me.meet());
  for (const PeerState& peer : fabric.peers()) EXPECT_FALSE(peer.is_broken) << peer.why;
  ASSERT_TRUE(me.meet());
}
BARE_RANK_BODY(say_much) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  {
    Insider insider(options);
    ASSERT_TRUE(insider.meet(0));
    std::find_if(kRight.begin(), kRight.end(), [&](const Right& right) { return me.setup().word == right.name; })->say(insider);
    insider.settle();
    EXPECT_TRUE(insider.is_heard());
    ASSERT_TRUE(me.meet());
    ASSERT_TRUE(me.meet());  // rank 0 has looked
  }
  ASSERT_TRUE(me.meet());  // and ends its segment, for which nobody is left to ask
}
class FabricMuch : public testing::TestWithParam<Right> {};
void PrintTo(const Right& right, std::ostream* out) { *out << right.name; }
TEST_P(FabricMuch, IsStood) {
  RankSetup setup;
  setup.word = GetParam().name;
  RankJob job("stand_an_insider", setup);
  job.set_body(1, "say_much");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  job.finish();
}
std::string name_of_right(const testing::TestParamInfo<Right>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Messages, FabricMuch, testing::ValuesIn(kRight), name_of_right);

// A rank whose second rail is late holds what comes on the first one. The writer waits before it is too much, and goes on behind
// it.
constexpr int kLateWrites = 80'000;
constexpr std::size_t kLateBytes = 4096;

RANK_BODY(write_past_a_late_rail) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, kLateBytes);
  me.tell("up");
  EXPECT_EQ(me.hear(), "write");
  for (int count = 1; count <= kLateWrites; ++count) {
    std::memcpy(origin.address(), &count, sizeof count);
    const auto posted = post_patiently(fabric, 0, [&] { return fabric.write({kOrigin, 0}, {1, kTarget, 0}, kLateBytes); });
    ASSERT_TRUE(is_ok(posted)) << count;
    // So that the origin may change.
    ASSERT_TRUE(is_ok(fabric.wait(0, kPatience))) << count;
  }
}
BARE_RANK_BODY(be_late_with_a_rail) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  Insider insider(options);
  alignas(8) std::array<char, kLateBytes> target{};
  insider.register_segment(kTarget, target.data(), target.size());
  ASSERT_TRUE(insider.meet(0));
  insider.wait_for_a_rail();
  me.tell("late");
  std::size_t most = 0;
  std::int64_t grew_ns = now_ns();
  insider.poll_until(kPatience, [&] {
    if (insider.held_bytes() > most) grew_ns = now_ns();
    most = std::max(most, insider.held_bytes());
    return most > fabric::kMaxAheadBytes / 2 && now_ns() - grew_ns > 300'000'000;
  });
  EXPECT_GT(most, fabric::kMaxAheadBytes / 2);
  EXPECT_LE(most, fabric::kMaxAheadBytes + (4 << 20)) << "the writer does not wait";
  insider.hear_from_the_rail();
  EXPECT_TRUE(insider.poll_until(kPatience, [&] {
    int count = 0;
    std::memcpy(&count, target.data(), sizeof count);
    return count == kLateWrites;
  }));
  ASSERT_TRUE(me.meet());
}
TEST(FabricMuch, BehindALateRailWaitsAtTheWriter) {
  RankJob job("write_past_a_late_rail", RankSetup{});
  job.set_body(1, "be_late_with_a_rail");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "late"));
  job.tell(0, "write");
  job.finish();
}

// --- Who speaks before it has said who it is -------------------------------------------------------------------------------------

RANK_BODY(ask_for_a_segment) {
  RankSegment origin(fabric, kOrigin, MemoryChoice::host, 4096);
  me.tell("up");
  EXPECT_EQ(me.hear(), "ask");
  EXPECT_TRUE(fails(fabric.write({kOrigin, 0}, {1, kTarget, 0}, 8), Status::peer_lost)) << "it asks for the segment first";
}
BARE_RANK_BODY(hear_it_before_its_greeting) {
  FabricOptions options = me.options();
  options.progress_thread = false;
  Insider insider(options);
  ASSERT_TRUE(insider.meet(0));
  insider.forget_greeting();
  me.tell("forgot");
  const std::string why = insider.why_lost();
  EXPECT_NE(why.find("it spoke before it greeted"), std::string::npos) << why;
  ASSERT_TRUE(me.meet());
}
TEST(FabricGreeting, ComesFirst) {
  RankJob job("ask_for_a_segment", RankSetup{});
  job.set_body(1, "hear_it_before_its_greeting");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "forgot"));
  job.tell(0, "ask");
  job.finish();
}

// --- One rank by itself ---------------------------------------------------------------------------------------------------------

BARE_RANK_BODY(look_into_itself) {
  Insider insider(me.options());
  std::vector<char> memory(1 << 20);
  insider.register_segment(kTarget, memory.data(), memory.size());
  ASSERT_TRUE(insider.meet(0));
  EXPECT_TRUE(insider.takes_a_key_of(kTarget, 0));
  EXPECT_FALSE(insider.takes_a_key_of(kTarget, 1)) << "operations use what the key before has opened";
  EXPECT_LE(insider.decide(kTarget, fabric::kMaxChoices + 1000), fabric::kMaxChoices + 20);
}
TEST(FabricMuch, OfKeysAndReasonsIsNotTaken) {
  RankSetup setup;
  setup.rank_count = 1;
  run_ranks("look_into_itself", setup);
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

// A staged write that its writer does not go on with keeps nobody from ending the segment.
BARE_RANK_BODY(end_a_segment_in_use) {
  auto fabric = Fabric::open(me.options());
  ASSERT_TRUE(is_ok(fabric));
  std::vector<char> memory(4096);
  ASSERT_TRUE(is_ok(fabric->register_segment(kTarget, memory.data(), memory.size())));
  me.tell("up");
  EXPECT_EQ(me.hear(), "end");
  EXPECT_TRUE(is_ok(fabric->deregister_segment(kTarget, Timeout::of(std::chrono::seconds(1)))));
  EXPECT_NE(why_lost(*fabric, 1).find("did not end in time"), std::string::npos);
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
TEST(FabricSegments, EndUnderAStagedWriteThatDoesNot) {
  RankJob job("end_a_segment_in_use", RankSetup{});
  job.set_body(1, "leave_a_staged_write");
  job.start(0);
  ASSERT_TRUE(job.hear(0, "up"));
  job.start(1);
  ASSERT_TRUE(job.hear(1, "opened"));
  job.tell(0, "end");
  ASSERT_TRUE(job.hear(0, "ended"));
  job.finish();
}

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
