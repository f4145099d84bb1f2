// SPDX-License-Identifier: Apache-2.0
// Words over verbs: one more write, or an atomic, of the queue pair that wrote the data; nothing for the peer's CPU.
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "platform/roots.hpp"
#include "support/isolated.hpp"
#include "support/temporary_folder.hpp"
#include "unit/transport/verbs/fake_rdma.hpp"

namespace gigabar::transport {
namespace {

using test::End;
using test::FakeMachine;
using test::Pair;

constexpr std::size_t kWords = 8;

// The words of an end, as the other one opens them.
struct Words {
  Words(const End& owner, const End& writer) {
    MemoryRange range{memory.data(), bytes_of_words(kWords)};
    range.holds_words = true;
    region = test::taken(owner.transport->register_memory(range));
    remote = writer.open_region(*region);
  }
  std::uint32_t value(std::size_t index) const {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes() + word_value_at(index), sizeof value);
    return value;
  }
  std::uint64_t counter(std::size_t index) const {
    std::uint64_t counter = 0;
    std::memcpy(&counter, bytes() + word_counter_at(index), sizeof counter);
    return counter;
  }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(memory.data()); }

  std::array<std::uint64_t, bytes_of_words(kWords) / 8 + 1> memory{};
  std::unique_ptr<Region> region;
  std::unique_ptr<RemoteRegion> remote;
};

ISOLATED_TEST(VerbsWords, AreWrittenBehindTheDataWithoutAMessage) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2");
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Link& link = *pair.here->link;
    std::vector<std::byte> from(4096, std::byte{7}), to(4096);
    const auto local = pair.first.register_host(from.data(), from.size());
    const auto target = pair.second.register_host(to.data(), to.size());
    const auto remote = pair.first.open_region(*target);
    Words words(pair.second, pair.first);
    EXPECT_FALSE(link.limits().words_wake);
    for (const WordKind kind : {WordKind::set, WordKind::add}) EXPECT_EQ(link.why_no_word(kind, *words.remote), "");
    ASSERT_EQ(link.post_write(*local, 0, *remote, 0, from.size(), 1), Posted::ok);
    ASSERT_EQ(link.post_word(WordKind::set, *words.remote, 3, 77), Posted::ok);
    ASSERT_EQ(link.post_word(WordKind::add, *words.remote, kWords - 1, 5), Posted::ok);
    ASSERT_TRUE(pair.run_until([&] { return words.counter(kWords - 1) == 5; }));
    EXPECT_EQ(to, from);
    EXPECT_EQ(words.value(3), 77U);
    EXPECT_EQ(words.counter(3), 0U);
    EXPECT_EQ(words.value(kWords - 1), 0U) << "an adapter adds to its own counter only";
    EXPECT_EQ(pair.there->messages, 0);
    EXPECT_EQ(words.memory.back(), 0U) << "behind the words";
    EXPECT_EQ(test::told().find("RELAXED"), std::string::npos);
  }
  EXPECT_EQ(test::alive(), 0);
}

// Where the network places a later write before an earlier one, who sees a word sees all that was written before it: in whatever
// way, finished or not, and an earlier word too.
ISOLATED_TEST(VerbsWords, AreNotSeenBeforeWritesThatTakeLonger) {
  const FakeMachine machine("a0 10.9.0.1 unordered; a1 10.9.0.2");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Link& link = *pair.here->link;
  std::vector<std::byte> from(4096), to(4096);
  const auto local = pair.first.register_host(from.data(), from.size());
  const auto target = pair.second.register_host(to.data(), to.size());
  const auto remote = pair.first.open_region(*target);
  Words words(pair.second, pair.first);
  for (std::uint32_t round = 1; round <= 60; ++round) {
    std::fill(from.begin(), from.end(), static_cast<std::byte>(round));
    const bool is_copied = round % 3 == 0;
    const bool has_data = round % 3 != 2;
    const auto bytes = std::span<const std::byte>(from).first(is_copied ? 40 : from.size());
    if (is_copied) {
      ASSERT_EQ(link.post_copied_write(bytes, *remote, 0, round % 2 == 0), Posted::ok);
    } else if (has_data) {
      ASSERT_EQ(link.post_write(*local, 0, *remote, 0, bytes.size(), 1), Posted::ok);
    }
    ASSERT_EQ(link.post_word(WordKind::set, *words.remote, 1, round), Posted::ok);
    ASSERT_EQ(link.post_word(WordKind::set, *words.remote, 2, round), Posted::ok);
    const auto is_right = [&] {
      const bool is_data_there = !has_data || std::memcmp(to.data(), bytes.data(), bytes.size()) == 0;
      return (words.value(1) != round || is_data_there) && (words.value(2) != round || words.value(1) == round);
    };
    ASSERT_TRUE(is_right()) << "in round " << round;
    if (round % 2 == 0) {
      ASSERT_TRUE(pair.run_until([&] { return words.value(2) == round; }));
      ASSERT_TRUE(is_right()) << "in round " << round;
    } else {
      pair.first.poll();
    }
  }
  EXPECT_EQ(pair.there->messages, 0);
}

