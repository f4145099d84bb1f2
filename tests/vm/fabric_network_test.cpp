// SPDX-License-Identifier: Apache-2.0
// The fabric over a network that misbehaves: frames that are lost or late, a cable that is cut and mended. The ranks are processes
// of one guest; the test's own process changes the network between them.
#include <cstdlib>
#include <fstream>
#include <ostream>
#include <string>

#include "base/clock.hpp"
#include "conformance/rank_segment.hpp"

namespace gigabar::test {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// From the end of a wait's time until it must have come back, on a loaded machine that emulates the processor.
constexpr std::int64_t kSlackNs = 5 * kSecond;

struct Network {
  const char* kind;                    // the beginning of its devices' names
  std::array<const char*, 2> devices;  // of rank 0 and rank 1
  std::array<const char*, 2> interfaces;
  std::array<const char*, 2> addresses;
  std::array<const char*, 2> others;  // devices of another network, for a rank that nothing happens to
};
constexpr Network kRxe{"rxe", {"rxe0", "rxe1"}, {"eth0", "eth1"}, {"10.77.0.1", "10.77.0.2"}, {"siw0", "siw1"}};
constexpr Network kSiw{"siw", {"siw0", "siw1"}, {"iw0", "iw1"}, {"10.78.0.1", "10.78.0.2"}, {"rxe0", "rxe1"}};

void run(const std::string& command) { EXPECT_EQ(std::system(command.c_str()), 0) << command; }

void PrintTo(const Network& network, std::ostream* out) { *out << network.kind; }

// A call of that time comes back in its time, and gives what `call` gives.
template <class Call>
auto in_time(const char* what, std::int64_t time_ns, const Call& call) {
  const std::int64_t begin_ns = now_ns();
  auto outcome = call(Timeout::of(std::chrono::nanoseconds(time_ns)));
  EXPECT_LT(now_ns() - begin_ns, time_ns + kSlackNs) << what << " came back late";
  return outcome;
}

constexpr std::int64_t kWaitNs = 300'000'000;

// Waits of that time each, until it is done or something else than the time ended it. The network is slow, not the peer lost.
template <class Call>
testing::AssertionResult done_at_last(const char* what, const Call& call, std::int64_t time_ns = kWaitNs) {
  const Deadline patience = Deadline::after_ns(60 * kSecond);
  while (true) {
    const auto outcome = in_time(what, time_ns, call);
    if (outcome.is_ok()) return testing::AssertionSuccess();
    if (outcome.status() == Status::timed_out && !patience.has_passed()) continue;
    return testing::AssertionFailure() << what << ": " << is_ok(outcome).message();
  }
}

// --- Frames that are lost or late -----------------------------------------------------------------------------------------------

constexpr std::size_t kPlace = 70000;
constexpr std::int64_t kShortWaitNs = 5'000'000;

// Each round other bytes, by write and notification, by read and by message; sizes that travel in messages and directly.
RANK_BODY(exchange_over_a_bad_network) {
  RankSegment origin(fabric, kOrigin, me.setup().origin, 2 * kPlace), target(fabric, kTarget, me.setup().target, kPlace);
  const Rank other = 1 - me.rank();
  ASSERT_TRUE(done_at_last("barrier", [&](Timeout time) { return fabric.barrier({}, time); }));
  for (std::uint64_t round = 1; round <= me.setup().amount; ++round) {
    const std::size_t bytes = round % 2 == 0 ? 1 + round * 997 % 4000 : 9000 + round * 7919 % 60000;
    const std::uint64_t seed = 2 * round + me.rank(), its_seed = 2 * round + other;
    origin.put_pattern(0, bytes, seed, 0);
    ASSERT_TRUE(is_ok(fabric.write_notify({kOrigin, 0}, {other, kTarget, 0}, bytes, 3, std::uint32_t(round))));
    ASSERT_TRUE(done_at_last("notification_wait", [&](Timeout time) { return fabric.notification_wait(kTarget, 3, 1, time); }));
    const auto value = fabric.notification_reset(kTarget, 3);
    ASSERT_TRUE(is_ok(value));
    ASSERT_EQ(*value, round);
    ASSERT_TRUE(target.holds_pattern(0, bytes, its_seed, 0)) << "written in round " << round;
    // Each of these ends long before the answer to it has come over a slow network.
    ASSERT_TRUE(done_at_last("flush", [&](Timeout time) { return fabric.flush(other, time); }, kShortWaitNs));
    ASSERT_TRUE(is_ok(fabric.read({kOrigin, kPlace}, {other, kTarget, 0}, bytes)));
    ASSERT_TRUE(done_at_last("wait", [&](Timeout time) { return fabric.wait(0, time); }));
    ASSERT_TRUE(origin.holds_pattern(kPlace, bytes, seed, 0)) << "read in round " << round;
    std::uint64_t sent = seed, received = 0;
    const auto receive = fabric.post_recv(other, round, ~Tag{0}, &received, sizeof received);
    ASSERT_TRUE(is_ok(receive));
    const auto send = fabric.post_send(other, round, &sent, sizeof sent);
    ASSERT_TRUE(is_ok(send));
    ASSERT_TRUE(done_at_last("receive", [&](Timeout time) { return fabric.wait_message(*receive, time); }));
    EXPECT_EQ(received, its_seed);
    ASSERT_TRUE(done_at_last("send", [&](Timeout time) { return fabric.wait_message(*send, time); }));
    ASSERT_TRUE(done_at_last("barrier", [&](Timeout time) { return fabric.barrier({}, time); }));
  }
  EXPECT_TRUE(target.are_guards_whole());
  EXPECT_TRUE(origin.are_guards_whole());
}

// Long reads, whose answers are lost in part; what was lost is asked for again.
RANK_BODY(read_much) {
  const std::size_t bytes = (std::size_t{16} << 20) + 5;
  RankSegment origin(fabric, kOrigin, me.setup().origin, bytes), target(fabric, kTarget, me.setup().target, bytes);
  const Rank other = 1 - me.rank();
  target.put_pattern(0, bytes, me.rank(), 0);
  ASSERT_TRUE(done_at_last("barrier", [&](Timeout time) { return fabric.barrier({}, time); }));
  for (std::uint64_t round = 1; round <= me.setup().amount; ++round) {
    origin.fill();
    ASSERT_TRUE(is_ok(fabric.read({kOrigin, 0}, {other, kTarget, 0}, bytes)));
    ASSERT_TRUE(done_at_last("wait", [&](Timeout time) { return fabric.wait(0, time); }));
    ASSERT_TRUE(origin.holds_pattern(0, bytes, other, 0)) << "read in round " << round;
  }
  ASSERT_TRUE(done_at_last("barrier", [&](Timeout time) { return fabric.barrier({}, time); }));
}

struct Trouble {
  const char* name;
  const char* netem;
  std::uint64_t rounds;
};
void PrintTo(const Trouble& trouble, std::ostream* out) { *out << trouble.name; }

// One network of the guest; whatever a test does to it is mended behind it.
class OverNetwork : public testing::Test {
 protected:
  explicit OverNetwork(const Network& network) : network_(network) {}
  void SetUp() override {
    if (std::getenv("GIGABAR_VM_RANK") == nullptr) GTEST_SKIP() << "runs in a guest: tests/vm/guest -- PROGRAM";
  }
  void TearDown() override {
    if (is_troubled_) mend();
  }

