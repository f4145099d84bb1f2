// SPDX-License-Identifier: Apache-2.0
// A link that takes turns without the poller, when the kernel has no memory to watch it again.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>

#include "support/failing_calls.hpp"
#include "unit/transport/tcp/pair.hpp"

namespace gigabar::transport::tcp {
namespace {

using test::Pair;
using namespace pairs;

TEST(TcpUnwatched, IsAskedUntilItCanBeWatched) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  const auto send = [&] { return pair.near_link->post_message(header_of(1), {}) == Posted::ok; };
  auto is_heard = [&, count = std::size_t{0}]() mutable {
    ++count;
    return pair.poll_until([&] { return pair.far_sink.messages.size() == count; });
  };
  for (int turn = 0; turn < 20; ++turn) ASSERT_TRUE(send() && is_heard());
  {
    const gigabar::test::FailingCall failing("epoll_ctl", ENOMEM);
    EXPECT_FALSE(pair.far->arm());
    EXPECT_TRUE(failing.has_failed()) << "it was watched all the time";
  }
  ASSERT_TRUE(send() && is_heard());
  EXPECT_TRUE(pair.far->arm());
  ASSERT_TRUE(send());
  pollfd woken{pair.far->wake_descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&woken, 1, 10'000), 1);
  EXPECT_TRUE(is_heard());
}

}  // namespace
}  // namespace gigabar::transport::tcp