constexpr const char* kTwoSoft = "a0 10.9.0.1 soft; a1 10.9.0.2 soft";

// A call of the adapter's library costs a system call over soft-RoCE, which carries out the write before it returns.
class AWriteAndItsWord {
 public:
  explicit AWriteAndItsWord(Pair& pair)
      : words(pair.second, pair.first),
        link_(*pair.here->link),
        memory_(pair.second.register_host(to_.data(), to_.size())),
        remote_(pair.first.open_region(*memory_)) {}

  Posted write(std::uint32_t round, std::size_t bytes) {
    from_.assign(bytes, static_cast<std::byte>(round));
    const Posted posted = link_.post_copied_write(from_, *remote_, 0, true);
    from_.assign(bytes, std::byte{0xff});  // it has been taken
    return posted;
  }
  Posted word(WordKind kind, std::uint32_t value) { return link_.post_word(kind, *words.remote, 1, value); }
  bool has_arrived(std::uint32_t round, std::size_t bytes) const {
    return to_.front() == static_cast<std::byte>(round) && to_[bytes - 1] == static_cast<std::byte>(round);
  }

  Words words;

 private:
  std::vector<std::byte> from_, to_ = std::vector<std::byte>(4096);
  Link& link_;
  std::unique_ptr<Region> memory_;
  std::unique_ptr<RemoteRegion> remote_;
};

// `body(pair, both)` over a link that stands, and is to end with so many broken ones.
template <class Body>
void with_both(const char* network, int broken, const Body& body) {
  const FakeMachine machine(network);
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  AWriteAndItsWord both(pair);
  ASSERT_NO_FATAL_FAILURE(body(pair, both));
  EXPECT_EQ(pair.here->broken, broken);
}

// Of ibv_post_send(), for a write and its word, from the request itself and from a slot.
void expect_calls(const char* network, int calls) {
  with_both(network, 0, [&](Pair& pair, AWriteAndItsWord& both) {
    std::uint32_t round = 0;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}}) {
      ++round;
      const int before = test::send_calls();
      ASSERT_EQ(both.write(round, bytes), Posted::ok);
      ASSERT_EQ(both.word(WordKind::set, round), Posted::ok);
      EXPECT_EQ(test::send_calls() - before, calls);
      ASSERT_TRUE(pair.run_until([&] { return both.words.value(1) == round; })) << bytes;
      EXPECT_TRUE(both.has_arrived(round, bytes)) << bytes;
      pair.first.poll();
    }
  });
}

ISOLATED_TEST(VerbsWords, AWriteAndItsWordAreOneCallOfASoftwareAdapter) { expect_calls(kTwoSoft, 1); }

// To a peer of hardware the read behind the write goes with it.
ISOLATED_TEST(VerbsWords, AWriteAndItsWordAreTwoCallsToAHardwareAdapter) { expect_calls("a0 10.9.0.1 soft; a1 10.9.0.2", 2); }

// Which takes one short request with the doorbell; between the two is a read.
ISOLATED_TEST(VerbsWords, AWriteAndItsWordAreCallsOfTheirOwnOfAHardwareAdapter) { expect_calls("a0 10.9.0.1; a1 10.9.0.2", 3); }

// Of the requests that belong together the adapter may refuse each.
void refuse_each(const char* network, WordKind kind, int requests) {
  with_both(network, 0, [&](Pair& pair, AWriteAndItsWord& both) {
    std::uint32_t round = 0;
    const auto word = [&]() -> std::uint64_t { return kind == WordKind::set ? both.words.value(1) : both.words.counter(1); };
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}}) {
      for (int skip = 0; skip < requests; ++skip) {
        ++round;
        ASSERT_EQ(pair.here->link->post_word(WordKind::set, *both.words.remote, 2, round), Posted::ok);  // the queue is not empty
        ASSERT_EQ(both.write(round, bytes), Posted::ok);
        const std::uint64_t before = word();
        test::fail("post_send", ENOMEM, skip);
        EXPECT_EQ(both.word(kind, kind == WordKind::set ? round : 1), Posted::full) << skip;
        EXPECT_EQ(word(), before) << "of a word that was refused";
        ASSERT_TRUE(pair.run_until([&] { return both.has_arrived(round, bytes); })) << "nobody posts the write again";
        EXPECT_EQ(word(), before);
        pair.first.poll();
        ASSERT_EQ(both.word(kind, kind == WordKind::set ? round : 1), Posted::ok);
        ASSERT_TRUE(pair.run_until([&] { return word() == (kind == WordKind::set ? round : before + 1); }));
        pair.first.poll();
      }
    }
  });
}