  void trouble(const std::string& netem) {
    is_troubled_ = true;
    for (const char* interface : network_.interfaces)
      run("tc qdisc replace dev " + std::string(interface) + " root netem " + netem);
  }
  void take_down() {
    is_troubled_ = true;
    run("ip link set " + std::string(network_.interfaces[1]) + " down");
  }
  // With an interface its routes go; they are what makes frames cross the pair (see guest_init.c).
  void mend() {
    is_troubled_ = false;
    for (std::size_t end = 0; end < 2; ++end) {
      const std::string interface = network_.interfaces[end];
      static_cast<void>(std::system(("tc qdisc del dev " + interface + " root 2>/dev/null").c_str()));
      run("ip link set " + interface + " up");
      run("ip route replace " + std::string(network_.addresses[1 - end]) + "/32 dev " + interface + " src " +
          network_.addresses[end] + " table " + std::to_string(100 + end));
    }
  }
  RankSetup setup(Rank rank_count) const {
    RankSetup setup;
    setup.rank_count = rank_count;
    setup.transport = TransportKind::verbs;
    return setup;
  }
  void set_rails(RankJob& job) const {
    for (const Rank rank : {0U, 1U}) job.set_environment(rank, "GIGABAR_RAILS", network_.devices[rank]);
  }

