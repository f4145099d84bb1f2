// SPDX-License-Identifier: Apache-2.0
// Where a dial goes, and when it goes on, by a clock of its own.
#include <gtest/gtest.h>

#include "secure/dial.hpp"
#include "support/no_more_descriptors.hpp"
#include "unit/fabric/wireup/ranks.hpp"

namespace gigabar::fabric::wireup {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

SocketAddress fresh_name() {
  static int count = 0;
  return network::unix_address("gigabar-dial-" + std::to_string(::getpid()) + "-" + std::to_string(++count));
}

// Accepts what comes and says nothing.
class Silent {
 public:
  explicit Silent(const SocketAddress& at) : listener_(listen_at(at)) { EXPECT_TRUE(listener_.is_open()) << at.name; }
  std::size_t count() {
    for (;;) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open()) return held_.size();
      held_.push_back(std::move(socket));
    }
  }
  SocketAddress tcp_address() const { return with_port(kLoopback, port_of(own_address_of(listener_.get()))); }

 private:
  Descriptor listener_;
  std::vector<Descriptor> held_;
};

class Clocked {
 public:
  explicit Clocked(std::vector<SocketAddress> targets, Dial::Refresh refresh = {})
      : dial(identity_, *poller_, 1, 0, std::move(targets), now_ns_ + 100 * kSecond, {}, std::move(refresh)) {}
  void pass(std::int64_t time_ns) {
    for (const std::int64_t end_ns = now_ns_ + time_ns; now_ns_ < end_ns && progress == Dial::Progress::going;)
      progress = dial.advance(now_ns_ += 10 * kMillisecond);
  }

 private:
  Identity identity_ = fabric::identity_of(job_of(1, 2), Purpose::directory);
  std::unique_ptr<Poller> poller_ = Poller::open().value();
  std::int64_t now_ns_ = now_ns();

 public:
  Dial dial;
  Dial::Progress progress = Dial::Progress::going;
};

// Whoever accepts in the rank's place, and says nothing, holds it for a while. Then the rank may have come; where it computes, it
// has longer each time.
TEST(Dial, OneThatSaysNothingOverTcpIsLeft) {
  Silent silent(kLoopback);
  Clocked clocked({silent.tcp_address()});
  clocked.pass(4900 * kMillisecond);
  EXPECT_EQ(silent.count(), 1u);
  clocked.pass(300 * kMillisecond);
  EXPECT_EQ(silent.count(), 2u);
  clocked.pass(9500 * kMillisecond);
  EXPECT_EQ(silent.count(), 2u);
  clocked.pass(kSecond);
  EXPECT_EQ(silent.count(), 3u);
}

// The directory's known name stands last where there are several hosts.
TEST(Dial, OneThatSaysNothingAtAnotherNameIsLeft) {
  const SocketAddress known = fresh_name();
  Silent silent(known);
  for (const SocketAddress& first : {with_port(kLoopback, 1), fresh_name()}) {  // nobody is there
    const std::size_t before = silent.count();
    Clocked clocked({first, known});
    clocked.pass(4900 * kMillisecond);
    EXPECT_EQ(silent.count(), before + 1) << first.name;
    clocked.pass(kSecond);
    EXPECT_EQ(silent.count(), before + 2) << first.name << ": it went round";
  }
}

TEST(Dial, TheRankItselfIsWaitedFor) {
  const SocketAddress own = fresh_name();
  Silent computes(own);
  Clocked clocked({own, fresh_name()});
  clocked.pass(90 * kSecond);
  EXPECT_EQ(computes.count(), 1u);
  EXPECT_EQ(clocked.progress, Dial::Progress::going);
}

// The name of rank 0's host is known, and stands for another address later. One that is unknown for a while changes nothing.
TEST(Dial, GoesWhereTheRankIsFoundNow) {
  const SocketAddress before = fresh_name(), after = fresh_name();
  std::vector<SocketAddress> found;
  Clocked clocked({before}, [&] { return found; });
  clocked.pass(kSecond);
  {
    Silent at_the_old_one(before);
    clocked.pass(kSecond);
    EXPECT_EQ(at_the_old_one.count(), 1u);
  }
  Silent at_the_new_one(after);
  found = {after};
  clocked.pass(kSecond);
  EXPECT_EQ(at_the_new_one.count(), 1u);
}

#if GIGABAR_TEST_CAN_EXHAUST_DESCRIPTORS
TEST(Dial, WithoutDescriptorsUntilTheDeadlineSaysSo) {
  Clocked clocked({fresh_name()});
  test::without_descriptors([&] {
    clocked.pass(101 * kSecond);
    return 0;
  });
  ASSERT_EQ(clocked.progress, Dial::Progress::failed);
  const Error error = clocked.dial.error();
  EXPECT_EQ(name_of(error.status()), "out_of_descriptors") << error.message();
  EXPECT_NE(error.record().remedy.find("ulimit -n"), std::string::npos) << error.message();
}
#endif

}  // namespace
}  // namespace gigabar::fabric::wireup