ISOLATED_TEST(VerbsWords, ARefusedRequestOfTwoIsPostedAgain) { refuse_each(kTwoSoft, WordKind::set, 2); }
ISOLATED_TEST(VerbsWords, ARefusedRequestWithAnAtomicIsPostedAgain) { refuse_each(kTwoSoft, WordKind::add, 2); }
ISOLATED_TEST(VerbsWords, ARefusedRequestOfThreeIsPostedAgain) { refuse_each("a0 10.9.0.1 soft; a1 10.9.0.2", WordKind::set, 3); }

ISOLATED_TEST(VerbsWords, AWriteWhoseWordDoesNotComeGoesByItself) {
  with_both(kTwoSoft, 1, [](Pair& pair, AWriteAndItsWord& both) {
    ASSERT_EQ(both.write(1, 8), Posted::ok);
    EXPECT_FALSE(both.has_arrived(1, 8)) << "it does not wait for its word";
    EXPECT_FALSE(pair.first.transport->arm()) << "who sleeps would not post it";
    EXPECT_TRUE(pair.run_until([&] { return both.has_arrived(1, 8); }));
    // A second one that is to wait takes the first one along, and one that is refused waits on.
    ASSERT_EQ(both.word(WordKind::set, 1), Posted::ok);
    ASSERT_EQ(both.write(2, 8), Posted::ok);
    ASSERT_EQ(both.write(3, 8), Posted::ok);
    EXPECT_TRUE(both.has_arrived(3, 8));
    ASSERT_EQ(both.write(4, 8), Posted::ok);
    test::fail("post_send", ENOMEM);
    EXPECT_TRUE(pair.run_until([&] { return both.has_arrived(4, 8); }));
    EXPECT_EQ(pair.here->broken, 0);
    // An error for good breaks the link.
    ASSERT_EQ(both.write(5, 8), Posted::ok);
    test::fail("post_send", EINVAL);
    EXPECT_TRUE(pair.run_until([&] { return pair.here->broken == 1; }));
  });
}

// Nobody knows whether what it refuses is on its way: the write, or one of the two.
void fail_the_doorbell(bool is_with_word) {
  with_both(kTwoSoft, 1, [&](Pair& pair, AWriteAndItsWord& both) {
    ASSERT_EQ(both.word(WordKind::set, 7), Posted::ok);  // so that the queue is not empty
    ASSERT_EQ(both.write(1, 8), Posted::ok);
    test::fail("doorbell", ENOMEM);
    if (is_with_word) {
      EXPECT_EQ(both.word(WordKind::set, 1), Posted::broken);
    }
    EXPECT_TRUE(pair.run_until([&] { return pair.here->broken == 1; }));
  });
}

ISOLATED_TEST(VerbsWords, AnAdapterThatDoesNotSayWhatItRefusesBreaksTheLink) { fail_the_doorbell(true); }
ISOLATED_TEST(VerbsWords, AWriteThatMayBeOnItsWayIsNotPostedAgain) { fail_the_doorbell(false); }

// A notification alone, behind one that is done, waits for nothing.
ISOLATED_TEST(VerbsWords, CostARoundTripOnlyWhileWritesAreUnderWay) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Words words(pair.second, pair.first);
  for (std::uint32_t round = 1; round <= 3; ++round) {
    test::complete(IBV_WC_REM_ACCESS_ERR, 1);  // a second request would break the link
    ASSERT_EQ(pair.here->link->post_word(WordKind::set, *words.remote, 1, round), Posted::ok);
    test::complete(IBV_WC_SUCCESS);
    ASSERT_TRUE(pair.run_until([&] { return words.value(1) == round; }));
    pair.first.poll();
  }
  EXPECT_EQ(pair.here->broken, 0);
}