  const Network network_;

 private:
  bool is_troubled_ = false;
};

class BadNetwork : public OverNetwork, public testing::WithParamInterface<std::tuple<Network, Trouble, MemoryChoice>> {
 protected:
  BadNetwork() : OverNetwork(std::get<0>(GetParam())) {}
};
TEST_P(BadNetwork, DataAreRightAndWaitsInTime) {
  const Trouble& how = std::get<1>(GetParam());
  RankSetup asked = setup(2);
  asked.origin = asked.target = std::get<2>(GetParam());
  asked.amount = how.rounds;
  trouble(how.netem);
  RankJob job("exchange_over_a_bad_network", asked, std::chrono::seconds(100));
  set_rails(job);
  job.start_all();
  job.finish();
}
INSTANTIATE_TEST_SUITE_P(Loss, BadNetwork,
                         testing::Combine(testing::Values(kRxe, kSiw),
                                          testing::Values(Trouble{"loss_1", "loss 1%", 30}, Trouble{"loss_10", "loss 10%", 8},
                                                          Trouble{"delay_50_ms", "delay 50ms", 8}),
                                          testing::Values(MemoryChoice::stand_in)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).kind) + "_" + std::get<1>(test.param).name;
                         });

class LongReads : public OverNetwork, public testing::WithParamInterface<Network> {
 protected:
  LongReads() : OverNetwork(GetParam()) {}
  void read(std::uint64_t rounds) {
    RankSetup asked = setup(2);
    asked.amount = rounds;
    RankJob job("read_much", asked, std::chrono::seconds(100));
    set_rails(job);
    job.start_all();
    job.finish();
  }
};
TEST_P(LongReads, BringAllBytesInSpiteOfLoss) {
  trouble("loss 0.1%");
  read(2);
}

// Packets that the kernel threw away because it had taken in too many: the second column of each processor's line, in hexadecimal.
std::uint64_t thrown_away() {
  std::ifstream file("/proc/net/softnet_stat");
  std::uint64_t taken = 0, thrown = 0, sum = 0;
  for (std::string rest; file >> std::hex >> taken >> thrown && std::getline(file, rest);) sum += thrown;
  return sum;
}

TEST_P(LongReads, OverrunNoQueue) {
  const std::uint64_t before = thrown_away();
  read(4);
  EXPECT_EQ(thrown_away(), before);
}
INSTANTIATE_TEST_SUITE_P(Long, LongReads, testing::Values(kRxe, kSiw),
                         [](const auto& test) { return std::string(test.param.kind); });

// --- A cable that is cut --------------------------------------------------------------------------------------------------------

constexpr Rank kFar = 1;   // whose cable is cut
constexpr Rank kNear = 2;  // on another network
constexpr std::int64_t kMaxNoticeNs = 30 * kSecond;

// One word there and back with the rank that nothing happens to.
testing::AssertionResult greet(Fabric& fabric, std::uint64_t number) {
  if (auto sent = is_ok(fabric.send(kNear, 1, &number, sizeof number, kPatience)); !sent) return sent;
  std::uint64_t echo = 0;
  if (auto received = is_ok(fabric.recv(kNear, 1, &echo, sizeof echo, kPatience)); !received) return received;
  if (echo == number) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "another word came back";
}

