// SPDX-License-Identifier: Apache-2.0
// A rank that holds the key and breaks the protocol: it is lost with an error that says how, and the others keep what is theirs.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"
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
    engine_->drive(lock_, test::kPatience, [this] { return peer_->outbox.empty() || peer_->state != Peer::State::ready; });
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
  // What the peer refused.
  bool is_refused(QueueId queue) {
    return engine_->drive(lock_, test::kPatience, [&] { return engine_->queues_[queue].error.has_value(); });
  }
  void expect_refusals(QueueId queue) { Engine::may_be_refused(*peer_, queue); }
  bool wait_until_lost() {
    return engine_->drive(lock_, test::kPatience, [this] { return peer_->state == Peer::State::lost; });
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

// --- What one rank can make another remember, and what makes no sense
// ------------------------------------------------------------------

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

void say_offers(Insider& insider) {
  Message offer = of_type(MessageType::send_offer);
  offer.c = 1 << 20;
  for (std::size_t count = 0; count <= fabric::kMostMessages; ++count) {
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
void say_reads(Insider& insider) {
  Message get = of_type(MessageType::get);
  get.segment = kTarget;
  get.epoch = insider.epoch_of(kTarget);
  get.c = 8;
  std::string payload;
  append(payload, SegmentId{77});
  append(payload, std::uint64_t{0});
  payload += std::string(4, '\0');
  append(payload, std::uint64_t{4096});
  for (std::size_t count = 0; count <= fabric::kMaxAnswers; ++count) {
    get.a = count;
    insider.say_and_hear_nothing(get, payload);
  }
}

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

void say_a_torn_staged_write(Insider& insider) { insider.say(of_type(MessageType::stage_open), "torn"); }
void say_an_unknown_type(Insider& insider) { insider.say(of_type(static_cast<MessageType>(200))); }

struct Wrong {
  const char* name;
  void (*say)(Insider&);
  const char* cause;  // what the error says
};
constexpr std::array kWrong = {
    Wrong{"marks", say_marks, "more marks of fences than"},
    Wrong{"held", say_behind_a_fence, "more messages behind writes that do not end than"},
    Wrong{"offers", say_offers, "more messages that nobody has received than"},
    Wrong{"empty_messages", say_empty_messages, "more than its window of messages"},
    Wrong{"staged_writes", say_staged_writes, "more staged writes than"},
    Wrong{"reads", say_reads, "more reads than"},
    Wrong{"refusal", say_a_refusal, "it refused a write of queue 3, which sent it none"},
    Wrong{"refusal_of_no_queue", say_a_refusal_of_no_queue, "it refused a write of queue 16, which sent it none"},
    Wrong{"pong", say_a_pong, "it answered a ping that was not sent"},
    Wrong{"torn_staged_write", say_a_torn_staged_write, "its staged write is malformed"},
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
  RankSegment target(fabric, kTarget, MemoryChoice::host, 4096);
  me.tell("up");
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

// --- Buffers of messages between others
// ------------------------------------------------------------------------------------------------

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
  Message offer = of_type(MessageType::send_offer);
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
