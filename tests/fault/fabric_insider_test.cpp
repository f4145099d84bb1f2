// SPDX-License-Identifier: Apache-2.0
// A rank that breaks the protocol is lost with an error that says how, and the others keep what is theirs.
#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "fault/insider.hpp"

namespace gigabar::test {
namespace {

// --- What one rank can make another remember, and what makes no sense -----------------------------------------------------------

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
void greet_in_another_version(Insider& insider) {
  std::string greeting;
  append(greeting, fabric::kEngineVersion + 1);
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
    Wrong{"greeting_in_another_version", greet_in_another_version, "its version of the protocol is"},
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

}  // namespace
}  // namespace gigabar::test