RANK_BODY(echo_what_comes) {
  for (std::uint64_t number = 1; number != 0;) {
    const auto received = fabric.recv(0, 1, &number, sizeof number, Timeout::of(std::chrono::seconds(60)));
    ASSERT_TRUE(is_ok(received)) << "rank " << me.rank() << " is not concerned";
    ASSERT_TRUE(is_ok(fabric.send(0, 1, &number, sizeof number, kPatience)));
  }
}

// Every operation until the peer is told to be lost is done or ends in its time; `meanwhile` goes on.
template <class Meanwhile>
void lose(Fabric& fabric, Rank peer, const Meanwhile& meanwhile) {
  const std::int64_t begin_ns = now_ns();
  Result<void> outcome;
  for (std::uint64_t i = 1; outcome.is_ok() || outcome.status() == Status::timed_out; ++i) {
    ASSERT_LT(now_ns() - begin_ns, kMaxNoticeNs) << "the cut was not noticed";
    const auto posted = fabric.write({kOrigin, 0}, {peer, kTarget, 0}, 20000);
    outcome = posted || posted.status() == Status::busy ? Result<void>() : Result<void>(Error(posted.error()));
    if (outcome) outcome = in_time("wait", kSecond, [&](Timeout time) { return fabric.wait(0, time); });
    if (outcome) outcome = in_time("flush", kSecond, [&](Timeout time) { return fabric.flush(peer, time); });
    ASSERT_NO_FATAL_FAILURE(meanwhile(i));
  }
  EXPECT_TRUE(fails(outcome, Status::peer_lost, "rank " + std::to_string(peer)));
  EXPECT_TRUE(fails(fabric.fetch_add({peer, kTarget, 0}, 1, kPatience), Status::peer_lost, "rank " + std::to_string(peer)));
}

// While the cable is cut a new connection does not stand, and says so in its time.
void connect_in_vain(Fabric& fabric, Rank peer) {
  ASSERT_TRUE(is_ok(fabric.forget(peer)));
  const Result<void> connected = in_time("connect", 2 * kSecond, [&](Timeout time) { return fabric.connect(peer, time); });
  EXPECT_FALSE(connected.is_ok()) << "the cable is cut";
  EXPECT_TRUE(connected.status() == Status::timed_out || connected.status() == Status::peer_lost ||
              connected.status() == Status::unavailable)
      << connected.message();
}

// Each attempt may be one of before; then the peer is forgotten and the next one is a new one.
void connect_again(Fabric& fabric, Rank peer) {
  const Deadline patience = Deadline::after_ns(40 * kSecond);
  Result<void> connected;
  do {
    connected = fabric.connect(peer, Timeout::of(std::chrono::seconds(3)));
    if (!connected) static_cast<void>(fabric.forget(peer));
  } while (!connected && !patience.has_passed());
  ASSERT_TRUE(is_ok(connected)) << "after the cable was mended";
}

// After it was cut: bytes there, a notification behind them, a message and a barrier of both.
void exchange_again(RankProcess& me, Fabric& fabric, RankSegment& origin, RankSegment& target) {
  const Rank other = 1 - me.rank();
  origin.put_pattern(0, 50000, 100 + me.rank(), 0);
  ASSERT_TRUE(is_ok(fabric.write_notify({kOrigin, 0}, {other, kTarget, 0}, 50000, 9, 1)));
  ASSERT_TRUE(is_ok(fabric.notification_wait(kTarget, 9, 1, kPatience)));
  EXPECT_TRUE(target.holds_pattern(0, 50000, 100 + other, 0));
  ASSERT_TRUE(is_ok(fabric.wait(0, kPatience)));
  ASSERT_TRUE(is_ok(fabric.flush(other, kPatience)));
  EXPECT_TRUE(is_ok(fabric.barrier({0, 1}, kPatience)));
}

