// SPDX-License-Identifier: Apache-2.0
// What a send queue and the peer's receives have room for: transport/verbs/ledger.hpp.
#include "transport/verbs/ledger.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace gigabar::transport::rdma {
namespace {

TEST(VerbsLedger, TheQueueIsNeverFilledAndKeepsRoomForControl) {
  Ledger ledger;
  unsigned posted = 0;
  while (ledger.has_room(1)) {
    ledger.add({});
    ++posted;
  }
  EXPECT_EQ(posted, kWorkRequests - kControlRequests);
  for (unsigned i = 0; i < kControlRequests; ++i) {
    EXPECT_TRUE(ledger.has_control_room());
    ledger.add_read();
  }
  EXPECT_FALSE(ledger.has_control_room());
  ledger.retire_read();
  EXPECT_TRUE(ledger.has_control_room());
}

TEST(VerbsLedger, OneCompletionRetiresAllBeforeIt) {
  Ledger ledger;
  for (std::uint16_t i = 0; i < 10; ++i) EXPECT_EQ(ledger.add({i, i % 2 == 0}), i);
  std::vector<std::uint16_t> retired;
  EXPECT_TRUE(ledger.retire_up_to(6, [&](const Ledger::Entry& entry) { retired.push_back(entry.operation); }));
  EXPECT_EQ(retired, (std::vector<std::uint16_t>{0, 1, 2, 3, 4, 5, 6}));
  const auto never = [](const Ledger::Entry&) { ADD_FAILURE(); };
  EXPECT_FALSE(ledger.retire_up_to(6, never)) << "a second time";
  EXPECT_FALSE(ledger.retire_up_to(10, never)) << "not posted yet";
  ledger.take_back();
  EXPECT_FALSE(ledger.retire_up_to(9, never)) << "it was refused";
  EXPECT_TRUE(ledger.retire_up_to(8, [](const Ledger::Entry&) {}));
  EXPECT_EQ(ledger.in_use(), 0U);
}

TEST(VerbsLedger, NumbersGoOnBeyondTheQueuesLength) {
  Ledger ledger;
  for (std::uint64_t i = 0; i < 10 * kWorkRequests; ++i) {
    ASSERT_TRUE(ledger.has_room(1));
    ASSERT_EQ(ledger.add({static_cast<std::uint16_t>(i % 100), false}), i);
    std::uint16_t seen = 0;
    ASSERT_TRUE(ledger.retire_up_to(i, [&](const Ledger::Entry& entry) { seen = entry.operation; }));
    ASSERT_EQ(seen, i % 100);
  }
}

TEST(VerbsLedger, OperationsEndWithTheirLastPiece) {
  Operations operations;
  std::vector<std::uint16_t> all;
  while (operations.has_room()) all.push_back(operations.add({all.size(), 3, false}));
  EXPECT_EQ(all.size(), kOperations);
  for (const std::uint16_t index : all) {
    EXPECT_FALSE(operations.finish_piece(index));
    EXPECT_FALSE(operations.finish_piece(index));
    ASSERT_NE(operations.find(index), nullptr);
    EXPECT_TRUE(operations.finish_piece(index));
    EXPECT_EQ(operations.find(index), nullptr);
  }
  EXPECT_EQ(operations.find(kOperations), nullptr);
  EXPECT_EQ(operations.find(UINT64_MAX), nullptr);
  const std::uint16_t dropped = operations.add({1, 2, false});
  operations.drop(dropped);
  EXPECT_EQ(operations.find(dropped), nullptr);
  for (unsigned i = 0; i < kOperations; ++i) {
    ASSERT_TRUE(operations.has_room());
    operations.add({i, 1, false});
  }
  EXPECT_FALSE(operations.has_room());
}

TEST(VerbsLedger, APeerCannotReturnMoreCreditsThanThereAre) {
  Credits credits;
  EXPECT_FALSE(credits.returned(kCredits - kFirstCredits + 1)) << "the first ones are ours";
  for (unsigned i = 0; i < kFirstCredits; ++i) {
    ASSERT_TRUE(credits.can_send());
    credits.take();
  }
  EXPECT_FALSE(credits.take_shortage());
  EXPECT_FALSE(credits.can_send());
  EXPECT_TRUE(credits.take_shortage());
  EXPECT_FALSE(credits.take_shortage()) << "told once";
  EXPECT_FALSE(credits.returned(kCredits + 1));
  EXPECT_FALSE(credits.returned(65535));
  EXPECT_TRUE(credits.returned(kCredits));
}

TEST(VerbsLedger, AShortPeerGetsAllReceivesOnce) {
  Credits credits;
  credits.reposted(kFirstCredits / 2);
  EXPECT_TRUE(credits.must_return());
  EXPECT_LT(credits.most_unposted(), kFirstCredits / 2);
  EXPECT_EQ(kCredits - kFirstCredits, credits.grow());
  EXPECT_FALSE(credits.must_return()) << "half of more";
  EXPECT_EQ(0u, credits.grow());
  EXPECT_EQ(kCredits / 4, credits.most_unposted());
}

// Two ends and the receives between them, with every interleaving that chance makes: no end ever sends into a receive that is not
// there, control messages stay within their share, and both get everything through.
TEST(VerbsLedger, CreditsNeverOverrunReceivesAndNeverDeadlock) {
  struct Message {
    bool is_control;
    unsigned credits;
    bool wants_credits;
  };
  struct End {
    Credits credits;
    std::deque<Message> arrived;  // in its receives
    unsigned sent = 0, got = 0;
  };
  constexpr unsigned kMessages = 5000;
  std::mt19937 random(3);
  End ends[2];
  const auto send = [](End& from, End& to, bool is_control) {
    const unsigned owed = from.credits.owed();
    from.credits.told(owed);
    to.arrived.push_back({is_control, owed, !is_control && from.credits.take_shortage()});
    unsigned control = 0;
    for (const Message& message : to.arrived) control += message.is_control;
    ASSERT_LE(control, kControlReceives);
    ASSERT_LE(to.arrived.size() - control, kCredits);
  };
  for (int step = 0; step < 2'000'000 && ends[0].got + ends[1].got < 2 * kMessages; ++step) {
    const unsigned which = random() % 2;
    End& end = ends[which];
    End& other = ends[1 - which];
    // One of them sends three times as eagerly, and polls in bursts.
    if (random() % (which == 0 ? 2 : 6) == 0) {
      if (end.sent < kMessages && end.credits.can_send()) {
        end.credits.take();
        ASSERT_NO_FATAL_FAILURE(send(end, other, false));
        ++end.sent;
      }
      continue;
    }
    for (auto burst = random() % 40; burst > 0 && !end.arrived.empty(); --burst) {
      const Message message = end.arrived.front();
      end.arrived.pop_front();
      ASSERT_TRUE(end.credits.returned(message.credits));
      if (message.is_control) continue;
      end.credits.reposted(1);
      if (message.wants_credits) end.credits.reposted(end.credits.grow());
      ++end.got;
    }
    if (end.credits.must_return()) {
      ASSERT_NO_FATAL_FAILURE(send(end, other, true));
    }
  }
  EXPECT_EQ(ends[0].got, kMessages);
  EXPECT_EQ(ends[1].got, kMessages);
}

TEST(VerbsLedger, WorkIdsKeepKindAndNumber) {
  for (const WorkKind kind : {WorkKind::ordered, WorkKind::read, WorkKind::probe, WorkKind::receive}) {
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{67}, std::uint64_t{0xff'ffff'ffff'ffff}}) {
      EXPECT_EQ(kind_of(work_id(kind, number)), kind);
      EXPECT_EQ(number_of(work_id(kind, number)), number);
    }
  }
}

}  // namespace
}  // namespace gigabar::transport::rdma
