// SPDX-License-Identifier: Apache-2.0
// Host memory runs out at every single allocation of ranks that connect, ask and take frames, in turn: who waits is told, nothing
// is done twice, and nothing leaks.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <new>

#include "fabric/job/directories.hpp"
#include "support/descriptors.hpp"
#include "support/failing_new.hpp"
#include "support/isolated.hpp"
#include "unit/fabric/job/keeping.hpp"
#include "unit/fabric/wireup/ranks.hpp"

namespace gigabar {
namespace {

using namespace secure;
using test::eventually;

// Calls `body` with one allocation more that succeeds, each time, until none fails; `check` gets whether `body` threw. Answers how
// often one has failed.
unsigned fail_each(const std::function<void(const std::function<void(const std::function<void()>&)>& failing)>& round) {
  for (long allowed = 0;; ++allowed) {
    test::has_failed = false;
    long left = allowed;
    round([&](const std::function<void()>& body) {
      if (test::has_failed) return body();
      test::left_until_failure = left;
      try {
        body();
      } catch (const std::bad_alloc&) {
        EXPECT_TRUE(test::has_failed);
      }
      left = test::left_until_failure;
      test::left_until_failure = -1;
    });
    if (!test::has_failed) return static_cast<unsigned>(allowed);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "when allocation " << allowed << " failed";
      return 0;
    }
  }
}

// Counts what it is told, without memory of its own.
class End : public ChannelEvents {
 public:
  explicit End(Rank rank)
      : endpoint(fabric::identity_of(fabric::wireup::job_of(rank, 2), Purpose::wireup), Limits{}, Poller::open().value()) {
    static int count = 0;
    address = network::unix_address("gigabar-end-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
    EXPECT_TRUE(endpoint.listen(listen_at(address)));
  }
  void connected(Rank, bool, std::int64_t) override { ++connected_count; }
  void frame(Rank, Frame) override { ++frame_count; }
  void lost(Rank, const Error&) override { ++lost_count; }
  void poll() { endpoint.poll(*this); }
  bool is_told() const { return connected_count + lost_count > 0; }

  Endpoint endpoint;
  SocketAddress address;
  int connected_count = 0, lost_count = 0, frame_count = 0;
};

// Both connect to each other: one of the dials ends with the other's.
ISOLATED_TEST(ChannelAllocation, WhoConnectsIsToldWhatBecameOfIt) {
  for (const bool is_higher : {false, true}) {
    const unsigned count = fail_each([&](const auto& failing) {
      End lower(0), higher(1);
      lower.endpoint.dial(1, {higher.address}, now_ns() + 100 * test::kSecondNs);
      higher.endpoint.dial(0, {lower.address}, now_ns() + 100 * test::kSecondNs);
      End &lacks = is_higher ? higher : lower, &other = is_higher ? lower : higher;
      EXPECT_TRUE(eventually([&] {
        failing([&] { lacks.poll(); });
        other.poll();
        return lower.is_told() && higher.is_told();
      })) << "rank 0: "
          << lower.is_told() << ", rank 1: " << higher.is_told();
    });
    EXPECT_GT(count, 20U);
  }
}

ISOLATED_TEST(ChannelAllocation, DescriptorsThatCameAreClosed) {
  const Descriptor memory(::memfd_create("gigabar-test", MFD_CLOEXEC));
  End warm(0);
  const std::size_t before = test::open_descriptors();
  const unsigned count = fail_each([&](const auto& failing) {
    {
      End sender(0), receiver(1);
      sender.endpoint.dial(1, {receiver.address}, now_ns() + 100 * test::kSecondNs);
      ASSERT_TRUE(eventually([&] {
        sender.poll();
        receiver.poll();
        return sender.is_told() && receiver.is_told();
      }));
      // As many as make what keeps them grow.
      for (int number = 0; number < 20; ++number) {
        Frame frame;
        for (std::size_t index = 0; index < kMaxFrameDescriptors; ++index) frame.descriptors.emplace_back(::dup(memory.get()));
        ASSERT_TRUE(sender.endpoint.send(1, std::move(frame)));
      }
      EXPECT_TRUE(eventually([&] {
        failing([&] { receiver.poll(); });
        return receiver.frame_count == 20 || receiver.lost_count == 1;
      }));
    }
    EXPECT_EQ(test::open_descriptors(), before);
  });
  EXPECT_GT(count, 20U);
}

// Counts what the directory tells it.
class Asker : public ChannelEvents {
 public:
  explicit Asker(const fabric::Job& job)
      : endpoint(fabric::identity_of(job, Purpose::directory), Limits{}, Poller::open().value()) {
    endpoint.dial(0, {with_port(fabric::wireup::kLoopback, job.master_port)}, now_ns() + 100 * test::kSecondNs);
  }
  void connected(Rank, bool, std::int64_t) override { is_connected = true; }
  void frame(Rank, Frame) override { is_told = true; }
  void lost(Rank, const Error&) override { is_told = true; }