BARE_RANK_BODY(survive_a_cut) {
  FabricOptions options = me.options();
  options.connect_timeout = Timeout::of(std::chrono::seconds(10));
  auto opened = Fabric::open(options);
  ASSERT_TRUE(is_ok(opened));
  Fabric& fabric = *opened;
  {
    RankSegment origin(fabric, kOrigin, MemoryChoice::stand_in, 50000), target(fabric, kTarget, MemoryChoice::stand_in, 50000);
    const Rank other = 1 - me.rank();
    ASSERT_TRUE(is_ok(fabric.barrier({0, 1}, kPatience)));
    ASSERT_TRUE(is_ok(fabric.fetch_add({other, kTarget, 0}, 1, kPatience)));
    if (me.rank() == 0) {
      ASSERT_TRUE(greet(fabric, 1));
    }
    me.tell("up");
    ASSERT_EQ(me.hear(), "cut");
    ASSERT_NO_FATAL_FAILURE(lose(fabric, other, [&](std::uint64_t i) {
      if (me.rank() == 0) {
        ASSERT_TRUE(greet(fabric, 1 + i)) << "of the network that was not cut";
      }
    }));
    static_cast<void>(fabric.wait(0, kPatience));  // what had failed
    if (me.rank() == 0) {
      ASSERT_NO_FATAL_FAILURE(connect_in_vain(fabric, other));
    }
    me.tell("lost");
    ASSERT_EQ(me.hear(), "mended");
    if (me.setup().word != "for_good") {
      static_cast<void>(fabric.forget(other));
      ASSERT_NO_FATAL_FAILURE(connect_again(fabric, other));
      ASSERT_NO_FATAL_FAILURE(exchange_again(me, fabric, origin, target));
    }
    if (me.rank() == 0) {
      ASSERT_TRUE(greet(fabric, 7));
      ASSERT_TRUE(greet(fabric, 0));
    }
    ASSERT_TRUE(me.meet());
  }
  EXPECT_TRUE(is_ok(fabric.close(kPatience)));
}

class CutCable : public OverNetwork, public testing::WithParamInterface<std::tuple<Network, bool>> {
 protected:
  CutCable() : OverNetwork(std::get<0>(GetParam())) {}
};
TEST_P(CutCable, IsToldAndMended) {
  // Linux 6.1: an rxe whose interface was down when a connection ended answers no connection manager any more, not even rping's.
  const bool is_for_good = std::get<1>(GetParam()) && std::string(network_.kind) == "rxe";
  RankSetup asked = setup(3);
  if (is_for_good) asked.word = "for_good";
  RankJob job("survive_a_cut", asked, std::chrono::seconds(150));
  job.set_body(kNear, "echo_what_comes");
  job.set_environment(0, "GIGABAR_RAILS", (std::string(network_.devices[0]) + "," + network_.others[0]).c_str());
  job.set_environment(kFar, "GIGABAR_RAILS", network_.devices[1]);
  job.set_environment(kNear, "GIGABAR_RAILS", network_.others[1]);
  job.start_all();
  for (const Rank rank : {0U, kFar}) ASSERT_TRUE(job.hear(rank, "up"));
  // Taken down, the interface says so; a cut cable says nothing.
  if (std::get<1>(GetParam())) {
    take_down();
  } else {
    trouble("loss 100%");
  }
  for (const Rank rank : {0U, kFar}) job.tell(rank, "cut");
  for (const Rank rank : {0U, kFar}) ASSERT_TRUE(job.hear(rank, "lost"));
  mend();
  for (const Rank rank : {0U, kFar}) job.tell(rank, "mended");
  job.finish();
  if (!is_for_good) return;
  const std::string device = network_.devices[1];
  run("rdma link delete " + device);
  run("rdma link add " + device + " type rxe netdev " + network_.interfaces[1]);
}
INSTANTIATE_TEST_SUITE_P(Cable, CutCable, testing::Combine(testing::Values(kRxe, kSiw), testing::Bool()), [](const auto& test) {
  return std::string(std::get<0>(test.param).kind) + (std::get<1>(test.param) ? "_taken_down" : "_cut");
});

}  // namespace
}  // namespace gigabar::test
