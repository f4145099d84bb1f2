// SPDX-License-Identifier: Apache-2.0
// How links, regions and peers of one process end.
#include <gtest/gtest.h>

#include <cstring>

#include "unit/transport/ucx/pair.hpp"

namespace gigabar::transport::ucx::test {
namespace {

TEST(UcxEnd, TheOtherSideIsToldOfAClosedLink) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  pair.far_link.reset();
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  EXPECT_EQ(pair.near_sink.statuses[pair.near_link.get()], Status::peer_lost);
  EXPECT_EQ(pair.near_link->state(), LinkState::broken);
  EXPECT_EQ(pair.near_link->post_message({}, {}), Posted::broken);
  pair.near_link.reset();
  // And they can connect anew, again and again.
  for (int i = 0; i < 10; ++i) {
    pair.near_sink = {};
    pair.far_sink = {};
    ASSERT_NO_FATAL_FAILURE(pair.connect()) << i;
    pair.post([&] { return pair.near_link->post_message(header_of(5), {}); });
    ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == 1; })) << i;
    if (i % 2 == 0) pair.near_link.reset();
    if (i % 2 == 1) pair.far_link.reset();
    ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() + pair.far_sink.errors.size() == 1; })) << i;
    pair.near_link.reset();
    pair.far_link.reset();
  }
}

TEST(UcxEnd, ABrokenLinkLeavesOthersAlone) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  std::unique_ptr<Link> first_near = std::move(pair.near_link), first_far = std::move(pair.far_link);
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  first_far.reset();
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.contains(first_near.get()); }));
  pair.post([&] { return pair.near_link->post_message(header_of(5), {}); });
  pair.post([&] { return pair.far_link->post_message(header_of(6), {}); });
  ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.messages.size() == 1 && pair.near_sink.messages.size() == 1; }));
  EXPECT_EQ(pair.near_sink.errors.size(), 1u);
}

// Transfers under way when their link is destroyed: it returns soon, and the memory can go at once.
TEST(UcxEnd, DestroyedUnderWay) {
  for (const bool is_far_first : {false, true}) {
    Pair pair;
    ASSERT_NO_FATAL_FAILURE(pair.connect());
    constexpr std::size_t kBytes = 8 << 20;
    auto source = std::make_unique<Buffer>(*pair.near, kBytes), target = std::make_unique<Buffer>(*pair.far, kBytes);
    const auto remote = pair.open_far(*target->region);
    for (std::uint64_t i = 0; i < 16; ++i) {
      ASSERT_EQ(pair.near_link->post_write(*source->region, 0, *remote, 0, kBytes, i), Posted::ok);
      ASSERT_EQ(pair.near_link->post_read(*source->region, 0, *remote, 0, kBytes, 100 + i), Posted::ok);
    }
    for (int i = 0; i < 20; ++i) pair.poll();
    const std::int64_t begin_ns = now_ns();
    if (is_far_first) {
      pair.far_link.reset();
      target.reset();
      ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
      EXPECT_EQ(pair.near_sink.dones.size(), 32u) << "each has its done()";
    } else {
      pair.near_link.reset();
      source.reset();
      ASSERT_TRUE(pair.poll_until([&] { return pair.far_sink.errors.size() == 1; }));
    }
    EXPECT_LT(now_ns() - begin_ns, 20'000'000'000);
    pair.near_link.reset();
    pair.far_link.reset();
    for (int i = 0; i < 100; ++i) pair.poll();
  }
}

TEST(UcxEnd, ARegionThatIsGoneIsNotWritten) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  Buffer source(*pair.near, 1 << 20), target(*pair.far, 1 << 20);
  const auto remote = pair.open_far(*target.region);
  std::memset(target.data(), 0x22, target.bytes);
  target.region.reset();
  ASSERT_EQ(pair.near_link->post_write(*source.region, 0, *remote, 0, 1 << 20, 1), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1 && pair.far_sink.errors.size() == 1; }));
  EXPECT_NE(pair.near_sink.errors[pair.near_link.get()].find("refused an access"), std::string::npos)
      << pair.near_sink.errors[pair.near_link.get()];
  for (std::size_t i = 0; i < target.bytes; ++i) ASSERT_EQ(target.data()[i], std::byte{0x22});
}

TEST(UcxEnd, APeerThatNeverAnswersIsTimedOut) {
  TransportOptions options;
  options.connect_deadline_ns = 100'000'000;
  const auto transport = open_transport(options);
  Recorder sink;
  Parcel offer;
  const auto link = transport->offer({}, 0, offer);
  ASSERT_TRUE(link);
  EXPECT_EQ((*link)->post_message({}, {}), Posted::full);
  while (!transport->arm()) transport->poll(sink);
  const Deadline deadline = Deadline::after_ns(kPatienceNs);
  while (sink.errors.empty() && !deadline.has_passed()) transport->poll(sink);
  EXPECT_EQ(sink.statuses[link->get()], Status::timed_out);
  const std::string& said = sink.errors[link->get()];
  for (const char* const part : {"the peer's UCX did not answer within the deadline", "look for a firewall between the hosts"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST(UcxEnd, MemoryThatUcxDoesNotReach) {
  const auto transport = open_transport();
  char byte = 0;
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::stand_in, MemoryKind::device_vmm, MemoryKind::managed}) {
    const auto refused = transport->register_memory({&byte, 1, kind});
    ASSERT_EQ(refused.status(), Status::not_supported);
    EXPECT_NE(refused.error().message().find("does not reach GPU memory"), std::string::npos);
  }
  EXPECT_EQ(transport->register_memory({nullptr, 1}).status(), Status::invalid_argument);
  EXPECT_EQ(transport->register_memory({&byte, 0}).status(), Status::invalid_argument);
  EXPECT_EQ(transport->register_memory({&byte, ~std::size_t{0}}).status(), Status::invalid_argument);
  const auto pinned = transport->register_memory({&byte, 1, MemoryKind::host_pinned});
  ASSERT_TRUE(pinned);
  EXPECT_EQ((*pinned)->kind(), MemoryKind::host_pinned);
  EXPECT_FALSE((*pinned)->reason().empty());
}

}  // namespace
}  // namespace gigabar::transport::ucx::test