// More adds than a responder keeps answers for, and more sets than the send queue holds.
ISOLATED_TEST(VerbsWords, AFullLinkSaysSoAndNothingIsLost) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2");
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open());
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Words words(pair.second, pair.first);
  for (const WordKind kind : {WordKind::add, WordKind::set}) {
    std::uint32_t posted = 0;
    while (posted < 10'000 && pair.here->link->post_word(kind, *words.remote, 2, posted + 1) == Posted::ok) ++posted;
    ASSERT_LT(posted, 10'000U) << "it is never full";
    ASSERT_GE(posted, 16U);
    pair.first.poll();
    EXPECT_EQ(pair.here->link->post_word(kind, *words.remote, 2, posted + 1), Posted::ok) << "there is room again";
    ++posted;
    if (kind == WordKind::add) {
      EXPECT_EQ(words.counter(2), std::uint64_t{posted} * (posted + 1) / 2);
    } else {
      EXPECT_EQ(words.value(2), posted);
    }
  }
  EXPECT_TRUE(pair.works(*pair.here, *pair.there));
  EXPECT_EQ(test::overflows(), 0);
}

ISOLATED_TEST(VerbsWords, SoftRoceHasThemWhereItsKernelStoresAWordOnce) {
  const FakeMachine machine("s0 10.9.0.1 soft; s1 10.9.0.2 soft; a0 10.9.0.3");
  const gigabar::test::TemporaryFolder folder;
  folder.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu rep_good erms\n");
  gigabar::set_platform_roots({.sys = "/sys", .proc = folder.path() + "/proc", .dev = "/dev"});
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open({}, "s0", "a0"));
  EXPECT_NE(pair.first.transport->why_no_words().find("soft-RoCE"), std::string::npos);
  EXPECT_EQ(pair.second.transport->why_no_words(), "");
}

ISOLATED_TEST(VerbsWords, IwarpAndAdaptersWithoutCommonAtomicsSayWhyNot) {
  const FakeMachine machine("w0 10.9.0.1 iwarp; w1 10.9.0.2 iwarp; p0 10.9.0.3; p1 10.9.0.4 no_atomics");
  {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open({}, "w0", "w1"));
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    const Words words(pair.second, pair.first);
    for (const WordKind kind : {WordKind::set, WordKind::add}) {
      EXPECT_NE(pair.here->link->why_no_word(kind, *words.remote).find("RFC 5040"), std::string::npos);
    }
    EXPECT_NE(pair.second.transport->why_no_words().find("RFC 5040"), std::string::npos);
  }
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.open({}, "p0", "p1"));
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  EXPECT_EQ(pair.first.transport->why_no_words(), "");
  const Words without(pair.second, pair.first), with(pair.first, pair.second);
  EXPECT_EQ(pair.here->link->why_no_word(WordKind::set, *without.remote), "");
  EXPECT_NE(pair.here->link->why_no_word(WordKind::add, *without.remote).find("no atomics"), std::string::npos);
  EXPECT_EQ(pair.there->link->why_no_word(WordKind::set, *with.remote), "");
  EXPECT_NE(pair.there->link->why_no_word(WordKind::add, *with.remote).find("the adapter of p1/1 has no atomics"),
            std::string::npos);

  // Two adapters of one owner are atomic each, not together.
  End both;
  TransportOptions options;
  options.rails = {"p0", "w0"};
  ASSERT_FALSE(both.open("", options));
  const Words of_two(both, pair.second);
  EXPECT_NE(pair.there->link->why_no_word(WordKind::add, *of_two.remote).find("atomic with each other"), std::string::npos);
}

// Beyond the words of the peer nothing is posted, and what the peer has taken back its adapter refuses.
ISOLATED_TEST(VerbsWords, BoundsAndKeysAreChecked) {
  const FakeMachine machine("a0 10.9.0.1; a1 10.9.0.2");
  for (const WordKind kind : {WordKind::set, WordKind::add}) {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.open());
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    Words words(pair.second, pair.first);
    EXPECT_EQ(pair.here->link->post_word(kind, *words.remote, kWords, 1), Posted::broken);
    ASSERT_TRUE(pair.run_until([&] { return pair.here->broken == 1; }));
    EXPECT_EQ(pair.here->errors[0].status(), Status::invalid_argument);
    EXPECT_NE(pair.here->errors[0].message().find("word 8"), std::string::npos) << pair.here->errors[0].message();
    pair.first.links.clear();
    pair.second.links.clear();

    ASSERT_NO_FATAL_FAILURE(pair.connect());
    words.region.reset();
    ASSERT_EQ(pair.here->link->post_word(kind, *words.remote, 1, 1), Posted::ok);
    ASSERT_TRUE(pair.run_until([&] { return pair.here->broken == 1; }));
    EXPECT_EQ(pair.here->errors[0].status(), Status::no_permission) << pair.here->errors[0].message();
    EXPECT_EQ(words.value(1) + words.counter(1), 0U);
  }
}

}  // namespace
}  // namespace gigabar::transport
