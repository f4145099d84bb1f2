// SPDX-License-Identifier: Apache-2.0
// A host that does not answer any more, and one whose process only does not read.
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "platform/network.hpp"
#include "secure/sockets.hpp"
#include "support/interface_address.hpp"
#include "support/isolated.hpp"
#include "transport/tcp/silence.hpp"
#include "unit/transport/tcp/pair.hpp"

namespace gigabar::transport::tcp::test {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000, kSecond = 1000 * kMillisecond;

// What the kernel tells in the course of time, from a clock at 100 s on.
struct Told {
  Silence silence;
  bool is_broken(std::int64_t at_ms, std::int64_t silent_ms, std::uint32_t probes, std::uint32_t retransmissions,
                 bool has_unacknowledged = true) {
    return silence.is_broken({has_unacknowledged, silent_ms * kMillisecond, probes, retransmissions},
                             100 * kSecond + at_ms * kMillisecond, 10 * kSecond);
  }
};

TEST(TcpSilence, IsBrokenAfterTheLimitAndTwoQuestions) {
  Told told;
  EXPECT_FALSE(told.is_broken(0, 100, 0, 0));
  EXPECT_FALSE(told.is_broken(5000, 5100, 0, 4)) << "not long enough";
  EXPECT_FALSE(told.is_broken(10000, 10100, 0, 1)) << "asked once";
  EXPECT_TRUE(told.is_broken(10000, 10100, 0, 2));
}

// It only received, or nothing was said: the first bytes of a while have all of their time.
TEST(TcpSilence, BeginsWithWhatIsUnderWay) {
  Told told;
  EXPECT_FALSE(told.is_broken(0, 100, 0, 0));
  EXPECT_FALSE(told.is_broken(40'000, 40'100, 0, 0, false));
  EXPECT_FALSE(told.is_broken(42'500, 42'600, 0, 4)) << "2.5 s after it was sent";
  EXPECT_FALSE(told.is_broken(47'500, 47'600, 0, 6));
  EXPECT_TRUE(told.is_broken(50'000, 50'100, 0, 7));
}

TEST(TcpSilence, WhoAnswersProbesIsThere) {
  Told told;
  // One each minute, and each is answered.
  for (std::int64_t at_ms = 0; at_ms < 300'000; at_ms += 2500) EXPECT_FALSE(told.is_broken(at_ms, at_ms % 60'000, 0, 0)) << at_ms;
  EXPECT_FALSE(told.is_broken(360'000, 60'000, 1, 0));
  EXPECT_TRUE(told.is_broken(420'000, 120'000, 2, 0));
}

// It has no room for what was under way, and says so each time: the count goes up all the same.
TEST(TcpSilence, WhoAnswersRetransmissionsIsThere) {
  Told told;
  for (std::uint32_t count = 0; count < 10; ++count) {
    const std::int64_t at_ms = std::int64_t{60'000} * count;
    EXPECT_FALSE(told.is_broken(at_ms, 100, 0, count));
    EXPECT_FALSE(told.is_broken(at_ms + 55'000, 55'100, 0, count));
  }
}

TEST(TcpSilence, AllLookAtTheSameTime) {
  const std::int64_t first = Silence::next_look_ns(100 * kSecond + 1, 10 * kSecond);
  EXPECT_EQ(first, 102'500 * kMillisecond);
  EXPECT_EQ(Silence::next_look_ns(first - 1, 10 * kSecond), first);
  EXPECT_GT(Silence::next_look_ns(first, 10 * kSecond), first);
}

// Through several of the kernel's probes, with a limit that is over at once.
TEST(TcpSilence, APeerThatDoesNotReadAnswers) {
  const Descriptor listener = secure::listen_at(network::ip_address({"\x7f\0\0\1", 4}, 0));
  const Descriptor sender = secure::start_connect(secure::own_address_of(listener.get()));
  ASSERT_TRUE(sender.is_open());
  ASSERT_TRUE(secure::is_readable(listener.get()) || ::poll(nullptr, 0, 100) == 0);
  const Descriptor reader(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(reader.is_open());
  secure::allow_slow_reader(sender.get());
  const std::array<char, 65536> bytes{};
  while (::send(sender.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  ASSERT_EQ(errno, EAGAIN);
  Silence silence;
  std::int64_t longest_ns = 0;
  for (const std::int64_t until_ns = now_ns() + 1500 * kMillisecond; now_ns() < until_ns; ::poll(nullptr, 0, 5)) {
    const auto path = path_of(sender.get());
    ASSERT_TRUE(path);
    EXPECT_TRUE(path->has_unacknowledged);
    longest_ns = std::max(longest_ns, path->silent_ns);
    ASSERT_FALSE(silence.is_broken(*path, now_ns(), kMillisecond));
  }
  EXPECT_GT(longest_ns, 100 * kMillisecond) << "it was not asked seldom enough to show anything";
}

void set_loopback(bool is_up) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_flags = is_up ? IFF_UP : 0;
  ASSERT_EQ(::ioctl(socket.get(), SIOCSIFFLAGS, &request), 0) << std::strerror(errno);
}

// In a network of its own, whose only interface goes: no packet says that.
ISOLATED_TEST(TcpSilence, ARailThatIsCutEndsItsLink) {
  ASSERT_EQ(::unshare(::geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET), 0) << std::strerror(errno);
  gigabar::test::set_address("lo", "127.0.0.1");
  TransportOptions options;
  options.connect_deadline_ns = 2 * kSecond;
  Pair pair(open_transport(options), open_transport(options));
  ASSERT_NO_FATAL_FAILURE(pair.connect());
  ASSERT_NO_FATAL_FAILURE(set_loopback(false));
  ASSERT_EQ(pair.near_link->post_message(header_of(1), {}), Posted::ok);
  ASSERT_TRUE(pair.poll_until([&] { return pair.near_sink.errors.size() == 1; }));
  EXPECT_EQ(pair.near_sink.statuses[pair.near_link.get()], Status::peer_lost);
  EXPECT_NE(pair.near_sink.errors[pair.near_link.get()].find("has acknowledged nothing for"), std::string::npos);
  EXPECT_NE(pair.near_sink.errors[pair.near_link.get()].find("cables"), std::string::npos) << "a remedy";
  EXPECT_TRUE(pair.far_sink.errors.empty()) << "it has nothing under way: the kernel asks after 5 s";
}

}  // namespace
}  // namespace gigabar::transport::tcp::test