  Endpoint endpoint;
  bool is_connected = false, is_told = false;
};

// The directory says that it had no memory, answers or cuts off whoever asked, and is there for the next one.
ISOLATED_TEST(ChannelAllocation, TheDirectoryIsAsked) {
  const test::FreePort port;
  auto server = fabric::open_bootstrap_server(test::make_job(0, 2, port.number()));
  ASSERT_TRUE(server) << server.error().message();
  ASSERT_TRUE((*server)->publish("address 0"));
  unsigned refused_polls = 0;
  const unsigned count = fail_each([&](const auto& failing) {
    Asker asker(test::make_job(1, 2, port.number()));
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE((*server)->poll());
      asker.endpoint.poll(asker);
      return asker.is_connected;
    }));
    ASSERT_TRUE(asker.endpoint.send(0, fabric::frame_of(fabric::BootstrapMessageType::ask, 0)));
    EXPECT_TRUE(eventually([&] {
      failing([&] {
        const Result<void> polled = (*server)->poll();
        if (polled) return;
        EXPECT_EQ(polled.status(), Status::out_of_memory) << polled.message();
        ++refused_polls;
      });
      asker.endpoint.poll(asker);
      return asker.is_told;
    }));
  });
  EXPECT_GT(count, 2U);
  EXPECT_GT(refused_polls, 0U);
}

ISOLATED_TEST(ChannelAllocation, AMemberAsksAndPublishesOnce) {
  const test::FreePort port;
  const test::Keeping server(test::make_job(0, 3, port.number()));
  const auto join = [&] {
    auto member = fabric::open_member(test::make_job(1, 3, port.number()), test::in_seconds(20));
    EXPECT_TRUE(member) << member.error().message();
    return member ? std::move(*member) : nullptr;
  };
  const unsigned asked_count = fail_each([&](const auto& failing) {
    const auto member = join();
    ASSERT_TRUE(member);
    failing([&] { static_cast<void>(member->rank_address(0)); });
    EXPECT_EQ(test::wait_for_rank_address(*member, 0), "address 0");
    // A second answer would be no message of the directory.
    ASSERT_TRUE(member->rank_address(2));
    for (int round = 0; round < 20; ++round, ::poll(nullptr, 0, 1)) ASSERT_TRUE(member->poll());
    const auto later = member->rank_address(2);
    EXPECT_TRUE(later) << later.error().message();
  });
  EXPECT_GT(asked_count, 2U);
  const unsigned published_count = fail_each([&](const auto& failing) {
    const auto member = join();
    ASSERT_TRUE(member);
    bool is_published = false;
    failing([&] { is_published = member->publish("an address that is kept in memory").is_ok(); });
    if (is_published) return;
    const Result<void> again = member->publish("an address that is kept in memory");
    EXPECT_TRUE(again) << again.message();
  });
  EXPECT_GT(published_count, 2U);
}

}  // namespace
}  // namespace gigabar
