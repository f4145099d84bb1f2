// SPDX-License-Identifier: Apache-2.0
// A rank is lost while a copy engine still works on the memory of operations with it.
#include <chrono>
#include <thread>

#include "fault/insider.hpp"
#include "support/free_port.hpp"
#include "support/isolated.hpp"

namespace gigabar::test {
namespace {

constexpr QueueId kQueue = 3;

FabricOptions rank_0_of_2() {
  FabricOptions options;
  options.rank = 0;
  options.rank_count = 2;
  options.master_address = "127.0.0.1";
  options.master_port = free_port();
  options.transports = {TransportKind::local};
  options.progress_thread = false;
  return options;
}

// Nobody waits for the copy with the lock, and the operation is over no sooner than the copy.
ISOLATED_TEST(FabricCopyLoss, OperationsEndWithTheirCopies) {
  bool has_ended = false;
  Insider insider(rank_0_of_2());
  ASSERT_NO_FATAL_FAILURE(insider.lose_beside_a_copy(1, kQueue, has_ended));
  for (const Timeout& timeout : {Timeout::test(), Timeout::of(std::chrono::milliseconds(30))})
    EXPECT_EQ(insider.wait(kQueue, timeout).status(), Status::timed_out);
  has_ended = true;
  EXPECT_TRUE(fails(insider.wait(kQueue, kPatience), Status::peer_lost, "a rank"));
  EXPECT_TRUE(is_ok(insider.wait(kQueue, Timeout::test()))) << "told once";
  EXPECT_TRUE(is_ok(insider.forget()));
}

// Of which the memory may not be used anew.
ISOLATED_TEST(FabricCopyLoss, ForgettingWaitsForThem) {
  bool has_ended = false;
  Insider insider(rank_0_of_2());
  ASSERT_NO_FATAL_FAILURE(insider.lose_beside_a_copy(1, kQueue, has_ended));
  unsigned polls = 0;
  EXPECT_FALSE(insider.poll_until(Timeout::of(std::chrono::milliseconds(30)), [&] { return ++polls == 0; }));
  EXPECT_GT(polls, 1U) << "the engine goes on";
  has_ended = true;
  EXPECT_TRUE(is_ok(insider.forget()));
  EXPECT_TRUE(fails(insider.wait(kQueue, Timeout::test()), Status::peer_lost, "a rank"));
}

// No copy has its memory: it does not wait for them.
ISOLATED_TEST(FabricCopyLoss, AReceiveIsToldWhatHappened) {
  bool has_ended = false;
  Insider insider(rank_0_of_2());
  const auto receive = insider.post_receive(1);
  ASSERT_TRUE(is_ok(receive));
  ASSERT_NO_FATAL_FAILURE(insider.lose_beside_a_copy(1, kQueue, has_ended));
  EXPECT_TRUE(fails(insider.wait_message(*receive, kPatience), Status::peer_lost, "a rank"));
  has_ended = true;
  EXPECT_TRUE(is_ok(insider.forget()));
}

}  // namespace
}  // namespace gigabar::test
